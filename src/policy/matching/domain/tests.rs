//! Whole domains: rules and policies in, matches and charges out.

use std::net::IpAddr;
use std::num::NonZeroU64;

use http::{HeaderMap, Method};
use proptest::prelude::*;
use smallvec::SmallVec;

use super::definition::{
    DescriptorSlot, DomainDefinition, EntryMatch, RuleDefinition, ValueMatch, VerdictDefinition,
};
use super::{DescriptorEntry, DescriptorMatch, DescriptorSubject};
use crate::counting::shorthand;
use crate::definition::{
    CandidateDefinition, Dimension, Missing, PolicyDefinition, RouteDefinition, TierPart, TiersDefinition,
};
use crate::error::{DefinitionPlace, DefinitionProblem, Error};
use crate::nat64::Nat64;
use crate::table::translated;
use crate::{CompileOptions, HttpSubject, RouteId, RouteTable, RoutingFacts, Subject};
use base::identity::Identity;
use limit::{Charge, Side};

/// `"a=1 b=* c=x*"` as what entries must be.
fn matches(text: &str) -> Vec<EntryMatch> {
    let one = |pair: &str| {
        let (key, value) = pair.split_once('=').expect("a key and a value");
        EntryMatch { key: key.to_owned(), value: ValueMatch::parse(value) }
    };
    text.split(' ').map(one).collect()
}

/// `"a=1 b=2"` as entries.
fn entries(text: &str) -> Vec<DescriptorEntry<'_>> {
    let pairs = text.split(' ').map(|pair| pair.split_once('=').expect("a key and a value"));
    pairs.map(|(key, value)| DescriptorEntry { key, value }).collect()
}

fn rule(text: &str, limits: &[&str]) -> RuleDefinition {
    let verdict = match limits {
        [] => VerdictDefinition::Unlimited,
        limits => VerdictDefinition::Limited(limits.iter().map(|limit| (*limit).to_owned()).collect()),
    };
    RuleDefinition {
        name: None,
        instead_of: Vec::new(),
        entries: matches(text),
        is_ordered: true,
        given: Vec::new(),
        verdict,
    }
}

fn given(rule: RuleDefinition, given: &[(&str, &str)]) -> RuleDefinition {
    let one = |(by, text): &(&str, &str)| {
        let given = match *by {
            "tier" => DescriptorSlot::Tier,
            by => DescriptorSlot::Dimension(shorthand::dimension(by).expect("a dimension")),
        };
        (given, (*text).to_owned())
    };
    RuleDefinition { given: given.iter().map(one).collect(), ..rule }
}

fn domain(rules: Vec<RuleDefinition>) -> DomainDefinition {
    DomainDefinition { name: "edge".to_owned(), overrides: false, rules }
}

fn policy(name: &str, limit: &str) -> PolicyDefinition {
    let limit = shorthand::parse(limit).expect("a limit");
    PolicyDefinition { by: limit.by, ..PolicyDefinition::new(name.to_owned(), vec![limit.window]) }
}

fn compile(
    routes: &[RouteDefinition],
    policies: &[PolicyDefinition],
    rules: Vec<RuleDefinition>,
) -> Result<RouteTable, Vec<Error>> {
    let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
    RouteTable::with_domains(routes, policies, &[domain(rules)], &options)
}

fn table(policies: &[PolicyDefinition], rules: Vec<RuleDefinition>) -> RouteTable {
    compile(&[], policies, rules).expect("a table without mistakes")
}

/// The rule that a descriptor meets: its place, or what else is said.
fn found(table: &RouteTable, descriptor: &str) -> Result<usize, &'static str> {
    match table.domain("edge").expect("it is there").find(&entries(descriptor)) {
        DescriptorMatch::Limited(rule) => Ok(rule.id().index()),
        DescriptorMatch::Unknown => Err("unknown"),
        DescriptorMatch::Unlimited => Err("unlimited"),
        DescriptorMatch::Denied => Err("denied"),
        DescriptorMatch::Replaced => Err("replaced"),
    }
}

