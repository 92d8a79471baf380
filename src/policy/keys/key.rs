//! Keys of limits: hashes the values of a policy's dimensions to 128 bits.
//!
//! A key is made of SipHash-1-3-128, under the process's salt, of an encoding in which every part carries its length
//! and its kind, so that no two different inputs have one encoding:
//!
//! ```text
//! key    = hash(salt, prefix ‖ value ‖ value …)            one value for each dimension, in order
//! prefix = text(policy) window:u16 count:u16 (kind:u8 text(name))…      fixed, so hashed beforehand
//! value  = (length·2 + substituted):u64 bytes              substituted: the client's address in its place
//! text   = length:u32 bytes                                integers little-endian
//! ```
//!
//! and of the algorithm that counts under it (`AlgorithmBits`), so that a policy whose algorithm changes can count by both
//! for a while.
//!
//! The route is in a key only if `by` names it, because a policy that several routes share is one limit. Values are not
//! kept, logged or compared. A client that wants a collision would have to guess 128 bits under a secret salt.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::definition::{Dimension, Missing};
use crate::keys::subject::{Encoded, Subject, push_value};
use crate::matching::host;
use crate::nat64::Nat64;
use crate::request::counted_address;
use limit::{Algorithm, Key};

#[derive(Clone, Debug)]
pub struct KeyMaker {
    by: Box<[Dimension]>,
    missing: Missing,
    ipv6_prefix: u8,
    pub(crate) nat64: Nat64,
    /// The hasher of each window's key after its fixed prefix, indexed by window.
    states: Box<[SipHasher13]>,
    /// The same for idempotency keys, with a window number that no policy has.
    memory: SipHasher13,
}

/// The part of a key that tells which algorithm counts under it. Of a token bucket it is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlgorithmBits(u128);

impl AlgorithmBits {
    pub(crate) fn of(algorithm: Algorithm) -> AlgorithmBits {
        if algorithm == Algorithm::TokenBucket {
            return AlgorithmBits(0);
        }
        // Numbers with bits all over, because a key chooses a slot and a shard: 2^128 by the golden ratio, multiplied.
        AlgorithmBits(GOLDEN.wrapping_mul(u128::from(algorithm.number())))
    }

    /// The key for this algorithm, of the one without; and the other way round.
    #[inline]
    pub(crate) fn applied(self, key: Key) -> Key {
        Key::new(key.bits() ^ self.0)
    }
}

const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    Skip,
    /// The request is to be refused: this dimension has no value.
    Reject {
        dimension: usize,
    },
}

impl KeyMaker {
    /// Keys of a policy with so many windows.
    pub fn new(
        salt: &[u8; 16],
        policy: &str,
        windows: u16,
        by: &[Dimension],
        missing: Missing,
        ipv6_prefix: u8,
    ) -> KeyMaker {
        let state = |window| {
            let mut state = SipHasher13::new_with_key(salt);
            state.write(&prefix(policy, window, by));
            state
        };
        let states = (0..windows).map(state).collect();
        KeyMaker {
            by: by.into(),
            missing,
            ipv6_prefix,
            nat64: Nat64::default(),
            states,
            memory: state(u16::MAX),
        }
    }

    /// The same keys under another salt; `policy` is the name they were made with.
    pub fn salted(&self, salt: &[u8; 16], policy: &str) -> KeyMaker {
        let windows = u16::try_from(self.states.len()).expect("it was a u16 when they were made");
        let nat64 = self.nat64.clone();
        KeyMaker { nat64, ..KeyMaker::new(salt, policy, windows, &self.by, self.missing, self.ipv6_prefix) }
    }

    /// Encodes the values of a subject. Allocates only if they are longer than 128 bytes together.
    ///
    /// # Errors
    /// If a dimension has no value (an empty one counts as none) or several, and the client's address is not to replace it.
    pub fn encode(&self, subject: &impl Subject) -> Result<Encoded, NoKey> {
        let mut out = Encoded::new();
        for (index, dimension) in self.by.iter().enumerate() {
            let start = out.len();
            out.extend_from_slice(&[0; LENGTH_BYTES]);
            let is_clear = match dimension {
                Dimension::Ip => {
                    self.write_address(subject.address(), &mut out);
                    true
                }
                _ => subject.write(dimension, &mut out),
            };
            if !is_clear {
                return Err(NoKey::Reject { dimension: index });
            }
            let mut substituted = false;
            if out.len() == start + LENGTH_BYTES {
                match self.missing {
                    Missing::Ip => self.write_address(subject.address(), &mut out),
                    Missing::Skip => return Err(NoKey::Skip),
                    Missing::Reject => return Err(NoKey::Reject { dimension: index }),
                }
                substituted = true;
            }
            let length = (out.len() - start - LENGTH_BYTES) as u64;
            let head = length << 1 | u64::from(substituted);
            out[start..start + LENGTH_BYTES].copy_from_slice(&head.to_le_bytes());
        }
        Ok(out)
    }

