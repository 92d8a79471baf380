//! `mirror`: copies of requests go to another upstream, and the requests never wait for them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::named::Named;
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, PATIENCE, Python, Upstream, eventually, python, text};

/// A route to a first upstream with a mirror, of which `keys` say the rest.
fn config(first: &str, mirror: &Upstream, upstream: &str, route: &str) -> String {
    let mirror = mirror.addr();
    format!(
        "[upstream.shadow]\nservers = \"http://{mirror}\"\n{upstream}\n[[route]]\nto = \"{first}\"\n{route}\n"
    )
}

fn counted(gateway: &Gateway, result: &str) -> f64 {
    let labels = ["upstream=\"shadow\"", &format!("result=\"{result}\"")];
    gateway.metric("sluicegate_upstream_mirrored_total", &labels)
}

fn wait_for(gateway: &Gateway, result: &str, wanted: f64) {
    eventually(&format!("{wanted} copies are {result}"), || {
        (counted(gateway, result) >= wanted).then_some(())
    });
}

/// Takes connections and requests and answers none.
fn hanging() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {}
    })
}

#[test]
fn a_copy_is_the_request_and_says_that_it_is_one() {
    let (first, shadow) =
        (Named::start("first"), Upstream::answering("HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad"));
    let route = "mirror = \"shadow\"\nrewrite = \"/new\"\nheaders = { set = { x-a = \"b\" } }";
    let gateway = Gateway::start(&config(&first.url(), &shadow, "", route));
    let mut client = gateway.client();
    let answer = client.request("POST", "/old?q=1", &["X-Own: c"], "the body");
    assert_eq!((answer.status, answer.text().as_str()), (200, "first"));
    let copy = shadow.request();
    assert_eq!((copy.line.as_str(), &*copy.body), ("POST /new?q=1 HTTP/1.1", &b"the body"[..]));
    assert_eq!((copy.header("x-a").as_deref(), copy.header("x-own").as_deref()), (Some("b"), Some("c")));
    assert_eq!(copy.header("x-request-id").as_deref(), gateway.logged("/old?q=1")["request_id"].as_str());
    let host = copy.header("host").expect("HTTP/1.1 has one");
    assert!(host.contains("-shadow"), "{host}");
    // In chunks, after a 100, and without a body.
    client.send(
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().status, 200);
    assert_eq!(shadow.request().body, b"abcdef");
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.head().status, 100);
    client.send("abc");
    assert_eq!(client.response().status, 200);
    let copy = shadow.request();
    assert_eq!((&*copy.body, copy.header("expect")), (&b"abc"[..], None));
    assert_eq!(client.get("/").status, 200);
    let copy = shadow.request();
    assert_eq!(
        (copy.line.as_str(), copy.header("host").as_deref()),
        ("GET /new HTTP/1.1", Some("localhost-shadow"))
    );
    wait_for(&gateway, "answered", 4.0);
    assert!(shadow.connections() <= 4, "connections to a mirror are used again");
}

#[test]
fn a_mirror_gets_exactly_its_share() {
    let (first, shadow) = (Named::start("first"), Upstream::ok());
    let route = "mirror = { to = \"shadow\", share = \"10%\" }";
    let gateway = Gateway::start(&format!("workers = 1\n{}", config(&first.url(), &shadow, "", route)));
    let mut client = gateway.client();
    assert!((0..1_000).all(|_| client.get("/").status == 200));
    wait_for(&gateway, "answered", 98.0);
    let results = ["answered", "failed", "too-many", "too-large", "incomplete"];
    let all = results.map(|result| counted(&gateway, result));
    assert!((98.0..=102.0).contains(&all.iter().sum::<f64>()), "{all:?}");
    let explained = gateway.admin("/v1/explain?url=http://a/x").json();
    let expected = "10% of the route's requests are copied to shadow, none with a body over 64KiB";
    assert_eq!(explained["mirror"], expected);
    assert!(explained["text"].as_str().is_some_and(|text| text.contains(expected)), "{explained}");
}

