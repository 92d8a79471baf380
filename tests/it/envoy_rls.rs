//! The rate limit service: a client's calls, and a real Envoy's.

use std::time::{Duration, Instant};

use prost::Message;
use rls::{
    DescriptorStatus, RateLimitCode, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitUnit,
};

use crate::support::gateway::binary;
use crate::support::h2;
use crate::support::python;
use crate::support::redis::Redis;
use crate::support::rls::{Failed, Rls, SHOULD_RATE_LIMIT, descriptor, descriptor_of_bytes, framed};
use crate::support::tls::{self, Authority};
use crate::support::upgraded::Upgraded;
use crate::support::{Client, Directory, Gateway, eventually, text};

const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const ADMIN: &str = "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n";

/// A domain `edge` with a rule for `user`, `shop` and `address` each, and these limits.
fn config(user: &str, shop: &str) -> String {
    format!(
        "{ADMIN}\n[rls.edge]\noverrides = true\ndescriptors = [\n\
         {{ entries = {{ user = \"*\" }}, limit = \"per-user\" }},\n\
         {{ entries = {{ shop = \"*\" }}, limit = \"per-shop\" }},\n\
         {{ entries = {{ remote_address = \"*\" }}, limit = \"per-address\" }},\n\
         {{ entries = {{ path = \"/static/*\" }}, unlimited = true }},\n]\n\
         [rls.strict]\ndescriptors = [{{ entries = {{ user = \"*\" }}, limit = \"per-user\" }}]\n\
         [policy.per-user]\nlimit = \"{user}\"\nby = [\"entry:user\"]\n\
         [policy.per-shop]\nlimit = \"{shop}\"\nby = [\"entry:shop\"]\n\
         [policy.per-address]\nlimit = \"4/h\"\nby = [\"ip\"]\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"per-address\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

fn start(user: &str, shop: &str) -> (Gateway, Rls) {
    let gateway = Gateway::start(&config(user, shop));
    let rls = Rls::connect(gateway.listener("grpc"));
    (gateway, rls)
}

fn codes(answer: &RateLimitResponse) -> Vec<RateLimitCode> {
    answer.statuses.iter().map(DescriptorStatus::code).collect()
}

fn left(answer: &RateLimitResponse) -> Vec<u32> {
    answer.statuses.iter().map(|status| status.limit_remaining).collect()
}

fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let found = answer.response_headers_to_add.iter().find(|header| header.key == name);
    found.map(|header| header.value.as_str())
}

fn hits(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

#[test]
fn a_status_says_the_limit_what_is_left_and_when_it_is_whole() {
    let (_gateway, mut rls) = start("3/m", "9/m");
    let ann = [descriptor(&[("user", "ann")])];
    for remaining in [2, 1, 0] {
        let answer = rls.ask("edge", &ann);
        assert_eq!((answer.overall_code(), left(&answer)), (RateLimitCode::Ok, vec![remaining]));
        let limit = answer.statuses[0].current_limit.as_ref().expect("there is one");
        assert_eq!(
            (limit.requests_per_unit, limit.unit(), &*limit.name),
            (3, RateLimitUnit::Minute, "per-user")
        );
        let reset = answer.statuses[0].duration_until_reset.expect("it is said");
        // A unit comes back each twenty seconds.
        let expected = 20 * i64::from(3 - remaining);
        assert!((expected - 15..=expected).contains(&reset.seconds), "{reset:?} with {remaining} left");
    }
    let refused = rls.ask("edge", &ann);
    assert_eq!(refused.overall_code(), RateLimitCode::OverLimit);
    assert_eq!((codes(&refused), left(&refused)), (vec![RateLimitCode::OverLimit], vec![0]));
    assert_eq!(rls.code("edge", &[("user", "bob")]), RateLimitCode::Ok, "another value has its own count");
}

#[test]
fn several_descriptors_are_charged_all_or_nothing() {
    let (_gateway, mut rls) = start("5/h", "2/h");
    let both = [descriptor(&[("user", "ann")]), descriptor(&[("shop", "s1")])];
    assert_eq!(left(&rls.ask("edge", &both)), [4, 1]);
    assert_eq!(left(&rls.ask("edge", &both)), [3, 0]);
    for _ in 0..3 {
        let refused = rls.ask("edge", &both);
        assert_eq!(refused.overall_code(), RateLimitCode::OverLimit);
        assert_eq!(codes(&refused), [RateLimitCode::Ok, RateLimitCode::OverLimit], "each has its own code");
        assert_eq!(left(&refused), [3, 0], "nothing was charged");
    }
    let other_way = [both[1].clone(), both[0].clone()];
    assert_eq!(codes(&rls.ask("edge", &other_way)), [RateLimitCode::OverLimit, RateLimitCode::Ok]);
    assert_eq!(left(&rls.ask("edge", &both[..1])), [2], "alone it passes");
    // One descriptor twice costs two units, or nothing.
    let twice = [both[0].clone(), both[0].clone()];
    assert_eq!(left(&rls.ask("edge", &twice)), [1, 0]);
    let bob = [descriptor(&[("user", "bob")]), both[0].clone()];
    assert_eq!(
        (left(&rls.ask("edge", &bob)), codes(&rls.ask("edge", &bob))[1]),
        (vec![5, 0], RateLimitCode::OverLimit)
    );
}

#[test]
fn one_descriptor_several_times_has_one_status_where_it_is_refused() {
    let (_gateway, mut rls) = start("3/h", "3/h");
    let ann = descriptor(&[("user", "ann")]);
    for times in [4, 5, 9] {
        let refused = rls.ask("edge", &vec![ann.clone(); times]);
        assert_eq!(refused.overall_code(), RateLimitCode::OverLimit);
        assert_eq!(left(&refused), vec![3; times], "{refused:?}");
    }
    assert_eq!(left(&rls.ask("edge", &[ann.clone(), ann])), [2, 1], "nothing was charged");
}

#[test]
fn one_descriptor_several_times_is_charged_as_often_in_redis() {
    let redis = Redis::start(&[]);
    let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    for (number, algorithm) in
        ["token-bucket", "fixed-window", "sliding-window", "sliding-log"].iter().enumerate()
    {
        let policy = format!("algorithm = \"{algorithm}\"\novershoot = 0\n[policy.per-shop]");
        let config = config("5/h", "3/h").replacen("[policy.per-shop]", &policy, 1);
        let gateway = Gateway::start(&format!("{redis_url}{config}"));
        let is_up = || gateway.metric("sluicegate_redis_up", &[]) > 0.0;
        eventually("it is connected", || is_up().then_some(()));
        let mut rls = Rls::connect(gateway.listener("grpc"));
        let user = format!("u{number}");
        let ann = descriptor(&[("user", &user)]);
        for times in [6, 9] {
            let refused = rls.ask("edge", &vec![ann.clone(); times]);
            assert_eq!(refused.overall_code(), RateLimitCode::OverLimit, "{algorithm}: {times} of 5");
            assert_eq!(left(&refused), vec![5; times], "{algorithm}");
        }
        assert_eq!(left(&rls.ask("edge", &vec![ann.clone(); 3])), [4, 3, 2], "{algorithm}");
        assert_eq!(
            rls.ask("edge", &vec![ann.clone(); 3]).overall_code(),
            RateLimitCode::OverLimit,
            "{algorithm}"
        );
        assert_eq!(left(&rls.ask("edge", &vec![ann; 2])), [1, 0], "{algorithm}");
    }
}

/// What a node holds of it after a refusal belongs to the eight that are left.
#[test]
fn all_that_is_left_can_be_taken_at_once() {
    let redis = Redis::start(&[]);
    let text = config("10/h", "20/h").replace(
        "{ entries = { path = \"/static/*\" }, unlimited = true }",
        "{ entries = { path = \"/closed\" }, deny = true }",
    );
    let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    let gateway = Gateway::start(&format!("{text}{redis_url}"));
    eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    let mut rls = Rls::connect(gateway.listener("grpc"));
    let mut twice = |each| {
        let ann = hits(&[("user", "ann")], each);
        rls.ask("edge", &[ann.clone(), ann])
    };
    assert_eq!(left(&twice(1)), [9, 8]);
    assert_eq!(twice(5).overall_code(), RateLimitCode::OverLimit);
    assert_eq!(left(&twice(4)), [4, 0]);
    // Beside what is never admitted nothing is charged, and the status says so.
    let denied = rls.ask("edge", &[descriptor(&[("path", "/closed")]), descriptor(&[("user", "bob")])]);
    assert_eq!(
        (codes(&denied), left(&denied)),
        (vec![RateLimitCode::OverLimit, RateLimitCode::Ok], vec![0, 10])
    );
}

#[test]
fn hits_are_the_cost_and_a_descriptors_own_go_before() {
    let (_gateway, mut rls) = start("10/h", "10/h");
    let request =
        |descriptors, hits_addend| RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend };
    let user = || descriptor(&[("user", "ann")]);
    let mut ask = |descriptors, hits| rls.check(request(descriptors, hits)).expect("it is answered");
    assert_eq!(left(&ask(vec![user()], 4)), [6]);
    assert_eq!(left(&ask(vec![user()], 0)), [5], "nothing said is one");
    let own = vec![hits(&[("user", "ann")], 2), descriptor(&[("shop", "s")])];
    assert_eq!(left(&ask(own, 3)), [3, 7]);
    let refused = ask(vec![user()], 4);
    assert_eq!((refused.overall_code(), left(&refused)), (RateLimitCode::OverLimit, vec![3]));
    // Looked at, and not charged.
    for _ in 0..3 {
        let looked = ask(vec![hits(&[("user", "ann")], 0)], 7);
        assert_eq!((looked.overall_code(), left(&looked)), (RateLimitCode::Ok, vec![3]));
    }
    assert_eq!(left(&ask(vec![user()], 3)), [0]);
    assert_eq!(ask(vec![hits(&[("user", "ann")], 0)], 0).overall_code(), RateLimitCode::OverLimit);
}

#[test]
fn a_value_that_is_no_text_is_counted_like_any_other() {
    let (_gateway, mut rls) = start("2/h", "3/h");
    let odd = |value: &[u8]| [descriptor_of_bytes(&[("user", value)]), descriptor(&[("shop", "s1")])];
    assert_eq!(left(&rls.ask("edge", &odd(b"\xff"))), [1, 2], "and what comes beside it, too");
    assert_eq!(left(&rls.ask("edge", &odd(b"\xfe"))), [0, 1], "all such values are one client's");
    let refused = rls.ask("edge", &odd(b"\xff"));
    assert_eq!((refused.overall_code(), left(&refused)), (RateLimitCode::OverLimit, vec![0, 1]));
    let address = [descriptor_of_bytes(&[("remote_address", b"127.0.0.\xb9")])];
    assert_eq!(left(&rls.ask("edge", &address)), [3]);
}

#[test]
fn nothing_is_charged_for_what_is_to_be_given_back() {
    let (gateway, mut rls) = start("9/h", "9/h");
    let ann = || descriptor(&[("user", "ann")]);
    assert_eq!(left(&rls.ask("edge", &[ann()])), [8]);
    let back = |hits_addend| RateLimitDescriptor { is_negative_hits: true, hits_addend, ..ann() };
    for descriptor in [back(None), back(Some(5))] {
        let answer = rls.ask("edge", &[descriptor]);
        assert_eq!((answer.overall_code(), left(&answer)), (RateLimitCode::Ok, vec![8]));
    }
    assert_eq!(left(&rls.ask("edge", &[ann()])), [7]);
    assert_eq!(gateway.metric("sluicegate_rls_returns_ignored_total", &[]), 2.0);
}

/// At one node, and over a Redis, also from a limit that is exact to one that is leased.
#[test]
fn what_was_spent_stays_spent_under_a_descriptors_own_limit() {
    let redis = Redis::start(&[]);
    for more in [String::new(), format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr())] {
        let gateway = Gateway::start(&format!("{}{more}", config("9/d", "9/d")));
        if !more.is_empty() {
            eventually("it is connected", || {
                (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(())
            });
        }
        let mut rls = Rls::connect(gateway.listener("grpc"));
        for (user, before, now) in [("ann", 20, 100), ("bob", 5, 50)] {
            let mut left_of = |requests_per_unit| {
                let limit = Some(RateLimitOverride { requests_per_unit, unit: RateLimitUnit::Day.into() });
                left(&rls.ask("edge", &[RateLimitDescriptor { limit, ..descriptor(&[("user", user)]) }]))
            };
            let last = (0..5).map(|_| left_of(before)).last();
            assert_eq!(last, Some(vec![before - 5]), "{user} {more}");
            assert_eq!(left_of(now), [now - 6], "{user} {more}");
        }
    }
}

#[test]
fn a_descriptors_own_limit_counts_where_the_domain_allows() {
    let (gateway, mut rls) = start("3/h", "9/h");
    let own = |user: &str, requests_per_unit, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into() }),
        ..descriptor(&[("user", user)])
    };
    let answer = rls.ask("edge", &[own("ann", 50, RateLimitUnit::Day)]);
    let limit = answer.statuses[0].current_limit.clone().expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit(), left(&answer)), (50, RateLimitUnit::Day, vec![49]));
    assert_eq!(header(&answer, "ratelimit-policy"), Some("\"per-user\";q=50;w=86400"));
    let answer = rls.ask("strict", &[own("bob", 50, RateLimitUnit::Day)]);
    let limit = answer.statuses[0].current_limit.clone().expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit(), left(&answer)), (3, RateLimitUnit::Hour, vec![2]));
    assert_eq!(
        rls.ask("edge", &[own("eve", 0, RateLimitUnit::Hour)]).overall_code(),
        RateLimitCode::OverLimit,
        "none may pass"
    );
    assert_eq!(left(&rls.ask("edge", &[descriptor(&[("user", "eve")])])), [2], "and nothing was charged");
    let nameless = RateLimitOverride { requests_per_unit: 99, unit: 77 };
    let nameless = RateLimitDescriptor { limit: Some(nameless), ..descriptor(&[("user", "dan")]) };
    assert_eq!(left(&rls.ask("edge", &[nameless])), [2], "a unit that nobody knows is no limit");
    // A proxy that sends a limit of its own with each request makes a bounded number of them known.
    for number in 0..1_050 {
        rls.ask("edge", &[own("many", 1_000 + number, RateLimitUnit::Hour)]);
    }
    let answer = rls.ask("edge", &[own("other", 9_999, RateLimitUnit::Hour)]);
    assert_eq!(left(&answer), [2], "beyond, the policy's own limit holds");
    assert!(gateway.metric("sluicegate_rls_overrides_ignored_total", &[]) >= 1.0);
}

