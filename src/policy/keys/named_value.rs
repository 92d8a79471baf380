//! One value of one dimension as an operator writes it, and as subjects have it: `ip=203.0.113.0/24`, `header:x-device=a7`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::counting::shorthand;
use crate::definition::Dimension;
use crate::keys::naming::sounds_secret;
use crate::keys::subject::{Encoded, push_value};
use crate::matching::host;
use crate::nat64::Nat64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedValue {
    /// Addresses, by which nobody has to be authenticated to be found.
    Network(IpNet),
    /// A value of another dimension, as it is written.
    Of(Dimension, Box<str>),
}

impl NamedValue {
    /// The same as clients behind these translators have it. `None`: none has it, because it is all addresses of one.
    pub fn carried(self, nat64: &Nat64) -> Option<NamedValue> {
        match self {
            NamedValue::Network(network) => nat64.carried_network(network).map(NamedValue::Network),
            value => Some(value),
        }
    }

    /// The dimension, if its value may be a credential, which nothing may show.
    pub fn secret(&self) -> Option<(&Dimension, &str)> {
        match self {
            NamedValue::Of(dimension, value) if sounds_secret(dimension) => Some((dimension, value)),
            NamedValue::Of(..) | NamedValue::Network(_) => None,
        }
    }
}

impl FromStr for NamedValue {
    /// What to write.
    type Err = String;

    fn from_str(text: &str) -> Result<NamedValue, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("write a dimension, `=` and its value, such as `ip=203.0.113.0/24`".to_owned());
        };
        let dimension = shorthand::dimension(name)
            .map_err(|problem| format!("`{name}` is not a dimension: {}", problem.hint()))?;
        if value.is_empty() {
            return Err(format!("write the value of `{name}` after `=`"));
        }
        match dimension {
            Dimension::Ip => network(value).map(NamedValue::Network),
            // As requests have it, so that a block that is accepted is one of something.
            Dimension::Header(_) | Dimension::Cookie(_) if value != value.trim() => {
                Err(format!("requests have no blanks around a value: write `{name}={}`", value.trim()))
            }
            Dimension::Cookie(_) if value.contains(['"', '\\', ';']) => {
                Err("write the cookie's value without quotes, `\\` and `;`".to_owned())
            }
            Dimension::Method if value != value.to_ascii_uppercase() => {
                Err(format!("methods are in capitals: write `method={}`", value.to_ascii_uppercase()))
            }
            dimension => Ok(NamedValue::Of(dimension, value.into())),
        }
    }
}

impl fmt::Display for NamedValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamedValue::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                write!(formatter, "ip={}", network.addr())
            }
            NamedValue::Network(network) => write!(formatter, "ip={network}"),
            NamedValue::Of(dimension, value) => write!(formatter, "{dimension}={value}"),
        }
    }
}

/// An address range; a single address is one.
fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        // Canonical, because clients' addresses are compared in that form.
        return Ok(address.to_canonical().into());
    }
    let network: IpNet = text.parse().map_err(|_| {
        format!("`{text}` is not an address or a range: write one, for example `203.0.113.0/24`")
    })?;
    // Errors, because of the two halves one is wrong, or no client's address has this form.
    match network {
        _ if network != network.trunc() => {
            Err(format!("`{text}` has bits set after its prefix: write `{}`", network.trunc()))
        }
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => match mapped.addr().to_ipv4_mapped() {
            Some(address) => Err(format!("write `{address}/{}`", mapped.prefix_len() - 96)),
            None => Ok(network),
        },
        network => Ok(network),
    }
}

/// Appends the value of a dimension that somebody has written, in the form in which requests have it.
pub fn write(dimension: &Dimension, value: &str, out: &mut Encoded) {
    match dimension {
        Dimension::Host => out.extend_from_slice(host::routed(value).as_bytes()),
        Dimension::Header(name) => push_value(name, value.as_bytes(), out),
        // Subjects have an `address` instead, because policies cut it to their IPv6 prefix.
        Dimension::Ip => {}
        _ => out.extend_from_slice(value.as_bytes()),
    }
}

/// Before the SHA-256 of a value that may be a credential, in hex.
pub const DIGEST: &str = "sha256:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_as_it_was_read() {
        for (written, shown) in [
            ("ip=203.0.113.7", "ip=203.0.113.7"),
            ("ip=203.0.113.7/32", "ip=203.0.113.7"),
            ("ip=::ffff:203.0.113.7", "ip=203.0.113.7"),
            ("ip=2001:db8::/32", "ip=2001:db8::/32"),
            ("header:X-Device=a=b", "header:x-device=a=b"),
            ("claim:plan=free", "claim:plan=free"),
        ] {
            assert_eq!(written.parse::<NamedValue>().map(|value| value.to_string()).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn what_cannot_be_a_value_is_told_what_to_write() {
        for (written, told) in [
            ("203.0.113.7", "such as `ip=203.0.113.0/24`"),
            ("ip=203.0.113", "write one, for example `203.0.113.0/24`"),
            ("ip=203.0.113.7/24", "write `203.0.113.0/24`"),
            ("ip=::ffff:203.0.113.0/120", "write `203.0.113.0/24`"),
            ("ip=", "write the value of `ip`"),
            ("header:x-device= a7", "write `header:x-device=a7`"),
            ("cookie:sid=\"abc\"", "without quotes"),
            ("method=get", "write `method=GET`"),
            ("colour=red", "`colour` is not a dimension"),
            ("header:=red", "`header:` is not a dimension"),
        ] {
            let said = written.parse::<NamedValue>().expect_err(written);
            assert!(said.contains(told), "{written}: {said}");
        }
    }
}
