//! What a request is charged: keys, costs, what is missing, and what clients are told.

use std::collections::HashSet;
use std::num::NonZeroU64;

use http::Method;
use smallvec::SmallVec;

use super::{TestRequest, policy, route, table};
use crate::definition::{
    Dimension, ExemptDefinition, LimitOrigin, MatchesDefinition, Missing, PolicyDefinition, RouteDefinition,
    TierPart, TiersDefinition,
};
use crate::json::{JsonFields, JsonPath};
use crate::{HttpSubject, MissingDimension, RouteTable, RoutingFacts, Subject};
use base::identity::{Claim, Identity};
use limit::{Algorithm, Charge, Key, PolicyId, WhenDown};

fn limited(name: &str, path: &str, limits: &[&str]) -> RouteDefinition {
    RouteDefinition { limits: limits.iter().map(|limit| (*limit).to_owned()).collect(), ..route(name, path) }
}

fn charges<'t>(
    table: &'t RouteTable,
    ask: &TestRequest,
) -> Result<SmallVec<[Charge; 4]>, MissingDimension<'t>> {
    let facts = ask.facts();
    let found = table.find(&facts).expect("a route");
    let mut out = SmallVec::new();
    table.chosen(found.route, false).charges(&HttpSubject::new(&found, &facts), &mut out).map(|_| out)
}

/// The key of the only window.
fn key(table: &RouteTable, ask: &TestRequest) -> Key {
    let charged = charges(table, ask).expect("nothing is missing");
    assert_eq!(charged.len(), 1);
    charged[0].key
}

/// One route for everything, under one policy.
fn counted_by(limit: &str) -> RouteTable {
    table(&[limited("all", "/{*rest}", &["p"])], &[policy("p", &[limit])])
}

#[test]
fn every_window_of_every_policy_is_charged() {
    let policies =
        [policy("a", &["5/s by ip", "100/h"]), policy("unused", &["1/s"]), policy("b", &["9/m burst 3"])];
    let table = table(&[limited("r", "/x", &["b", "a"]), route("free", "/y")], &policies);
    let charged = charges(&table, &TestRequest::new("GET /x")).expect("nothing is missing");
    let which: Vec<_> =
        charged.iter().map(|charge| (charge.policy.index(), charge.window, charge.cost)).collect();
    assert_eq!(which, [(2, 0, 1), (0, 0, 1), (0, 1, 1)]);
    assert_eq!(charged[0].quota, policies[2].windows[0]);
    assert_eq!(charged[2].quota, policies[0].windows[1]);
    assert_eq!(charged.iter().map(|charge| charge.key).collect::<HashSet<_>>().len(), 3);
    assert!(charges(&table, &TestRequest::new("GET /y")).expect("nothing is missing").is_empty());
}

#[test]
fn a_policy_is_one_limit_over_its_routes_unless_it_counts_by_route() {
    let policies = [policy("shared", &["5/s by ip"]), policy("each", &["5/s by ip route"])];
    let table =
        table(&[limited("r", "/x", &["shared", "each"]), limited("s", "/y", &["shared", "each"])], &policies);
    let x = charges(&table, &TestRequest::new("GET /x")).expect("nothing is missing");
    let y = charges(&table, &TestRequest::new("GET /y")).expect("nothing is missing");
    assert_eq!(x[0].key, y[0].key);
    assert_ne!(x[1].key, y[1].key);
}

