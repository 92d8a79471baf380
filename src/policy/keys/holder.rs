//! Whose limits or counts something is about.

use crate::definition::Dimension;

/// A consumer or a tenant, by the name that policies count it by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Consumer(Box<str>),
    Tenant(Box<str>),
}

impl Holder {
    pub fn name(&self) -> &str {
        match self {
            Holder::Consumer(name) | Holder::Tenant(name) => name,
        }
    }

    /// What policies count its requests by.
    pub fn dimension(&self) -> Dimension {
        match self {
            Holder::Consumer(_) => Dimension::Consumer,
            Holder::Tenant(_) => Dimension::Tenant,
        }
    }
}
