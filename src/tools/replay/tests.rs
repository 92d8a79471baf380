//! Requests played through configurations, without a file between.

use http::{HeaderMap, Method};

use super::differences::Differences;
use super::fleet_simulation::Simulation;
use super::order::ReplayOrder;
use super::outcome_counts::Outcome;
use super::request::{Client, Request};
use base::identity::Identity;

const S: u64 = 1_000_000_000;
const NOW: u64 = 1_795_046_400 * S;

fn world_of(nodes: u32, text: &str) -> Simulation {
    let loaded = config::from_text("gateway.toml", text);
    Simulation::new(loaded.unwrap_or_else(|errors| panic!("{errors}")), nodes)
}

fn limited(limit: &str, more: &str) -> String {
    format!(
        "{more}\n[limits]\nmemory = \"1MiB\"\n[policy.p]\n{limit}\n[[route]]\npath = \"/a/{{*rest}}\"\nlimit = \"p\"\nrespond = {{}}\n"
    )
}

fn get(target: &str) -> Request {
    Request {
        began_ns: NOW,
        lasted_ns: 0,
        has_duration: false,
        listener: Box::default(),
        client: Some(Client::Peer([192, 0, 2, 1].into())),
        method: Method::GET,
        host: "api.example".into(),
        target: target.into(),
        identity: Identity::default(),
        is_unrecognised: false,
        headers: HeaderMap::new(),
        status: 200,
        bytes_in: 0,
        bytes_out: 0,
        was_refused_before_limits: false,
        was_denied: None,
    }
}

fn at(at_ns: u64) -> ReplayOrder {
    ReplayOrder { at_ns, logged_ns: at_ns, late_ns: 0 }
}

/// Plays the request so often, with so many nanoseconds between, and counts what is refused.
fn denied(world: &mut Simulation, request: &Request, times: u64, every_ns: u64) -> u64 {
    let play = |number: u64| {
        let at_ns = request.began_ns + number * every_ns;
        world.play(&Request { began_ns: at_ns, ..request.clone() }, at(at_ns), 0)
    };
    (0..times).map(play).filter(|outcome| outcome.is_denied()).count() as u64
}

#[test]
fn limits_refill_by_the_time_of_the_log() {
    let mut world = world_of(1, &limited("by = [\"ip\"]\nlimit = \"60/m burst 2\"", ""));
    assert_eq!(denied(&mut world, &get("/a/b"), 10, S), 0);
    assert_eq!(denied(&mut world, &Request { began_ns: NOW + 100 * S, ..get("/a/b") }, 10, 0), 8);
    let policy = &world.counts.policies[0];
    assert_eq!((policy.admitted, policy.denied), (12, 8));
    assert_eq!((policy.keys.count(), policy.keys_denied.count()), (1, 1));
    assert_eq!(policy.worst.top(5), [(8, "ip=192.0.2.1")]);
    assert_eq!(policy.minutes.worst().map(|(_, minute)| (minute.requests, minute.denied)), Some((10, 8)));
}

#[test]
fn a_fixed_window_begins_when_that_of_the_wall_clock_does() {
    let mut world = world_of(1, &limited("by = []\nlimit = \"5/m\"\nalgorithm = \"fixed-window\"", ""));
    let second = |second: u64| Request { began_ns: NOW + second * S, ..get("/a/") };
    assert_eq!(denied(&mut world, &second(55), 5, 0), 0);
    assert_eq!(denied(&mut world, &second(59), 3, 0), 3);
    assert_eq!(denied(&mut world, &second(60), 6, 0), 1);
}

/// Whatever year the log is of, and with leases, too.
#[test]
fn a_month_of_the_calendar_is_that_of_the_log() {
    for (more, nodes) in [("", 1), ("[redis]\nurl = \"redis://127.0.0.1\"", 2)] {
        for (ends_s, next_s) in
            [(951_865_200, 954_540_000), (1_709_247_600, 1_711_922_400), (4_070_905_200, 4_073_583_600)]
        {
            let limit = "by = []\nlimit = \"50/month\"\ntime-zone = \"Europe/Berlin\"";
            let mut world = world_of(nodes, &limited(limit, more));
            let at = |at_s: u64| Request { began_ns: at_s * S, ..get("/a/") };
            // Two days before March, and a second; then in March, and a second before April.
            assert_eq!(denied(&mut world, &at(ends_s - 2 * 86_400), 30, S), 0, "{ends_s}");
            assert_eq!(denied(&mut world, &at(ends_s - 1), 30, 0), 10, "{ends_s}");
            assert_eq!(denied(&mut world, &at(ends_s), 60, S), 10, "{ends_s}");
            assert_eq!(denied(&mut world, &at(next_s - 1), 1, S), 1, "{ends_s}");
            assert_eq!(denied(&mut world, &at(next_s), 50, S), 0, "{ends_s}");
        }
    }
}