#[test]
fn what_nobody_has_named_passes_and_is_counted() {
    let (gateway, mut rls) = start("1/h", "1/h");
    let unknown = |what: &str| {
        gateway.metric("sluicegate_rls_unknown_descriptors_total", &[&format!("what=\"{what}\"")])
    };
    let answer = rls.ask("nobody", &[descriptor(&[("user", "ann")]), descriptor(&[("a", "b")])]);
    assert_eq!((answer.overall_code(), codes(&answer)), (RateLimitCode::Ok, vec![RateLimitCode::Ok; 2]));
    assert_eq!((unknown("domain"), unknown("descriptor")), (2.0, 0.0));
    let answer =
        rls.ask("edge", &[descriptor(&[("who", "ann")]), descriptor(&[("user", "a"), ("shop", "b")])]);
    assert_eq!((answer.overall_code(), codes(&answer)), (RateLimitCode::Ok, vec![RateLimitCode::Ok; 2]));
    assert!(answer.statuses.iter().all(|status| status.current_limit.is_none()));
    assert_eq!((unknown("domain"), unknown("descriptor")), (2.0, 2.0));
    for _ in 0..3 {
        assert_eq!(rls.code("edge", &[("path", "/static/a.css")]), RateLimitCode::Ok, "it is unlimited");
    }
    assert_eq!(unknown("descriptor"), 2.0);
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
    let answers =
        |code: &str| gateway.metric("sluicegate_rls_requests_total", &[&format!("code=\"{code}\"")]);
    assert_eq!((answers("ok"), answers("over_limit"), answers("invalid")), (6.0, 1.0, 0.0));
    let empty = RateLimitRequest { domain: "edge".to_owned(), ..RateLimitRequest::default() };
    assert_eq!(rls.check(empty).expect_err("it asks about nothing").code, INVALID_ARGUMENT);
    assert_eq!(answers("invalid"), 1.0);
}

