//! Who is calling: what authentication found out about a client, as limits, header values and logs use it.
//!
//! It deliberately knows nothing of how a client proves itself.

/// What is known of a client. Everything is absent on a route without authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The client itself: a person, a service, an API key's owner.
    pub consumer: Option<Box<str>>,
    /// The organisation the client acts for.
    pub tenant: Option<Box<str>>,
    /// The plan whose limits apply.
    pub tier: Option<Box<str>>,
    /// What else was said of the client.
    pub claims: Claims,
}

/// Named statements about a client, few of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<(Box<str>, Claim)>);

/// What one of them says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A text; numbers, `true` and `false` as JSON writes them.
    One(Box<str>),
    /// A list of texts.
    Many(Box<[Box<str>]>),
}

/// Somebody of whom nothing is known.
pub static NOBODY: Identity =
    Identity { consumer: None, tenant: None, tier: None, claims: Claims(Vec::new()) };

impl Claims {
    /// What the claim of this name says.
    pub fn find(&self, name: &str) -> Option<&Claim> {
        self.0.iter().find(|(known, _)| &**known == name).map(|(_, claim)| claim)
    }

    /// What the claim says where that is one text. A list is none: no part of it stands for the whole.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.find(name) {
            Some(Claim::One(text)) => Some(text),
            Some(Claim::Many(_)) | None => None,
        }
    }

    /// All of them.
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
    /// Whether it says, or its list holds, this.
    pub fn says(&self, text: &str) -> bool {
        match self {
            Claim::One(own) => &**own == text,
            Claim::Many(own) => own.iter().any(|own| &**own == text),
        }
    }
}
