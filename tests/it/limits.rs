//! Limits in memory, as a client meets them.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{Gateway, Response};

/// A gateway with these policies and one route `/a` under this limit.
fn limited(policies: &str, limit: &str) -> Gateway {
    Gateway::start(&format!("{policies}\n{}", route("/a", limit)))
}

fn route(path: &str, limit: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nlimit = {limit}\nrespond = {{ status = 200, body = \"ok\" }}\n")
}

fn from(gateway: &Gateway, target: &str, fields: &[&str]) -> Response {
    gateway.client().request("GET", target, fields, "")
}

fn remaining(answer: &Response) -> u64 {
    answer.number("x-ratelimit-remaining")
}

/// Trust in the tests' own address, so that they can be anybody.
const ANYBODY: &str = "[client-ip]\ntrust = [\"127.0.0.1/32\"]\n";

#[test]
fn a_refusal_explains_itself() {
    let gateway = limited("[policy.few]\nby = [\"ip\"]\nlimit = \"3/h\"", "\"few\"");
    for left in [2, 1, 0] {
        let answer = gateway.get("/a");
        assert_eq!((answer.status, remaining(&answer)), (200, left));
        assert_eq!(answer.number("x-ratelimit-limit"), 3);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"few\";q=3;w=3600"));
        assert!(
            answer
                .header("ratelimit")
                .is_some_and(|field| field.starts_with(&format!("\"few\";r={left};t=")))
        );
        assert_eq!(answer.header("retry-after"), None);
    }
    let answer = gateway.get("/a");
    assert_eq!((answer.status, answer.header("content-type")), (429, Some("application/problem+json")));
    // One unit of three an hour comes back every 1200 seconds; up to a tenth is added, nothing is taken off.
    assert!((1200 - 30..=1320).contains(&answer.number("retry-after")), "{:?}", answer.header("retry-after"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"few\";q=3;w=3600"));
    assert!(answer.header("ratelimit").is_some_and(|field| field.starts_with("\"few\";r=0;t=")));
    assert_eq!((answer.number("x-ratelimit-limit"), remaining(&answer)), (3, 0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
    assert!((now..now + 3700).contains(&answer.number("x-ratelimit-reset")));
    let problem = answer.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((problem["status"].as_u64(), problem["title"].is_string()), (Some(429), true));
    assert_eq!(problem["violated-policies"], serde_json::json!(["few"]));
    let line = gateway.logged_where("status 429", |line| line["status"] == 429);
    assert_eq!((line["reason"].as_str(), line["policy"].as_str()), (Some("limited"), Some("few")), "{line}");
    assert!(line["decision"].as_str().is_some_and(|decision| decision.contains("denied")), "{line}");
    assert_eq!(gateway.metric("sluicegate_decisions_total", &["policy=\"few\"", "outcome=\"denied\""]), 1.0);
    assert_eq!(
        gateway.metric("sluicegate_decisions_total", &["policy=\"few\"", "outcome=\"admitted\""]),
        3.0
    );
}

#[test]
fn retry_after_is_never_early() {
    let gateway = limited("", "\"1/2s by ip\"");
    assert_eq!(gateway.get("/a").status, 200);
    for _ in 0..2 {
        let answer = gateway.get("/a");
        assert_eq!(answer.status, 429);
        // The only wait on the clock here: the promise is about time.
        thread::sleep(Duration::from_secs(answer.number("retry-after")));
        assert_eq!(gateway.get("/a").status, 200);
    }
}

#[test]
fn one_refusal_says_one_wait() {
    // Several windows, so that the longest wait is told from the others; long ones, so that the jitter shows.
    let gateway = limited("[policy.two]\nby = [\"ip\"]\nlimit = [\"1/h\", \"1/d\"]", "\"two\"");
    assert_eq!(gateway.get("/a").status, 200);
    for _ in 0..20 {
        let answer = gateway.get("/a");
        let told = answer.number("retry-after");
        let problem = answer.json();
        let waits = problem["violations"].as_array().expect("a list").iter();
        let waits: Vec<u64> = waits.filter_map(|it| it["retry-after-seconds"].as_u64()).collect();
        assert_eq!(waits.len(), 2, "{problem}");
        assert_eq!(waits.iter().max(), Some(&told), "{problem}");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.ends_with(&format!("try again in {told} s")), "{problem}");
    }
}

