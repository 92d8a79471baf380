//! [`Standings`]: subjects that are blocked, or that no limit counts, whatever policies say. Overrides make them so.
//!
//! A subject is looked up once by hash for each dimension that anything here is about, and for each length of address range,
//! so that the cost does not depend on how many values and addresses there are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use smallvec::SmallVec;

use crate::holders::overrides::Override;
use base::sharded_map::ShardedMap;
use policy::definition::Dimension;
use policy::keys::named_value;
use policy::keys::naming::sounds_secret;
use policy::keys::subject::Encoded;
use policy::request::carried_address;
use policy::{NamedValue, Subject};

/// Overrides of one kind, by the value or the addresses that each is for. Of one value the one that ends last applies.
#[derive(Debug, Default)]
pub struct Standings {
    values: ShardedMap<Box<[u8]>, Box<[Arc<Override>]>>,
    /// What to look for, and how many values each is for.
    probes: ArcSwap<Vec<(Probe, usize)>>,
}

/// What a look-up takes of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Probe {
    /// So many bits of its address.
    Network {
        is_v4: bool,
        bits: u8,
    },
    Dimension(Dimension),
}

impl Standings {
    /// Whether there is none at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether one of them depends on who sent a request.
    pub(crate) fn needs_identity(&self) -> bool {
        let needs =
            |(probe, _): &(Probe, usize)| matches!(probe, Probe::Dimension(by) if by.needs_identity());
        !self.is_empty() && self.probes.load().iter().any(needs)
    }

    /// Adds an override, or replaces the one with its id.
    pub fn put(&self, value: &NamedValue, put: Override) {
        self.change(value, |held| {
            held.retain(|old| old.id != put.id);
            insert(held, Arc::new(put));
        });
    }

    /// Removes an override. Nothing happens if there is none.
    pub fn remove(&self, value: &NamedValue, id: &str) {
        self.change(value, |held| held.retain(|old| *old.id != *id));
    }

    /// Replaces all of them. A value that has one before and after has one all the time.
    pub fn replace(&self, all: impl IntoIterator<Item = (NamedValue, Override)>) {
        let (mut probes, mut values) = (Vec::new(), HashMap::<Box<[u8]>, Vec<_>>::new());
        for (value, put) in all {
            let (probe, key) = probe_and_key(&value);
            let list = values.entry(key).or_default();
            if list.is_empty() {
                count(&mut probes, &probe, 1);
            }
            insert(list, Arc::new(put));
        }
        // The probes of before, too, so that no value is missed until those of now are there.
        self.probes.rcu(|before| before.iter().chain(&probes).cloned().collect::<Vec<_>>());
        self.values.replace(values.into_iter().map(|(key, list)| (key, list.into())));
        self.probes.store(Arc::new(probes));
    }

    /// The override in force of a subject, by values that are its only ones.
    #[inline]
    pub fn of(&self, subject: &impl Subject, now_ns: u64) -> Option<Arc<Override>> {
        if self.is_empty() { None } else { self.find(subject, false, now_ns) }
    }

    /// The same, by any of several values that differ: a block is not evaded by a second value beside the one it is for.
    #[inline]
    pub fn of_any(&self, subject: &impl Subject, now_ns: u64) -> Option<Arc<Override>> {
        if self.is_empty() { None } else { self.find(subject, true, now_ns) }
    }

    #[cold]
    fn find(&self, subject: &impl Subject, is_any: bool, now_ns: u64) -> Option<Arc<Override>> {
        let of_address = || self.of_address(subject.known_address()?, now_ns);
        let of_value = |(probe, _): &(Probe, usize)| {
            let Probe::Dimension(dimension) = probe else { return None };
            let held = |value: &[u8]| self.held(&key_of(dimension, value), subject.tenant(), now_ns);
            match dimension {
                Dimension::Consumer => held(subject.consumer()?.as_bytes()),
                Dimension::Tenant => held(subject.tenant()?.as_bytes()),
                _ if is_any => {
                    let mut found = None;
                    subject.any(dimension, &mut |value| {
                        found = held(value);
                        found.is_some()
                    });
                    found
                }
                _ => {
                    let mut value = Encoded::new();
                    let is_clear = subject.write(dimension, &mut value) && !value.is_empty();
                    is_clear.then(|| held(&value))?
                }
            }
        };
        of_address().or_else(|| self.probes.load().iter().find_map(of_value))
    }

