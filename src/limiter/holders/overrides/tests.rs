use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use super::*;
use crate::local::Table as LocalTable;
use crate::{Check, Limiter};
use limit::{Algorithm, WhenDown};
use policy::counting::rules::PolicyRules;
use policy::counting::shorthand;
use policy::definition::{self, LimitOrigin, TierPart, TiersDefinition};
use policy::keys::subject::Encoded;
use policy::{CompileOptions, RouteTable, Subject};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 3_600 * SECOND;

/// A client as authentication knows it.
#[derive(Clone, Copy, Default)]
struct Client {
    consumer: Option<&'static str>,
    tenant: Option<&'static str>,
    tier: Option<&'static str>,
}

impl Subject for Client {
    fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool {
        let value = match dimension {
            Dimension::Consumer => self.consumer,
            Dimension::Tenant => self.tenant,
            _ => None,
        };
        out.extend_from_slice(value.unwrap_or("").as_bytes());
        true
    }

    fn address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn tier(&self) -> Option<&str> {
        self.tier
    }

    fn consumer(&self) -> Option<&str> {
        self.consumer
    }

    fn tenant(&self) -> Option<&str> {
        self.tenant
    }

    fn cost(&self, _: &PolicyRules) -> u64 {
        1
    }

    fn write_idempotency_key(&self, _: &PolicyRules, _: &mut Encoded) -> bool {
        false
    }
}

const ANN: Client = Client { consumer: Some("ann"), tenant: Some("acme"), tier: None };

fn policy(name: &str, limits: &[&str]) -> definition::PolicyDefinition {
    let limits: Vec<_> = limits.iter().map(|limit| shorthand::parse(limit).expect("a limit")).collect();
    let windows = limits.iter().map(|limit| limit.window).collect();
    definition::PolicyDefinition {
        by: limits[0].by.clone(),
        ..definition::PolicyDefinition::new(name.to_owned(), windows)
    }
}

fn table(policies: &[definition::PolicyDefinition]) -> RouteTable {
    let mut route = definition::RouteDefinition::new("all".to_owned(), "/".to_owned());
    route.limits = policies.iter().map(|policy| policy.name.clone()).collect();
    let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
    RouteTable::compile(&[route], policies, &options).expect("a table without mistakes")
}

fn limiter(table: &RouteTable) -> Arc<Limiter> {
    let limiter = Limiter::new(LocalTable::with_memory(1 << 16));
    limiter
        .table()
        .declare(table.policies().iter().flat_map(|policy| policy.windows.iter().map(|window| window.quota)));
    Arc::new(limiter)
}

fn check<'t>(limiter: &Arc<Limiter>, table: &'t RouteTable, client: Client, now_ns: u64) -> Check<'t> {
    let mut check = Check::default();
    let chosen = table.chosen(&table.routes()[0], false);
    assert!(limiter.check(chosen, &client, now_ns, &mut check).is_none(), "one node waits for nobody");
    check
}

/// The limits of a client's charges.
fn limits(limiter: &Arc<Limiter>, table: &RouteTable, client: Client) -> Vec<u64> {
    let check = check(limiter, table, client, NOW);
    check.charges.iter().map(|charge| charge.quota.limit().get()).collect()
}

fn ann() -> Holder {
    Holder::Consumer("ann".into())
}

fn acme() -> Holder {
    Holder::Tenant("acme".into())
}

fn absolute(id: &str, limit: u64, version: i64) -> Override {
    Override::new(id, Change::Absolute(limit), "a test", version)
}

fn multiplicative(id: &str, factor: f64, version: i64) -> Override {
    Override::new(id, Change::Multiplicative(factor), "a test", version)
}

#[test]
fn one_of_several_applies_and_they_are_not_multiplied() {
    let table = table(&[policy("calls", &["100/m by consumer"])]);
    let limiter = limiter(&table);
    let overrides = limiter.overrides();
    assert_eq!(limits(&limiter, &table, ANN), [100]);
    overrides.put(&acme(), multiplicative("a", 2.0, 1));
    assert_eq!(limits(&limiter, &table, ANN), [200], "a tenant's, where the consumer has none");
    overrides.put(&ann(), multiplicative("b", 3.0, 2));
    assert_eq!(limits(&limiter, &table, ANN), [300], "the consumer's before the tenant's");
    overrides.put(&ann(), multiplicative("c", 5.0, 3));
    assert_eq!(limits(&limiter, &table, ANN), [500], "the newest");
    overrides.put(&ann(), absolute("d", 70, 0));
    assert_eq!(limits(&limiter, &table, ANN), [70], "an absolute one before newer ones");
    overrides.put(&ann(), absolute("d", 90, 0));
    assert_eq!((limits(&limiter, &table, ANN), overrides.len()), (vec![90], 4), "the same one, changed");
    for (id, left) in [("d", 500), ("c", 300), ("b", 200)] {
        overrides.remove(&ann(), id);
        overrides.remove(&ann(), "none of this name");
        assert_eq!(limits(&limiter, &table, ANN), [left]);
    }
    overrides.remove(&acme(), "a");
    assert!(overrides.is_empty());
    assert_eq!(limits(&limiter, &table, ANN), [100]);
}

