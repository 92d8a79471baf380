//! How a key of a policy is named for people: `consumer=alice, route=api`.
//!
//! A name holds what a policy counts by. Addresses are cut as `[privacy]` says, credentials are masked, and what a client
//! chose is escaped and cut, so that a name is safe in a log, on a terminal and in an answer. It allocates: for what is
//! drawn, not for every request.

use std::fmt::Write;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use http::HeaderName;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::counting::Policy;
use crate::definition::Dimension;
use crate::keys::key::DecodedValue;
use crate::keys::subject::Subject;
use crate::list_field::split_unquoted;
use crate::query;
use crate::secret::{MASK, is_secret_name};
use base::identity::NO_ADDRESS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressDetail {
    /// All that the policy counts by.
    #[default]
    Whole,
    /// The network: 24 bits of IPv4, 48 of IPv6.
    Prefix,
    /// Neither, but the same word for the same address, as long as the salt of keys stays.
    Hash,
}

/// Names keys. One for a snapshot: a reload may change it.
#[derive(Clone, derive_more::Debug)]
#[debug("KeyNaming({addresses:?})")]
pub struct KeyNaming {
    addresses: AddressDetail,
    hasher: SipHasher13,
    /// Header fields that carry credentials, beside those whose name says so.
    headers: Box<[HeaderName]>,
    parameters: Box<[Box<str>]>,
}

impl Default for KeyNaming {
    /// Whole addresses, and no credentials but those whose name says so.
    fn default() -> KeyNaming {
        KeyNaming::new(AddressDetail::Whole, &[0; 16], Box::default(), Box::default())
    }
}

impl KeyNaming {
    /// Names under the salt of limiter keys. `headers` and `parameters` carry credentials.
    pub fn new(
        addresses: AddressDetail,
        salt: &[u8; 16],
        headers: Box<[HeaderName]>,
        parameters: Box<[Box<str>]>,
    ) -> KeyNaming {
        let mut hasher = SipHasher13::new_with_key(salt);
        hasher.write(b"address in a name");
        KeyNaming { addresses, hasher, headers, parameters }
    }

    /// The key under which a policy counts a subject, at most [`NAME_BYTES_MAX`] bytes of printable ASCII. Without dimensions
    /// it is `everybody`; empty if the subject lacks one.
    pub fn name(&self, policy: &Policy, subject: &impl Subject) -> String {
        if policy.by.is_empty() {
            return EVERYBODY.to_owned();
        }
        self.name_of(&policy.by, &policy.counted_as(subject))
    }

    /// The name of a key with these values, one for each dimension.
    pub fn name_of(&self, by: &[Dimension], values: &[DecodedValue]) -> String {
        let mut name = String::new();
        for (dimension, value) in by.iter().zip(values) {
            if !name.is_empty() {
                name.push_str(", ");
            }
            let value = match dimension {
                // Its name is shown with it, because it stands for the dimension that is missing.
                _ if value.substituted => format!("{dimension}{ABSENT}{})", self.octets(&value.bytes)),
                Dimension::Ip => format!("ip={}", self.octets(&value.bytes)),
                _ if self.is_secret(dimension) => format!("{dimension}={MASK}"),
                _ => format!("{dimension}={}", text(&value.bytes, VALUE_BYTES_MAX)),
            };
            if name.len() + value.len() > NAME_BYTES_MAX {
                name.push_str("...");
                break;
            }
            name.push_str(&value);
        }
        name
    }

    /// A client's address, cut as configured; `unix` for who has none.
    pub fn address(&self, address: IpAddr) -> String {
        if address == NO_ADDRESS {
            return "unix".to_owned();
        }
        match (self.addresses, address.to_canonical()) {
            (AddressDetail::Whole, address) => address.to_string(),
            (AddressDetail::Prefix, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                format!("{a}.{b}.{c}.0/24")
            }
            (AddressDetail::Prefix, IpAddr::V6(address)) => {
                format!("{}/48", Ipv6Addr::from_bits(address.to_bits() >> 80 << 80))
            }
            (AddressDetail::Hash, address) => {
                let mut hasher = self.hasher;
                match address {
                    IpAddr::V4(address) => hasher.write(&address.octets()),
                    IpAddr::V6(address) => hasher.write(&address.octets()),
                }
                format!("#{:016x}", hasher.finish128().h1)
            }
        }
    }