    /// The override in force of an address, which is known before anybody is authenticated.
    pub fn of_address(&self, address: IpAddr, now_ns: u64) -> Option<Arc<Override>> {
        if self.is_empty() {
            return None;
        }
        // As limits count it, and otherwise as it is, for the translator's own range.
        let carried = carried_address(address);
        let forms = [Some(carried), Some(address).filter(|address| *address != carried)];
        let probes = self.probes.load();
        forms.into_iter().flatten().find_map(|address| {
            probes.iter().find_map(|(probe, _)| match probe {
                Probe::Network { is_v4, bits } if *is_v4 == address.is_ipv4() => {
                    self.held(&key_of_network(address, *bits), None, now_ns)
                }
                _ => None,
            })
        })
    }

    /// The override in force of a value, for whoever acts for this tenant.
    pub fn of_value(&self, value: &NamedValue, tenant: Option<&str>, now_ns: u64) -> Option<Arc<Override>> {
        self.held(&probe_and_key(value).1, tenant, now_ns)
    }

    fn held(&self, key: &[u8], tenant: Option<&str>, now_ns: u64) -> Option<Arc<Override>> {
        let is_in_force = |held: &&Arc<Override>| {
            now_ns < held.until_ns && held.tenant.as_deref().is_none_or(|only| tenant == Some(only))
        };
        self.values.of(key)?.get()?.iter().find(is_in_force).map(Arc::clone)
    }

    fn change(&self, value: &NamedValue, change: impl FnOnce(&mut Vec<Arc<Override>>)) {
        let (probe, key) = probe_and_key(value);
        let count = |by| {
            self.probes.rcu(|probes| {
                let mut probes = probes.to_vec();
                count(&mut probes, &probe, by);
                probes
            });
        };
        // It grows first and shrinks last, so that a value is not missed meanwhile.
        count(1);
        let mut grown = 0;
        self.values.change(key, |held| {
            let mut list = held.map(Vec::from).unwrap_or_default();
            let was_there = !list.is_empty();
            change(&mut list);
            grown = isize::from(!list.is_empty()) - isize::from(was_there);
            (!list.is_empty()).then(|| list.into())
        });
        count(grown - 1);
    }
}

fn count(probes: &mut Vec<(Probe, usize)>, probe: &Probe, by: isize) {
    match probes.iter_mut().find(|(known, _)| known == probe) {
        Some((_, values)) => *values = values.saturating_add_signed(by),
        None => probes.push((probe.clone(), 0_usize.saturating_add_signed(by))),
    }
    probes.retain(|(_, values)| *values > 0);
}

fn insert(list: &mut Vec<Arc<Override>>, put: Arc<Override>) {
    list.push(put);
    list.sort_by_key(|held| std::cmp::Reverse((held.until_ns, held.version)));
}

fn probe_and_key(value: &NamedValue) -> (Probe, Box<[u8]>) {
    match value {
        NamedValue::Network(network) => {
            let (address, bits) = (network.addr(), network.prefix_len());
            let probe = Probe::Network { is_v4: address.is_ipv4(), bits };
            (probe, key_of_network(address, bits).as_slice().into())
        }
        NamedValue::Of(dimension, written) => {
            let mut value = Encoded::new();
            named_value::write(dimension, written, &mut value);
            let key = match value.strip_prefix(named_value::DIGEST.as_bytes()) {
                Some(_) if sounds_secret(dimension) => key_of_text(dimension, &value),
                _ => key_of(dimension, &value),
            };
            (Probe::Dimension(dimension.clone()), key.as_slice().into())
        }
    }
}

type Key = SmallVec<[u8; 128]>;

/// The key of the addresses whose first bits are those of this one.
fn key_of_network(address: IpAddr, bits: u8) -> Key {
    let mut key = Key::new();
    key.push(bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            key.extend_from_slice(&(address.to_bits() & mask).to_be_bytes());
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            key.extend_from_slice(&(address.to_bits() & mask).to_be_bytes());
        }
    }
    key
}

/// The key of a value as subjects have it. What may be a credential is there by its digest alone, because nothing keeps one.
fn key_of(dimension: &Dimension, value: &[u8]) -> Key {
    if !sounds_secret(dimension) {
        return key_of_text(dimension, value);
    }
    let mut text = named_value::DIGEST.to_owned();
    digest(&SHA256, value).as_ref().iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    key_of_text(dimension, text.as_bytes())
}