#[test]
fn those_that_give_way_are_told_with_the_reason() {
    let table = table(&[policy("calls", &["100/m by consumer"]), policy("tenants", &["9/m by tenant"])]);
    let limiter = limiter(&table);
    let overrides = limiter.overrides();
    let outranked = |index: usize| -> Vec<(String, &str)> {
        let found = overrides.outranked(&table.policies()[index], ANN.consumer, ANN.tenant, NOW);
        found.into_iter().map(|(other, why)| (other.id.to_string(), why)).collect()
    };
    overrides.put(&acme(), multiplicative("a", 2.0, 1));
    assert_eq!(outranked(0), [], "it is the only one");
    for put in [multiplicative("b", 3.0, 2), absolute("c", 70, 3), absolute("d", 80, 4)] {
        overrides.put(&ann(), put);
    }
    let said = |id: &str, why| (id.to_owned(), why);
    let expected = [
        said("c", "a newer one of its kind comes first"),
        said("b", "an absolute one comes before a multiplicative one"),
        said("a", "one of the consumer comes before one of its tenant"),
    ];
    assert_eq!((outranked(0).as_slice(), outranked(1)), (expected.as_slice(), vec![]));
}

#[test]
fn it_is_for_policies_that_count_by_its_holder() {
    let policies = [
        policy("consumers", &["100/m by consumer"]),
        policy("tenants", &["1_000/m by tenant"]),
        policy("both", &["10/m by tenant, consumer"]),
        policy("addresses", &["5/m by ip"]),
    ];
    let table = table(&policies);
    let limiter = limiter(&table);
    limiter.overrides().put(&acme(), multiplicative("a", 2.0, 1));
    assert_eq!(limits(&limiter, &table, ANN), [200, 2_000, 20, 5]);
    limiter.overrides().put(&ann(), multiplicative("b", 3.0, 1));
    assert_eq!(limits(&limiter, &table, ANN), [300, 2_000, 30, 5]);
    let bob = Client { consumer: Some("bob"), ..ANN };
    assert_eq!(limits(&limiter, &table, bob), [200, 2_000, 20, 5]);
    let stranger = Client { consumer: Some("bob"), tenant: Some("other"), tier: None };
    assert_eq!(limits(&limiter, &table, stranger), [100, 1_000, 10, 5]);
    assert_eq!(limits(&limiter, &table, Client::default()), [100, 1_000, 10, 5]);
}

#[test]
fn one_that_names_a_tenant_is_for_the_consumer_of_that_tenant() {
    let table = table(&[policy("calls", &["100/m by consumer"])]);
    let limiter = limiter(&table);
    limiter.overrides().put(&ann(), Override { tenant: Some("acme".into()), ..absolute("a", 70, 1) });
    assert_eq!(limits(&limiter, &table, ANN), [70]);
    assert_eq!(limits(&limiter, &table, Client { tenant: Some("other"), ..ANN }), [100]);
    assert_eq!(limits(&limiter, &table, Client { tenant: None, ..ANN }), [100]);
}

#[test]
fn one_that_names_a_policy_is_for_that_alone() {
    let table = table(&[policy("reads", &["100/m by consumer"]), policy("writes", &["10/m by consumer"])]);
    let limiter = limiter(&table);
    limiter.overrides().put(&ann(), Override { policy: Some("writes".into()), ..absolute("a", 70, 1) });
    limiter.overrides().put(&ann(), multiplicative("b", 2.0, 2));
    assert_eq!(limits(&limiter, &table, ANN), [200, 70]);
}

#[test]
fn all_windows_and_bursts_grow_as_the_first_does() {
    let several =
        policy("calls", &["100/m burst 20 by consumer", "5_000/d by consumer", "3 in flight by consumer"]);
    let table = table(&[several]);
    let limiter = limiter(&table);
    limiter.overrides().put(&ann(), absolute("a", 250, 1));
    let check = check(&limiter, &table, ANN, NOW);
    let quotas = check.charges.iter().map(|charge| (charge.quota.limit().get(), charge.quota.burst().get()));
    assert_eq!(quotas.collect::<Vec<_>>(), [(250, 50), (12_500, 12_500), (8, 8)]);
    assert!(check.charges.iter().all(|charge| charge.is_overridden));
    let shown = table.rate_limit_policy(&table.routes()[0], &check.charges, 0).expect("a field");
    assert_eq!(
        shown,
        "\"calls-1m\";q=50;w=12, \"calls-1d\";q=12500;w=86400, \"calls-in-flight\";q=8;qu=\"concurrent-requests\""
    );
}

