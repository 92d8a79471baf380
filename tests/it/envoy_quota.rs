//! The rate limit quota service: what a proxy is told, stream by stream.

use std::time::Duration;

use prost::Message;
use rls::{BucketId, Code, Entry, RateLimitQuotaUsageReports};

use crate::support::redis::Redis;
use crate::support::rlqs::{Proxies, Proxy, Told, id};
use crate::support::rls::{Rls, framed};
use crate::support::{Gateway, eventually};

/// A domain `edge` whose rules name this limit for a user and for an address, which a route counts, too.
fn config(limit: &str) -> String {
    format!(
        "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n\
         [rls.edge]\ndescriptors = [\n\
         {{ entries = [{{ shop = \"*\" }}, {{ user = \"*\" }}], limit = \"per-user\" }},\n\
         {{ entries = {{ remote_address = \"*\" }}, limit = \"per-address\" }},\n\
         {{ entries = {{ watched = \"*\" }}, limit = \"watched\" }},\n\
         {{ entries = {{ path = \"/static/*\" }}, unlimited = true }},\n\
         {{ entries = {{ path = \"/closed\" }}, deny = true }},\n]\n\
         [policy.per-user]\nlimit = \"{limit}\"\nby = [\"entry:shop\", \"entry:user\"]\n\
         [policy.per-address]\nlimit = \"{limit}\"\nby = [\"ip\"]\n\
         [policy.watched]\nlimit = \"1/h\"\nby = [\"entry:watched\"]\nshadow = true\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"per-address\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

fn start(limit: &str) -> (Gateway, Proxies) {
    let gateway = Gateway::start(&config(limit));
    let proxies = Proxies::connect(gateway.listener("grpc"));
    (gateway, proxies)
}

const ANN: &[(&str, &str)] = &[("user", "ann"), ("shop", "s1")];
const ANN_SORTED: &[(&str, &str)] = &[("shop", "s1"), ("user", "ann")];
const ADDRESS: &[(&str, &str)] = &[("remote_address", "127.0.0.1")];

fn assignments(gateway: &Gateway, told: &str) -> f64 {
    gateway.metric("sluicegate_rlqs_assignments_total", &[&format!("told=\"{told}\"")])
}

fn requests(gateway: &Gateway, what: &str) -> f64 {
    gateway.metric("sluicegate_rlqs_requests_total", &[&format!("what=\"{what}\"")])
}

#[test]
fn a_bucket_is_assigned_what_its_limit_has() {
    let (gateway, proxies) = start("160/h");
    let mut proxy = proxies.begin("edge");
    // An eighth of what is left, of a proxy that has just come; what passed before counts.
    assert_eq!(proxy.report(ANN, 1, 0), Told::Spend { tokens: 19, seconds: 60 });
    let mut rls = Rls::connect(gateway.listener("grpc"));
    let answer = rls.ask("edge", &[crate::support::rls::descriptor(&[("shop", "s1"), ("user", "ann")])]);
    assert_eq!(answer.statuses[0].limit_remaining, 139, "checks spend of the same count");
    assert_eq!(proxy.report(ANN, 19, 41).tokens(), 75, "a quarter more than it had, if there is as much");
    assert_eq!(proxy.report(&[("user", "bob"), ("shop", "s1")], 0, 1).tokens(), 20, "others have their own");
    assert_eq!((requests(&gateway, "drawn"), requests(&gateway, "unassigned")), (115.0, 1.0));
    assert_eq!(gateway.metric("sluicegate_rlqs_buckets", &[]), 2.0);
}

#[test]
fn a_proxy_keeps_what_it_has_while_that_is_enough() {
    let (gateway, proxies) = start("1600/h");
    let mut proxy = proxies.begin("edge");
    proxy.send(&[(ANN, 0, 1)]);
    let first = proxy.next().expect("it is answered");
    let told: Vec<Told> = first.into_iter().map(|(_, told)| told).collect();
    // An Envoy begins a bucket full only after another rule.
    assert_eq!(told, [Told::Deny, Told::Spend { tokens: 200, seconds: 60 }]);
    proxy.send(&[(ANN, 4, 0)]);
    let second = proxy.next().expect("it is answered");
    let told: Vec<Told> = second.into_iter().map(|(_, told)| told).collect();
    assert_eq!(told, [Told::Spend { tokens: 200, seconds: 60 }], "the same, and no other rule before it");
    assert_eq!(requests(&gateway, "drawn"), 200.0);
    // Nobody comes any more.
    for _ in 0..5 {
        proxy.report(ANN, 0, 0);
    }
    assert!(requests(&gateway, "returned") >= 190.0);
}

#[test]
fn a_bucket_that_a_proxy_has_only_begun_is_assigned_once() {
    let (_gateway, proxies) = start("1600/h");
    let told = |proxy: &mut Proxy<'_>, elapsed_ms, bucket| {
        proxy.send_after(Some(Duration::from_millis(elapsed_ms)), &[(bucket, 0, 1)]);
        let answer = proxy.next().expect("it is answered");
        answer.into_iter().map(|(_, told)| told).collect::<Vec<_>>()
    };
    let mut proxy = proxies.begin("edge");
    assert_eq!(told(&mut proxy, 0, ANN), [Told::Spend { tokens: 200, seconds: 60 }]);
    let bob: &[(&str, &str)] = &[("user", "bob"), ("shop", "s1")];
    assert_eq!(told(&mut proxy, 49, bob), [Told::Spend { tokens: 200, seconds: 60 }]);
    // A proxy that has opened another stream still has what it was assigned on the one before.
    let mut again = proxies.begin("edge");
    assert!(matches!(told(&mut again, 1_000, ANN)[..], [Told::Deny, Told::Spend { .. }]));
    let later = told(&mut proxy, 0, ANN);
    assert!(matches!(later[..], [Told::Deny, Told::Spend { .. }]), "it has something already: {later:?}");
}

#[test]
fn an_assignment_keeps_within_every_window_of_its_policy() {
    for windows in ["[\"1600/h\", \"24/d\"]", "[\"24/h\", \"1600/d\"]", "[\"24/h\", \"24/d\", \"1600/30d\"]"]
    {
        let gateway = Gateway::start(&config("0/x").replace("\"0/x\"", windows));
        let proxies = Proxies::connect(gateway.listener("grpc"));
        let mut both = [proxies.begin("edge"), proxies.begin("edge")];
        let mut given = 0;
        for _ in 0..4 {
            for proxy in &mut both {
                // Nothing of what it was given is spent, and far more is wanted.
                if let Told::Spend { tokens, .. } = proxy.report(ANN, 0, 1_000) {
                    given = tokens.max(given);
                }
            }
        }
        let drawn = requests(&gateway, "drawn") - requests(&gateway, "returned");
        assert!((1.0..=24.0).contains(&drawn) && given <= 24, "{windows}: {drawn} drawn, {given} at once");
        let mut rls = Rls::connect(gateway.listener("grpc"));
        let status = &rls.ask("edge", &[crate::support::rls::descriptor(ANN_SORTED)]).statuses[0];
        assert!(f64::from(status.limit_remaining) <= 24.0 - drawn, "{windows}: {status:?} beside {drawn}");
    }
}

#[test]
fn nothing_passes_where_nothing_is_left() {
    let (gateway, proxies) = start("2/h");
    let (mut first, mut second) = (proxies.begin("edge"), proxies.begin("edge"));
    assert_eq!(first.report(ANN, 0, 1).tokens(), 2);
    assert_eq!(second.report(ANN, 0, 1), Told::Deny);
    assert_eq!(assignments(&gateway, "deny"), 1.0);
    assert_eq!(
        Rls::connect(gateway.listener("grpc")).code("edge", &[("shop", "s1"), ("user", "ann")]),
        Code::OverLimit
    );
}

#[test]
fn who_waits_is_given_more_before_its_next_report() {
    let (_gateway, proxies) = start("20/s");
    let mut proxy = proxies.begin("edge");
    let mut tokens = proxy.report(ANN, 0, 100).tokens();
    for _ in 0..4 {
        let answer = proxy.next_within(Duration::from_secs(5)).expect("there is more");
        tokens += answer.last().expect("about the bucket").1.tokens();
    }
    assert!(tokens >= 20, "{tokens}");
}

#[test]
fn what_no_policy_names_is_abandoned() {
    let (gateway, proxies) = start("9/h");
    let mut proxy = proxies.begin("edge");
    assert_eq!(proxy.report(&[("who", "ann")], 1, 0), Told::Abandon);
    assert_eq!(proxy.report(&[("user", "ann")], 1, 0), Told::Abandon);
    assert_eq!(proxy.report(&[("path", "/static/a.png")], 1, 0), Told::Allow);
    assert_eq!(proxy.report(&[("path", "/closed")], 1, 0), Told::Deny);
    assert_eq!(proxies.begin("nobody").report(ANN, 1, 0), Told::Abandon);
    let unknown = |what: &str| {
        gateway.metric("sluicegate_rls_unknown_descriptors_total", &[&format!("what=\"{what}\"")])
    };
    assert_eq!((unknown("descriptor"), unknown("domain")), (2.0, 1.0));
    assert_eq!(gateway.metric("sluicegate_rlqs_buckets", &[]), 0.0);
}

#[test]
fn a_shadow_lets_all_pass_and_counts() {
    let (gateway, proxies) = start("9/h");
    let mut proxy = proxies.begin("edge");
    for _ in 0..3 {
        assert_eq!(proxy.report(&[("watched", "x")], 5, 0), Told::Allow);
    }
    let denied = ["policy=\"watched\"", "outcome=\"shadow-denied\""];
    assert!(gateway.metric("sluicegate_decisions_total", &denied) >= 2.0);
}

#[test]
fn proxies_and_own_routes_share_one_limit() {
    let (gateway, proxies) = start("40/h");
    let mut proxy = proxies.begin("edge");
    assert_eq!(proxy.report(ADDRESS, 0, 23).tokens(), 29);
    let mut client = gateway.client();
    let statuses: Vec<u16> = (0..20).map(|_| client.request("GET", "/", &[], "").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 11);
    assert_eq!(proxy.report(ADDRESS, 29, 10), Told::Deny);
}

#[test]
fn a_stream_that_ends_gives_its_share_back() {
    let (gateway, proxies) = start("100/h");
    let mut rls = Rls::connect(gateway.listener("grpc"));
    let mut code = || rls.code("edge", &[("shop", "s1"), ("user", "ann")]);
    let mut proxy = proxies.begin("edge");
    assert_eq!(proxy.report(ANN, 0, 80).tokens(), 100);
    assert_eq!(code(), Code::OverLimit);
    drop(proxy);
    eventually("units are back", || (code() == Code::Ok).then_some(()));
    assert_eq!(gateway.metric("sluicegate_rlqs_buckets", &[]), 0.0);
    eventually("the stream is over", || {
        (gateway.metric("sluicegate_rlqs_streams", &[]) == 0.0).then_some(())
    });
    // A connection that breaks off ends its streams.
    let others = Proxies::connect(gateway.listener("grpc"));
    others.begin("edge").report(&[("user", "eve"), ("shop", "s1")], 0, 1);
    let mut last = others.begin("edge");
    last.report(&[("user", "eve"), ("shop", "s1")], 0, 1);
    std::mem::forget(last);
    drop(others);
    eventually("nobody holds anything", || {
        (gateway.metric("sluicegate_rlqs_buckets", &[]) == 0.0).then_some(())
    });
}

#[test]
fn a_stream_that_falls_silent_loses_its_share() {
    let (gateway, proxies) = start("100/h");
    let mut proxy = proxies.begin("edge");
    for _ in 0..3 {
        proxy.report(ANN, 0, 1);
    }
    assert_eq!(gateway.metric("sluicegate_rlqs_buckets", &[]), 1.0);
    eventually("its time is over", || (gateway.metric("sluicegate_rlqs_buckets", &[]) == 0.0).then_some(()));
    assert_eq!(gateway.metric("sluicegate_rlqs_streams", &[]), 1.0, "it may report again");
    assert!(proxy.report(ANN, 0, 1).tokens() > 0);
}

#[test]
fn a_stream_that_never_reports_is_closed() {
    let (gateway, proxies) = start("9/h");
    let mut silent = proxies.begin("edge");
    assert_eq!(silent.next(), Err(DEADLINE_EXCEEDED));
    assert_eq!(gateway.metric("sluicegate_rlqs_streams", &[]), 0.0);
}

#[test]
fn a_configuration_that_is_replaced_decides_the_next_report() {
    let (gateway, proxies) = start("160/h");
    let mut proxy = proxies.begin("edge");
    assert_eq!(proxy.report(ANN, 0, 20).tokens(), 25);
    // The part that was spent stays spent: 25 of 160.
    gateway.reload(&config("16/h"));
    let mut tokens = proxy.report(ANN, 25, 30).tokens();
    if tokens == 0 {
        // It had its turn a moment ago; the next one comes by itself.
        tokens = proxy.next().expect("it is told").pop().expect("about the bucket").1.tokens();
    }
    assert!((13..=14).contains(&tokens), "{tokens}");
}

#[test]
fn without_redis_the_policy_says_what_is_assigned() {
    for (when, admits) in [("allow", true), ("deny", false)] {
        let mut redis = Redis::start(&[]);
        let policy =
            format!("overshoot = 0\nwhen-redis-down = \"{when}\"\nby = [\"entry:shop\", \"entry:user\"]\n");
        let text = config("100/d").replace("by = [\"entry:shop\", \"entry:user\"]\n", &policy);
        let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
        let gateway = Gateway::start(&format!("{text}{redis_url}"));
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        let proxies = Proxies::connect(gateway.listener("grpc"));
        let mut proxy = proxies.begin("edge");
        assert_eq!(proxy.report(ANN, 0, 1).tokens(), 12, "{when}");
        redis.kill();
        eventually("it is noticed", || (gateway.metric("sluicegate_redis_up", &[]) < 1.0).then_some(()));
        let told = proxies.begin("edge").report(&[("user", "bob"), ("shop", "s1")], 0, 1);
        assert_eq!(told.tokens() > 0, admits, "{when}: {told:?}");
        redis.restart();
        eventually("it counts again", || {
            (proxies.begin("edge").report(&[("user", "eve"), ("shop", "s1")], 0, 1).tokens() > 0)
                .then_some(())
        });
    }
}

/// They have passed, so the window of a day has them, whatever is left of that of a second, and whether their stream
/// goes on or not.
#[test]
fn what_passes_without_an_assignment_is_charged_to_each_window() {
    let redis = Redis::start(&[]);
    let scenes = [(None, "token-bucket"), (Some(&redis), "token-bucket"), (Some(&redis), "fixed-window")];
    for ((redis, algorithm), overshoot) in scenes.into_iter().zip(["1%", "1%", "0%"]) {
        let policy = format!(
            "[policy.per-address]\nlimit = [\"10/s\", \"1000/d\"]\nalgorithm = \"{algorithm}\"\n\
             overshoot = \"{overshoot}\"\n"
        );
        let text = config("9/s").replace("[policy.per-address]\nlimit = \"9/s\"\n", &policy);
        let redis_url = redis.map_or(String::new(), |redis| {
            format!(
                "[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\nprefix = \"{algorithm}\"\n",
                redis.addr()
            )
        });
        let gateway = Gateway::start(&format!("{text}{redis_url}"));
        if redis.is_some() {
            eventually("it is connected", || {
                (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(())
            });
        }
        let proxies = Proxies::connect(gateway.listener("grpc"));
        let mut proxy = proxies.begin("edge");
        proxy.report(ADDRESS, 500, 0);
        drop(proxy);
        eventually("the window of a day has them", || {
            let said = gateway.admin("/v1/keys/per-address/127.0.0.1").json();
            // What was drawn for it, and has not come back yet, is at most a second's.
            let left = said["windows"][1]["remaining"].as_u64()?;
            (490..=500).contains(&left).then_some(())
        });
        // Of a second's window one limit is owed, not fifty seconds of it.
        eventually("the window of a second is whole", || {
            gateway.client().get("/").status.eq(&200).then_some(())
        });
    }
}

#[test]
fn a_gateway_that_stops_lets_its_streams_go() {
    let (mut gateway, proxies) = start("9/h");
    let mut proxy = proxies.begin("edge");
    proxy.report(ANN, 0, 1);
    gateway.signal("TERM");
    assert_eq!(proxy.next(), Err(UNAVAILABLE));
    gateway.wait();
}

#[test]
fn hostile_reports_harm_nobody_else() {
    let (gateway, proxies) = start("900/h");
    let mut honest = proxies.begin("edge");
    honest.report(ANN, 0, 1);
    let ends = |send: &dyn Fn(&Proxy<'_>)| {
        let mut proxy = proxies.begin("edge");
        send(&proxy);
        proxy.next().expect_err("it is ended")
    };
    let large = "x".repeat(1 << 24);
    let code = ends(&|proxy| proxy.send(&[(&[("user", &large)], 1, 0)]));
    assert!([OUT_OF_RANGE, RESOURCE_EXHAUSTED].contains(&code), "{code}");
    assert_ne!(ends(&|proxy| proxy.send_bytes(framed(&[0xff; 64]))), 0, "no message at all");
    let nameless = RateLimitQuotaUsageReports::default().encode_to_vec();
    assert_eq!(ends(&|proxy| proxy.send_bytes(framed(&nameless))), INVALID_ARGUMENT, "no domain");
    let mut odd = proxies.begin("edge");
    let long = "k".repeat(100_000);
    assert_eq!(odd.report(&[("user", &long), ("shop", "s1")], 1, 0), Told::Deny, "a name too long");
    for value in ["a\0b", "${HOME}", "\u{202e}evil"] {
        assert!(odd.report(&[("user", value), ("shop", "s1")], 0, 1).tokens() > 0);
        assert_eq!(odd.report(&[(value, "v")], 0, 1), Told::Abandon);
    }
    odd.report(ANN, u64::MAX, u64::MAX);
    odd.send(&[(&[], 1, 1)]);
    let page = gateway.admin("/metrics").text();
    assert!(!page.contains("evil") && !page.contains("HOME"), "no client's value is a label");
    honest.send(&[(&[("user", "new"), ("shop", "s1")], 0, 1)]);
    let told = honest.next().expect("it is answered");
    assert!(told.last().expect("about the bucket").1.tokens() > 0);
}

#[test]
fn a_bucket_whose_name_is_no_text_harms_no_other() {
    let (gateway, proxies) = start("900/h");
    let mut proxy = proxies.begin("edge");
    let odd = BucketId {
        entries: vec![
            Entry { key: b"shop".to_vec(), value: b"s1".to_vec() },
            Entry { key: b"user".to_vec(), value: b"\xff".to_vec() },
        ],
    };
    for number in 1..=2 {
        proxy.send_all([odd.clone(), id(ANN)]);
        let told = proxy.next().expect("it is answered");
        let (named, last) = told.last().expect("about the other one");
        assert_eq!((named.len(), last.tokens() > 0), (2, true));
        assert!(told.iter().all(|(bucket, _)| bucket == named), "it is told nothing of the odd one");
        assert_eq!(gateway.metric("sluicegate_rlqs_buckets_unreadable_total", &[]), f64::from(number));
    }
    let said = gateway.stderr().into_iter().filter(|line| line.contains("whose name is not UTF-8"));
    assert_eq!(said.count(), 1, "it is said once");
}

#[test]
fn a_report_of_many_buckets_is_served() {
    let (gateway, proxies) = start("900/h");
    let mut proxy = proxies.begin("edge");
    let named = |count: usize, bytes: usize| {
        (0..count).map(move |number| id(&[("shop", "s1"), ("user", &format!("{number:0bytes$}"))]))
    };
    let mut report = |count: usize, bytes: usize| {
        proxy.send_all(named(count, bytes));
        let (mut assigned, mut abandoned) = (0, 0);
        while assigned + abandoned < count {
            for (_, told) in proxy.next().expect("the stream goes on") {
                assigned += usize::from(told.tokens() > 0);
                abandoned += usize::from(told == Told::Abandon);
            }
        }
        (assigned, abandoned)
    };
    assert_eq!(report(4_500, 256), (4_500, 0), "more than a mebibyte");
    assert_eq!(report(40_000, 8), (32_768, 7_232), "the proxy is told to forget the others");
    assert!(gateway.metric("sluicegate_rlqs_buckets", &[]) <= 40_000.0);
    assert!(proxy.report(ANN, 0, 1).tokens() > 0);
}

#[test]
fn what_a_report_is_read_into_is_bounded() {
    let (gateway, proxies) = start("900/h");
    let before = gateway.memory_kib();
    let field = |number: u8, content: &[u8]| {
        let mut field = vec![number << 3 | 2];
        prost::encode_length_delimiter(content.len(), &mut field).expect("it fits");
        [field, content.to_vec()].concat()
    };
    let nothing = [0x0a, 0x00].repeat(7 << 20);
    let nameless = [0x12, 0x00].repeat(7 << 20);
    // Buckets without a name, one with many empty entries, and many with a few.
    for usages in
        [nameless, field(2, &field(1, &nothing)), field(2, &field(1, &nothing[..64])).repeat(150_000)]
    {
        let mut greedy = proxies.begin("edge");
        greedy.send_bytes(framed(&[field(1, b"edge"), usages].concat()));
        greedy.next_within(Duration::from_secs(1));
    }
    let grown = gateway.memory_kib().saturating_sub(before);
    assert!(grown < 96 * 1024, "{grown} KiB");
    assert!(proxies.begin("edge").report(ANN, 0, 1).tokens() > 0);
}

#[test]
fn ten_thousand_streams_hold_up_nobody() {
    let (gateway, proxies) = start("900/h");
    let mut honest = proxies.begin("edge");
    let before = gateway.memory_kib();
    let greedy = Proxies::connect(gateway.listener("grpc"));
    let streams: Vec<Proxy<'_>> = (0..10_000).map(|_| greedy.begin("edge")).collect();
    eventually("they are refused", || {
        let refused = gateway.metric("sluicegate_rlqs_streams_refused_total", &[]);
        (refused >= 9_000.0).then_some(())
    });
    for _ in 0..5 {
        honest.report(ANN, 0, 1);
    }
    assert!(gateway.metric("sluicegate_rlqs_streams", &[]) <= 257.0);
    let grown = gateway.memory_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    drop(streams);
}

const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const OUT_OF_RANGE: u32 = 11;
const UNAVAILABLE: u32 = 14;
