//! A subject whose dimensions are given by name, for one policy: what a program asks a gateway about without sending it a
//! request.
//!
//! Values are taken as they are written, without the proofs that a request has to bring: whoever may ask is believed.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::counting::Policy;
use crate::counting::rules::PolicyRules;
use crate::definition::{Dimension, Missing};
use crate::keys::named_value;
use crate::keys::subject::{Encoded, Subject};
use base::identity::Identity;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectValues {
    /// The values of all dimensions of the policy, in their order, with `:` between them.
    Key(String),
    /// Each by the name of its dimension. `consumer`, `tenant` and `ip` may be there although the policy does not count by
    /// them: they decide which override applies, and what stands in the place of a dimension that is missing. So may the
    /// claim that says when months begin.
    Dimensions(Vec<(String, String)>),
}

#[derive(Clone, Debug)]
pub struct NamedSubject {
    values: Vec<(Dimension, String)>,
    identity: Arc<Identity>,
    address: IpAddr,
    cost: Option<NonZeroU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// A key with more or fewer values than the policy has dimensions.
    #[error("the policy counts by {by}: give one value for each, joined by `:`")]
    Key { by: String },
    #[error("the policy does not count by `{name}`, but by {by}")]
    Unknown { name: String, by: String },
    #[error("the policy counts by `{0}`, which is missing")]
    Missing(String),
    #[error("`ip` must be an IP address")]
    Address,
}

impl NamedSubject {
    /// The subject of a policy with these values, of a client with this tier, at this cost; `None`: the policy's own.
    ///
    /// # Errors
    /// If the values do not fit the policy.
    pub fn new(
        policy: &Policy,
        named: SubjectValues,
        tier: Option<&str>,
        cost: Option<NonZeroU64>,
    ) -> Result<NamedSubject, SubjectError> {
        let mut values = match named {
            SubjectValues::Key(key) => of_key(policy, &key)?,
            SubjectValues::Dimensions(named) => of_names(policy, named)?,
        };
        values.retain(|(_, value)| !value.is_empty());
        let of = |dimension| values.iter().find(|(by, _)| *by == dimension).map(|(_, value)| value.as_str());
        let address = of(Dimension::Ip).map(str::parse).transpose().map_err(|_| SubjectError::Address)?;
        let lacks = |by: &&Dimension| of((*by).clone()).is_none();
        // An address is needed then, because the client's takes the place of what is missing, and there is no client
        // here.
        let needs = |by: &&Dimension| **by == Dimension::Ip || policy.missing == Missing::Ip;
        if let (None, Some(by)) = (address, policy.by.iter().filter(lacks).find(needs)) {
            return Err(SubjectError::Missing(by.to_string()));
        }
        let text = |dimension| of(dimension).map(Box::from);
        let identity = Arc::new(Identity {
            consumer: text(Dimension::Consumer),
            tenant: text(Dimension::Tenant),
            tier: tier.map(Box::from),
            ..Identity::default()
        });
        let named = values.iter().map(|(by, value)| (by.to_string(), value.as_str()));
        let address = address.map_or_else(|| stand_in(named), |ip| policy.keys.nat64.carried(ip));
        Ok(NamedSubject { values, identity, address, cost })
    }

    /// The same with the identity that `change` makes of it.
    pub fn with_identity(self, change: impl FnOnce(Arc<Identity>) -> Arc<Identity>) -> NamedSubject {
        NamedSubject { identity: change(self.identity), ..self }
    }
}