fn key_of_text(dimension: &Dimension, value: &[u8]) -> Key {
    let mut key = Key::from_slice(dimension.to_string().as_bytes());
    key.push(b'=');
    key.extend_from_slice(value);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::overrides::{BlockAnswer, Change};

    fn block(id: &str, until_ns: u64) -> Override {
        Override { until_ns, ..Override::new(id, Change::Block(BlockAnswer::Forbidden), "a test", 1) }
    }

    fn value(text: &str) -> NamedValue {
        text.parse().expect("a value")
    }

    fn found(standings: &Standings, address: &str, now_ns: u64) -> Option<String> {
        let found = standings.of_address(address.parse().expect("an address"), now_ns);
        found.map(|found| found.id.to_string())
    }

    #[test]
    fn an_address_among_a_hundred_thousand_takes_one_look_up() {
        let standings = Standings::default();
        let address = |number: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + 2 * number);
        let all = (0..100_000)
            .map(|number| (value(&format!("ip={}", address(number))), block(&number.to_string(), u64::MAX)));
        standings.replace(all);
        // A probe is one look-up by hash.
        assert_eq!(**standings.probes.load(), [(Probe::Network { is_v4: true, bits: 32 }, 100_000)]);
        for number in [0, 49_999, 99_999] {
            assert_eq!(found(&standings, &address(number).to_string(), 0), Some(number.to_string()));
            assert_eq!(
                found(
                    &standings,
                    &std::net::Ipv4Addr::from_bits(address(number).to_bits() + 1).to_string(),
                    0
                ),
                None
            );
        }
        standings.put(&value("ip=10.0.0.0/8"), block("range", u64::MAX));
        assert_eq!(
            (standings.probes.load().len(), found(&standings, "10.255.0.1", 0).as_deref()),
            (2, Some("range"))
        );
    }

    #[test]
    fn ranges_within_each_other_hold_until_the_last_one_ends() {
        let standings = Standings::default();
        standings.put(&value("ip=192.0.2.0/24"), block("outer", 10));
        standings.put(&value("ip=192.0.2.7"), block("inner", 20));
        standings.put(&value("ip=192.0.2.7"), block("longer", 30));
        standings.put(&value("ip=2001:db8::/64"), block("v6", u64::MAX));
        let at = |address: &str, now_ns| found(&standings, address, now_ns);
        assert_eq!(at("192.0.2.8", 9).as_deref(), Some("outer"));
        assert_eq!(at("192.0.2.8", 10), None);
        assert_eq!(at("192.0.2.7", 29).as_deref(), Some("longer"), "of one value the one that ends last");
        assert_eq!(at("192.0.2.7", 30), None);
        assert_eq!(at("64:ff9b::192.0.2.7", 15).as_deref(), Some("longer"), "behind a translator");
        assert_eq!((at("2001:db8::9", 0).as_deref(), at("2001:db8:0:1::9", 0)), (Some("v6"), None));
        for (text, id) in
            [("ip=192.0.2.0/24", "outer"), ("ip=192.0.2.7", "longer"), ("ip=2001:db8::/64", "v6")]
        {
            standings.remove(&value(text), id);
            standings.remove(&value(text), "none of this id");
        }
        assert_eq!(at("192.0.2.7", 0).as_deref(), Some("inner"));
        standings.remove(&value("ip=192.0.2.7"), "inner");
        assert!(standings.is_empty() && standings.probes.load().is_empty());
    }

    #[test]
    fn a_value_is_that_of_its_dimension_and_of_its_tenant_alone() {
        let standings = Standings::default();
        let of_tenant = Override { tenant: Some("acme".into()), ..block("ann", u64::MAX) };
        standings.put(&value("consumer=ann"), of_tenant);
        let of = |text: &str, tenant| standings.of_value(&value(text), tenant, 0).is_some();
        assert_eq!(
            [of("consumer=ann", Some("acme")), of("consumer=ann", None), of("tenant=ann", Some("acme"))],
            [true, false, false]
        );
        assert!(standings.needs_identity());
        standings.replace([(value("ip=192.0.2.7"), block("a", u64::MAX))]);
        assert!(!standings.needs_identity() && !of("consumer=ann", Some("acme")));
    }
}