#[test]
fn the_headers_are_those_that_were_chosen() {
    for (choice, ietf, legacy) in
        [("ietf", true, false), ("legacy", false, true), ("both", true, true), ("none", false, false)]
    {
        let gateway = limited(&format!("[limits]\nheaders = \"{choice}\""), "\"1/h by ip\"");
        for status in [200, 429] {
            let answer = gateway.get("/a");
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("ratelimit").is_some(), ietf, "{choice} {status}");
            assert_eq!(answer.header("ratelimit-policy").is_some(), ietf, "{choice} {status}");
            assert_eq!(answer.header("x-ratelimit-limit").is_some(), legacy, "{choice} {status}");
            assert_eq!(answer.header("retry-after").is_some(), status == 429, "{choice} {status}");
        }
    }
}

#[test]
fn every_window_says_what_is_left_and_the_binding_one_first() {
    let gateway = Gateway::start(
        "[policy.few]\nby = []\nlimit = [\"9/d\", \"3/h\"]\n\
         [policy.some]\nby = []\nlimit = \"6/h\"\n\
         [policy.next]\nby = []\nlimit = \"1/h\"\nshadow = true\n\
         [[route]]\npath = \"/both\"\nlimit = [\"few\", \"next\", \"some\"]\nrespond = {}\n\
         [[route]]\npath = \"/some\"\nlimit = \"some\"\nrespond = {}\n",
    );
    let left = |path: &str| {
        let response = gateway.get(path);
        let shown = response.header("ratelimit").expect("it was counted").split(", ");
        let left = shown.map(|item| item.split(";t=").next().unwrap_or_default().replace('"', ""));
        (response.status, left.collect::<Vec<_>>().join(" "))
    };
    for (number, status) in [(2, 200), (1, 200), (0, 200), (0, 429)] {
        let expected = format!("few-1h;r={number} few-1d;r={} some;r={}", number + 6, number + 3);
        assert_eq!(left("/both"), (status, expected));
    }
    assert_eq!(left("/some"), (200, "some;r=2".to_owned()));
}

#[test]
fn a_hidden_policy_is_in_no_response_and_another_has_a_name_for_clients() {
    let gateway = Gateway::start(
        "[policy.guard]\nby = []\nlimit = \"2/h\"\nheaders = \"none\"\n\
         [policy.plan-17]\nby = []\nlimit = [\"5/h\", \"9/d\"]\nshown-as = \"standard\"\n\
         [[route]]\npath = \"/both\"\nlimit = [\"guard\", \"plan-17\"]\nrespond = {}\n\
         [[route]]\npath = \"/hidden\"\nlimit = \"guard\"\nrespond = {}\n\
         [[route]]\npath = \"/shown\"\nlimit = \"plan-17\"\nrespond = {}\n",
    );
    const SHOWN: &str = "\"standard-1h\";q=5;w=3600, \"standard-1d\";q=9;w=86400";
    let is_silent = |response: &Response| {
        let names = ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining"];
        names.iter().all(|name| response.header(name).is_none())
    };
    let both = gateway.get("/both");
    assert_eq!((both.header("ratelimit-policy"), both.number("x-ratelimit-remaining")), (Some(SHOWN), 4));
    assert_eq!(both.header("ratelimit"), Some("\"standard-1h\";r=4;t=720, \"standard-1d\";r=8;t=9600"));
    let hidden = gateway.get("/hidden");
    assert!(hidden.status == 200 && is_silent(&hidden), "{hidden:?}");
    let refused = gateway.get("/both");
    assert_eq!((refused.status, refused.header("ratelimit-policy")), (429, Some(SHOWN)));
    assert!(refused.number("retry-after") > 1000);
    let told = refused.json();
    assert_eq!((&told["violations"], &told["violated-policies"]), (&json!([]), &json!([])));
    assert!(told["detail"].as_str().is_some_and(|text| text.starts_with("too many requests; try again in ")));
    let hidden = gateway.get("/hidden");
    assert!(hidden.status == 429 && is_silent(&hidden) && !hidden.text().contains("guard"), "{hidden:?}");
    assert!(hidden.number("retry-after") > 1000);
    assert!((0..4).all(|_| gateway.get("/shown").status == 200));
    let told = gateway.get("/shown").json();
    assert_eq!(
        (&told["violations"][0]["policy"], &told["violations"][0]["window"]),
        (&json!("standard"), &json!("standard-1h"))
    );
    let lines = gateway.admin("/v1/explain?url=/both").json();
    assert_eq!(lines["limits"][0]["policy"], "guard", "operators see it");
    let denied = |policy: &str| {
        let policy = format!("policy=\"{policy}\"");
        gateway.metric("sluicegate_decisions_total", &[&policy, "outcome=\"denied\""])
    };
    assert_eq!([denied("guard"), denied("plan-17")], [2.0, 1.0]);
}