fn charges(table: &RouteTable, descriptor: &str) -> SmallVec<[Charge; 4]> {
    charged(table, descriptor, None)
}

fn charged(table: &RouteTable, descriptor: &str, cost: Option<u64>) -> SmallVec<[Charge; 4]> {
    let entries = entries(descriptor);
    let DescriptorMatch::Limited(rule) = table.domain("edge").expect("it is there").find(&entries) else {
        panic!("{descriptor} has no limit")
    };
    let subject = DescriptorSubject::new(rule, &entries, cost.and_then(NonZeroU64::new));
    let mut out = SmallVec::new();
    table.chosen_by(rule).charges(&subject, &mut out).expect("nothing is missing");
    out
}

#[test]
fn the_most_specific_branch_is_taken_and_there_is_no_way_back() {
    let all = policy("p", "9/m");
    let rules = ["a=*", "a=1", "a=x*", "a=xy*", "a=1 b=*", "a=x* b=2", "b=*", "c=1 c=*"];
    let table = table(&[all], rules.into_iter().map(|text| rule(text, &["p"])).collect());
    for (descriptor, rule) in [
        ("a=1", Ok(1)),
        ("a=2", Ok(0)),
        ("a=", Ok(0)),
        ("a=*", Ok(0)),
        ("a=x", Ok(2)),
        ("a=xa", Ok(2)),
        ("a=xy", Ok(3)),
        ("a=xyz", Ok(3)),
        ("a=1 b=7", Ok(4)),
        ("a=x b=2", Ok(5)),
        ("a=x b=3", Err("unknown")),
        // `xy*` is more specific, and nothing is below it.
        ("a=xy b=2", Err("unknown")),
        ("a=2 b=2", Err("unknown")),
        ("b=1 a=1", Err("unknown")),
        ("b=", Ok(6)),
        ("c=1 c=1", Ok(7)),
        ("c=1", Err("unknown")),
        ("c=1 c=1 c=1", Err("unknown")),
        ("d=1", Err("unknown")),
        ("A=1", Err("unknown")),
    ] {
        assert_eq!(found(&table, descriptor), rule, "{descriptor}");
    }
    assert!(matches!(table.domain("edge").expect("it is there").find(&[]), DescriptorMatch::Unknown));
    assert!(table.domain("Edge").is_none());
}

#[test]
fn entries_of_a_table_come_in_any_order() {
    let unordered = RuleDefinition { is_ordered: false, ..rule("a=1 b=* c=x*", &["p"]) };
    let table = table(&[policy("p", "9/m by entry:b")], vec![unordered]);
    let orders =
        ["a=1 b=2 c=x3", "a=1 c=x3 b=2", "b=2 a=1 c=x3", "b=2 c=x3 a=1", "c=x3 a=1 b=2", "c=x3 b=2 a=1"];
    let keys: Vec<_> = orders.iter().map(|order| charges(&table, order)[0].key).collect();
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert_eq!(found(&table, "a=1 b=2"), Err("unknown"));
}

#[test]
fn a_rule_may_let_all_pass_or_none() {
    let deny = RuleDefinition { verdict: VerdictDefinition::Denied, ..rule("a=2", &[]) };
    let table = table(&[policy("p", "9/m")], vec![rule("a=1", &[]), deny, rule("a=*", &["p"])]);
    let said = ["a=1", "a=2", "a=3"].map(|descriptor| found(&table, descriptor));
    assert_eq!(said, [Err("unlimited"), Err("denied"), Ok(2)]);
}

