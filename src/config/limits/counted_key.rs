//! The key that a policy counts a subject under, as operators see it: secrets masked, addresses as `[privacy]` has them,
//! everything else quoted, escaped and cut.

use crate::Config;
use crate::load::mask::MASK;
use auth::credential_source::CredentialSource;
use policy::definition::Dimension;
use policy::keys::key::DecodedValue;
use policy::{KeyNaming, Policy, Subject};

impl Config {
    /// How keys are named: addresses as `[privacy]` says, and without the credentials that methods read.
    pub fn naming(&self, salt: &[u8; 16]) -> KeyNaming {
        let header = |place: &CredentialSource| match place {
            CredentialSource::Header(name) => Some(name.clone()),
            CredentialSource::Bearer | CredentialSource::Query(_) => None,
        };
        let headers = self.auth.iter().flat_map(auth::Config::places).filter_map(header).collect();
        let parameters = self.auth.iter().flat_map(auth::Config::parameters).map(Into::into).collect();
        KeyNaming::new(self.privacy, salt, headers, parameters)
    }
}

/// The key that a policy counts a request under: each dimension and its value.
pub fn counted_as(policy: &Policy, subject: &impl Subject, naming: &KeyNaming) -> Vec<(String, String)> {
    let values = policy.counted_as(subject);
    let shown =
        policy.by.iter().zip(values).map(|(by, value)| (by.to_string(), value_shown(by, &value, naming)));
    shown.collect()
}

/// A value as operators see it: an address as `[privacy]` has it, a secret masked, everything else quoted, escaped and cut,
/// because a client may have chosen it.
fn value_shown(by: &Dimension, value: &DecodedValue, naming: &KeyNaming) -> String {
    if value.substituted {
        return format!("is absent, so ip {} is counted instead", naming.octets(&value.bytes));
    }
    match by {
        Dimension::Ip => naming.octets(&value.bytes),
        _ if naming.is_secret(by) => MASK.to_owned(),
        _ => {
            let kept = &value.bytes[..value.bytes.len().min(VALUE_BYTES_MAX)];
            let cut = if kept.len() < value.bytes.len() { "…" } else { "" };
            format!("\"{}{cut}\"", kept.escape_ascii())
        }
    }
}

const VALUE_BYTES_MAX: usize = 80;