#[test]
fn what_does_not_come_to_limits_is_told_apart() {
    let text = "[limits]\nmemory = \"1MiB\"\n\
                [[route]]\npath = \"/a\"\nlimit = \"1/h\"\nrespond = {}\n\
                [[route]]\npath = \"/near\"\nallow = \"198.51.100.0/24\"\nlimit = \"1/h\"\nrespond = {}\n\
                [[route]]\npath = \"/free\"\nrespond = {}\n";
    let mut world = world_of(1, text);
    let mut play = |request: Request| world.play(&request, at(NOW), 0);
    assert_eq!(play(get("/b")), Outcome::NoRoute);
    assert_eq!(play(get("/free")), Outcome::Unlimited);
    assert_eq!(play(get("/near")), Outcome::BeforeLimits);
    assert_eq!(play(get("/%zz")), Outcome::BeforeLimits);
    assert_eq!(play(get("*")), Outcome::BeforeLimits);
    assert_eq!(play(Request { method: Method::TRACE, ..get("/a") }), Outcome::BeforeLimits);
    assert_eq!(play(Request { host: "a b".into(), ..get("/a") }), Outcome::BeforeLimits);
    assert_eq!(play(get("//a/../a?x")), Outcome::Admitted);
    assert_eq!(play(get("/%61")), Outcome::Denied);
    let counts = &world.counts;
    assert_eq!((counts.requests, counts.no_route, counts.before_limits, counts.unlimited), (9, 1, 5, 1));
}

#[test]
fn a_value_that_lines_do_not_have_is_said() {
    let text = limited("by = [\"header:x-plan\", \"query:q\"]\nlimit = \"100/h\"\nmissing = \"skip\"", "");
    let mut world = world_of(1, &text);
    let mut headers = HeaderMap::new();
    headers.insert("x-plan", http::HeaderValue::from_static("pro"));
    for target in ["/a/?q=1", "/a/?q=*", "/a/?q=1*", "/a/"] {
        world.play(&Request { headers: headers.clone(), ..get(target) }, at(NOW), 0);
    }
    world.play(&Request { client: None, ..get("/a/?q=2") }, at(NOW), 0);
    let policy = &world.counts.policies[0];
    assert_eq!(policy.admitted, 2, "a star alone is nobody's value");
    let lacking: Vec<(String, u64)> =
        policy.lacking.iter().map(|(by, count)| (by.to_string(), *count)).collect();
    assert_eq!(lacking, [("header:x-plan".to_owned(), 1), ("query:q".to_owned(), 2)]);
    assert_eq!(world.counts.no_address, 1);
}

#[test]
fn requests_are_in_flight_as_long_as_their_lines_say() {
    let mut world = world_of(1, &limited("by = [\"ip\"]\nlimit = \"2 in flight\"", ""));
    let slow = Request { lasted_ns: 10 * S, has_duration: true, ..get("/a/") };
    assert_eq!(denied(&mut world, &slow, 5, S), 3);
    assert_eq!(denied(&mut world, &Request { began_ns: NOW + 10 * S, ..slow.clone() }, 2, S), 0);
    assert_eq!(world.counts.policies[0].no_duration, 0);
    assert_eq!(denied(&mut world, &Request { began_ns: NOW + 60 * S, ..get("/a/") }, 9, 0), 0);
    assert_eq!(world.counts.policies[0].no_duration, 9);
}

#[test]
fn a_request_that_is_played_late_is_in_flight_until_its_logged_end() {
    let mut world = world_of(1, &limited("by = [\"ip\"]\nlimit = \"1 in flight\"", ""));
    let slow = Request { lasted_ns: 15 * S, has_duration: true, ..get("/a/") };
    let short = Request { lasted_ns: S / 10, ..slow.clone() };
    world.play(&slow, ReplayOrder { late_ns: 5 * S, ..at(NOW) }, 0);
    let mut refused = |from: u64| {
        let play = |number: u64| world.play(&short, at(NOW + (from + number) * S), 0);
        (0..10).map(play).filter(|outcome| outcome.is_denied()).count()
    };
    assert_eq!((refused(1), refused(11)), (9, 0), "ten seconds are left of it");
    world.play(&slow, ReplayOrder { late_ns: 15 * S, ..at(NOW + 60 * S) }, 0);
    assert_eq!(denied(&mut world, &Request { began_ns: NOW + 60 * S, ..short }, 10, S), 0, "it is over");
}

