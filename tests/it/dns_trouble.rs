//! Names whose answers come late, change or do not come at the worst moment: at the start, at a reload, while a server is
//! being checked, while a request waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use crate::support::dns::{Dns, Record, Reply};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Stop, Upstream, eventually};

/// A server that answers everything with this text.
fn server(addr: impl Into<SocketAddr>, text: &'static str) -> Upstream {
    Upstream::raw_at(addr.into(), move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()));
        }
    })
}

/// The configuration of an upstream `u` with one route to it.
fn config(dns: &Dns, port: u16, keys: &str) -> String {
    format!(
        "workers = 1\n{}[upstream.u]\nservers = [\"http://u.test:{port}\"]\n{keys}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
        dns.config()
    )
}

fn said(gateway: &Gateway, part: &str) -> usize {
    gateway.stderr().iter().filter(|line| line.contains(part)).count()
}

/// Waits until the name leads there.
fn leads_to(gateway: &Gateway, address: &str) {
    eventually(&format!("the name leads to {address}"), || {
        let servers = gateway.admin("/v1/upstreams").json()[0]["servers"].clone();
        let is_there = |server: &serde_json::Value| server["addresses"][0].as_str() == Some(address);
        servers.as_array().is_some_and(|all| all.len() == 1 && is_there(&all[0])).then_some(())
    });
}

#[test]
fn a_gateway_starts_while_dns_is_down_and_comes_good_with_it() {
    for reply in [Reply::Failure, Reply::Silence] {
        let upstream = server(([127, 0, 0, 1], 0), "here");
        let dns = Dns::start();
        dns.set("u.test", reply);
        let other = "[[route]]\npath = \"/other\"\nrespond = {}\n";
        let gateway = Gateway::start(&(config(&dns, upstream.addr().port(), "eject = {}") + other));
        let answer = gateway.get("/a");
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true), "{answer:?}");
        assert_eq!(answer.json()["reason"], "upstream-unresolved", "{answer:?}");
        assert_eq!(gateway.logged("/a")["reason"], "upstream-unresolved");
        assert_eq!(gateway.get("/other").status, 200);
        let shown = || gateway.admin("/v1/upstreams").json()[0]["names"][0].clone();
        let why = eventually("operators are told why", || {
            shown()["failure"].as_str().map(|failure| (failure.to_owned(), shown()))
        });
        assert_eq!((&why.1["name"], &why.1["servers"]), (&"u.test".into(), &0.into()), "{why:?}");
        // The server is not called healthy that nobody can reach.
        let server = || gateway.admin("/v1/upstreams").json()[0]["servers"][0].clone();
        let (server_then, first) = (server(), shown()["failing-seconds"].as_f64());
        assert_eq!((&server_then["state"], &server_then["failure"]), (&"unresolved".into(), &why.0.into()));
        let unresolved = || gateway.metric("sluicegate_upstream_servers", &["state=\"unresolved\""]);
        assert_eq!((unresolved(), first.is_some()), (1.0, true));
        eventually("it goes on", || (shown()["failing-seconds"].as_f64() > first).then_some(()));
        let told = gateway.admin("/v1/explain?url=/a").json();
        assert!(told["text"].as_str().is_some_and(|it| it.contains("has not resolved for ")), "{told}");
        dns.addresses("u.test", &[[127, 0, 0, 1]]);
        eventually("the name resolves", || (gateway.get("/a").status == 200).then_some(()));
        assert_eq!((server()["state"].as_str(), unresolved()), (Some("healthy"), 0.0));
        assert!(server().get("failure").is_none() && shown().get("failing-seconds").is_none());
        eventually("the log says so", || (said(&gateway, "resolves again") == 1).then_some(()));
        assert_eq!(said(&gateway, "does not resolve"), 1);
    }
}

#[test]
fn a_reload_while_dns_is_down_keeps_what_is_known() {
    let upstream = server(([127, 0, 0, 1], 0), "here");
    let port = upstream.addr().port();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = Gateway::start(&config(&dns, port, ""));
    leads_to(&gateway, &format!("127.0.0.1:{port}"));
    dns.set("u.test", Reply::Silence);
    dns.set("new.test", Reply::Failure);
    eventually("the name fails", || (said(&gateway, "does not resolve") == 1).then_some(()));
    let new = format!(
        "[upstream.new]\nservers = [\"http://new.test:{port}\"]\n[[route]]\npath = \"/new\"\nto = \"new\"\n"
    );
    // Another upstream by its configuration, and one that is new.
    gateway.reload(&(config(&dns, port, "timeouts = { connect = \"2s\" }") + &new));
    assert_eq!(gateway.get("/a").status, 200);
    assert_eq!(gateway.get("/new").status, 503);
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    dns.addresses("new.test", &[[127, 0, 0, 1]]);
    eventually("the new one resolves", || (gateway.get("/new").status == 200).then_some(()));
    eventually("both are back", || (said(&gateway, "resolves again") == 2).then_some(()));
    for meanwhile in ["its last good addresses stay in use", "it gets no requests"] {
        let line = format!("does not resolve: {meanwhile}");
        assert_eq!(said(&gateway, &line), 1, "once for each name: {:?}", gateway.stderr());
    }
}

