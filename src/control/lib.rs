//! The control plane
//! the admin listener with its API and page (`admin`), and the database behind it (`database`).

pub mod admin;
pub mod database;