#[test]
fn a_request_never_waits_for_a_mirror_that_is_down_or_hangs() {
    let first = Named::start("first");
    // Nobody listens at the first address; at the second connections are taken and nothing is answered.
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let hanging = hanging();
    for (addr, result) in [(gone, "failed"), (hanging.addr(), "too-many")] {
        let gateway = Gateway::start(&format!(
            "workers = 1\n[upstream.shadow]\nservers = \"http://{addr}\"\n\
             connections = {{ max = 4, waiting = 100_000, wait = \"30s\" }}\n\
             [[route]]\nto = \"{}\"\nmirror = \"shadow\"",
            first.url()
        ));
        let mut client = gateway.client();
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        for number in 0..400 {
            let sent = Instant::now();
            let body = if number % 2 == 0 { "" } else { "a body" };
            assert_eq!(client.request("PUT", "/", &[], body).text(), "first");
            slowest = slowest.max(sent.elapsed());
        }
        eprintln!("{result}: 400 requests in {:?}, the slowest {slowest:?}", began.elapsed());
        // A second is the least that anything of the mirror would make them wait.
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        wait_for(&gateway, result, 100.0);
    }
}

#[test]
fn a_mirror_that_hangs_is_given_up_after_its_own_timeouts() {
    let (first, shadow) = (Named::start("first"), hanging());
    let gateway = Gateway::start(&config(
        &first.url(),
        &shadow,
        "timeouts = { response = \"50ms\" }",
        "mirror = \"shadow\"",
    ));
    assert_eq!(gateway.get("/").text(), "first");
    wait_for(&gateway, "failed", 1.0);
}

#[test]
fn a_body_beyond_the_bound_passes_and_is_not_copied() {
    let (first, shadow) = (Named::start("first"), Upstream::ok());
    let gateway = Gateway::start(&config(&first.url(), &shadow, "", "mirror = \"shadow\""));
    let mut client = gateway.client();
    let body = "x".repeat(64 * 1024 + 1);
    assert_eq!(client.request("POST", "/", &[], &body).status, 200);
    wait_for(&gateway, "too-large", 1.0);
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"));
    assert_eq!(client.response().status, 200);
    wait_for(&gateway, "too-large", 2.0);
    assert!(shadow.is_quiet());
    assert_eq!(client.request("POST", "/", &[], &body[..64 * 1024]).status, 200);
    assert_eq!(shadow.request().body.len(), 64 * 1024);
}

#[test]
fn a_body_reaches_the_first_server_while_it_comes_and_is_copied_only_whole() {
    let (pieces, came) = mpsc::channel();
    let pieces = Mutex::new(pieces);
    let first = Upstream::raw(move |mut stream| {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            pieces.lock().expect("nobody panics with it").send(text(&buffer[..count])).ok();
            if buffer[..count].ends_with(b"0\r\n\r\n") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok();
            }
        }
    });
    let shadow = Upstream::ok();
    let route = "mirror = \"shadow\"";
    let url = format!("http://{}", first.addr());
    let gateway = Gateway::start(&format!(
        "[upstream.first]\nservers = \"{url}\"\nuploads = {{ gather = 0 }}\n{}",
        config("first", &shadow, "", route)
    ));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let wait = |piece: &str| {
        while !came.recv_timeout(PATIENCE).expect("a piece comes before the end").contains(piece) {}
    };
    wait("abc");
    assert!(shadow.is_quiet());
    client.send("3\r\ndef\r\n0\r\n\r\n");
    wait("def");
    assert_eq!(client.response().status, 200);
    assert_eq!(shadow.request().body, b"abcdef");
    // A body that breaks off is not copied.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    wait("abc");
    drop(client);
    wait_for(&gateway, "incomplete", 1.0);
    assert!(shadow.is_quiet());
}