    /// Encodes values as operators write them, one for each dimension. `None` if their number differs, or a value for `ip` is
    /// not an address.
    pub fn encode_written(&self, values: &[String]) -> Option<Encoded> {
        let mut out = Encoded::new();
        for (dimension, value) in self.by.iter().zip(values) {
            let start = out.len();
            out.extend_from_slice(&[0; LENGTH_BYTES]);
            match dimension {
                Dimension::Ip => self.write_address(value.parse().ok()?, &mut out),
                Dimension::Host => out.extend_from_slice(host::routed(value).as_bytes()),
                Dimension::Header(name) => push_value(name, value.as_bytes(), &mut out),
                _ => out.extend_from_slice(value.as_bytes()),
            }
            let head = ((out.len() - start - LENGTH_BYTES) as u64) << 1;
            out[start..start + LENGTH_BYTES].copy_from_slice(&head.to_le_bytes());
        }
        (values.len() == self.by.len()).then_some(out)
    }

    /// The key of a window's place for encoded values, to which its algorithm is applied.
    pub fn key(&self, window: usize, values: &[u8]) -> Key {
        let mut state = self.states[window];
        state.write(values);
        Key::new(state.finish128().as_u128())
    }

    /// The key under which an idempotency key is remembered. The client's values come first and carry their length,
    /// so that no client can meet the idempotency key of another.
    pub fn memory(&self, values: &[u8], idempotency: &[u8]) -> Key {
        let mut state = self.memory;
        state.write(values);
        state.write(idempotency);
        Key::new(state.finish128().as_u128())
    }

    pub(crate) fn client(&self, address: IpAddr) -> IpAddr {
        counted_address(self.nat64.carried(address), self.ipv6_prefix)
    }