#[test]
fn limits_are_the_proxys_own() {
    let (gateway, mut rls) = start("9/h", "9/h");
    let address = [("remote_address", "127.0.0.1")];
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(left(&rls.ask("edge", &[descriptor(&address)])), [2]);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(rls.code("edge", &address), RateLimitCode::Ok);
    assert_eq!(gateway.get("/").status, 429);
    assert_eq!(rls.code("edge", &address), RateLimitCode::OverLimit);
    let decided = |decision: &str| {
        let labels = ["policy=\"per-address\"", &*format!("outcome=\"{decision}\"")];
        gateway.metric("sluicegate_decisions_total", &labels)
    };
    assert_eq!((decided("admitted"), decided("denied")), (4.0, 2.0), "both are counted alike");
}

#[test]
fn an_answer_has_the_fields_that_the_proxy_sends() {
    for (style, expected) in [
        ("ietf", &["ratelimit", "ratelimit-policy"][..]),
        ("legacy", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("none", &[]),
    ] {
        let gateway = Gateway::start(&format!("{}[limits]\nheaders = \"{style}\"\n", config("1/h", "9/h")));
        let mut rls = Rls::connect(gateway.listener("grpc"));
        for code in [RateLimitCode::Ok, RateLimitCode::OverLimit] {
            let answer = rls.ask("edge", &[descriptor(&[("user", "ann")])]);
            assert_eq!(answer.overall_code(), code);
            let mut names: Vec<&str> =
                answer.response_headers_to_add.iter().map(|header| header.key.as_str()).collect();
            names.sort_unstable();
            let retry = if code == RateLimitCode::OverLimit { Some("retry-after") } else { None };
            let mut expected: Vec<&str> = expected.iter().copied().chain(retry).collect();
            expected.sort_unstable();
            assert_eq!(names, expected, "{style}");
            let wait: Option<u64> = header(&answer, "retry-after").and_then(|wait| wait.parse().ok());
            assert!(wait.is_none_or(|wait| (3_590..=3_960).contains(&wait)), "{wait:?}");
        }
        let expected = (style == "ietf").then_some("\"per-user\";q=1;w=3600");
        let answer = rls.ask("edge", &[descriptor(&[("user", "bob")])]);
        assert_eq!(header(&answer, "ratelimit-policy"), expected);
        let both =
            [descriptor(&[("user", "eve")]), descriptor(&[("shop", "s")]), descriptor(&[("shop", "t")])];
        let answer = rls.ask("edge", &both);
        let expected = (style == "ietf").then_some("\"per-user\";q=1;w=3600, \"per-shop\";q=9;w=3600");
        assert_eq!(header(&answer, "ratelimit-policy"), expected, "each once");
    }
}

#[test]
fn a_shadow_admits_and_a_penalty_does_not() {
    let policies = "[policy.quiet]\nlimit = \"1/h\"\nby = [\"entry:user\"]\nshadow = true\n\
         [policy.watched]\nlimit = \"1/s\"\nby = [\"entry:client\"]\n\
         penalty = { after = 2, within = \"1m\", factor = 100, max = \"1h\" }\n";
    let gateway = Gateway::start(&format!(
        "{ADMIN}[rls.edge]\ndescriptors = [{{ entries = {{ user = \"*\" }}, limit = \"quiet\" }}, \
         {{ entries = {{ client = \"*\" }}, limit = \"watched\" }}]\n{policies}"
    ));
    let mut rls = Rls::connect(gateway.listener("grpc"));
    for _ in 0..3 {
        let answer = rls.ask("edge", &[descriptor(&[("user", "ann")])]);
        assert_eq!((answer.overall_code(), left(&answer)), (RateLimitCode::Ok, vec![0]));
        assert!(answer.statuses[0].current_limit.is_none(), "an Envoy tells its clients what is in there");
        assert!(answer.response_headers_to_add.is_empty());
    }
    let shadowed = ["policy=\"quiet\"", "outcome=\"shadow-denied\""];
    assert_eq!(gateway.metric("sluicegate_decisions_total", &shadowed), 2.0);
    let mut wait = 0;
    for _ in 0..6 {
        let answer = rls.ask("edge", &[descriptor(&[("client", "bot")])]);
        wait = header(&answer, "retry-after").and_then(|wait| wait.parse().ok()).unwrap_or(wait);
    }
    assert!(wait >= 50, "it ignores the wait, and is told {wait} s");
    let both = [descriptor(&[("client", "kind")]), descriptor(&[("client", "bot")])];
    assert_eq!(codes(&rls.ask("edge", &both)), [RateLimitCode::Ok, RateLimitCode::OverLimit]);
    assert_eq!(rls.code("edge", &[("client", "kind")]), RateLimitCode::Ok, "the other client has no penalty");
}

#[test]
fn a_look_is_no_strike_and_sees_a_penalty() {
    let gateway = Gateway::start(&format!(
        "{ADMIN}[rls.edge]\ndescriptors = [{{ entries = {{ client = \"*\" }}, limit = \"watched\" }}]\n\
         [policy.watched]\nlimit = \"1/m\"\nby = [\"entry:client\"]\n\
         penalty = {{ after = 2, within = \"1m\", factor = 100, max = \"1h\" }}\n"
    ));
    let mut rls = Rls::connect(gateway.listener("grpc"));
    let mut wait = |descriptor: RateLimitDescriptor| -> u64 {
        let answer = rls.ask("edge", &[descriptor]);
        let wait = header(&answer, "retry-after").and_then(|wait| wait.parse().ok()).unwrap_or(0);
        assert_eq!(answer.overall_code() == RateLimitCode::OverLimit, wait > 0);
        wait
    };
    let bot = [("client", "bot")];
    assert_eq!((wait(hits(&bot, 0)), wait(descriptor(&bot))), (0, 0));
    for _ in 0..9 {
        assert!((1..=66).contains(&wait(hits(&bot, 0))), "it has not ignored any wait");
    }
    let waits: Vec<u64> = (0..4).map(|_| wait(descriptor(&bot))).collect();
    assert!(waits[1] <= 66 && waits[3] > 600, "{waits:?}");
    let before = wait(hits(&bot, 0));
    for _ in 0..9 {
        wait(hits(&bot, 0));
    }
    let after = wait(hits(&bot, 0));
    // Each says up to a tenth more than it is.
    assert!(before > 600 && after <= before + before / 8, "{before} s, then {after} s");
}

#[test]
fn the_fields_of_a_look_say_what_its_status_says() {
    let redis = Redis::start(&[]);
    let (alone, fleet) = (Gateway::start(&config("100/d", "9/h")), fleet_node(&redis, "local"));
    for gateway in [&alone, &fleet] {
        let mut rls = Rls::connect(gateway.listener("grpc"));
        let look = [hits(&[("user", "ann")], 0)];
        for expected in [100, 99] {
            let answer = rls.ask("edge", &look);
            assert_eq!(left(&answer), [expected]);
            let said = header(&answer, "ratelimit").expect("there is one");
            assert!(said.starts_with(&format!("\"per-user\";r={expected};t=")), "{said}");
            assert_eq!(said.ends_with(";t=0"), expected == 100, "{said}");
            rls.ask("edge", &[descriptor(&[("user", "ann")])]);
        }
        // Of two with as much, the one that is charged has less.
        let both = [hits(&[("shop", "s1")], 0), descriptor(&[("shop", "s2")])];
        let answer = rls.ask("edge", &both);
        assert_eq!(left(&answer), [9, 8]);
        assert!(header(&answer, "ratelimit").is_some_and(|said| said.starts_with("\"per-shop\";r=8;")));
    }
}

#[test]
fn health_follows_the_process() {
    let gateway = Gateway::start(&format!("{}[shutdown]\nready-delay = \"2s\"\n", config("1/h", "1/h")));
    let mut rls = Rls::connect(gateway.listener("grpc"));
    let mut health = |service: &str| {
        let asked = HealthCheck { service: service.to_owned() }.encode_to_vec();
        rls.call("/grpc.health.v1.Health/Check", &asked)
            .map(|answer| HealthStatus::decode(answer.as_slice()).expect("a status").status)
    };
    let rate_limits = "envoy.service.ratelimit.v3.RateLimitService";
    eventually("it is ready", || (health("") == Ok(SERVING)).then_some(()));
    assert_eq!(health(rate_limits), Ok(SERVING));
    assert_eq!(health("other").expect_err("there is no such service").code, NOT_FOUND);
    gateway.signal("TERM");
    eventually("health says so", || (health(rate_limits) == Ok(NOT_SERVING)).then_some(()));
    assert_eq!(
        rls.code("edge", &[("user", "ann")]),
        RateLimitCode::Ok,
        "it is asked until its clients have noticed"
    );
}

#[test]
fn who_watches_health_holds_up_no_stop() {
    let (mut gateway, mut rls) = start("9/h", "9/h");
    let watching = rls.begin(HEALTH_WATCH, &HealthCheck::default().encode_to_vec());
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    let began = Instant::now();
    gateway.signal("TERM");
    assert_eq!(rls.end(watching).map_err(|failed| failed.code), Err(UNAVAILABLE));
    gateway.wait();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn who_does_not_begin_to_speak_is_let_go() {
    let gateway = Gateway::start(&config("9/h", "9/h"));
    let open = |count: f64| {
        eventually("its connection is counted", || {
            (gateway.metric("sluicegate_grpc_connections", &[]) == count).then_some(())
        });
    };
    let mut halves = Vec::new();
    for said in ["P", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"] {
        let mut half = Client::connect(gateway.listener("grpc"));
        half.send(said);
        halves.push(half);
    }
    open(3.0);
    open(0.0);
}

#[test]
fn a_client_learns_by_reflection_what_to_ask() {
    let (gateway, _) = start("2/m", "2/m");
    let said = python::client("rls_reflection.py", &[&gateway.listener("grpc").to_string()]);
    assert_eq!(
        said,
        "OK 1 2 MINUTE per-user\nOK 0 2 MINUTE per-user\nOVER_LIMIT 0 2 MINUTE per-user\n\
         envoy.service.ratelimit.v3.RateLimitService grpc.health.v1.Health \
         grpc.reflection.v1alpha.ServerReflection\n"
    );
}

#[test]
fn a_method_that_is_not_there_is_said() {
    let (_gateway, mut rls) = start("1/h", "1/h");
    for path in ["/", "/envoy.service.ratelimit.v3.RateLimitService/Other", "/metrics"] {
        assert_eq!(rls.call(path, &[]).map_err(|failed| failed.code), Err(UNIMPLEMENTED), "{path}");
    }
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
}

#[test]
fn a_unix_socket_is_asked_too() {
    let directory = Directory::new();
    let socket = directory.join("rls.sock");
    let text = config("1/h", "1/h")
        .replace("grpc = \"127.0.0.1:0\"", &format!("grpc = \"unix:{}\"", socket.display()));
    let mut gateway = Gateway::start_in(directory, &text);
    let mut rls = Rls::connect_unix(&socket);
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
    gateway.signal("TERM");
    gateway.wait();
    assert!(!socket.exists(), "the file goes with the process");
}

#[test]
fn over_tls_only_who_shows_a_listed_certificate_may_ask() {
    let (directory, authority) = (Directory::new(), Authority::new("mesh"));
    let (cert, key) = authority.server(&["localhost"]);
    for (name, content) in [("server.pem", &cert), ("server.key", &key), ("ca.pem", &authority.pem)] {
        directory.write(name, content);
    }
    let grpc = |clients: &str| {
        format!(
            "grpc = {{ bind = \"0.0.0.0:0\", certs = [{{ cert = \"server.pem\", key = \"server.key\" }}], \
             client-ca = \"ca.pem\"{clients} }}"
        )
    };
    let text =
        config("9/h", "9/h").replace("grpc = \"127.0.0.1:0\"", &grpc(", clients = [\"subject:cn=envoy\"]"));
    let gateway = Gateway::start_in(directory, &text);
    let addr = ([127, 0, 0, 1], gateway.listener("grpc").port()).into();
    let session = |name: &str| tls::session_as(&authority.client("", name, 7, 2090), rustls::ALL_VERSIONS);
    let mut envoy = Rls::connect_tls(addr, &session("envoy")).expect("it is listed");
    assert_eq!(envoy.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert!(Rls::connect_tls(addr, &session("other")).is_none(), "it is not listed");
    let nobody = tls::session(&[], rustls::ALL_VERSIONS);
    assert!(Rls::connect_tls(addr, &nobody).is_none(), "it has no certificate");
    let stranger = Authority::new("elsewhere").client("", "envoy", 7, 2090);
    let stranger = tls::session_as(&stranger, rustls::ALL_VERSIONS);
    assert!(Rls::connect_tls(addr, &stranger).is_none(), "nobody here has issued its certificate");
    let refused = || gateway.metric("sluicegate_grpc_connections_refused_total", &[]);
    eventually("they are counted", || (refused() == 3.0).then_some(()));
    drop(std::net::TcpStream::connect(addr).expect("it listens"));
    assert!(Rls::connect_tls(addr, &session("envoy")).is_some());
    assert_eq!(gateway.metric("sluicegate_grpc_connections_refused_total", &[]), 3.0, "a probe just leaves");
    // A certificate that is replaced is shown to whoever connects from then on.
    let (cert, key) = authority.server(&["other.test"]);
    let before = tls::presented(addr, "localhost");
    gateway.write("server.pem", cert);
    gateway.write("server.key", key);
    eventually("the new certificate is shown", || {
        (tls::presented(addr, "localhost") != before).then_some(())
    });
    assert!(Rls::connect_tls(addr, &session("envoy")).is_some());
}

#[test]
fn a_listener_that_is_open_to_others_asks_for_certificates() {
    let directory = Directory::new();
    let (cert, key) = Authority::new("mesh").server(&["localhost"]);
    directory.write("a.pem", &cert);
    directory.write("a.key", key);
    directory.write("ca.pem", Authority::new("mesh").pem);
    let check = |grpc: &str| {
        let file = directory
            .write("gateway.toml", format!("[admin]\n{grpc}\n[[route]]\npath = \"/\"\nto = \"echo\"\n"));
        let output = binary().args(["check", "--config"]).arg(file).output().expect("it can be started");
        (output.status.code(), text(&output.stderr))
    };
    let certs = "certs = [{ cert = \"a.pem\", key = \"a.key\" }]";
    for (grpc, fault) in [
        ("grpc = \"0.0.0.0:9901\"".to_owned(), "is open to other machines and asks for no certificate"),
        (format!("grpc = {{ bind = \"0.0.0.0:9901\", {certs} }}"), "asks for no certificate"),
        (
            format!(
                "grpc = {{ bind = \"0.0.0.0:9901\", {certs}, client-ca = \"ca.pem\", client-cert = \"ask\" }}"
            ),
            "write `client-cert = \"require\"`",
        ),
        ("grpc = \"127.0.0.1:9900\"".to_owned(), "the address of the admin listener"),
        (
            "grpc = { bind = \"127.0.0.1:9901\", clients = [\"subject:cn=a\"] }".to_owned(),
            "`clients` needs `client-ca`",
        ),
        (
            format!("grpc = {{ bind = \"0.0.0.0:9901\", {certs}, client-ca = \"ca.pem\", clients = [] }}"),
            "`clients` is empty, so nobody could connect",
        ),
        ("grpc = { bnd = \"127.0.0.1:9901\" }".to_owned(), "`bind`"),
        (format!("grpc = {{ bind = \"127.0.0.1:9901\", {certs}, client-ca = \"none.pem\" }}"), "none.pem"),
    ] {
        let (code, said) = check(&grpc);
        assert!(code == Some(78) && said.contains(fault), "{grpc}: {code:?} {said}");
    }
    for grpc in [
        "grpc = \"127.0.0.1:9901\"".to_owned(),
        "grpc = \"unix:/tmp/rls.sock\"".to_owned(),
        format!("grpc = {{ bind = \"0.0.0.0:9901\", {certs}, client-ca = \"ca.pem\" }}"),
    ] {
        let (code, said) = check(&grpc);
        assert_eq!(code, Some(0), "{grpc}: {said}");
    }
}

#[test]
fn a_reload_changes_limits_under_open_connections() {
    let (gateway, mut rls) = start("1/h", "1/h");
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
    gateway.reload(&config("3/h", "1/h"));
    assert_eq!(rls.code("edge", &[("user", "bob")]), RateLimitCode::Ok);
    let answer = rls.ask("edge", &[descriptor(&[("user", "bob")])]);
    assert_eq!(left(&answer), [1]);
}

#[test]
fn an_upgrade_keeps_the_counts_and_loses_no_check() {
    let mut upgraded = Upgraded::start(&config("3/h", "9/h"));
    let addr = upgraded.gateway.listener("grpc");
    let mut before = Rls::connect(addr);
    assert_eq!(left(&before.ask("edge", &[descriptor(&[("user", "ann")])])), [2]);
    upgraded.upgrade();
    let mut after = Rls::connect(addr);
    assert_eq!(left(&after.ask("edge", &[descriptor(&[("user", "ann")])])), [1]);
    assert!(before.is_closed_within(Duration::from_secs(10)), "the old process lets its clients go");
    assert_eq!(after.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert_eq!(after.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
}

#[test]
fn hostile_messages_harm_nobody_else() {
    let (gateway, mut rls) = start("9/h", "9/h");
    let large = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor(&[("user", &"x".repeat(1 << 20))])],
        hits_addend: 0,
    };
    let Failed { code, message } = rls.check(large).expect_err("it is too large");
    assert!([OUT_OF_RANGE, RESOURCE_EXHAUSTED].contains(&code), "{code} {message}");
    let many: Vec<(&str, &str)> = vec![("user", "ann"); 10_000];
    let asked =
        RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor(&many)], hits_addend: 0 };
    let began = Instant::now();
    assert_eq!(rls.check(asked).map_err(|failed| failed.code), Err(INVALID_ARGUMENT));
    let asked = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor(&[("user", "ann")]); 300],
        hits_addend: 0,
    };
    assert_eq!(rls.check(asked).map_err(|failed| failed.code), Err(INVALID_ARGUMENT));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let path = crate::support::rls::SHOULD_RATE_LIMIT;
    assert!(rls.call(path, &[0xff; 64]).is_err(), "no message at all");
    for value in ["", "a\0b", "${HOME}", "\u{202e}evil", &"k".repeat(100_000)] {
        let answer = rls.ask("edge", &[descriptor(&[("user", value)])]);
        assert_eq!(answer.overall_code(), RateLimitCode::Ok);
        assert_eq!(rls.ask("edge", &[descriptor(&[(value, "v")])]).overall_code(), RateLimitCode::Ok);
        assert_eq!(
            rls.ask(&format!("e{value}"), &[descriptor(&[("user", "v")])]).overall_code(),
            RateLimitCode::Ok
        );
    }
    let page = gateway.admin("/metrics").text();
    assert!(!page.contains("evil") && !page.contains("HOME"), "no client's value is a label");
    // Cut off in the middle of a frame, and no HTTP/2 at all.
    Client::connect(gateway.listener("grpc")).send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x04");
    Client::connect(gateway.listener("grpc")).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(rls.code("edge", &[("user", "eve")]), RateLimitCode::Ok);
}