#[test]
fn one_client_has_one_key_in_every_spelling() {
    let by_ip = counted_by("5/s by ip");
    let ask = TestRequest::new("GET /");
    assert_eq!(
        key(&by_ip, &ask.clone().from("2001:db8::1")),
        key(&by_ip, &ask.clone().from("2001:db8::ffff:2"))
    );
    assert_ne!(
        key(&by_ip, &ask.clone().from("2001:db8::1")),
        key(&by_ip, &ask.clone().from("2001:db8:0:1::1"))
    );
    assert_eq!(
        key(&by_ip, &ask.clone().from("::ffff:192.0.2.1")),
        key(&by_ip, &ask.clone().from("192.0.2.1"))
    );

    let by_query = counted_by("5/s by query:user");
    let same = ["GET /?user=a%20b", "GET /?x=1&user=a+b", "GET /?%75ser=%61%20b&user=a+b", "GET /?user=a b#"];
    assert_eq!(key(&by_query, &TestRequest::new(same[0])), key(&by_query, &TestRequest::new(same[1])));
    assert_eq!(key(&by_query, &TestRequest::new(same[0])), key(&by_query, &TestRequest::new(same[2])));
    assert_ne!(
        key(&by_query, &TestRequest::new(same[0])),
        key(&by_query, &TestRequest::new("GET /?user=ab"))
    );

    for lines in ["GET /?user=a&user=b", "GET /?user=a&%75ser=", "GET /?user=&user=a"] {
        assert!(
            charges(&by_query, &TestRequest::new(lines)).is_err(),
            "{lines}: of two values neither identifies the client"
        );
    }

    let by_header = counted_by("5/s by header:x-key");
    let lines = ask.clone().header("x-key", "a").header("x-key", "b");
    assert!(charges(&by_header, &lines).is_err(), "of two values neither identifies the client");
    let twice = ask.clone().header("x-key", "a").header("x-key", "a");
    assert_eq!(key(&by_header, &twice), key(&by_header, &ask.clone().header("x-key", "a")));

    for field in ["authorization", "proxy-authorization"] {
        let by_credential = counted_by(&format!("5/s by header:{field}"));
        let of = |value| key(&by_credential, &ask.clone().header(field, value));
        for spelling in ["bearer Ab", "BEARER  Ab", "Bearer\tAb", "bEARER \t Ab"] {
            assert_eq!(of(spelling), of("Bearer Ab"), "{field}: {spelling:?}");
            let written = by_credential.policies()[0].look_at(&[spelling.to_owned()]).expect("one dimension");
            assert_eq!(written[0].key, of("Bearer Ab"), "as an operator writes it");
        }
        for other in ["Bearer ab", "Basic Ab", "Bearer Ab c", "BearerAb", "Bearer"] {
            assert_ne!(of(other), of("Bearer Ab"), "{field}: {other:?}");
        }
        assert_ne!(of("Ab"), of("ab"), "a token without a scheme");
    }
    assert_ne!(
        key(&by_header, &ask.clone().header("x-key", "Bearer a")),
        key(&by_header, &ask.clone().header("x-key", "bearer a"))
    );

    let by_param = table(&[limited("r", "/u/{user}", &["p"])], &[policy("p", &["5/s by param:user"])]);
    assert_eq!(
        key(&by_param, &TestRequest::new("GET /u/a@b")),
        key(&by_param, &TestRequest::new("GET /u/a%40b/"))
    );
}

#[test]
fn a_missing_value_is_the_address_a_skip_or_a_refusal() {
    let of = |missing| PolicyDefinition { missing, ..policy("p", &["5/s by consumer route"]) };
    let build = |policy: PolicyDefinition| table(&[limited("all", "/{*rest}", &["p"])], &[policy]);
    let (named, nameless) = (TestRequest::new("GET /").consumer("ann"), TestRequest::new("GET /"));

    let by_address = build(of(Missing::Ip));
    assert_ne!(key(&by_address, &nameless), key(&by_address, &nameless.clone().from("192.0.2.2")));
    assert_eq!(key(&by_address, &named), key(&by_address, &named.clone().from("192.0.2.2")));
    assert_eq!(key(&by_address, &nameless.clone().consumer("")), key(&by_address, &nameless));

    assert!(charges(&build(of(Missing::Skip)), &nameless).expect("skipped").is_empty());
    assert_eq!(charges(&build(of(Missing::Skip)), &named).expect("counted").len(), 1);

    let strict = build(of(Missing::Reject));
    let refused = charges(&strict, &nameless).expect_err("refused");
    assert_eq!(refused, MissingDimension { policy: PolicyId::default(), dimension: &Dimension::Consumer });
    let shadow = build(PolicyDefinition { shadow: true, ..of(Missing::Reject) });
    assert!(charges(&shadow, &nameless).expect("a shadow never refuses").is_empty());
}