#[test]
fn a_new_name_has_its_answer_when_a_reload_comes_into_force() {
    let upstream = server(([127, 0, 0, 1], 0), "here");
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = Gateway::start(&format!("{}[[route]]\nrespond = {{ status = 204 }}\n", dns.config()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        let asking = scope.spawn(|| {
            let mut client = gateway.client();
            let mut statuses = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                statuses.push(client.get("/").status);
            }
            statuses
        });
        gateway.reload(&config(&dns, upstream.addr().port(), ""));
        drop(stopping);
        let statuses = asking.join().expect("it only asks");
        assert!(statuses.iter().all(|status| [200, 204].contains(status)), "{statuses:?}");
    });
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_server_that_leaves_while_it_is_checked_is_forgotten_and_begins_anew() {
    let stays = server(([127, 0, 0, 1], 0), "1");
    let port = stays.addr().port();
    let (checks, status) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let told = (Arc::clone(&checks), Arc::clone(&status));
    // Its checks hang until it has a status.
    let leaves = Upstream::raw_at(([127, 0, 0, 2], port).into(), move |stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            if request.line.contains("/health") {
                told.0.fetch_add(1, Ordering::SeqCst);
                eventually("a status", || (told.1.load(Ordering::SeqCst) > 0).then_some(()));
            }
            let status = told.1.load(Ordering::SeqCst);
            peer.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: 1\r\n\r\n2"));
        }
    });
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1], [127, 0, 0, 2]]);
    let health = "health = { path = \"/health\", every = \"100ms\", timeout = \"10s\", unhealthy-after = 1 }";
    let gateway = Gateway::start(&config(&dns, port, health));
    eventually("it is being checked", || (checks.load(Ordering::SeqCst) == 1).then_some(()));
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    leads_to(&gateway, &format!("127.0.0.1:{port}"));
    status.store(500, Ordering::SeqCst);
    let good = || gateway.metric("sluicegate_upstream_health_checks_total", &["result=\"good\""]);
    let before = good();
    eventually("the other one is still checked", || (good() > before + 3.0).then_some(()));
    assert_eq!(gateway.metric("sluicegate_upstream_health_checks_total", &["result=\"failed\""]), 0.0);
    assert_eq!(checks.load(Ordering::SeqCst), 1, "one that has left is not asked");
    assert_eq!(said(&gateway, "unhealthy"), 0);
    // Back, it is what it is now.
    status.store(200, Ordering::SeqCst);
    dns.addresses("u.test", &[[127, 0, 0, 1], [127, 0, 0, 2]]);
    eventually("it is asked for again", || (checks.load(Ordering::SeqCst) > 2).then_some(()));
    eventually("it gets requests", || (gateway.get("/").text() == "2").then_some(()));
    drop(leaves);
}

#[test]
fn a_request_that_waits_goes_to_the_servers_that_there_are_by_then() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let requests = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&requests);
    // It answers when it is told to.
    let old = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            told.fetch_add(1, Ordering::SeqCst);
            ended.lock().expect("nobody fails").recv().ok();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
        }
    });
    let port = old.addr().port();
    let _new = server(([127, 0, 0, 2], port), "2");
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = Gateway::start(&config(&dns, port, "connections = { max = 1, wait = \"10s\" }"));
    leads_to(&gateway, &format!("127.0.0.1:{port}"));
    // One holds the only connection, one waits for it, one for its body.
    let mut holds = gateway.client();
    holds.send("GET /holds HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it has the connection", || (requests.load(Ordering::SeqCst) == 1).then_some(()));
    let mut waits = gateway.client();
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut drips = gateway.client();
    drips.send("POST /drips HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    let waiting = || gateway.metric("sluicegate_upstream_waiting_requests", &["upstream=\"u\""]);
    eventually("one waits", || (waiting() == 1.0).then_some(()));
    dns.addresses("u.test", &[[127, 0, 0, 2]]);
    assert_eq!(waits.response().text(), "2", "it does not wait for a server that has left");
    leads_to(&gateway, &format!("127.0.0.2:{port}"));
    drips.send("body");
    assert_eq!(drips.response().text(), "2");
    end.send(()).expect("the old one waits");
    assert_eq!(holds.response().text(), "1");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    let line = gateway.logged("/waits");
    assert_eq!((&line["status"], &line["retries"]), (&200.into(), &0.into()), "{line}");
}

#[test]
fn both_families_are_servers_unless_one_leads_nowhere() {
    let v4 = server(([127, 0, 0, 1], 0), "4");
    let port = v4.addr().port();
    let dns = Dns::start();
    let both = || vec![Record::A([127, 0, 0, 1].into()), Record::Aaaa("::1".parse().expect("an address"))];
    dns.set("u.test", Reply::Records(1, both()));
    let gateway = Gateway::start(&config(&dns, port, "balance = \"round-robin\""));
    leads_to(&gateway, &format!("127.0.0.1:{port}"));
    let mut client = gateway.client();
    assert!((0..10).all(|_| client.get("/").text() == "4"));
    assert_eq!(gateway.metric("sluicegate_upstream_connect_failures_total", &["upstream=\"u\""]), 0.0);
    let left_out = || gateway.admin("/v1/upstreams").json()[0]["names"][0]["left-out"].clone();
    let counted = |family: &str| {
        gateway.metric("sluicegate_upstream_names_without_family", &[&format!("family=\"{family}\"")])
    };
    assert_eq!((left_out(), counted("ipv6"), counted("ipv4")), ("ipv6".into(), 1.0, 0.0));
    assert_eq!(said(&gateway, "are unreachable and not used"), 1);
    // It leads somewhere now.
    let began = Instant::now();
    let v6 = server((std::net::Ipv6Addr::LOCALHOST, port), "6");
    eventually("the other family is used", || (client.get("/").text() == "6").then_some(()));
    let six = (0..10).filter(|_| client.get("/").text() == "6").count();
    assert_eq!(six, 5, "after {:?}", began.elapsed());
    assert_eq!((left_out(), counted("ipv6")), (serde_json::Value::Null, 0.0));
    assert_eq!(said(&gateway, "of this family are used again"), 1);
    drop(v6);
}
