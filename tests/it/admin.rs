//! The admin listener as a scraper, a probe and an operator see it.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::support::client::closes_within;
use crate::support::{Client, Gateway, eventually};

const CONFIG: &str = "[policy.p]\nby = [\"header:x-key\"]\nlimit = \"1/h\"\n\
    [[route]]\nname = \"r\"\npath = \"/a\"\nlimit = \"p\"\nrespond = { status = 200, body = \"ok\" }\n";

#[test]
fn probes_are_answered() {
    let gateway = Gateway::start(CONFIG);
    assert_eq!((gateway.admin("/healthz").status, gateway.admin("/readyz").status), (200, 200));
    assert_eq!(gateway.admin("/nothing").status, 404);
    let mut client = Client::connect(gateway.listener("admin"));
    let answer = client.request("POST", "/metrics", &[], "");
    assert_eq!(answer.status, 405);
    assert!(answer.header("allow").is_some_and(|methods| methods.contains("GET")));
}

#[test]
fn a_connection_is_kept_alive_until_the_drain() {
    let gateway = Gateway::start(&format!("{CONFIG}[shutdown]\nready-delay = \"30s\"\n"));
    let mut client = Client::connect(gateway.listener("admin"));
    for _ in 0..3 {
        assert_eq!(client.get("/healthz").text(), "ok\n");
        let length = client.get("/config").body.len() as u64;
        let head = client.request("HEAD", "/config", &[], "");
        assert_eq!((head.status, head.number("content-length")), (200, length));
        assert_eq!(client.request("GET", "/config", &["Host: evil.example"], "").status, 421);
        assert_eq!(client.request("DELETE", "/config", &[], "").header("allow"), Some("GET, HEAD"));
        assert!(client.get("/metrics").header("connection").is_none());
    }
    // What comes together is answered in turn.
    client.send(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert_eq!([client.response().status, client.response().status], [200, 404]);
    gateway.signal("TERM");
    eventually("it drains", || (gateway.admin("/readyz").status == 503).then_some(()));
    let answer = client.get("/readyz");
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn an_unread_body_costs_no_answer() {
    let gateway = Gateway::start(CONFIG);
    for (method, target, status) in
        [("GET", "/healthz", 200), ("POST", "/config", 405), ("PUT", "/nothing", 404)]
    {
        let mut client = Client::connect(gateway.listener("admin"));
        let answer = client.request(method, target, &[], &"x".repeat(900_000));
        assert_eq!(
            (answer.status, answer.header("connection")),
            (status, Some("close")),
            "{method} {target}"
        );
        assert!(client.is_closed());
    }
}

#[test]
fn metrics_count_requests_and_never_name_a_key() {
    let gateway = Gateway::start(CONFIG);
    let ask = |key: &str| gateway.client().request("GET", "/a", &[&format!("X-Key: {key}")], "").status;
    assert_eq!([ask("secret-key-1"), ask("secret-key-1"), ask("secret-key-2")], [200, 429, 200]);
    assert_eq!(gateway.get("/nowhere").status, 404);
    let count = |labels: &[&str]| gateway.metric("sluicegate_requests_total", labels);
    assert_eq!(count(&["route=\"r\"", "code=\"200\""]), 2.0);
    assert_eq!(count(&["route=\"r\"", "code=\"429\""]), 1.0);
    assert_eq!(gateway.metric("sluicegate_refused_requests_total", &["reason=\"no-route\""]), 1.0);
    assert_eq!(gateway.metric("sluicegate_request_duration_seconds_count", &["route=\"r\""]), 3.0);
    let page = gateway.admin("/metrics");
    assert!(page.header("content-type").is_some_and(|kind| kind.contains("text/")));
    assert!(!page.text().contains("secret-key"));
}

#[test]
fn the_configuration_in_force_is_shown_without_secrets() {
    let gateway = Gateway::start(CONFIG);
    let page = gateway.admin("/config");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("/a") && page.text().contains("drain"), "{}", page.text());
}

#[test]
fn a_token_is_asked_for_where_it_is_set() {
    let gateway =
        Gateway::start(&format!("{CONFIG}[admin]\nbind = \"127.0.0.1:0\"\ntoken = \"hunter2-and-more\"\n"));
    assert_eq!(gateway.admin("/config").status, 401);
    let ask = |token: &str| {
        let field = format!("Authorization: Bearer {token}");
        Client::connect(gateway.listener("admin")).request("GET", "/config", &[&field], "")
    };
    assert_eq!(ask("wrong").status, 401);
    let page = ask("hunter2-and-more");
    assert_eq!(page.status, 200);
    assert!(!page.text().contains("hunter2"), "{}", page.text());
}

#[test]
fn two_credentials_prove_nothing() {
    let gateway =
        Gateway::start(&format!("{CONFIG}[admin]\nbind = \"127.0.0.1:0\"\ntoken = \"hunter2-and-more\"\n"));
    let good = "Authorization: Bearer hunter2-and-more";
    for fields in [[good, "Authorization: Bearer x"], ["Authorization: Bearer x", good], [good, good]] {
        let answer = Client::connect(gateway.listener("admin")).request("GET", "/config", &fields, "");
        assert_eq!(answer.status, 400, "{fields:?}");
    }
}

#[test]
fn connections_that_say_nothing_keep_no_probe_out() {
    let gateway = Gateway::start(CONFIG);
    let addr = gateway.listener("admin");
    // More than wait in the kernel and here together.
    let silent: Vec<Client> = (0..600).map(|_| Client::connect(addr)).collect();
    let began = Instant::now();
    for target in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(gateway.admin(target).status, 200, "{target}");
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // The oldest have gone already, and the youngest go with their deadline.
    for client in [&silent[0], &silent[599]] {
        assert!(closes_within(client.socket(), Duration::from_secs(10)));
    }
    let mut half = Client::connect(addr);
    half.send("GET /healthz HTT");
    let began = Instant::now();
    assert!(closes_within(half.socket(), Duration::from_secs(10)));
    assert!((1_500..4_500).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

#[test]
fn a_foreign_name_for_this_machine_reads_nothing() {
    let gateway = Gateway::start(CONFIG);
    let by = |gateway: &Gateway, target: &str, host: &str| {
        let host = format!("Host: {host}");
        Client::connect(gateway.listener("admin")).request("GET", target, &[&host], "").status
    };
    for host in ["localhost", "127.0.0.1:9900", "[::1]:9900", "a.localhost"] {
        assert_eq!(by(&gateway, "/config", host), 200, "{host}");
    }
    for target in ["/config", "/metrics", "/", "/v1/explain?url=/a", "/v1/keys/p/a", "/healthz", "/nothing"] {
        assert_eq!(by(&gateway, target, "evil.example"), 421, "{target}");
    }
    assert_eq!(by(&gateway, "http://evil.example/config", "localhost"), 421);
    assert_eq!(by(&gateway, "/config", "evil.example@localhost"), 421);
    assert_eq!(by(&gateway, "/healthz", "evil.example@127.0.0.1"), 421);
    // Orchestrators and balancers ask by address, and learn one word.
    assert_eq!(
        [by(&gateway, "/readyz", "10.0.0.7:9900"), by(&gateway, "/config", "10.0.0.7:9900")],
        [200, 421]
    );

    let admin = "[admin]\nbind = \"127.0.0.1:0\"\n";
    let named = Gateway::start(&format!("{CONFIG}{admin}hosts = [\"Metrics.example\", \"10.0.0.7\"]\n"));
    for (host, status) in
        [("metrics.example:9900", 200), ("10.0.0.7", 200), ("localhost", 200), ("evil.example", 421)]
    {
        assert_eq!(by(&named, "/config", host), status, "{host}");
    }
    assert!(named.admin("/config").text().contains("hosts = [\"metrics.example\", \"10.0.0.7\"]"));
    // A page of somebody else has no token.
    let guarded = Gateway::start(&format!("{CONFIG}{admin}token = \"hunter2-and-more\"\n"));
    assert_eq!(
        [by(&guarded, "/config", "evil.example"), by(&guarded, "/healthz", "evil.example")],
        [401, 200]
    );
}

#[test]
fn explain_spends_nothing() {
    let gateway = Gateway::start(CONFIG);
    let explain = "/v1/explain?method=GET&url=http://localhost/a&header=X-Key:%20k&from=203.0.113.9";
    for _ in 0..3 {
        let answer = gateway.admin(explain);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("\"r\""), "{}", answer.text());
        assert!(answer.text().contains("\"key\":{"), "{}", answer.text());
    }
    assert_eq!(gateway.client().request("GET", "/a", &["X-Key: k"], "").status, 200);
}

#[test]
fn the_admin_is_not_on_the_data_port() {
    let gateway = Gateway::start(CONFIG);
    for path in ["/metrics", "/healthz", "/readyz", "/config"] {
        assert_eq!(gateway.get(path).status, 404, "{path}");
    }
}

#[test]
fn the_admin_can_be_a_unix_socket_or_nowhere() {
    let directory = crate::support::Directory::new();
    let socket = directory.join("admin.sock");
    let text = format!("{CONFIG}[admin]\nbind = \"unix:{}\"\n", socket.display());
    let gateway = Gateway::start_in(directory, &text);
    let stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens there");
    assert_eq!(Client::over(stream).get("/healthz").status, 200);
    assert_eq!(gateway.get("/a").status, 200);
    let without = Gateway::start(&format!("admin = false\n{CONFIG}"));
    assert_eq!(without.get("/a").status, 200);
}

#[test]
fn what_is_in_flight_has_no_period() {
    let gateway = Gateway::start(
        "[policy.p]\nby = []\nlimit = [\"5/m\", \"2 in flight\"]\n[[route]]\nrespond = {}\nlimit = \"p\"",
    );
    let shown = gateway.admin("/v1/keys/p").json();
    assert_eq!(shown["windows"][0]["period-seconds"], 60.0, "{shown}");
    assert!(
        shown["windows"][1]["period-seconds"].is_null() && shown["windows"][1]["remaining"] == 2,
        "{shown}"
    );
}

#[test]
fn metrics_come_in_gzip_for_who_takes_it() {
    let gateway = Gateway::start("[[route]]\npath = \"/\"\nto = \"echo\"\n");
    let page = |accept: &str| {
        let mut client = Client::connect(gateway.listener("admin"));
        client.request("GET", "/metrics", &[&format!("Accept-Encoding: {accept}")], "")
    };
    let plain = page("identity, gzip;q=0.5");
    assert_eq!(
        (plain.header("content-encoding"), plain.header("vary")),
        (None, Some("accept, accept-encoding"))
    );
    let packed = page("gzip");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() * 3 < plain.body.len(), "{} of {}", packed.body.len(), plain.body.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("it is gzip");
    // Counts of requests to this page grow meanwhile.
    let names = |page: &str| -> Vec<String> {
        let named = page.lines().map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name).to_owned());
        named.collect()
    };
    assert_eq!(names(&text), names(&plain.text()));
}