#[test]
fn a_burst_is_what_may_come_at_once() {
    let gateway = limited("", "\"60/h burst 5 by ip\"");
    let answers: Vec<Response> = (0..7).map(|_| gateway.get("/a")).collect();
    assert_eq!(
        answers.iter().map(|answer| answer.status).collect::<Vec<_>>(),
        [200, 200, 200, 200, 200, 429, 429]
    );
    for (answer, left) in answers.iter().zip([4, 3, 2, 1, 0, 0, 0]) {
        assert_eq!(answer.header("ratelimit-policy"), Some("\"route:/a\";q=5;w=300"), "as full as it gets");
        assert!(answer.header("ratelimit").is_some_and(|state| state.contains(&format!(";r={left};"))));
        assert_eq!((answer.number("x-ratelimit-limit"), remaining(answer)), (5, left));
    }
    let told = answers[6].json();
    let detail = told["detail"].as_str().expect("a text");
    assert!(detail.starts_with("`route:/a` allows 60 per hour, 5 at once; "), "{detail}");
    assert_eq!(told["violations"][0]["burst"], 5);
}

#[test]
fn every_window_must_admit() {
    let gateway = limited("[policy.two]\nby = [\"ip\"]\nlimit = [\"100/h\", \"3/d\"]", "\"two\"");
    let answers: Vec<Response> = (0..4).map(|_| gateway.get("/a")).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 200, 429]);
    assert_eq!(answers[0].number("x-ratelimit-limit"), 3, "the window with the least left");
    assert!(answers[3].number("retry-after") > 3600, "the day's, not the hour's");
}

#[test]
fn what_one_policy_refuses_costs_no_other() {
    let policies =
        "[policy.wide]\nby = [\"ip\"]\nlimit = \"10/h\"\n[policy.narrow]\nby = [\"ip\"]\nlimit = \"2/h\"\n";
    for order in ["[\"wide\", \"narrow\"]", "[\"narrow\", \"wide\"]"] {
        let gateway =
            Gateway::start(&format!("{policies}{}{}", route("/a", order), route("/wide", "\"wide\"")));
        let statuses: Vec<u16> = (0..7).map(|_| gateway.get("/a").status).collect();
        assert_eq!(statuses, [200, 200, 429, 429, 429, 429, 429]);
        assert_eq!(remaining(&gateway.get("/wide")), 7, "two admitted there, one here, no refused one");
    }
}

