//! [`Style`]: how lines are written, compiled from a configuration.

use super::syslog::Header;
use super::{AccessConfig, LogFormat, Sink};

/// How lines are written. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub(super) format: LogFormat,
    /// The header of a message, if lines are messages.
    pub(super) header: Option<Header>,
    pub node: Box<str>,
}

impl Style {
    /// The style that a configuration asks for, on a node of this name.
    pub fn new(config: &AccessConfig, node: &str) -> Style {
        let header = match &config.to {
            Sink::Syslog(syslog) => Some(Header::new(syslog, node, "access")),
            Sink::Stdout | Sink::Stderr | Sink::File(_) | Sink::Off => None,
        };
        Style { format: config.format.clone(), header, node: node.into() }
    }
}