#[test]
fn costs_are_those_of_the_lines() {
    let text = limited("by = [\"ip\"]\nlimit = \"100/h\"\ncost = { response-bytes = \"1KiB\" }", "");
    let mut world = world_of(1, &text);
    let large = Request { bytes_out: 60 * 1024, lasted_ns: S / 2, has_duration: true, ..get("/a/") };
    assert_eq!(denied(&mut world, &large, 5, S), 3, "60 and 60 units of 100");
}

#[test]
fn statuses_that_do_not_count_give_their_units_back() {
    let limit = "by = [\"ip\"]\nlimit = \"3/d\"\ncount = { status = [401, 403] }";
    let with = |status: u16, was_denied| Request { status, was_denied, ..get("/a/") };
    let cases = [
        (with(200, None), 0, 0),
        (with(401, Some(false)), 7, 0),
        (with(404, Some(false)), 0, 0),
        // Unknown, because no status was seen, or that of a limit.
        (with(499, Some(false)), 7, 0),
        (with(429, Some(true)), 7, 10),
        (with(429, None), 7, 10),
        (with(429, Some(false)), 0, 0),
    ];
    for (request, refused, unknown) in cases {
        let mut world = world_of(1, &limited(limit, ""));
        assert_eq!(denied(&mut world, &request, 10, S), refused, "{request:?}");
        assert_eq!(world.counts.policies[0].unknown_costs, unknown, "{request:?}");
    }
}

#[test]
fn nodes_without_redis_count_apart_and_those_with_it_together() {
    let limit = "by = [\"ip\"]\nlimit = \"100/h\"";
    let admitted = |more: &str, spread: fn(u64) -> usize| {
        let mut world = world_of(4, &limited(limit, more));
        let play = |number: u64| world.play(&get("/a/"), at(NOW + number * S / 100), spread(number));
        (0..1_000).map(play).filter(|outcome| !outcome.is_denied()).count()
    };
    assert_eq!(admitted("", |number| (number % 4) as usize), 400);
    assert_eq!(admitted("", |_| 2), 100);
    let fleet = "[redis]\nurl = \"redis://127.0.0.1:1\"";
    let together = admitted(fleet, |number| (number % 4) as usize);
    assert!((100..=106).contains(&together), "{together}, of which a twentieth may be too many");
    assert!((100..=106).contains(&admitted(fleet, |_| 2)));
}

#[test]
fn exact_windows_and_permits_of_a_fleet_are_exact() {
    let fleet = "[redis]\nurl = \"redis://127.0.0.1:1\"";
    let turns = |world: &mut Simulation, request: &Request, times: u64| {
        let play = |number: u64| world.play(request, at(request.began_ns), (number % 3) as usize);
        (0..times).map(play).filter(|outcome| !outcome.is_denied()).count()
    };
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let text = limited(
            &format!("by = [\"ip\"]\nlimit = \"50/h\"\novershoot = 0\nalgorithm = \"{algorithm}\""),
            fleet,
        );
        assert_eq!(turns(&mut world_of(3, &text), &get("/a/"), 200), 50, "{algorithm}");
    }
    let mut world = world_of(3, &limited("by = [\"ip\"]\nlimit = \"7 in flight\"", fleet));
    let slow = Request { lasted_ns: S, has_duration: true, ..get("/a/") };
    assert_eq!(turns(&mut world, &slow, 20), 7);
    assert_eq!(turns(&mut world, &Request { began_ns: NOW + 2 * S, ..slow }, 20), 7);
}

#[test]
fn a_sliding_log_of_a_fleet_knows_the_time_of_every_request() {
    let limit = "by = [\"ip\"]\nlimit = \"100/m\"\nalgorithm = \"sliding-log\"";
    let fleet = "[redis]\nurl = \"redis://127.0.0.1:1\"";
    for (nodes, more) in [(1, ""), (1, fleet), (3, fleet)] {
        let mut world = world_of(nodes, &limited(limit, more));
        let play = |number: u64| {
            world.play(&get("/a/"), at(NOW + 7 + number * S / 20), (number % u64::from(nodes)) as usize)
        };
        let admitted = (0..2_000).map(play).filter(|outcome| !outcome.is_denied()).count();
        assert_eq!(admitted, 200, "a hundred at once and a hundred a minute later; {nodes} nodes {more}");
    }
}

