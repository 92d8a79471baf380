//! [`Style`]: how lines are written, compiled from a configuration.

use super::{AccessConfig, Format};

/// How lines are written. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// The form of a line.
    pub(super) format: Format,
    /// The name of this node.
    pub node: Box<str>,
}

impl Style {
    /// The style that a configuration asks for, on a node of this name.
    pub fn new(config: &AccessConfig, node: &str) -> Style {
        Style { format: config.format.clone(), node: node.into() }
    }
}