#[test]
fn every_violated_policy_is_named() {
    let policies = "[policy.first]\nby = [\"ip\"]\nlimit = \"1/h\"\n[policy.second]\nby = [\"ip\"]\nlimit = \"1/d\"\n\
                    [policy.third]\nby = [\"ip\"]\nlimit = \"9/h\"\n";
    let gateway = limited(policies, "[\"first\", \"second\", \"third\"]");
    assert_eq!(gateway.get("/a").status, 200);
    let answer = gateway.get("/a");
    let mut violated: Vec<String> =
        serde_json::from_value(answer.json()["violated-policies"].clone()).expect("a list of names");
    violated.sort();
    assert_eq!((answer.status, violated), (429, vec!["first".to_owned(), "second".to_owned()]));
    assert!(answer.number("retry-after") > 3600, "the longest of them");
}

#[test]
fn a_policy_is_one_limit_wherever_it_applies() {
    let policy = "[policy.shared]\nby = [\"ip\"]\nlimit = \"2/h\"\n[policy.each]\nby = [\"ip\", \"route\"]\nlimit = \"2/h\"\n";
    let routes = [
        route("/a", "\"shared\""),
        route("/b", "\"shared\""),
        route("/c", "\"each\""),
        route("/d", "\"each\""),
    ];
    let gateway = Gateway::start(&format!("{policy}{}", routes.concat()));
    let ask = |target| gateway.get(target).status;
    assert_eq!([ask("/a"), ask("/b"), ask("/a"), ask("/b")], [200, 200, 429, 429]);
    assert_eq!([ask("/c"), ask("/c"), ask("/c"), ask("/d")], [200, 200, 429, 200]);
}

#[test]
fn a_shadow_counts_and_never_refuses() {
    let gateway = limited("[policy.quiet]\nby = [\"ip\"]\nlimit = \"1/h\"\nshadow = true", "\"quiet\"");
    for _ in 0..5 {
        assert_eq!(gateway.get("/a").status, 200);
    }
    let outcome = |outcome: &str| {
        gateway.metric("sluicegate_decisions_total", &["policy=\"quiet\"", &format!("outcome=\"{outcome}\"")])
    };
    assert_eq!((outcome("admitted"), outcome("shadow-denied"), outcome("denied")), (1.0, 4.0, 0.0));
}

#[test]
fn keys_differ_by_the_dimensions_of_the_policy() {
    for (by, one, other) in [
        ("header:x-key", ("/a", "X-Key: one"), ("/a", "X-Key: other")),
        ("cookie:user", ("/a", "Cookie: a=1; user=one"), ("/a", "Cookie: user=other; a=1")),
        ("query:key", ("/a?key=one", "X: -"), ("/a?key=other", "X: -")),
        ("method", ("/a", "X: -"), ("", "")),
    ] {
        let gateway = limited("", &format!("\"1/h by {by}\""));
        let ask = |(target, field): (&str, &str)| from(&gateway, target, &[field]).status;
        assert_eq!([ask(one), ask(one)], [200, 429], "{by}");
        if by == "method" {
            assert_eq!(gateway.client().request("POST", "/a", &[], "").status, 200);
        } else {
            assert_eq!([ask(other), ask(other)], [200, 429], "{by}");
        }
    }
    let by_param = Gateway::start(&route("/o/{id}", "\"1/h by param:id\""));
    let ask = |target| by_param.get(target).status;
    assert_eq!([ask("/o/1"), ask("/o/1"), ask("/o/2"), ask("/o/%31")], [200, 429, 200, 429]);
}

