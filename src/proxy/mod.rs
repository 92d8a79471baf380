//! The data plane: from accept to the last byte.

pub mod config;