#[test]
fn a_rule_counts_instead_of_others_that_the_same_request_meets() {
    let name = |name: &str, rule: RuleDefinition| RuleDefinition { name: Some(name.to_owned()), ..rule };
    let instead = |of: &str, rule: RuleDefinition| RuleDefinition { instead_of: vec![of.to_owned()], ..rule };
    let rules = vec![
        name("reads", rule("kind=read user=*", &["p"])),
        instead("reads", rule("path=/a user=*", &["p"])),
        instead("reads", rule("path=/free", &[])),
        name("free", rule("kind=free", &[])),
        instead("free", rule("path=/b", &["p"])),
    ];
    let table = table(&[policy("p", "9/m")], rules);
    let domain = table.domain("edge").expect("it is there");
    let all = |descriptors: &[&str]| {
        let descriptors: Vec<Vec<DescriptorEntry<'_>>> =
            descriptors.iter().map(|text| entries(text)).collect();
        let said = domain.find_all(descriptors.iter().map(Vec::as_slice));
        said.iter()
            .map(|matched| format!("{matched:?}").chars().take(4).collect::<String>())
            .collect::<Vec<_>>()
    };
    assert_eq!(all(&["kind=read user=u"]), ["Limi"]);
    assert_eq!(all(&["kind=read user=u", "path=/a user=u"]), ["Repl", "Limi"]);
    assert_eq!(all(&["path=/a user=u", "kind=read user=u", "x=y"]), ["Limi", "Repl", "Unkn"]);
    assert_eq!(all(&["kind=read user=u", "path=/free"]), ["Repl", "Unli"]);
    assert_eq!(all(&["kind=free", "path=/b"]), ["Unli", "Limi"]);
    assert_eq!(all(&[]), [""; 0]);
}