#[test]
fn a_check_may_be_packed_and_no_larger_than_others() {
    let (gateway, mut rls) = start("1/h", "9/h");
    let path = crate::support::rls::SHOULD_RATE_LIMIT;
    let check = |value: &str| {
        let descriptors = vec![descriptor(&[("user", value)])];
        RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec()
    };
    let code =
        |answer: Vec<u8>| RateLimitResponse::decode(answer.as_slice()).expect("it is one").overall_code();
    for expected in [RateLimitCode::Ok, RateLimitCode::OverLimit] {
        assert_eq!(code(rls.call_gzip(path, &check("ann")).expect("it is answered")), expected);
    }
    assert!(rls.call_gzip(path, &check(&"k".repeat(1_000_000))).is_ok(), "a mebibyte is not reached");
    let before = gateway.memory_kib();
    for megabytes in [2, 200] {
        let failed = rls.call_gzip(path, &check(&"k".repeat(megabytes << 20))).expect_err("it is too large");
        assert_eq!(failed.code, RESOURCE_EXHAUSTED, "{}", failed.message);
    }
    let grown = gateway.memory_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB");
    // Nobody takes reports of the quota service, packed or not.
    let reports = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    assert_eq!(rls.call_gzip(reports, &[]).map_err(|failed| failed.code), Err(UNIMPLEMENTED));
}