impl Subject for NamedSubject {
    fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool {
        let Some((_, value)) = self.values.iter().find(|(by, _)| by == dimension) else { return true };
        named_value::write(dimension, value, out);
        true
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn known_address(&self) -> Option<IpAddr> {
        self.values.iter().any(|(by, _)| *by == Dimension::Ip).then_some(self.address)
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }

    fn cost(&self, rules: &PolicyRules) -> u64 {
        self.cost.map_or(rules.cost.default, NonZeroU64::get)
    }
}

fn of_key(policy: &Policy, key: &str) -> Result<Vec<(Dimension, String)>, SubjectError> {
    // A single value is not split, because it may contain what would stand between two.
    let values: Vec<&str> = if policy.by.len() == 1 { vec![key] } else { key.split(':').collect() };
    if values.len() != policy.by.len() {
        return Err(SubjectError::Key { by: by(policy) });
    }
    Ok(policy.by.iter().cloned().zip(values.into_iter().map(str::to_owned)).collect())
}

fn of_names(policy: &Policy, named: Vec<(String, String)>) -> Result<Vec<(Dimension, String)>, SubjectError> {
    let dimension = |name: &str| {
        let own = policy.by.iter().chain(&policy.anchor_claim).find(|by| by.to_string() == name).cloned();
        own.or(match name {
            "consumer" => Some(Dimension::Consumer),
            "tenant" => Some(Dimension::Tenant),
            "ip" => Some(Dimension::Ip),
            _ => None,
        })
    };
    let known = |(name, value): (String, String)| match dimension(&name) {
        Some(dimension) => Ok((dimension, value)),
        None => Err(SubjectError::Unknown { name, by: by(policy) }),
    };
    named.into_iter().map(known).collect()
}

fn by(policy: &Policy) -> String {
    let names: Vec<String> = policy.by.iter().map(|by| format!("`{by}`")).collect();
    if names.is_empty() { "nothing: all share one count".to_owned() } else { names.join(", ") }
}

/// An address for who has named none. It counts if Redis is down and the policy admits everybody within a limit by
/// address, so that subjects without an address do not share that one. The first half differs, because a policy may
/// cut the other.
pub(crate) fn stand_in<'v, N: AsRef<str>>(values: impl Iterator<Item = (N, &'v str)>) -> IpAddr {
    let mut state = SipHasher13::new();
    for (name, value) in values {
        state.write(name.as_ref().as_bytes());
        state.write(&value.len().to_le_bytes());
        state.write(value.as_bytes());
    }
    Ipv6Addr::from_bits(state.finish128().as_u128() & !u128::from(u64::MAX)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::shorthand;
    use crate::definition;
    use crate::nat64::Nat64;
    use crate::table::translated;
    use crate::{CompileOptions, RouteTable};

    fn table(limit: &str, missing: Missing) -> RouteTable {
        let limit = shorthand::parse(limit).expect("a limit");
        let policy = definition::PolicyDefinition {
            by: limit.by,
            missing,
            ..definition::PolicyDefinition::new("calls".to_owned(), vec![limit.window])
        };
        let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
        RouteTable::compile(&[], &[policy], &options).expect("a table without mistakes")
    }

    fn dimensions(named: &[(&str, &str)]) -> SubjectValues {
        SubjectValues::Dimensions(
            named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn a_subject_has_the_key_that_an_operator_writes() {
        for (limit, named, values) in [
            ("9/m by consumer", SubjectValues::Key("a:b".to_owned()), vec!["a:b"]),
            ("9/m by consumer, route", SubjectValues::Key("a:b".to_owned()), vec!["a", "b"]),
            (
                "9/m by consumer, ip",
                dimensions(&[("ip", "2001:db8::9"), ("consumer", "a")]),
                vec!["a", "2001:db8::"],
            ),
            ("9/m by host", dimensions(&[("host", "Example.COM:80"), ("tenant", "t")]), vec!["example.com"]),
            ("9/m", dimensions(&[]), vec![]),
        ] {
            let table = table(limit, Missing::Ip);
            let policy = table.policy("calls").expect("it is there");
            let subject = NamedSubject::new(policy, named, None, None).expect("it fits");
            let mut charges = smallvec::SmallVec::new();
            table.only(policy).charges(&subject, &mut charges).expect("nothing is missing");
            let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
            assert_eq!(charges[0].key, policy.look_at(&values).expect("it fits")[0].key, "{limit}");
            assert_eq!(charges[0].cost, 1);
        }
    }

    #[test]
    fn a_client_behind_a_translator_is_its_ipv4_address_whoever_names_it() {
        let nat64 = Nat64::new(vec!["2001:db8:64::/96".parse().expect("a prefix")]);
        let table = translated(table("9/m by ip", Missing::Ip), &nat64).salted(&[9; 16]);
        let policy = table.policy("calls").expect("it is there");
        let key = |address: &str| policy.look_at(&[address.to_owned()]).expect("it fits")[0].key;
        let behind = "2001:db8:64::c000:221";
        assert_eq!(key(behind), key("192.0.2.33"));
        let subject = NamedSubject::new(policy, dimensions(&[("ip", behind)]), None, None).expect("it fits");
        assert_eq!(subject.address().to_string(), "192.0.2.33");
    }

    #[test]
    fn values_that_do_not_fit_the_policy_are_refused() {
        let refused = |limit: &str, missing, named| {
            let table = table(limit, missing);
            NamedSubject::new(&table.policies()[0], named, None, None).err()
        };
        let key = |text: &str| SubjectValues::Key(text.to_owned());
        let by = || "`consumer`, `route`".to_owned();
        for (text, error) in
            [("a", SubjectError::Key { by: by() }), ("a:b:c", SubjectError::Key { by: by() })]
        {
            assert_eq!(refused("9/m by consumer, route", Missing::Ip, key(text)), Some(error));
        }
        let unknown = SubjectError::Unknown { name: "rout".to_owned(), by: by() };
        let named = dimensions(&[("consumer", "a"), ("rout", "b")]);
        assert_eq!(refused("9/m by consumer, route", Missing::Ip, named), Some(unknown));
        let missing = SubjectError::Missing("consumer".to_owned());
        assert_eq!(refused("9/m by consumer", Missing::Ip, dimensions(&[])), Some(missing.clone()));
        assert_eq!(refused("9/m by consumer", Missing::Ip, dimensions(&[("consumer", "")])), Some(missing));
        assert_eq!(refused("9/m by consumer", Missing::Ip, dimensions(&[("ip", "192.0.2.1")])), None);
        assert_eq!(refused("9/m by consumer", Missing::Skip, dimensions(&[])), None);
        assert_eq!(refused("9/m by ip", Missing::Skip, key("home")), Some(SubjectError::Address));
        let no_address = Some(SubjectError::Missing("ip".to_owned()));
        assert_eq!(refused("9/m by ip", Missing::Skip, dimensions(&[])), no_address);
    }
}
