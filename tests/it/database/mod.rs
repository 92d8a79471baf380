//! The database of the control plane: the same promises over SQLite and PostgreSQL, and what each has of its own.

mod changes;
mod events;
mod faults_postgres;
mod faults_sqlite;
mod hints;
mod killed;
pub mod lab;
mod migrations;
mod own_process;
pub mod relay;
mod rows;
mod upkeep;
mod usage;
mod writers;