#[test]
fn a_refused_check_is_a_sample() {
    let (gateway, mut rls) = start("1/h", "1/h");
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    assert_eq!(rls.code("edge", &[("shop", "s1")]), RateLimitCode::Ok);
    let decisions = || gateway.admin("/v1/decisions").json()["items"].as_array().cloned().expect("a list");
    assert_eq!(decisions().len(), 0, "no admission is drawn");
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
    let both = [descriptor(&[("user", "bob")]), descriptor(&[("shop", "s1")])];
    assert_eq!(rls.ask("edge", &both).overall_code(), RateLimitCode::OverLimit);
    let kept = eventually("both are kept", || Some(decisions()).filter(|kept| kept.len() == 2));
    let (ann, both) = (&kept[1], &kept[0]);
    assert_eq!((&ann["domain"], &ann["admitted"]), (&"edge".into(), &false.into()));
    assert!(ann.get("route").is_none() && ann.get("request-id").is_none());
    assert!(ann["passes-at"].is_string() && ann["node"].is_string());
    let window = &ann["windows"][0];
    assert_eq!((&window["policy"], &window["key"]), (&"per-user".into(), &"entry:user=ann".into()));
    assert_eq!(
        (&window["limit"], &window["remaining"], &window["tier"]),
        (&1.into(), &0.into(), &"local".into())
    );
    let keys: Vec<_> = both["windows"].as_array().expect("two").iter().map(|it| &it["key"]).collect();
    assert_eq!(keys, ["entry:shop=s1", "entry:user=bob"], "what refuses comes first");
    gateway.reload(&format!("{}[log]\ndecisions = false\n", config("1/h", "1/h")));
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::OverLimit);
    let samples = |result: &str| {
        gateway.metric("sluicegate_decision_samples_total", &[&format!("result=\"{result}\"")])
    };
    assert_eq!((samples("kept"), samples("dropped")), (2.0, 0.0));
}

