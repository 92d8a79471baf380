//! The key that a policy counts a subject under, as operators see it: secrets masked, addresses as text, everything else
//! quoted, escaped and cut.

use std::net::IpAddr;

use super::mask::MASK;
use crate::policy::definition::Dimension;
use crate::policy::key::Value;
use crate::policy::naming::sounds_secret;
use crate::policy::{Policy, Subject};

/// The key that a policy counts a request under: each dimension and its value.
pub fn counted_as(policy: &Policy, subject: &impl Subject) -> Vec<(String, String)> {
    let values = policy.counted_as(subject);
    let shown = policy.by.iter().zip(values).map(|(by, value)| (by.to_string(), value_shown(by, &value)));
    shown.collect()
}

/// A value as operators see it: an address as text, a secret masked, everything else quoted, escaped and cut, because a
/// client may have chosen it.
fn value_shown(by: &Dimension, value: &Value) -> String {
    if value.substituted {
        return format!("is absent, ip {} instead", address(&value.bytes));
    }
    match by {
        Dimension::Ip => address(&value.bytes),
        _ if sounds_secret(by) => MASK.to_owned(),
        _ => {
            let kept = &value.bytes[..value.bytes.len().min(VALUE_BYTES_MAX)];
            let cut = if kept.len() < value.bytes.len() { "…" } else { "" };
            format!("\"{}{cut}\"", kept.escape_ascii())
        }
    }
}

fn address(octets: &[u8]) -> String {
    match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => IpAddr::from(octets).to_string(),
        (_, Ok(octets)) => IpAddr::from(octets).to_string(),
        _ => octets.escape_ascii().to_string(),
    }
}

/// Longer values are cut.
const VALUE_BYTES_MAX: usize = 80;
