//! Resets: since when a consumer or a tenant is counted anew. They lie beside the compiled policies, as overrides do.
//!
//! A reset gives the keys of its holder another value, so that a full count begins at once, wherever the old one was kept:
//! in this node's table, in leases and remembered denials, in Redis, in penalties. Nobody has to be asked to forget
//! anything, and a node that hears of it late goes on under the old count, which is as strict as before. What is in flight
//! is no count, and keeps its key.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::holders::by_holder::{ByHolder, ByName};
use limit::{Algorithm, Charge, Key};
use policy::definition::Dimension;
use policy::{Holder, Policy};

/// The resets in force, by whose they are: of one holder the newest first.
#[derive(Debug, Default)]
pub struct Resets(ByHolder<Reset>);

/// One reset: of whom, under which policy, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Its id, by which operators name it.
    pub id: Box<str>,
    /// The only policy it is for. `None`: every policy that counts by its holder.
    pub policy: Option<Box<str>>,
    /// The version of the change that made it: of two the later is the one that counts.
    pub version: i64,
    /// What the keys of its holder differ by.
    bits: u128,
}

impl Reset {
    /// A reset by its id, of which every node makes the same keys.
    pub fn new(id: &str, policy: Option<&str>, version: i64) -> Reset {
        let mut state = SipHasher13::new();
        state.write(id.as_bytes());
        Reset { id: id.into(), policy: policy.map(Box::from), version, bits: state.finish128().as_u128() }
    }
}

impl Resets {
    /// Adds a reset. It stands in the place of those it makes meaningless.
    pub fn put(&self, holder: &Holder, put: Reset) {
        self.0.change(holder, |mut held| {
            let is_covered = |old: &Reset| put.policy.is_none() || old.policy == put.policy;
            held.retain(|old| !is_covered(old) || old.version > put.version);
            insert(&mut held, put);
            held
        });
    }

    /// Replaces all of them. A holder that has one before and after has one all the time.
    pub fn replace(&self, all: impl IntoIterator<Item = (Holder, Reset)>) {
        self.0.replace(all, insert);
    }

    /// The newest reset of a holder for a policy.
    pub fn of(&self, holder: &Holder, policy: &str) -> Option<Reset> {
        self.0.of_kind(holder).of(holder.name())?.get()?.iter().find(|reset| reset.is_for(policy)).cloned()
    }

    /// Whether nobody has a reset in force.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A charge of this policy with the key that it has since the last resets of a consumer and a tenant.
    pub(crate) fn apply(
        &self,
        policy: &Policy,
        consumer: Option<&str>,
        tenant: Option<&str>,
        charge: &Charge,
    ) -> Charge {
        Charge { key: moved(charge, self.bits(policy, consumer, tenant)), ..*charge }
    }

    /// What the keys of a policy differ by for this consumer and tenant; 0: they do not.
    fn bits(&self, policy: &Policy, consumer: Option<&str>, tenant: Option<&str>) -> u128 {
        let of = |kind: &ByName<Reset>, dimension, name: Option<&str>| {
            let name = name.filter(|_| policy.by.contains(&dimension))?;
            let held = kind.of(name)?;
            held.get()?.iter().find(|reset| reset.is_of(policy)).map(|reset| reset.bits)
        };
        let consumer = of(&self.0.consumers, Dimension::Consumer, consumer);
        let tenant = of(&self.0.tenants, Dimension::Tenant, tenant);
        consumer.unwrap_or(0) ^ tenant.unwrap_or(0)
    }
}

fn insert(list: &mut Vec<Reset>, put: Reset) {
    let place = list.partition_point(|old| old.version > put.version);
    list.insert(place, put);
}

impl Reset {
    fn is_for(&self, policy: &str) -> bool {
        self.policy.as_ref().is_none_or(|only| **only == *policy)
    }

    fn is_of(&self, policy: &Policy) -> bool {
        self.policy.as_ref().is_none_or(|only| policy.is_named(only))
    }

    /// The charge as it is under this reset, if `before` is the one in force.
    pub(crate) fn after(&self, before: Option<&Reset>, charge: &Charge) -> Charge {
        let bits = self.bits ^ before.map_or(0, |before| before.bits);
        Charge { key: moved(charge, bits), ..*charge }
    }
}

fn moved(charge: &Charge, bits: u128) -> Key {
    match charge.quota.algorithm() {
        Algorithm::Concurrency => charge.key,
        _ => Key::new(charge.key.bits() ^ bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::counting::shorthand;
    use policy::{CompileOptions, RouteTable, definition};

    fn table() -> RouteTable {
        let policy = |name: &str, limit: &str| {
            let limit = shorthand::parse(limit).expect("a limit");
            definition::PolicyDefinition {
                by: limit.by,
                ..definition::PolicyDefinition::new(name.to_owned(), vec![limit.window])
            }
        };
        let policies = [
            policy("calls", "9/m by consumer"),
            policy("search", "9/m by consumer, route"),
            policy("bulk", "9/m by tenant"),
            policy("open", "9 in flight by consumer"),
        ];
        let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
        RouteTable::compile(&[], &policies, &options).expect("a table without mistakes")
    }

    #[test]
    fn the_newest_reset_that_is_for_a_policy_counts() {
        let (resets, table) = (Resets::default(), table());
        let ann = Holder::Consumer("ann".into());
        let bits = |policy: &str, consumer, tenant| {
            resets.bits(table.policy(policy).expect("it is there"), consumer, tenant)
        };
        let of_ann = |policy: &str| bits(policy, Some("ann"), Some("acme"));
        assert_eq!(of_ann("calls"), 0);
        resets.put(&ann, Reset::new("1", Some("calls"), 1));
        let first = of_ann("calls");
        assert!(first != 0 && of_ann("search") == 0 && bits("calls", Some("bob"), Some("acme")) == 0);
        resets.put(&ann, Reset::new("2", None, 2));
        let second = of_ann("calls");
        assert!(second != 0 && second != first && of_ann("search") == second && of_ann("bulk") == 0);
        // One that is heard of late changes nothing.
        resets.put(&ann, Reset::new("0", Some("search"), 0));
        assert_eq!(of_ann("search"), second);
        resets.put(&ann, Reset::new("3", Some("search"), 3));
        assert!(of_ann("search") != second && of_ann("calls") == second);
        assert_eq!(resets.of(&ann, "search").map(|reset| reset.version), Some(3));
        resets.put(&Holder::Tenant("acme".into()), Reset::new("4", None, 4));
        assert!(of_ann("bulk") != 0 && of_ann("calls") == second);
        resets.replace([(ann, Reset::new("2", None, 2))]);
        assert_eq!((of_ann("calls"), of_ann("search"), of_ann("bulk")), (second, second, 0));
    }

    #[test]
    fn what_is_in_flight_keeps_its_key() {
        let table = table();
        let reset = Reset::new("1", None, 1);
        let charge = |policy: &str| {
            let values = ["ann".to_owned()];
            table.policy(policy).and_then(|policy| policy.look_at(&values)).expect("it fits")[0]
        };
        assert_eq!(reset.after(None, &charge("open")).key, charge("open").key);
        let moved = reset.after(None, &charge("calls"));
        assert_ne!(moved.key, charge("calls").key);
        assert_eq!(reset.after(Some(&reset), &moved).key, moved.key, "it is there already");
    }
}