#[test]
fn ten_thousand_calls_that_go_nowhere_hold_up_nobody() {
    let (gateway, mut rls) = start("9/h", "9/h");
    let before = gateway.memory_kib();
    let mut greedy = Rls::connect(gateway.listener("grpc"));
    greedy.hang(10_000);
    eventually("the calls are under way", || {
        (gateway.metric("sluicegate_grpc_connections", &[]) == 2.0).then_some(())
    });
    for number in 0..9 {
        assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok, "{number}");
    }
    let grown = gateway.memory_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    drop(greedy);
    eventually("its connection is gone", || {
        (gateway.metric("sluicegate_grpc_connections", &[]) == 1.0).then_some(())
    });
}

/// Asks on so many streams of a connection to the gRPC listener on which answers have windows of so many bytes.
fn ask_without_reading(gateway: &Gateway, calls: u32, window: u32) -> h2::Connection {
    let mut client = h2::Connection::open(gateway.listener("grpc"));
    client.send(h2::SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    let descriptors = vec![descriptor(&[("user", "ann")])];
    let request = RateLimitRequest { domain: "edge".into(), descriptors, hits_addend: 0 };
    let message = framed(&request.encode_to_vec());
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", SHOULD_RATE_LIMIT)];
    let head = h2::fields(&[&head[..], &[("content-type", "application/grpc"), ("te", "trailers")]].concat());
    for call in 0..calls {
        client.try_write(&h2::encoded(h2::HEADERS, h2::END_HEADERS, 2 * call + 1, &head));
        client.try_write(&h2::encoded(h2::DATA, h2::END_STREAM, 2 * call + 1, &message));
    }
    client
}

#[test]
fn answers_that_a_client_does_not_read_end_in_time() {
    let (gateway, mut rls) = start("99/h", "9/h");
    let open = || gateway.metric("sluicegate_grpc_connections", &[]);
    let mut shut = [0, 1].map(|window| ask_without_reading(&gateway, 20, window));
    // A byte now and then, and PING, change nothing.
    shut[0].try_write(&h2::encoded(h2::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]).repeat(9));
    shut[1].try_write(&h2::encoded(h2::PING, 0, 0, &[0; 8]).repeat(9));
    let watching = rls.begin(HEALTH_WATCH, &HealthCheck::default().encode_to_vec());
    eventually("all are connected", || (open() == 3.0).then_some(()));
    assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
    for client in &mut shut {
        assert!(client.is_closed());
    }
    eventually("only who reads is left", || (open() == 1.0).then_some(()));
    assert!(!watching.is_finished(), "it waits for news, not for its client");
}

