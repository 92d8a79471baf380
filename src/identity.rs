//! Who is calling: what authentication found out about a caller, as limits, header values and logs use it.
//!
//! It deliberately knows nothing of how a caller proves itself.

/// What is known of a caller. Everything is absent on a route without authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The caller itself: a person, a service, an API key's owner.
    pub consumer: Option<Box<str>>,
    /// The organisation the caller acts for.
    pub tenant: Option<Box<str>>,
    /// The plan whose limits apply.
    pub tier: Option<Box<str>>,
}