#[test]
fn a_value_that_servers_could_read_differently_is_refused() {
    for (by, target, fields) in [
        ("header:x-key", "/a", &["X-Key: one", "X-Key: other"][..]),
        ("cookie:user", "/a", &["Cookie: user=one; user=other"][..]),
        ("cookie:user", "/a", &["Cookie: user=one", "Cookie: user=other"][..]),
        ("query:key", "/a?key=one&key=other", &[][..]),
        ("cookie:user", "/a", &["Cookie: user=\"o\\ne\""][..]),
    ] {
        let gateway = limited("", &format!("\"9/h by {by}\""));
        assert_eq!(from(&gateway, target, fields).status, 400, "{by} {fields:?}");
    }
    let by_cookie = limited("", "\"3/h by cookie:user\"");
    for (cookie, status) in [
        ("user=one", 200),
        ("user = one", 200),
        ("a=b;user=  \"one\"", 200),
        ("user =\tone", 429),
        ("user=other", 200),
    ] {
        assert_eq!(from(&by_cookie, "/a", &[&format!("Cookie: {cookie}")]).status, status, "{cookie}");
    }
}

#[test]
fn dimensions_do_not_run_into_each_other() {
    let gateway = limited("[policy.p]\nby = [\"header:x-a\", \"header:x-b\"]\nlimit = \"1/h\"", "\"p\"");
    for fields in [["X-A: ab", "X-B: c"], ["X-A: a", "X-B: bc"], ["X-A: abc", "X-B:"]] {
        assert_eq!(from(&gateway, "/a", &fields).status, 200, "{fields:?}");
        assert_eq!(from(&gateway, "/a", &fields).status, 429, "{fields:?}");
    }
}

#[test]
fn a_missing_dimension_is_handled_as_written() {
    let policy = |missing: &str| {
        format!("[policy.p]\nby = [\"header:x-key\"]\nlimit = \"1/h\"\nmissing = \"{missing}\"")
    };
    let by_ip = limited(&policy("ip"), "\"p\"");
    assert_eq!([by_ip.get("/a").status, by_ip.get("/a").status], [200, 429]);
    assert_eq!(from(&by_ip, "/a", &["X-Key: 127.0.0.1"]).status, 200, "an address is no key");
    let skipped = limited(&policy("skip"), "\"p\"");
    assert!((0..5).all(|_| skipped.get("/a").status == 200));
    let rejected = limited(&policy("reject"), "\"p\"");
    let answer = rejected.get("/a");
    assert_eq!(answer.status, 400);
    assert_eq!(rejected.logged("/a")["reason"], "missing-key");
    assert_eq!(from(&rejected, "/a", &["X-Key: k"]).status, 200);
    for (by, said) in [
        ("query:q", "send the query parameter `q` exactly once, in a query without `;`"),
        ("body:model", "with the field `model` exactly once, as a string or number"),
        ("tenant", "the credentials of this request name no tenant"),
    ] {
        let policy = format!("[policy.p]\nby = [\"{by}\"]\nlimit = \"1/h\"\nmissing = \"reject\"");
        let answer = limited(&policy, "\"p\"").get("/a?q=1;a");
        assert!(answer.text().contains(said), "{answer:?}");
    }
}

#[test]
fn an_address_is_one_key_in_every_spelling() {
    let gateway = limited(ANYBODY, "\"1/h by ip\"");
    let ask = |ip: &str| from(&gateway, "/a", &[&format!("X-Forwarded-For: {ip}")]).status;
    assert_eq!([ask("203.0.113.9"), ask("203.0.113.9"), ask("::ffff:203.0.113.9")], [200, 429, 429]);
    assert_eq!([ask("203.0.113.10"), ask("::ffff:203.0.113.10")], [200, 429]);
    assert_eq!(
        [ask("2001:db8:1:2::1"), ask("2001:db8:1:2:ffff::9"), ask("2001:db8:1:3::1")],
        [200, 429, 200]
    );
}

#[test]
fn the_prefix_of_an_address_is_what_the_operator_says() {
    let gateway = limited(&format!("{ANYBODY}ipv6-prefix = 48\n"), "\"1/h by ip\"");
    let ask = |ip: &str| from(&gateway, "/a", &[&format!("X-Forwarded-For: {ip}")]).status;
    assert_eq!([ask("2001:db8:1:2::1"), ask("2001:db8:1:3::1"), ask("2001:db8:2::1")], [200, 429, 200]);
}

