//! [`Identity`]: what authentication found out about a client, as limits, header values and logs use it.
//!
//! It deliberately knows nothing of how a client proves it.

use std::net::{IpAddr, Ipv4Addr};

/// What stands for the address of who connects over a Unix socket. No connection comes from it: it means "this host".
pub const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A client as authenticated. On a route without authentication every field is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The client itself: a user, a service, the owner of an API key.
    pub consumer: Option<Box<str>>,
    /// The organisation the client acts for.
    pub tenant: Option<Box<str>>,
    /// The plan whose limits apply.
    pub tier: Option<Box<str>>,
    /// Further statements about the client, such as a token's claims.
    pub claims: Claims,
}

/// Named statements about a client. A search through a vector is enough, because there are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<(Box<str>, Claim)>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A text; numbers, `true` and `false` as JSON writes them.
    One(Box<str>),
    /// A list of texts.
    Many(Box<[Box<str>]>),
}

/// The identity of a client that was not authenticated.
pub static NOBODY: Identity =
    Identity { consumer: None, tenant: None, tier: None, claims: Claims(Vec::new()) };

impl Claims {
    /// Looks a claim up by its name.
    pub fn find(&self, name: &str) -> Option<&Claim> {
        self.0.iter().find(|(known, _)| &**known == name).map(|(_, claim)| claim)
    }

    /// Every claim with its name, in the order they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Claim)> {
        self.0.iter().map(|(name, claim)| (&**name, claim))
    }
}

impl FromIterator<(Box<str>, Claim)> for Claims {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Claim)>>(claims: I) -> Claims {
        Claims(claims.into_iter().collect())
    }
}

impl Claim {
    /// Whether the text, or one text of the list, is this one, as in a rule for `roles` that contain `admin`.
    pub fn says(&self, text: &str) -> bool {
        match self {
            Claim::One(own) => &**own == text,
            Claim::Many(own) => own.iter().any(|own| &**own == text),
        }
    }
}