#[test]
fn requests_that_are_refused_and_switches_of_protocol_are_not_copied() {
    let shadow = Upstream::ok();
    let first = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            match request.header("upgrade") {
                Some(_) => {
                    peer.try_send("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n");
                }
                None => _ = peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            }
        }
    });
    let url = format!("http://{}", first.addr());
    let route = "mirror = \"shadow\"\nlimit = \"2/h by ip\"\nupgrade = true";
    let gateway = Gateway::start(&config(&url, &shadow, "", route));
    let mut client = gateway.client();
    client.send("GET /switch HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n");
    assert_eq!(client.head().status, 101);
    drop(client);
    assert_eq!(gateway.get("/copied").status, 200);
    assert_eq!(gateway.get("/refused").status, 429);
    assert_eq!(shadow.request().line, "GET /copied HTTP/1.1");
    assert!(shadow.is_quiet());
}

#[test]
fn a_request_that_is_sent_again_is_copied_once() {
    let bad = Upstream::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let (good, shadow) = (Named::start("good"), Upstream::ok());
    let gateway = Gateway::start(&format!(
        "[upstream.first]\nservers = [\"http://{}\", \"{}\"]\nbalance = \"round-robin\"\n\
         retry = {{ on = \"503\", budget = \"100%\" }}\n{}",
        bad.addr(),
        good.url(),
        config("first", &shadow, "", "mirror = \"shadow\"")
    ));
    let mut client = gateway.client();
    assert!((0..10).all(|_| client.get("/").text() == "good"));
    assert!(gateway.metric("sluicegate_upstream_retries_total", &["result=\"sent\""]) >= 4.0);
    for _ in 0..10 {
        shadow.request();
    }
    assert!(shadow.is_quiet());
}

#[test]
fn an_answer_without_end_is_left() {
    let first = Named::start("first");
    let shadow = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            let mut is_open = peer.is_taking("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n");
            while is_open {
                is_open = peer.is_taking([b'x'; 16 * 1024]);
            }
        }
    });
    let gateway = Gateway::start(&config(&first.url(), &shadow, "", "mirror = \"shadow\""));
    assert_eq!(gateway.get("/").text(), "first");
    wait_for(&gateway, "answered", 1.0);
}

#[test]
fn calls_of_grpc_are_copied_with_their_streams() {
    let servers = [Python::serve("grpc_server.py"), Python::serve("grpc_server.py")];
    let [first, shadow] = servers.each_ref().map(Python::addr);
    let gateway = Gateway::start(&format!(
        "[upstream.first]\nservers = \"http://{first}\"\nhttp = \"h2\"\n\
         [upstream.shadow]\nservers = \"http://{shadow}\"\nhttp = \"h2\"\n\
         [[route]]\nto = \"first\"\nmirror = \"shadow\""
    ));
    assert_eq!(python::client("grpc_client.py", &[&gateway.plain().to_string()]), "called\n");
    let calls = gateway.metric("sluicegate_upstream_exchanges_total", &["upstream=\"first\""]);
    assert!(calls >= 4.0, "{calls} calls");
    eventually("every call has a copy", || {
        let results = ["answered", "failed", "too-many", "too-large", "incomplete"];
        (results.map(|result| counted(&gateway, result)).iter().sum::<f64>() >= calls).then_some(())
    });
    assert_eq!(counted(&gateway, "too-many"), 0.0);
    assert!(counted(&gateway, "answered") >= 2.0);
}

#[test]
fn a_copy_outlives_a_reload_and_holds_up_no_stop() {
    let first = Named::start("first");
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let shadow = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            released.lock().expect("nobody panics with it").recv().ok();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let shutdown = "[shutdown]\nready-delay = \"0s\"\ndrain = \"60s\"\n";
    let with = |route: &str| format!("{shutdown}{}", config(&first.url(), &shadow, "", route));
    let mut gateway = Gateway::start(&with("mirror = \"shadow\""));
    assert_eq!(gateway.get("/").text(), "first");
    eventually("the copy is at the mirror", || (shadow.connections() > 0).then_some(()));
    gateway.reload(&with(""));
    assert_eq!(gateway.get("/").text(), "first");
    release.send(()).expect("the mirror waits for it");
    wait_for(&gateway, "answered", 1.0);
    gateway.reload(&with("mirror = \"shadow\""));
    assert_eq!(gateway.get("/").text(), "first");
    gateway.signal("TERM");
    let begin = Instant::now();
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}