    pub fn octets(&self, octets: &[u8]) -> String {
        match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
            (Ok(octets), _) => self.address(octets.into()),
            (_, Ok(octets)) => self.address(octets.into()),
            // As a text otherwise, because what a program asked about need not be an address.
            _ => text(octets, VALUE_BYTES_MAX),
        }
    }

    /// A name that may have been made under another `[privacy]`, with its addresses cut as they are now. What is
    /// hashed stays. A network stays too, unless addresses are hashed now: it is masked then, because it cannot
    /// become the word of its address.
    pub fn cut_again(&self, name: &str) -> String {
        if self.addresses == AddressDetail::Whole || !name.contains("ip=") {
            return name.to_owned();
        }
        let parts = parts(name).map(|part| {
            if let Some(address) = part.strip_prefix("ip=") {
                return format!("ip={}", self.address_again(address));
            }
            match part.split_once(ABSENT) {
                // Left as it is, because quotes show a value that a client chose.
                Some((dimension, _)) if dimension.contains('"') => part.to_owned(),
                Some((dimension, rest)) => {
                    let (address, end) = rest.strip_suffix(')').map_or((rest, ""), |address| (address, ")"));
                    format!("{dimension}{ABSENT}{}{end}", self.address_again(address))
                }
                None => part.to_owned(),
            }
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    fn address_again(&self, text: &str) -> String {
        let is_network = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
        match text.parse() {
            Ok(address) => self.address(address),
            Err(_) if is_network && self.addresses == AddressDetail::Hash => MASK.to_owned(),
            // Masked, because it was cut where a name ends.
            Err(_) if text.ends_with('…') => MASK.to_owned(),
            Err(_) => text.to_owned(),
        }
    }

    /// Whether the value of a dimension may be a credential.
    pub fn is_secret(&self, dimension: &Dimension) -> bool {
        let is_configured = match dimension {
            Dimension::Header(name) => self.headers.contains(name),
            Dimension::Query(name) => self.parameters.iter().any(|known| query::is_named(name, known)),
            _ => false,
        };
        is_configured || sounds_secret(dimension)
    }
}

/// The parts of a name, one for each dimension. A comma within quotes ends none.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    split_unquoted(name, ',').map(|part| part.strip_prefix(' ').unwrap_or(part))
}

/// Whether the value of a dimension may be a credential, by what it is called.
pub fn sounds_secret(dimension: &Dimension) -> bool {
    match dimension {
        Dimension::Header(name) => is_secret_name(name.as_str()),
        Dimension::Query(name) | Dimension::Param(name) | Dimension::Claim(name) | Dimension::Entry(name) => {
            is_secret_name(name)
        }
        Dimension::Body(path) => is_secret_name(&path.to_string()),
        Dimension::Cookie(_) => true,
        Dimension::Consumer
        | Dimension::Tenant
        | Dimension::Ip
        | Dimension::Route
        | Dimension::Method
        | Dimension::Host
        | Dimension::Path => false,
    }
}

/// A value as it stands in a name: as it is if it is plain, else quoted with escapes; cut after so many bytes.
pub fn text(bytes: &[u8], bytes_max: usize) -> String {
    let kept = &bytes[..bytes.len().min(bytes_max)];
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/@+*%".contains(byte);
    let mut shown = match std::str::from_utf8(kept) {
        Ok(text) if !kept.is_empty() && kept.iter().all(is_plain) => text.to_owned(),
        _ => {
            let mut quoted = String::from("\"");
            // The result is ignored, because writing to a text does not fail.
            let _ = write!(quoted, "{}", kept.escape_ascii());
            quoted.push('"');
            quoted
        }
    };
    if kept.len() < bytes.len() {
        shown.push_str("...");
    }
    shown
}

/// Behind a dimension that a client lacks, before its address.
const ABSENT: &str = "=absent (ip=";
/// The name of the one key of a policy that counts everybody together.
pub const EVERYBODY: &str = "everybody";
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of one value in a name, before they are escaped.
pub const VALUE_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(bytes: &[u8]) -> DecodedValue {
        DecodedValue { bytes: bytes.into(), substituted: false }
    }

    fn header(name: &'static str) -> Dimension {
        Dimension::Header(HeaderName::from_static(name))
    }

    #[test]
    fn a_name_has_each_dimension_with_its_value() {
        let naming = KeyNaming::default();
        let by = [Dimension::Consumer, Dimension::Route];
        assert_eq!(naming.name_of(&by, &[value(b"alice"), value(b"api")]), "consumer=alice, route=api");
        let forged = naming.name_of(&by, &[value(b"a, route=\x1b[1m"), value(b"")]);
        assert_eq!(forged, r#"consumer="a, route=\x1b[1m", route="""#);
        let absent = DecodedValue { bytes: [192, 0, 2, 1].into(), substituted: true };
        assert_eq!(naming.name_of(&[Dimension::Consumer], &[absent]), "consumer=absent (ip=192.0.2.1)");
    }

    #[test]
    fn addresses_are_cut_as_configured() {
        let named = |addresses, salt, octets: &[u8]| {
            let naming = KeyNaming::new(addresses, &[salt; 16], Box::default(), Box::default());
            naming.name_of(&[Dimension::Ip], &[value(octets)])
        };
        let v6 = "2001:db8:1:2:3:4:5:6".parse::<Ipv6Addr>().expect("an address").octets();
        assert_eq!(named(AddressDetail::Whole, 0, &[192, 0, 2, 9]), "ip=192.0.2.9");
        assert_eq!(named(AddressDetail::Prefix, 0, &[192, 0, 2, 9]), "ip=192.0.2.0/24");
        assert_eq!(named(AddressDetail::Whole, 0, &v6), "ip=2001:db8:1:2:3:4:5:6");
        assert_eq!(named(AddressDetail::Prefix, 0, &v6), "ip=2001:db8:1::/48");
        let hashed = named(AddressDetail::Hash, 0, &[192, 0, 2, 9]);
        assert!(hashed.starts_with("ip=#") && hashed.len() == "ip=#".len() + 16, "{hashed}");
        assert_eq!(hashed, named(AddressDetail::Hash, 0, &[192, 0, 2, 9]));
        assert_ne!(hashed, named(AddressDetail::Hash, 1, &[192, 0, 2, 9]), "another salt");
        assert_ne!(hashed, named(AddressDetail::Hash, 0, &[192, 0, 2, 8]));
    }

    #[test]
    fn credentials_are_never_in_a_name() {
        let own = Box::from([HeaderName::from_static("x-pass")]);
        let naming = KeyNaming::new(AddressDetail::Whole, &[0; 16], own, Box::from(["sig".into()]));
        let secret = [
            header("x-pass"),
            header("authorization"),
            header("cookie"),
            header("x-api-key"),
            Dimension::Query("sig".into()),
            Dimension::Query("access_token".into()),
            Dimension::Claim("client_secret".into()),
            Dimension::Param("token".into()),
        ];
        for by in secret {
            let name = naming.name_of(std::slice::from_ref(&by), &[value(b"hunter2")]);
            assert_eq!(name, format!("{by}={MASK}"));
        }
        assert_eq!(naming.name_of(&[header("x-plan")], &[value(b"pro")]), "header:x-plan=pro");
    }

    #[test]
    fn a_name_of_before_is_cut_as_addresses_are_now() {
        let naming = |addresses| KeyNaming::new(addresses, &[7; 16], Box::default(), Box::default());
        let [whole, prefix, hash] =
            [AddressDetail::Whole, AddressDetail::Prefix, AddressDetail::Hash].map(naming);
        let by = [Dimension::Ip, header("x-a"), Dimension::Route];
        for quoted in ["plain", "a, ip=192.0.2.9", "a\", ip=192.0.2.9", "=absent (ip=192.0.2.9)"] {
            let values = [value(&[192, 0, 2, 1]), value(quoted.as_bytes()), value(b"r")];
            let before = whole.name_of(&by, &values);
            for now in [&whole, &prefix, &hash] {
                assert_eq!(now.cut_again(&before), now.name_of(&by, &values), "{before}");
                let name = now.name_of(&by, &values);
                assert_eq!(now.cut_again(&name), name, "once is enough");
            }
        }
        let absent = [DecodedValue { substituted: true, ..value(&[192, 0, 2, 1]) }];
        let before = whole.name_of(&[header("x-a")], &absent);
        assert_eq!(hash.cut_again(&before), hash.name_of(&[header("x-a")], &absent));
        assert_eq!(prefix.cut_again("ip=2001:db8:1:2::, route=r"), "ip=2001:db8:1::/48, route=r");
        assert_eq!(hash.cut_again("ip=192.0.2.0/24, route=r"), "ip=********, route=r");
        assert_eq!(prefix.cut_again("route=r, ip=192.0.2…"), "route=r, ip=********");
        assert_eq!(hash.cut_again("ip=unix"), "ip=unix");
        assert_eq!(hash.cut_again("everybody"), "everybody");
    }

    proptest! {
        #[test]
        fn any_name_is_printable_and_bounded(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..16)) {
            let by: Vec<Dimension> = values.iter().map(|_| Dimension::Consumer).collect();
            let values: Vec<DecodedValue> = values.iter().map(|bytes| value(bytes)).collect();
            let name = KeyNaming::default().name_of(&by, &values);
            prop_assert!(name.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}");
            prop_assert!(name.len() <= NAME_BYTES_MAX + ", ...".len());
        }
    }
}
