//! What routes match: methods, hosts, paths; and the domains of other proxies' descriptors.

pub mod domain;
pub mod host;
pub mod literals;
pub mod method;
pub mod path;
pub mod pattern;
pub mod tree;
