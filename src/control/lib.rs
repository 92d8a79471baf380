//! The control plane (README.md beside this file has how a change reaches requests):
//! the admin listener with its API and page (`admin`), and the database behind it (`database`).

pub mod admin;
pub mod database;