#[test]
fn a_client_that_was_not_recognised_meets_the_limits_of_strangers() {
    let text = "[limits]\nmemory = \"1MiB\"\n[auth.k]\nkind = \"api-key\"\nkeys = { file = \"k.toml\" }\n\
                [policy.own]\nby = [\"consumer\"]\nlimit = \"1/h\"\n[policy.all]\nby = [\"ip\"]\nlimit = \"3/h\"\n\
                [[route]]\npath = \"/{*rest}\"\nauth = \"k\"\nlimit = [\"own\", \"all\"]\nrespond = {}\n";
    let mut world = world_of(1, text);
    let ann = Identity { consumer: Some("ann".into()), ..Identity::default() };
    let known = Request { identity: ann, ..get("/") };
    let unknown = Request { is_unrecognised: true, status: 401, ..get("/") };
    let mut play = |request: &Request| world.play(request, at(NOW), 0);
    assert_eq!((play(&known), play(&known)), (Outcome::Admitted, Outcome::Denied));
    assert_eq!([&unknown; 3].map(play), [Outcome::Admitted, Outcome::Admitted, Outcome::Denied]);
    assert_eq!(world.counts.policies.iter().map(|it| it.admitted).collect::<Vec<_>>(), [1, 4]);
}

#[test]
fn callers_are_named_as_privacy_says_and_one_without_an_address_has_none() {
    let worst = |more: &str, client: Option<Client>| {
        let mut world = world_of(1, &limited("by = [\"ip\"]\nlimit = \"1/h\"", more));
        let request = Request { client, ..get("/a/") };
        assert_eq!(denied(&mut world, &request, 2, 0), 1);
        world.counts.policies[0].worst.top(1)[0].1.to_owned()
    };
    let client = get("/").client;
    assert_eq!(worst("", client), "ip=192.0.2.1");
    assert_eq!(worst("[privacy]\naddresses = \"prefix\"", client), "ip=192.0.2.0/24");
    assert!(worst("[privacy]\naddresses = \"hash\"", client).starts_with("ip=#"));
    assert_eq!(worst("", None), "ip=none");
    let mut differences = Differences::default();
    let world = world_of(1, "[privacy]\naddresses = \"prefix\"");
    let (denied, admitted) = (Outcome::Denied, Outcome::Admitted);
    differences.add(&get("/"), world.naming(), denied, admitted, String::new);
    assert_eq!(differences.denied_callers.top(1), [(1, "ip=192.0.2.0/24")]);
}

#[test]
fn keys_that_share_a_bucket_are_said() {
    let text = limited("by = [\"ip\"]\nlimit = \"100/h\"", "").replace("1MiB", "64KiB");
    let mut world = world_of(1, &text);
    let mut play = |number: u32| {
        let client = Some(Client::Peer(std::net::Ipv4Addr::from_bits(0xc633_0000 + number).into()));
        world.play(&Request { client, ..get("/a/") }, at(NOW), 0);
    };
    (0..10).for_each(&mut play);
    (0..5_000).for_each(play);
    assert!(world.overflow_decisions() > 1_000, "{}", world.overflow_decisions());
    assert_eq!(world_of(1, &text).overflow_decisions(), 0);
}

#[test]
fn what_the_gateway_refused_before_limits_counts_nowhere() {
    let mut world = world_of(1, &limited("by = [\"ip\"]\nlimit = \"1/h\"", ""));
    let refused = Request { was_refused_before_limits: true, ..get("/a/") };
    assert_eq!(world.play(&refused, at(NOW), 0), Outcome::BeforeLimits);
    assert_eq!(world.play(&get("/a/"), at(NOW), 0), Outcome::Admitted);
}

#[test]
fn what_is_charged_is_charged_to_who_is_known() {
    let text = "[limits]\nmemory = \"1MiB\"\n[auth.k]\nkind = \"api-key\"\nkeys = { file = \"k.toml\" }\n\
                [policy.own]\nby = [\"consumer\"]\nlimit = \"1/h\"\nmissing = \"skip\"\n\
                [[route]]\npath = \"/known\"\nauth = \"k\"\nlimit = \"own\"\nrespond = {}\n\
                [[route]]\npath = \"/open\"\nlimit = \"own\"\nrespond = {}\n";
    let world = world_of(1, text);
    let identity = Identity { consumer: Some("ann".into()), ..Identity::default() };
    let charges = |target: &str, is_unrecognised: bool| {
        let mut count = None;
        let request = Request { identity: identity.clone(), is_unrecognised, ..get(target) };
        world.charges(&request, |_, charges| count = Some(charges.len()));
        count
    };
    assert_eq!(charges("/known", false), Some(1));
    assert_eq!((charges("/known", true), charges("/open", false)), (Some(0), Some(0)));
}
