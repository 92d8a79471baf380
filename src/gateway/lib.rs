//! Connections and requests (README.md beside this file has their life step by step):
//! from accept until bytes become a request (`server`), from a head to the last byte of its answer (`proxy`), and what both see
//! (`service`). It opens no listener and reads no configuration.

pub mod proxy;
pub mod server;
pub mod service;
pub mod workers;