#[test]
fn nothing_is_appended_where_a_policy_refuses() {
    let strict = PolicyDefinition { missing: Missing::Reject, ..policy("strict", &["5/s by consumer"]) };
    let table = table(&[limited("r", "/", &["easy", "strict"])], &[policy("easy", &["5/s by ip"]), strict]);
    let ask = TestRequest::new("GET /");
    let facts = ask.facts();
    let mut out: SmallVec<[Charge; 4]> = SmallVec::new();
    let found = table.find(&facts).expect("a route");
    let subject = HttpSubject::new(&found, &facts);
    table.chosen(found.route, false).charges(&subject, &mut out).expect_err("a consumer is missing");
    assert!(out.is_empty());
}

#[test]
fn an_address_in_a_values_place_is_no_value() {
    // The four bytes of 97.98.99.100 read "abcd".
    let table = counted_by("5/s by consumer");
    let substituted = key(&table, &TestRequest::new("GET /").from("97.98.99.100"));
    assert_ne!(substituted, key(&table, &TestRequest::new("GET /").consumer("abcd")));
}

#[test]
fn a_body_says_who_is_counted_and_what_is_reserved() {
    let path = |text: &str| JsonPath::parse(text).expect("a path");
    let mut tokens = policy("tokens", &["100/m"]);
    tokens.by = vec![Dimension::Body(path("model"))];
    tokens.missing = Missing::Skip;
    tokens.cost.estimate = vec![path("new_max"), path("max")];
    tokens.cost.default = NonZeroU64::new(7).expect("not 0");
    tokens.cost.rules = vec![(None, "/free".to_owned(), 0), (None, "/dear".to_owned(), 20)];
    let table = table(&[limited("all", "/{*rest}", &["tokens"])], &[tokens]);
    let paths = table.routes()[0].body_paths.clone().expect("it reads bodies");
    assert_eq!(paths.len(), 3);
    let charged = |line: &str, body: &str| {
        let (ask, fields) = (TestRequest::new(line), JsonFields::read(&paths, [body.as_bytes()]));
        let facts = RoutingFacts { body: Some(&fields), ..ask.facts() };
        let found = table.find(&facts).expect("a route");
        let mut out = SmallVec::<[Charge; 4]>::new();
        let chosen = table.chosen(found.route, false);
        chosen.charges(&HttpSubject::new(&found, &facts), &mut out).map(|_| out).map_err(|_| "refused")
    };
    let units = |line: &str, body: &str| {
        charged(line, body).map(|charges| charges.iter().map(|charge| charge.cost).collect::<Vec<_>>())
    };
    let one = |units| Ok(vec![units]);
    assert_eq!(units("POST /a", r#"{"model":"m","max":30}"#), one(30));
    assert_eq!(units("POST /a", r#"{"model":"m","max":30,"new_max":40}"#), one(40));
    assert_eq!(units("POST /a", r#"{"model":"m"}"#), one(7));
    assert_eq!(units("POST /dear", r#"{"model":"m"}"#), one(20));
    assert_eq!(units("POST /dear", r#"{"model":"m","max":2.1}"#), one(3));
    assert_eq!(units("POST /a", r#"{"model":"m","max":0}"#), one(1), "what costs nothing is never settled");
    assert_eq!(units("POST /a", r#"{"model":"m","max":1e30}"#), one(100));
    assert_eq!(units("POST /free", r#"{"model":"m","max":30}"#), Ok(vec![]), "a rule leaves it uncounted");
    assert_eq!(units("POST /a", r#"{"max":30}"#), Ok(vec![]), "skipped without a model");
    assert_eq!(units("POST /a", r#"{"model":"m","model":"n"}"#), Err("refused"));
    let key_of = |body: &str| charged("POST /a", body).expect("it is counted")[0].key;
    assert_eq!(key_of(r#"{"model":"7"}"#), key_of(r#"{"x":{"model":1},"model":7}"#));
    assert_ne!(key_of(r#"{"model":"m"}"#), key_of(r#"{"model":"n"}"#));
    assert!(table.routes()[0].strangers.is_empty(), "bodies of clients that are refused are not read");
}

#[test]
fn a_policy_counts_only_what_it_matches_and_at_its_cost() {
    let rule = |method: Option<&str>, path: &str, cost| {
        (method.map(|method| method.parse().expect("a method")), path.to_owned(), cost)
    };
    let mut search = policy("search", &["100/m by ip"]);
    search.cost.rules = vec![
        rule(None, "/v1/{*rest}", 2),
        rule(Some("GET"), "/v1/search", 5),
        rule(None, "/v1/search", 3),
        rule(Some("HEAD"), "/v1/{x}", 7),
        rule(Some("GET"), "/free", 0),
    ];
    let matches = MatchesDefinition { methods: vec![Method::POST], path: Some("/login".to_owned()) };
    let login = PolicyDefinition { matches, ..policy("login", &["5/m by ip"]) };
    let table = table(&[limited("all", "/{*rest}", &["search", "login"])], &[search, login]);
    let costs = |line: &str| -> Vec<(usize, u64)> {
        let charged = charges(&table, &TestRequest::new(line)).expect("nothing is missing");
        charged.iter().map(|charge| (charge.policy.index(), charge.cost)).collect()
    };
    assert_eq!(costs("GET /v1/search"), [(0, 5)]);
    assert_eq!(costs("HEAD /v1/search"), [(0, 5)]);
    assert_eq!(costs("POST /v1/search/"), [(0, 3)]);
    assert_eq!(costs("HEAD /v1/other"), [(0, 7)]);
    assert_eq!(costs("GET /v1/other"), [(0, 2)]);
    assert_eq!(costs("GET /free"), []);
    assert_eq!(costs("GET /login"), [(0, 1)]);
    assert_eq!(costs("POST /login/"), [(0, 1), (1, 1)]);
}

#[test]
fn rate_limit_policy_lists_what_was_charged() {
    let shadow = PolicyDefinition { shadow: true, ..policy("next", &["1/s"]) };
    let login = PolicyDefinition {
        matches: MatchesDefinition { methods: vec![Method::POST], path: None },
        ..policy("log\"in \u{e9}", &["5/m by ip"])
    };
    let search = policy("search", &["20/s", "1_000/h", "30/s", "7/90s"]);
    let table = table(
        &[limited("r", "/", &["search", "next", "log\"in \u{e9}"]), route("free", "/y")],
        &[search, shadow, login],
    );
    let shown = |line: &str| {
        let ask = TestRequest::new(line);
        let route = table.find(&ask.facts()).expect("a route").route;
        let charged = charges(&table, &ask).expect("nothing is missing");
        table
            .rate_limit_policy(route, &charged, 0)
            .map(|value| value.to_str().expect("plain text").to_owned())
    };
    let search =
        r#""search-1s";q=20;w=1, "search-1h";q=1000;w=3600, "search-1s-2";q=30;w=1, "search-90s";q=7;w=90"#;
    assert_eq!(shown("GET /").as_deref(), Some(search));
    assert_eq!(shown("POST /"), Some(format!(r#"{search}, "log_in _";q=5;w=60"#)));
    assert_eq!(shown("GET /y"), None);
    assert_eq!(&*table.policies()[2].windows[0].label, "log_in _");
}

#[test]
fn a_window_of_the_calendar_is_told_as_long_as_it_is() {
    let quota = policy("quota", &["90/month", "9/day"]);
    let table = table(&[limited("r", "/", &["quota"])], &[quota]);
    let shown = |unix_seconds| {
        let ask = TestRequest::new("GET /");
        let route = table.find(&ask.facts()).expect("a route").route;
        let charged = charges(&table, &ask).expect("nothing is missing");
        let shown = table.rate_limit_policy(route, &charged, unix_seconds).expect("it is charged");
        shown.to_str().expect("plain text").to_owned()
    };
    // January, February of a leap year and of another, April.
    for (unix_seconds, days) in
        [(1_706_000_000, 31), (1_709_000_000, 29), (1_740_000_000, 28), (1_744_000_000, 30)]
    {
        let month = days * 86_400;
        let expected = format!(r#""quota-month";q=90;w={month}, "quota-day";q=9;w=86400"#);
        assert_eq!(shown(unix_seconds), expected);
    }
}

#[test]
fn another_salt_gives_other_keys() {
    let build = |salt| {
        let options = crate::CompileOptions { salt, ipv6_prefix: 64, upstreams: &[], auth: &[] };
        RouteTable::compile(&[limited("r", "/", &["p"])], &[policy("p", &["5/s by ip"])], &options)
            .expect("no mistakes")
    };
    assert_ne!(
        key(&build([1; 16]), &TestRequest::new("GET /")),
        key(&build([2; 16]), &TestRequest::new("GET /"))
    );
    assert_eq!(
        key(&build([1; 16]), &TestRequest::new("GET /")),
        key(&build([1; 16]), &TestRequest::new("GET /"))
    );
    let later = build([1; 16]).salted(&[2; 16]);
    assert_eq!(key(&later, &TestRequest::new("GET /")), key(&build([2; 16]), &TestRequest::new("GET /")));
}

/// Tiers with so many windows each, shared by a fleet to 5 %.
fn tiers_of(counts: &[(&str, usize)], default: &str) -> TiersDefinition {
    let part = |(name, windows): &(&str, usize)| TierPart {
        name: (*name).to_owned(),
        windows: *windows,
        overshoot_ppm: 50_000,
        when_down: WhenDown::Local,
        origin: LimitOrigin::File,
    };
    TiersDefinition {
        parts: counts.iter().map(part).collect(),
        default: default.to_owned(),
        algorithm: Algorithm::TokenBucket,
        are_shared: true,
    }
}

#[test]
fn a_fleet_shares_the_windows_of_each_tier_in_their_own_way() {
    let mut by_tier = policy("p", &["5/s by consumer", "100/h", "50/s"]);
    let mut tiers = tiers_of(&[("free", 2), ("strict", 1)], "free");
    (tiers.parts[1].overshoot_ppm, tiers.parts[1].when_down) = (0, WhenDown::Deny);
    by_tier.tiers = Some(tiers);
    let strict = by_tier.sharing(2);
    assert!(strict.is_exact() && strict.when_down == WhenDown::Deny);
    assert_eq!((by_tier.sharing(0).when_down, by_tier.sharing(1).is_exact()), (WhenDown::Local, false));
    let table = table(&[limited("r", "/", &["p"])], std::slice::from_ref(&by_tier));
    let compiled = &table.policies()[0];
    for (number, window) in compiled.windows.iter().enumerate() {
        assert_eq!(compiled.sharing(number, &window.quota), by_tier.sharing(number));
    }
}

#[test]
fn the_part_for_everybody_has_the_policys_own_label() {
    let mut by_tier = policy("p", &["5/s by consumer", "50/s"]);
    by_tier.tiers =
        Some(tiers_of(&[(TiersDefinition::EVERYBODY, 1), ("pro", 1)], TiersDefinition::EVERYBODY));
    let table = table(&[limited("r", "/", &["p"])], &[by_tier]);
    let labels = table.policies()[0].windows.iter().map(|window| &*window.label);
    assert_eq!(labels.collect::<Vec<_>>(), ["p", "p-pro"]);
}

#[test]
fn a_client_is_charged_by_its_tier() {
    let mut by_tier = policy("p", &["5/s by consumer", "100/h", "50/s", "7 in flight"]);
    by_tier.tiers = Some(tiers_of(&[("free", 2), ("internal", 0), ("pro", 2)], "free"));
    let table = table(&[limited("r", "/", &["p"])], &[by_tier]);
    let charged = |tier: Option<&str>| {
        let mut ask = TestRequest::new("GET /").consumer("ann");
        ask.identity.tier = tier.map(Into::into);
        charges(&table, &ask).expect("nothing is missing")
    };
    let limits = |tier| charged(tier).iter().map(|charge| charge.quota.limit().get()).collect::<Vec<_>>();
    assert_eq!(limits(None), [5, 100]);
    assert_eq!(limits(Some("unheard-of")), [5, 100]);
    assert_eq!(limits(Some("pro")), [50, 7]);
    assert!(limits(Some("internal")).is_empty());
    let (free, pro) = (charged(Some("free")), charged(Some("pro")));
    assert_eq!(free[0].key, pro[0].key, "who changes its tier takes along what is used");
    assert_eq!((pro[0].window, pro[1].window), (2, 3));
    let found = table.find(&TestRequest::new("GET /").facts()).expect("the route").route;
    let shown = table.rate_limit_policy(found, &pro, 0).expect("it is charged");
    assert_eq!(shown, "\"p-pro-1s\";q=50;w=1, \"p-pro-in-flight\";q=7;qu=\"concurrent-requests\"");
}

#[test]
fn a_claim_counts_as_its_text_or_as_its_list_in_any_order() {
    let strict = PolicyDefinition { missing: Missing::Reject, ..policy("p", &["5/s by claim:plan"]) };
    let table = table(&[limited("r", "/", &["p"])], &[strict]);
    let claims =
        |claim| Identity { claims: [("plan".into(), claim)].into_iter().collect(), ..Identity::default() };
    let ask = |identity| TestRequest { identity, ..TestRequest::new("GET /") };
    let one = ask(claims(Claim::One("a".into())));
    assert_ne!(key(&table, &one), key(&table, &ask(claims(Claim::One("b".into())))));
    let list = |texts: &[&str]| ask(claims(Claim::Many(texts.iter().map(|text| Box::from(*text)).collect())));
    assert_eq!(key(&table, &one), key(&table, &list(&["a"])), "a list of one text is that text");
    assert_eq!(key(&table, &list(&["a", "b"])), key(&table, &list(&["b", "a", "b"])));
    assert_ne!(key(&table, &list(&["a", "b"])), key(&table, &list(&["a", "c"])));
    let request = list(&["b", "a", "b"]);
    let facts = request.facts();
    let found = table.find(&facts).expect("the route");
    let subject = HttpSubject::new(&found, &facts);
    let has =
        |text: &str| subject.any(&Dimension::Claim("plan".into()), &mut |value| value == text.as_bytes());
    assert_eq!(["a", "b", "a,b", "b,a", "c", ""].map(has), [true, true, true, false, false, false]);
    assert!(charges(&table, &list(&[])).is_err());
    assert!(charges(&table, &TestRequest::new("GET /")).is_err());
    assert_eq!(table.claims().into_iter().collect::<Vec<_>>(), ["plan"]);
}

#[test]
fn a_day_in_a_claim_is_an_integer_from_1_to_31_or_its_digits() {
    let monthly =
        PolicyDefinition { anchor_claim: Some("day".to_owned()), ..policy("p", &["5/month by consumer"]) };
    let table = table(&[limited("r", "/", &["p"])], &[monthly]);
    let anchor = |claim: Option<Claim>| {
        let claims = claim.into_iter().map(|claim| ("day".into(), claim)).collect();
        let identity = Identity { claims, ..Identity::default() };
        let charged = charges(&table, &TestRequest { identity, ..TestRequest::new("GET /") });
        let calendar = charged.expect("it is charged")[0].quota.calendar();
        calendar.expect("it is of the calendar").anchor()
    };
    let one = |text: &str| anchor(Some(Claim::One(text.into())));
    assert_eq!(["1", "7", "15", "31", "07"].map(one), [1, 7, 15, 31, 7]);
    for none in [
        "0",
        "32",
        "-1",
        "+15",
        "15.0",
        "1e1",
        " 15",
        "15 ",
        "",
        "true",
        "0x0f",
        "0015",
        "99999999999999999999",
        "１５",
    ] {
        assert_eq!(one(none), 1, "{none:?}");
    }
    let many =
        |texts: &[&str]| anchor(Some(Claim::Many(texts.iter().map(|text| Box::from(*text)).collect())));
    assert_eq!([many(&["15"]), many(&["15", "15"]), many(&["15", "16"]), many(&[])], [15, 15, 1, 1]);
    assert_eq!(anchor(None), 1);
}

#[test]
fn a_refused_client_is_charged_by_limits_that_need_no_identity() {
    let names = ["by-ip", "by-consumer", "all", "by-claim"];
    let limits = ["5/s by ip", "5/s by ip, consumer", "5/s", "5/s by claim:a"];
    let policies: Vec<PolicyDefinition> =
        names.iter().zip(limits).map(|(name, limit)| policy(name, &[limit])).collect();
    let table = table(&[limited("r", "/", &names)], &policies);
    let ask = TestRequest::new("GET /");
    let charged = |refused| {
        let facts = ask.facts();
        let found = table.find(&facts).expect("a route");
        let mut out: SmallVec<[Charge; 4]> = SmallVec::new();
        let subject = HttpSubject::new(&found, &facts);
        table.chosen(found.route, refused).charges(&subject, &mut out).expect("nothing is missing");
        out.iter().map(|charge| charge.policy.index()).collect::<Vec<_>>()
    };
    assert_eq!(charged(false), [0, 1, 2, 3]);
    assert_eq!(charged(true), [0, 2]);
}

#[test]
fn what_matches_one_entry_is_exempt_from_its_policy_alone() {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let exempt = ExemptDefinition {
        networks: ["10.0.0.0/8", "2001:db8::/32", "64:ff9b::c633:6401/128"]
            .map(|text| text.parse().expect("a network"))
            .to_vec(),
        consumers: texts(&["monitor"]),
        tenants: texts(&["own"]),
        tiers: texts(&["internal"]),
        headers: vec![(http::header::AUTHORIZATION, "Probe hunter2".to_owned())],
    };
    let matches = MatchesDefinition { path: Some("/{*rest}".to_owned()), ..MatchesDefinition::default() };
    let policies = [
        PolicyDefinition {
            exempt,
            matches,
            missing: Missing::Reject,
            ..policy("p", &["1/s by header:x-id", "1 in flight"])
        },
        policy("other", &["5/s"]),
    ];
    let table = table(&[limited("all", "/{*rest}", &["p", "other"])], &policies);
    let why = |ask: &TestRequest| {
        let facts = ask.facts();
        let found = table.find(&facts).expect("a route");
        let (chosen, subject) = (table.chosen(found.route, false), HttpSubject::new(&found, &facts));
        let mut out = SmallVec::new();
        let exempting =
            chosen.charges(&subject, &mut out).expect("no policy that charges it lacks a dimension");
        assert!(chosen.exemptions(&subject).map(|(policy, _)| policy.id).eq(exempting.iter().copied()));
        let is_exempt = !exempting.is_empty();
        let exempting: Vec<String> =
            chosen.exemptions(&subject).map(|(policy, entry)| format!("{}: {entry}", policy.name)).collect();
        let charged: Vec<usize> = out.iter().map(|charge| charge.policy.index()).collect();
        assert_eq!(charged, if is_exempt { vec![1] } else { vec![0, 0, 1] }, "{ask:?}");
        exempting.concat()
    };
    // Without the header that the policy insists on: an exempt request is not refused for that either.
    let ask = || TestRequest::new("GET /");
    let of = |tenant: Option<&str>, tier: Option<&str>| {
        let mut ask = ask();
        (ask.identity.tenant, ask.identity.tier) = (tenant.map(Into::into), tier.map(Into::into));
        ask
    };
    for (exempt, entry) in [
        (ask().from("10.9.8.7"), "p: ip 10.0.0.0/8"),
        (ask().from("::ffff:10.9.8.7"), "p: ip 10.0.0.0/8"),
        (ask().from("64:ff9b::10.9.8.7"), "p: ip 10.0.0.0/8"),
        (ask().from("64:ff9b::198.51.100.1"), "p: ip 64:ff9b::c633:6401/128"),
        (ask().from("2001:db8:ffff::1"), "p: ip 2001:db8::/32"),
        (ask().consumer("monitor"), "p: consumer monitor"),
        (of(Some("own"), None), "p: tenant own"),
        (of(None, Some("internal")), "p: tier internal"),
        (ask().header("authorization", "probe  hunter2"), "p: header:authorization"),
    ] {
        assert_eq!(why(&exempt), entry);
    }
    let named = || ask().header("x-id", "1");
    for charged in [
        named().from("11.0.0.0"),
        named().from("64:ff9b::198.51.100.2"),
        named().consumer("Monitor"),
        named().consumer("own"),
        named().header("x-consumer", "monitor"),
        named().header("authorization", "Probe hunter"),
        named().header("authorization", "Probe hunter22"),
        named().header("authorization", "Probe hunter2").header("authorization", "Probe hunter3"),
    ] {
        assert_eq!(why(&charged), "");
    }
    let by_identity = |exempt| {
        let table = super::table(&[], &[PolicyDefinition { exempt, ..policy("p", &["1/s by ip"]) }]);
        table.policies()[0].exempts_identities()
    };
    assert!(by_identity(ExemptDefinition { consumers: texts(&["monitor"]), ..ExemptDefinition::default() }));
    let networks = vec!["10.0.0.0/8".parse().expect("a network")];
    assert!(!by_identity(ExemptDefinition { networks, ..ExemptDefinition::default() }));
}