#[test]
fn the_first_window_is_that_of_the_clients_tier() {
    let mut by_tier = policy("calls", &["10/m by consumer", "100/m by consumer", "1_000/h by consumer"]);
    let part = |name: &str, windows| TierPart {
        name: name.to_owned(),
        windows,
        overshoot_ppm: 0,
        when_down: WhenDown::Local,
        origin: LimitOrigin::File,
    };
    by_tier.tiers = Some(TiersDefinition {
        parts: vec![part("free", 1), part("pro", 2)],
        default: "free".to_owned(),
        algorithm: Algorithm::TokenBucket,
        are_shared: true,
    });
    let table = table(&[by_tier]);
    let limiter = limiter(&table);
    limiter.overrides().put(&ann(), absolute("a", 50, 1));
    assert_eq!(limits(&limiter, &table, ANN), [50]);
    assert_eq!(limits(&limiter, &table, Client { tier: Some("pro"), ..ANN }), [50, 500]);
}

#[test]
fn it_ends_by_itself_to_the_instant() {
    let table = table(&[policy("calls", &["2/m by consumer"])]);
    let limiter = limiter(&table);
    let until_ns = NOW + 10 * SECOND;
    limiter.overrides().put(&ann(), Override { until_ns, ..absolute("a", 4, 1) });
    let limit = |now_ns| check(&limiter, &table, ANN, now_ns).charges[0].quota.limit().get();
    assert_eq!([NOW, until_ns - 1, until_ns, until_ns + 1].map(limit), [4, 4, 2, 2]);
    limiter.overrides().sweep(until_ns - 1);
    assert_eq!(limiter.overrides().len(), 1);
    limiter.overrides().sweep(until_ns);
    assert!(limiter.overrides().is_empty());
}

#[test]
fn what_is_spent_stays_spent_both_ways() {
    let table = table(&[policy("calls", &["10/h by consumer"])]);
    let limiter = limiter(&table);
    let ask = || {
        let check = check(&limiter, &table, ANN, NOW);
        (check.is_admitted(), check.decision.outcomes[0].remaining)
    };
    (0..5).for_each(|_| assert!(ask().0));
    // Five are spent, of twenty as of ten.
    limiter.overrides().put(&ann(), absolute("a", 20, 1));
    assert_eq!(ask(), (true, 14));
    (0..14).for_each(|_| assert!(ask().0));
    assert_eq!(ask(), (false, 0), "a raised limit hands out no burst");
    limiter.overrides().put(&ann(), absolute("b", 2, 2));
    assert_eq!(ask(), (false, 0));
    limiter.overrides().remove(&ann(), "a");
    limiter.overrides().remove(&ann(), "b");
    assert_eq!(ask(), (false, 0), "nor does the end of a lowered one");
}

#[test]
fn factors_beyond_what_can_be_counted_are_cut() {
    let table = table(&[policy("calls", &["10/h by consumer"])]);
    let limiter = limiter(&table);
    for (factor, limit) in [(1e-9, 1), (0.04, 1), (0.16, 2), (1e30, u64::MAX)] {
        limiter.overrides().put(&ann(), multiplicative("a", factor, 1));
        assert_eq!(limits(&limiter, &table, ANN), [limit], "{factor}");
    }
}

#[test]
fn replacing_all_never_leaves_a_holder_without() {
    let table = table(&[policy("calls", &["100/h by consumer"])]);
    let limiter = limiter(&table);
    let all = |limit: u64| {
        let others =
            (0..2_000).map(|number| (Holder::Consumer(format!("c{number}").into()), absolute("x", 7, 1)));
        others.chain([(ann(), absolute("a", limit, 1))]).collect::<Vec<_>>()
    };
    limiter.overrides().replace(all(50));
    assert_eq!(limiter.overrides().len(), 2_001);
    thread::scope(|scope| {
        let replacing =
            scope.spawn(|| (0..50).for_each(|turn| limiter.overrides().replace(all(50 + turn % 2))));
        while !replacing.is_finished() {
            let [limit] = limits(&limiter, &table, ANN)[..] else { panic!("one window") };
            assert!((50..=51).contains(&limit), "{limit}");
        }
    });
    limiter.overrides().replace([(acme(), multiplicative("t", 2.0, 1))]);
    assert_eq!((limits(&limiter, &table, ANN), limiter.overrides().len()), (vec![200], 1));
}