#[test]
fn entries_are_counted_apart_by_their_values() {
    let rules = vec![rule("shop=* user=*", &["by-user", "by-both", "all"])];
    let policies = [
        policy("by-user", "9/m by entry:user"),
        policy("by-both", "9/m by entry:shop entry:user"),
        policy("all", "9/m"),
    ];
    let table = table(&policies, rules);
    let first = charges(&table, "shop=1 user=ann");
    let same = charges(&table, "shop=1 user=ann");
    let shop = charges(&table, "shop=2 user=ann");
    let user = charges(&table, "shop=1 user=bob");
    let differs = |other: &[Charge]| -> Vec<bool> {
        first.iter().zip(other).map(|(one, other)| one.key != other.key).collect()
    };
    assert_eq!(first.iter().map(|charge| charge.policy.index()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(differs(&same), [false, false, false]);
    assert_eq!(differs(&shop), [false, true, false]);
    assert_eq!(differs(&user), [true, true, false]);
}

#[test]
fn a_descriptor_costs_what_its_sender_says_or_what_its_policy_does() {
    let mut dear = policy("p", "9/m");
    dear.cost.default = NonZeroU64::new(3).expect("not 0");
    let table = table(&[dear], vec![rule("a=*", &["p"])]);
    assert_eq!(charges(&table, "a=1")[0].cost, 3);
    assert_eq!(charged(&table, "a=1", Some(7))[0].cost, 7);
}

/// What a request from this address and of this consumer is charged on the only route.
fn of_request(
    table: &RouteTable,
    address: &str,
    consumer: Option<&str>,
    tier: Option<&str>,
) -> SmallVec<[Charge; 4]> {
    let identity =
        Identity { consumer: consumer.map(Box::from), tier: tier.map(Box::from), ..Identity::default() };
    let headers = HeaderMap::new();
    let facts = RoutingFacts {
        method: &Method::GET,
        host: "shop.test",
        path: "/",
        query: None,
        headers: &headers,
        client_ip: address.parse().expect("an address"),
        trusted_peer: false,
        identity: &identity,
        refused: false,
        body: None,
    };
    let found = table.find(&facts).expect("a route");
    let mut out = SmallVec::new();
    let subject = HttpSubject::new(&found, &facts);
    table.chosen(found.route, false).charges(&subject, &mut out).expect("nothing is missing");
    out
}

#[test]
fn descriptors_and_requests_share_their_counts() {
    let route = RouteDefinition {
        limits: vec!["by-ip".to_owned(), "by-consumer".to_owned(), "by-host".to_owned()],
        ..RouteDefinition::new("all".to_owned(), "/{*rest}".to_owned())
    };
    let policies = [
        policy("by-ip", "9/m by ip"),
        policy("by-consumer", "9/m by consumer, route"),
        policy("by-host", "9/m by host"),
    ];
    let says = [("consumer", "{user}"), ("route", "all"), ("host", "{host}")];
    let rules = vec![
        given(rule("remote_address=* user=* host=*", &["by-ip", "by-consumer", "by-host"]), &says),
        rule("masked_remote_address=*", &["by-ip"]),
        given(rule("client=*", &["by-ip"]), &[("ip", "{client}")]),
    ];
    let table = compile(&[route], &policies, rules).expect("a table without mistakes");
    let request = of_request(&table, "2001:db8::7", Some("ann"), None);
    let descriptor = charges(&table, "remote_address=2001:db8::9 user=ann host=SHOP.test:443");
    assert_eq!(request, descriptor);
    assert_eq!(request.len(), 3);
    for same in ["masked_remote_address=2001:db8::/64", "client=2001:db8::1"] {
        assert_eq!(charges(&table, same)[0].key, request[0].key, "{same}");
    }
    assert_ne!(charges(&table, "client=2001:db9::1")[0].key, request[0].key);
    // What is no address counts by itself, and not with others.
    let odd: Vec<_> =
        ["client=one", "client=two", "client=one"].map(|text| charges(&table, text)[0].key).into();
    assert!(odd[0] == odd[2] && odd[0] != odd[1]);
}

#[test]
fn tiers_and_overrides_know_who_a_descriptor_is_of() {
    let windows: Vec<_> = ["5/m", "50/m"].map(|text| shorthand::parse(text).expect("a limit").window).into();
    let part = |name: &str| TierPart {
        name: name.to_owned(),
        windows: 1,
        overshoot_ppm: 0,
        when_down: limit::WhenDown::Local,
        origin: crate::definition::LimitOrigin::File,
    };
    let tiers = TiersDefinition {
        parts: vec![part("free"), part("pro")],
        default: "free".to_owned(),
        algorithm: limit::Algorithm::TokenBucket,
        are_shared: false,
    };
    let by_tier = PolicyDefinition {
        by: vec![Dimension::Entry("user".to_owned())],
        tiers: Some(tiers),
        ..PolicyDefinition::new("p".to_owned(), windows)
    };
    let says = [("tier", "{plan}"), ("consumer", "{user}"), ("tenant", "t-{user}")];
    let rules = vec![given(rule("user=* plan=*", &["p"]), &says), rule("user=*", &["p"])];
    let table = table(&[by_tier], rules);
    let limit = |descriptor: &str| charges(&table, descriptor)[0].quota.limit().get();
    let limits =
        ["user=ann plan=pro", "user=ann plan=free", "user=ann plan=gold", "user=ann plan=", "user=ann"]
            .map(limit);
    assert_eq!(limits, [50, 5, 5, 5, 5]);

    let entries = entries("user=ann plan=pro");
    let domain = table.domain("edge").expect("it is there");
    let DescriptorMatch::Limited(rule) = domain.find(&entries) else { panic!("it has a limit") };
    let subject = DescriptorSubject::new(rule, &entries, None);
    assert_eq!(
        (subject.consumer(), subject.tenant(), subject.tier()),
        (Some("ann"), Some("t-ann"), Some("pro"))
    );
    let assigned = subject.with_identity(|identity| {
        Identity { tier: Some("free".into()), ..Identity::clone(&identity) }.into()
    });
    assert_eq!(assigned.tier(), Some("free"));
}

#[test]
fn an_empty_value_counts_as_absent() {
    let policies = [
        policy("ip", "9/m by entry:user"),
        PolicyDefinition { missing: Missing::Skip, ..policy("skip", "9/m by entry:user") },
    ];
    let table =
        table(&policies, vec![rule("user=* remote_address=*", &["ip", "skip"]), rule("user=*", &["ip"])]);
    let nat64 = Nat64::new(vec!["2001:db8:64::/96".parse().expect("a prefix of a translator")]);
    let table = translated(table, &nat64);
    let anonymous = charges(&table, "user= remote_address=192.0.2.1");
    assert_eq!(anonymous.len(), 1);
    assert_eq!(anonymous[0].key, charges(&table, "user= remote_address=192.0.2.1")[0].key);
    assert_ne!(anonymous[0].key, charges(&table, "user= remote_address=192.0.2.2")[0].key);
    assert_ne!(anonymous[0].key, charges(&table, "user=")[0].key);
    let address = |text: &str| {
        let entries = entries(text);
        let DescriptorMatch::Limited(rule) = table.domain("edge").expect("it is there").find(&entries) else {
            panic!("it has a limit")
        };
        DescriptorSubject::new(rule, &entries, None).address()
    };
    assert_eq!(address("user=a remote_address=192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
    assert_eq!(address("user=a remote_address=2001:db8:64::c000:201"), IpAddr::from([192, 0, 2, 1]));
    assert_ne!(address("user=a"), address("user=b"));
}

#[test]
fn candidates_are_asked_beside_their_policies() {
    let live = policy("live", "9/m by entry:user");
    let replaces = Some(CandidateDefinition { policy: "live".to_owned(), rollout_ppm: 1_000_000 });
    let new = PolicyDefinition { replaces, ..policy("new", "3/m by entry:user") };
    let table = table(&[live, new], vec![rule("user=*", &["live"])]);
    let charged = charges(&table, "user=ann");
    let sides: Vec<_> =
        charged.iter().map(|it| (it.policy.index(), it.trial.map(|trial| trial.side))).collect();
    assert_eq!(sides, [(1, Some(Side::Decides)), (0, Some(Side::Compared))]);
}

fn mistakes(
    routes: &[RouteDefinition],
    policies: &[PolicyDefinition],
    rules: Vec<RuleDefinition>,
) -> Vec<(String, String)> {
    let errors = compile(routes, policies, rules).expect_err("mistakes");
    let of_domain = |error: Error| match error.place {
        DefinitionPlace::Domain(domain) if domain.index() == 0 => (error.key, error.problem.to_string()),
        place => panic!("{place:?}: {}", error.problem),
    };
    errors.into_iter().map(of_domain).collect()
}

#[test]
fn all_mistakes_of_rules_come_at_once() {
    let policies = [
        policy("by-user", "9/m by entry:user_id"),
        policy("by-consumer", "9/m by consumer"),
        policy("by-ip", "9/m by ip"),
        policy("busy", "9 in flight"),
        policy("plain", "9/m"),
    ];
    let many = "a=1 b=1 c=1 d=1 e=1";
    let rules = vec![
        rule("user=*", &["by-user", "by-consumer", "by-ip", "busy", "plane", "plain", "plain"]),
        given(
            rule("shop=*", &["plain"]),
            &[("consumer", "{shop"), ("tenant", "{shopp}"), ("route", "r"), ("ip", "{}")],
        ),
        rule("user=*", &["plain"]),
        RuleDefinition { is_ordered: false, ..rule(many, &["plain"]) },
        RuleDefinition { entries: Vec::new(), ..rule("a=1", &["plain"]) },
        RuleDefinition { instead_of: vec!["reads".to_owned()], ..rule("path=*", &["plain"]) },
        RuleDefinition { name: Some("read".to_owned()), ..rule("kind=read", &[]) },
        RuleDefinition {
            name: Some("self".to_owned()),
            instead_of: vec!["self".to_owned()],
            ..rule("kind=self", &[])
        },
    ];
    let limit = |index| format!("descriptors[0].limit[{index}]");
    let given = |name| format!("descriptors[1].dimensions.{name}");
    let expected = [
        (
            limit(0),
            "`by-user` counts by `entry:user_id`, and the rule has no entry `user_id`; did you mean `user`?",
        ),
        (
            limit(1),
            "`by-consumer` counts by `consumer`, to which the rule maps no entry; write which entry holds it, for example `dimensions = { consumer = \"{user_id}\" }`",
        ),
        (
            limit(2),
            "`by-ip` counts by `ip`, to which the rule maps no entry; write which entry holds it, for example `dimensions = { consumer = \"{user_id}\" }`",
        ),
        (
            limit(3),
            "`busy` counts requests in flight or lets them wait, which a descriptor cannot: its check is answered yes or no at \
             once, and the proxy does not report when its request ends",
        ),
        (limit(4), "no policy is called `plane`"),
        (limit(6), "the policy `plain` is named twice; it would be charged twice"),
        (
            given("consumer"),
            "a brace has no counterpart; write the key of an entry in braces, for example `{user_id}`",
        ),
        (given("tenant"), "the rule has no entry `shopp`; did you mean `shop`?"),
        (given("ip"), "`{}` names no entry; write its key, for example `{user_id}`"),
        (given("route"), "no policy of the rule counts by `route`"),
        ("descriptors[2].entries".to_owned(), "another rule matches the same descriptors; leave one out"),
        (
            "descriptors[3].entries".to_owned(),
            "more than 4 entries need a fixed order: write `entries = [{ a = \"*\" }, { b = \"*\" }]`",
        ),
        (
            "descriptors[4].entries".to_owned(),
            "a rule needs `entries`; write `entries = { remote_address = \"*\" }`",
        ),
        (
            "descriptors[5].instead-of".to_owned(),
            "no rule of this domain has the name `reads`; did you mean `read`?",
        ),
        (
            "descriptors[7].instead-of".to_owned(),
            "`self` is the rule's own name; a rule cannot replace itself",
        ),
    ];
    let expected = expected.map(|(field, text)| (field, text.to_owned()));
    assert_eq!(mistakes(&[], &policies, rules), expected);
}

#[test]
fn a_route_cannot_count_by_entries_and_a_rule_names_no_candidate() {
    let policies = [policy("by-user", "9/m by entry:user"), policy("by-ip", "9/m by ip")];
    let on_route = RouteDefinition {
        limits: vec!["by-ip".to_owned(), "by-user".to_owned()],
        ..RouteDefinition::new("r".to_owned(), "/".to_owned())
    };
    let found = compile(&[on_route], &policies, Vec::new()).expect_err("a mistake");
    let problem =
        DefinitionProblem::EntryOnRoute { name: "by-user".to_owned(), dimension: "entry:user".to_owned() };
    assert_eq!(
        found,
        [Error { place: DefinitionPlace::Route(RouteId::new(0)), key: "limit[1]".to_owned(), problem }]
    );

    let replaces = Some(CandidateDefinition { policy: "by-ip".to_owned(), rollout_ppm: 0 });
    let new = PolicyDefinition { replaces, ..policy("new", "3/m by ip") };
    let found = mistakes(&[], &[policies[1].clone(), new], vec![rule("remote_address=*", &["new"])]);
    let text = "`new` replaces `by-ip`; name only `by-ip`, and `new` is checked for the same requests";
    assert_eq!(found, [("descriptors[0].limit[0]".to_owned(), text.to_owned())]);
}

/// The rule that the walk finds, told from the rules alone.
fn naive(rules: &[RuleDefinition], descriptor: &[DescriptorEntry<'_>]) -> Option<usize> {
    let mut left: Vec<usize> = (0..rules.len()).collect();
    for (level, entry) in descriptor.iter().enumerate() {
        let fits = |value: &ValueMatch| match value {
            ValueMatch::Exact(text) => text == entry.value,
            ValueMatch::Prefix(prefix) => entry.value.starts_with(prefix.as_str()),
            ValueMatch::Any => true,
        };
        let rank = |value: &ValueMatch| match value {
            ValueMatch::Exact(_) => usize::MAX,
            ValueMatch::Prefix(prefix) => prefix.len() + 1,
            ValueMatch::Any => 0,
        };
        let values = left.iter().filter_map(|rule| rules[*rule].entries.get(level));
        let best = values
            .filter(|it| it.key == entry.key && fits(&it.value))
            .max_by_key(|it| rank(&it.value))?
            .clone();
        left.retain(|rule| rules[*rule].entries.get(level) == Some(&best));
    }
    left.into_iter().find(|rule| rules[*rule].entries.len() == descriptor.len())
}

fn a_match() -> impl Strategy<Value = EntryMatch> {
    let value = prop_oneof![
        "[ab]{1,3}".prop_map(ValueMatch::Exact),
        "[ab!é]{1,4}".prop_map(ValueMatch::Prefix),
        Just(ValueMatch::Any),
    ];
    ("[kl]", value).prop_map(|(key, value)| EntryMatch { key, value })
}

proptest! {
    #[test]
    fn the_tree_finds_what_comparing_every_rule_finds(
        written in prop::collection::btree_set(prop::collection::vec(a_match().prop_map(|it| (it.key, it.value)), 1..4), 0..24),
        asked in prop::collection::vec(prop::collection::vec(("[kl]", "[ab!é]{0,5}"), 0..5), 1..24),
    ) {
        let one = |path: Vec<(String, ValueMatch)>| RuleDefinition {
            entries: path.into_iter().map(|(key, value)| EntryMatch { key, value }).collect(),
            ..rule("k=1", &["p"])
        };
        let rules: Vec<RuleDefinition> = written.into_iter().map(one).collect();
        let table = table(&[policy("p", "9/m")], rules.clone());
        for descriptor in &asked {
            let entries: Vec<DescriptorEntry<'_>> = descriptor.iter().map(|(key, value)| DescriptorEntry { key, value }).collect();
            let found = match table.domain("edge").expect("it is there").find(&entries) {
                DescriptorMatch::Limited(rule) => Some(rule.id().index()),
                _ => None,
            };
            prop_assert_eq!(found, naive(&rules, &entries).filter(|_| !entries.is_empty()), "{:?}", entries);
        }
    }
}

#[test]
fn ten_thousand_entries_and_ten_thousand_rules_cost_one_walk() {
    let numbered = |number: usize| rule(&format!("key{}=x{number}* b=* c=*", number % 7), &["p"]);
    let table = table(&[policy("p", "9/m by entry:b")], (0..10_000).map(numbered).collect());
    let domain = table.domain("edge").expect("it is there");
    let values: Vec<String> = (0..10_000).map(|number| format!("x{number}")).collect();
    let long: Vec<DescriptorEntry<'_>> =
        values.iter().map(|value| DescriptorEntry { key: "key0", value }).collect();
    let huge = "k".repeat(1 << 20);
    let hostile = [
        DescriptorEntry { key: &huge, value: &huge },
        DescriptorEntry { key: "b", value: &huge },
        DescriptorEntry { key: "c", value: "" },
    ];
    // Ten million comparisons a descriptor would take minutes.
    for _ in 0..1_000 {
        assert!(matches!(domain.find(&long), DescriptorMatch::Unknown));
    }
    assert!(matches!(domain.find(&hostile), DescriptorMatch::Unknown));
    let value = format!("x9999{huge}");
    let key = format!("key{}", 9_999 % 7);
    let met = [
        DescriptorEntry { key: &key, value: &value },
        DescriptorEntry { key: "b", value: &huge },
        DescriptorEntry { key: "c", value: "\u{0}" },
    ];
    let DescriptorMatch::Limited(rule) = domain.find(&met) else { panic!("it has a rule") };
    assert_eq!(rule.id().index(), 9_999);
    let mut out = SmallVec::new();
    table
        .chosen_by(rule)
        .charges(&DescriptorSubject::new(rule, &met, None), &mut out)
        .expect("nothing is missing");
    assert_eq!(out.len(), 1);
}