#[test]
fn nodes_admit_together_what_a_limit_holds() {
    let redis = Redis::start(&[]);
    let gateways: Vec<Gateway> = (0..2).map(|_| fleet_node(&redis, "local")).collect();
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor(&[("user", "ann")])],
        hits_addend: 0,
    };
    let asks = std::thread::scope(|scope| {
        let asks: Vec<_> = gateways
            .iter()
            .map(|gateway| {
                let request = &request;
                scope.spawn(move || Rls::connect(gateway.listener("grpc")).ask_at_once(request, 400))
            })
            .collect();
        asks.into_iter().map(|ask| ask.join().expect("no panic")).collect::<Vec<_>>()
    });
    let admitted: usize = asks.iter().map(|counts| counts[RateLimitCode::Ok as usize]).sum();
    let refused: usize = asks.iter().map(|counts| counts[RateLimitCode::OverLimit as usize]).sum();
    assert_eq!((admitted, refused), (100, 700), "{asks:?}");
}

#[test]
fn without_redis_the_policy_says_what_passes() {
    for (when, admits) in [("allow", true), ("deny", false)] {
        let mut redis = Redis::start(&[]);
        let gateway = fleet_node(&redis, when);
        let mut rls = Rls::connect(gateway.listener("grpc"));
        assert_eq!(rls.code("edge", &[("user", "ann")]), RateLimitCode::Ok);
        redis.kill();
        eventually("it is noticed", || (gateway.metric("sluicegate_redis_up", &[]) < 1.0).then_some(()));
        let is_admitted = |rls: &mut Rls| rls.code("edge", &[("user", "ann")]) == RateLimitCode::Ok;
        // A unit that Redis gave too late for the request that asked for it is spent first.
        eventually("its units are spent", || (is_admitted(&mut rls) == admits).then_some(()));
        for _ in 0..20 {
            assert_eq!(is_admitted(&mut rls), admits, "{when}");
        }
        redis.restart();
        eventually("it counts again", || {
            (rls.code("edge", &[("user", "bob")]) == RateLimitCode::Ok).then_some(())
        });
    }
}

/// A node whose limit for a user is a hundred an hour, exactly.
fn fleet_node(redis: &Redis, when: &str) -> Gateway {
    let fixed = "algorithm = \"fixed-window\"\novershoot = 0\n";
    let text = config("100/d", "9/h").replace(
        "by = [\"entry:user\"]\n",
        &format!("by = [\"entry:user\"]\n{fixed}when-redis-down = \"{when}\"\n"),
    );
    let gateway =
        Gateway::start(&format!("{text}[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr()));
    eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    gateway
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheck {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthStatus {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const RESOURCE_EXHAUSTED: u32 = 8;
const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const UNAVAILABLE: u32 = 14;