    fn write_address(&self, client: IpAddr, out: &mut Encoded) {
        match self.client(client) {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedValue {
    /// Its bytes; of an address its octets, four or sixteen.
    pub bytes: Box<[u8]>,
    /// Whether it is the client's address, standing in for a dimension without a value.
    pub substituted: bool,
}

/// Decodes an encoding into its values. It is for operators, not for traffic, because it allocates.
pub fn values(encoded: &[u8]) -> Vec<DecodedValue> {
    let mut values = Vec::new();
    let mut rest = encoded;
    while let Some((head, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let head = u64::from_le_bytes(*head);
        let length = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        let (bytes, behind) = behind.split_at_checked(length).unwrap_or((behind, &[]));
        values.push(DecodedValue { bytes: bytes.into(), substituted: head & 1 == 1 });
        rest = behind;
    }
    values
}

fn prefix(policy: &str, window: u16, by: &[Dimension]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    push_text(policy, &mut out);
    out.extend_from_slice(&window.to_le_bytes());
    let count = u16::try_from(by.len()).expect("a compiled policy has at most 65,535 dimensions");
    out.extend_from_slice(&count.to_le_bytes());
    for dimension in by {
        let (kind, _, name) = dimension.parts();
        out.push(kind);
        push_text(&name, &mut out);
    }
    out
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("names in a configuration are shorter than 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

const LENGTH_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::keys::http_subject::HttpSubject;
    use crate::matching::pattern::Pattern;
    use crate::request::{Params, RoutingFacts};
    use base::identity::Identity;

    /// Everything a key is made of.
    #[derive(Clone, Debug, PartialEq)]
    struct Input {
        policy: String,
        window: u16,
        by: Vec<(u8, String)>,
        values: Vec<(bool, Vec<u8>)>,
    }

    /// Reads an encoding back, which proves that it is unambiguous.
    fn decode(mut bytes: &[u8]) -> Input {
        let policy = text(&mut bytes);
        let window = u16::from_le_bytes(array(&mut bytes));
        let count = u16::from_le_bytes(array(&mut bytes));
        let by: Vec<_> = (0..count).map(|_| (array::<1>(&mut bytes)[0], text(&mut bytes))).collect();
        let mut value = || {
            let head = u64::from_le_bytes(array(&mut bytes));
            let (value, rest) = bytes.split_at((head >> 1) as usize);
            bytes = rest;
            (head & 1 == 1, value.to_vec())
        };
        let values = by.iter().map(|_| value()).collect();
        assert!(bytes.is_empty(), "nothing is left over");
        Input { policy, window, by, values }
    }

    fn text(bytes: &mut &[u8]) -> String {
        let length = u32::from_le_bytes(array(bytes)) as usize;
        let (text, rest) = bytes.split_at(length);
        *bytes = rest;
        String::from_utf8(text.to_vec()).expect("names are text")
    }

    fn array<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        let (array, rest) = bytes.split_first_chunk().expect("enough bytes");
        *bytes = rest;
        *array
    }

    proptest! {
        #[test]
        fn the_encoding_can_be_read_back(
            policy in "\\PC{1,8}",
            window in any::<u16>(),
            header in prop::option::of("[ -~]{0,12}"),
            consumer in prop::option::of("\\PC{0,8}"),
            client in any::<IpAddr>(),
            dimensions in Just([0_u8, 1, 2, 3, 4]).prop_shuffle(),
            count in 0_usize..=5,
        ) {
            let pattern = Pattern::parse("/{*rest}").expect("a pattern");
            let all = [
                Dimension::Consumer,
                Dimension::Ip,
                Dimension::Header(HeaderName::from_static("x-key")),
                Dimension::Method,
                Dimension::Param("rest".to_owned()),
            ];
            let by: Vec<Dimension> = dimensions[..count].iter().map(|&index| all[usize::from(index)].clone()).collect();
            let mut headers = HeaderMap::new();
            headers.extend(header.as_ref().map(|header| {
                (HeaderName::from_static("x-key"), HeaderValue::from_str(header).expect("plain text"))
            }));
            let identity = Identity { consumer: consumer.clone().map(Into::into), ..Identity::default() };
            let facts = RoutingFacts {
                method: &Method::PUT,
                host: "",
                path: "/a%20b/c",
                query: None,
                headers: &headers,
                client_ip: client,
                trusted_peer: false,
                identity: &identity,
                refused: false,
                body: None,
            };
            let params = Params::new(&pattern, facts.path);
            let address = match counted_address(client, 64) {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            let or_address = |value: Option<&String>| match value {
                Some(value) if !value.is_empty() => (false, value.as_bytes().to_vec()),
                _ => (true, address.clone()),
            };
            let values = by.iter().map(|dimension| match dimension {
                Dimension::Consumer => or_address(consumer.as_ref()),
                Dimension::Header(_) => or_address(header.as_ref()),
                Dimension::Ip => (false, address.clone()),
                Dimension::Method => (false, b"PUT".to_vec()),
                _ => (false, b"a b/c".to_vec()),
            });
            let kinds = by.iter().map(|dimension| match dimension {
                Dimension::Consumer => (0, String::new()),
                Dimension::Ip => (2, String::new()),
                Dimension::Header(_) => (5, "x-key".to_owned()),
                Dimension::Method => (4, String::new()),
                _ => (7, "rest".to_owned()),
            });
            let expected = Input { policy: policy.clone(), window, by: kinds.collect(), values: values.collect() };

            let keys = KeyMaker::new(&[0; 16], &policy, 1, &by, Missing::Ip, 64);
            let mut encoded = prefix(&policy, window, &by);
            let subject = HttpSubject { route: "the route", params, facts: &facts };
            let suffix = keys.encode(&subject).expect("the address takes a missing place");
            encoded.extend_from_slice(&suffix);
            prop_assert_eq!(decode(&encoded), expected);

            // The state hashed beforehand gives what hashing the whole gives.
            let mut whole = SipHasher13::new_with_key(&[0; 16]);
            whole.write(&prefix(&policy, 0, &by));
            whole.write(&suffix);
            prop_assert_eq!(keys.key(0, &suffix), Key::new(whole.finish128().as_u128()));
        }
    }
}