#[test]
fn refused_requests_count_where_the_policy_says_so() {
    let policies = "[policy.wide]\nby = [\"ip\"]\nlimit = \"10/h\"\ncount-denied = true\n\
                    [policy.narrow]\nby = [\"ip\"]\nlimit = \"2/h\"\n";
    let routes = [route("/a", "[\"wide\", \"narrow\"]"), route("/wide", "\"wide\"")];
    let gateway = Gateway::start(&format!("{policies}{}", routes.concat()));
    let statuses: Vec<u16> = (0..5).map(|_| gateway.get("/a").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    assert_eq!(remaining(&gateway.get("/wide")), 4, "five there, refused or not, and one here");
}

#[test]
fn an_upstream_s_looser_fields_stand_beside_ours() {
    let upstream = crate::support::Upstream::answering(
        "HTTP/1.1 200 OK\r\nX-RateLimit-Limit: 9\r\nRateLimit: \"x\";r=9;t=9\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = \"5/h\"\n[[route]]\npath = \"/a\"\nlimit = \"p\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    let answer = gateway.get("/a");
    assert_eq!((answer.number("x-ratelimit-limit"), remaining(&answer)), (5, 4));
    let joined = answer.header("ratelimit").unwrap_or_default();
    assert!(joined.contains("\"x\";r=9;t=9") && joined.contains("\"p\";r=4;"), "{joined}");
}

#[test]
fn ipv4_on_an_ipv6_socket_is_ipv4() {
    let gateway =
        Gateway::start(&format!("[listener.plain]\nbind = \"[::]:0\"\n{}", route("/a", "\"1/h by ip\"")));
    let port = gateway.plain().port();
    let over_4 = crate::support::get(([127, 0, 0, 1], port).into(), "/a");
    assert_eq!(over_4.status, 200);
    assert_eq!(gateway.logged("/a")["client"], "127.0.0.1");
    let over_6 = crate::support::get((std::net::Ipv6Addr::LOCALHOST, port).into(), "/a");
    assert_eq!(over_6.status, 200, "another client");
}

#[test]
fn a_request_costs_what_the_policy_says() {
    let policy = "[policy.p]\nby = [\"ip\"]\nlimit = \"10/h\"\ncost = { default = 1, \"POST /a\" = 5 }";
    let gateway = limited(policy, "\"p\"");
    let post = || gateway.client().request("POST", "/a", &[], "");
    assert_eq!(remaining(&post()), 5);
    assert_eq!(remaining(&gateway.get("/a")), 4);
    assert_eq!(post().status, 429);
    assert_eq!(remaining(&gateway.get("/a")), 3, "the refused one cost nothing");
}

#[test]
fn a_policy_may_count_only_some_requests() {
    let policy = "[policy.p]\nby = [\"ip\"]\nlimit = \"1/h\"\nmatch = { method = [\"POST\"] }";
    let gateway = limited(policy, "\"p\"");
    assert!((0..3).all(|_| gateway.get("/a").status == 200));
    let post = || gateway.client().request("POST", "/a", &[], "").status;
    assert_eq!([post(), post()], [200, 429]);
}

#[test]
fn windows_count_in_every_algorithm() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let policy = format!("[policy.p]\nby = [\"ip\"]\nlimit = \"3/h\"\nalgorithm = \"{algorithm}\"");
        let gateway = limited(&policy, "\"p\"");
        let statuses: Vec<u16> = (0..5).map(|_| gateway.get("/a").status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429], "{algorithm}");
    }
}

#[test]
fn workers_share_one_count() {
    let gateway = Gateway::start(&format!("workers = 2\n{}", route("/a", "\"50/h by ip\"")));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let addr = gateway.plain();
            thread::spawn(move || (0..20).filter(|_| crate::support::get(addr, "/a").status == 200).count())
        })
        .collect();
    let admitted: usize = threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
    assert_eq!(admitted, 50);
}
