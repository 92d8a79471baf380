//! Sections of the process: listeners, logs, Redis, the database, the admin listener.

pub(super) mod acme;
pub(super) mod admin;
pub(super) mod database;
pub(super) mod grpc;
pub(super) mod listener;
pub(super) mod log;
pub(super) mod protocol;
pub(super) mod redis;
pub(super) mod running;
pub(super) mod trace;
