//! Servers by their names: every address is one, names are asked for again when their answers run out, servers that leave a
//! name are drained, and no answer does harm.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::dns::{Dns, Record, Reply};
use crate::support::h2::{Connection, END_HEADERS, HEADERS, fields};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Stop, Upstream, eventually};

/// A server that answers with its last number.
struct Server {
    upstream: Upstream,
    /// Connections that are open.
    open: Arc<AtomicUsize>,
}

fn server(number: u8, port: u16) -> Server {
    let open = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&open);
    let upstream = Upstream::raw_at(SocketAddr::from(([127, 0, 0, number], port)), move |stream| {
        told.fetch_add(1, Ordering::SeqCst);
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}"));
        }
        told.fetch_sub(1, Ordering::SeqCst);
    });
    Server { upstream, open }
}

/// So many servers at 127.0.0.1, 127.0.0.2 and so on, on one port.
fn servers<const COUNT: usize>() -> ([Server; COUNT], u16) {
    let first = server(1, 0);
    let port = first.upstream.addr().port();
    let mut first = Some(first);
    let servers = std::array::from_fn(|index| {
        let number = u8::try_from(index + 1).expect("few");
        first.take().unwrap_or_else(|| server(number, port))
    });
    (servers, port)
}

fn gateway(dns: &Dns, url: &str, keys: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 2\n{}[upstream.u]\nservers = [\"{url}\"]\nconnections = {{ idle-timeout = \"60s\" }}\n{keys}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        dns.config()
    ))
}

/// How many servers the upstream has, as the admin listener says.
fn count(gateway: &Gateway) -> usize {
    gateway.admin("/v1/upstreams").json()[0]["servers"].as_array().expect("a list").len()
}

/// How often each server answers of so many requests over one connection.
fn tally(gateway: &Gateway, requests: usize) -> [usize; 3] {
    let mut client = gateway.client();
    let mut tally = [0; 3];
    for _ in 0..requests {
        let number: usize = client.get("/").text().parse().expect("a server's number");
        tally[number - 1] += 1;
    }
    tally
}

fn said(gateway: &Gateway, part: &str) -> usize {
    gateway.stderr().iter().filter(|line| line.contains(part)).count()
}

#[test]
fn an_address_that_changes_under_traffic_gets_nothing_after_its_ttl_and_a_second() {
    let ([old, new], port) = servers();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "");
    eventually("the name resolves", || (gateway.get("/").status == 200).then_some(()));
    let (stop, (tx, rx)) = (AtomicBool::new(false), mpsc::channel());
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        for _ in 0..4 {
            let tx = tx.clone();
            let (gateway, stop) = (&gateway, &stop);
            scope.spawn(move || {
                let mut client = gateway.client();
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    let answer = client.get("/");
                    tx.send((began, answer.status, answer.text())).expect("the test listens");
                }
            });
        }
        let mut answers = 0;
        eventually("traffic flows", || {
            answers += rx.try_iter().count();
            (answers > 100).then_some(())
        });
        let changed = Instant::now();
        dns.addresses("u.test", &[[127, 0, 0, 2]]);
        eventually("the new one gets requests", || rx.try_iter().find(|(_, _, text)| text == "2"));
        eventually("the time is over", || (changed.elapsed() > Duration::from_secs(4)).then_some(()));
        drop(stopping);
        for (began, status, text) in rx.try_iter() {
            assert_eq!(status, 200);
            let late = began.saturating_duration_since(changed);
            assert!(text == "2" || late < Duration::from_secs(2), "{text} after {late:?}");
        }
    });
    assert_eq!(old.open.load(Ordering::SeqCst), 0, "idle connections to the old one are closed");
    assert!(new.upstream.connections() > 0);
}

#[test]
fn an_exchange_with_a_server_that_leaves_goes_on_to_its_end() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    let (closed_tx, closed) = mpsc::channel();
    let closed_tx = std::sync::Mutex::new(closed_tx);
    let old = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
            ended.lock().expect("nobody fails").recv().ok();
            peer.try_send("world");
            closed_tx.lock().expect("nobody fails").send(receive(&mut peer).is_none()).ok();
        }
    });
    let port = old.addr().port();
    let _new = server(2, port);
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.bytes(5), b"hello");
    dns.addresses("u.test", &[[127, 0, 0, 2]]);
    let shown = || gateway.admin("/v1/upstreams").json()[0]["servers"][0]["addresses"][0].to_string();
    eventually("the name leads to the new one", || shown().contains("127.0.0.2").then_some(()));
    assert_eq!(gateway.get("/x").text(), "2");
    end.send(()).expect("the old one waits");
    assert_eq!(client.bytes(5), b"world");
    let closed = closed.recv_timeout(crate::support::PATIENCE);
    assert!(closed.expect("the old one sees an end"), "its connection serves nothing more");
}

/// A server over HTTP/2 that sends the second half of its answer when it is told to, and tells of connections that end.
fn halting() -> (Upstream, mpsc::Sender<()>, mpsc::Receiver<()>) {
    let (end, ended) = mpsc::channel::<()>();
    let (closed_tx, closed) = mpsc::channel();
    let both = std::sync::Mutex::new((ended, closed_tx));
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                let head = fields(&[(":status", "200"), ("content-length", "10")]);
                peer.send(HEADERS, END_HEADERS, frame.stream, &head);
                peer.data(frame.stream, b"hello", false);
                both.lock().expect("nobody fails").0.recv().ok();
                peer.data(frame.stream, b"world", true);
            }
        }
        both.lock().expect("nobody fails").1.send(()).ok();
    });
    (upstream, end, closed)
}

#[test]
fn connections_over_http2_are_drained_too() {
    for is_busy in [false, true] {
        let (old, end, closed) = halting();
        let port = old.addr().port();
        let _new = server(2, port);
        let dns = Dns::start();
        dns.addresses("u.test", &[[127, 0, 0, 1]]);
        let gateway = gateway(&dns, &format!("http://u.test:{port}"), "http = \"h2\"");
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.bytes(5), b"hello");
        if !is_busy {
            end.send(()).expect("it waits");
            assert_eq!(client.bytes(5), b"world");
        }
        dns.addresses("u.test", &[[127, 0, 0, 2]]);
        let shown = || gateway.admin("/v1/upstreams").json()[0]["servers"][0]["addresses"][0].to_string();
        eventually("the name leads to the new one", || shown().contains("127.0.0.2").then_some(()));
        if is_busy {
            assert!(closed.try_recv().is_err(), "an exchange is under way");
            end.send(()).expect("it waits");
            assert_eq!(client.bytes(5), b"world");
        }
        closed.recv_timeout(crate::support::PATIENCE).expect("the connection is closed");
    }
}

#[test]
fn every_address_of_a_name_is_a_server_in_every_balance() {
    let (_servers, port) = servers::<3>();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 3], [127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 1]]);
    for balance in ["round-robin", "p2c", "least-requests"] {
        let gateway = gateway(&dns, &format!("http://u.test:{port}"), &format!("balance = \"{balance}\""));
        eventually("the name resolves", || (count(&gateway) == 3).then_some(()));
        assert_eq!(tally(&gateway, 30), [10; 3], "{balance}");
    }
}

#[test]
fn a_server_that_stays_keeps_its_connections_and_one_that_comes_gets_its_share() {
    let (all, port) = servers::<3>();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1], [127, 0, 0, 2]]);
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "balance = \"round-robin\"");
    eventually("the name resolves", || (count(&gateway) == 2).then_some(()));
    let mut client = gateway.client();
    (0..10).for_each(|_| assert_eq!(client.get("/").status, 200));
    let before = all[1].upstream.connections();
    dns.addresses("u.test", &[[127, 0, 0, 2], [127, 0, 0, 3]]);
    eventually("the third one gets requests", || (client.get("/").text() == "3").then_some(()));
    assert!((0..20).all(|_| client.get("/").text() != "1"));
    assert_eq!(all[1].upstream.connections(), before);
}

#[test]
fn the_last_good_answer_stays_while_dns_fails_and_the_log_says_so_twice() {
    let (_servers, port) = servers::<1>();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "");
    eventually("the name resolves", || (gateway.get("/").status == 200).then_some(()));
    for reply in [Reply::Failure, Reply::Nonsense, Reply::Records(1, Vec::new())] {
        let (failed, again) = (said(&gateway, "does not resolve"), said(&gateway, "resolves again"));
        dns.set("u.test", reply);
        let failing = || gateway.metric("sluicegate_upstream_unresolved_names", &["upstream=\"u\""]) > 0.0;
        eventually("the name fails", || failing().then_some(()));
        let asked = dns.questions();
        eventually("it is asked for again", || (dns.questions() > asked + 3).then_some(()));
        assert_eq!(gateway.get("/").status, 200);
        dns.addresses("u.test", &[[127, 0, 0, 1]]);
        eventually("the name is back", || (!failing()).then_some(()));
        eventually("the log says so", || (said(&gateway, "resolves again") == again + 1).then_some(()));
        assert_eq!(said(&gateway, "does not resolve"), failed + 1);
    }
}

/// Other answers for the addresses of IPv4 than for those of IPv6.
fn split(v4: Reply, v6: Reply) -> Reply {
    Reply::Split(Box::new(v4), Box::new(v6))
}

fn records(records: Vec<Record>) -> Reply {
    Reply::Records(1, records)
}

fn unresolved(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_upstream_unresolved_names", &["upstream=\"u\""])
}

fn failure(gateway: &Gateway) -> String {
    gateway.admin("/v1/upstreams").json()[0]["names"][0]["failure"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_family_without_an_answer_keeps_its_addresses_and_one_that_is_gone_does_not() {
    let (_servers, port) = servers::<1>();
    let _v6 = Upstream::raw_at((std::net::Ipv6Addr::LOCALHOST, port).into(), |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
        }
    });
    let v4 = || records(vec![Record::A([127, 0, 0, 1].into())]);
    let v6 = || records(vec![Record::Aaaa("::1".parse().expect("an address"))]);
    let dns = Dns::start();
    dns.set("u.test", split(v4(), v6()));
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "balance = \"round-robin\"");
    eventually("both are servers", || (count(&gateway) == 2).then_some(()));
    dns.set("u.test", split(Reply::Failure, v6()));
    eventually("the part is missed", || (unresolved(&gateway) == 1.0).then_some(()));
    assert!(failure(&gateway).starts_with("in part: ipv4 of u.test: "), "{}", failure(&gateway));
    assert_eq!(tally(&gateway, 20), [10, 10, 0]);
    // A failure of all keeps all, too.
    dns.set("u.test", Reply::Failure);
    eventually("the name fails", || (said(&gateway, "does not resolve") == 1).then_some(()));
    assert_eq!(tally(&gateway, 20), [10, 10, 0]);
    dns.set("u.test", split(v4(), v6()));
    eventually("the name is back", || (unresolved(&gateway) == 0.0).then_some(()));
    dns.set("u.test", split(records(Vec::new()), v6()));
    eventually("the family is gone", || (count(&gateway) == 1).then_some(()));
    assert_eq!((tally(&gateway, 10), unresolved(&gateway)), ([0, 10, 0], 0.0));
    for words in ["DNS answer is incomplete", "does not resolve", "resolves again"] {
        assert_eq!(said(&gateway, words), 1, "{words}: {:?}", gateway.stderr());
    }
}

#[test]
fn a_target_without_an_answer_stays_and_one_that_is_no_name_goes() {
    let (_servers, port) = servers::<3>();
    let dns = Dns::start();
    for (name, number) in [("one.test", 1), ("two.test", 2), ("three.test", 3)] {
        dns.addresses(name, &[[127, 0, 0, number]]);
    }
    let services = [(10, "one.test"), (10, "two.test"), (20, "three.test")];
    dns.set(
        "_http._tcp.u.test",
        records(services.map(|(rank, name)| Record::Srv(rank, 1, port, name)).into()),
    );
    let gateway = gateway(&dns, "http+srv://_http._tcp.u.test", "balance = \"round-robin\"");
    eventually("the name resolves", || (count(&gateway) == 2).then_some(()));
    dns.set("two.test", Reply::Failure);
    eventually("a target is missed", || failure(&gateway).contains("two.test").then_some(()));
    assert_eq!((tally(&gateway, 20), unresolved(&gateway)), ([10, 10, 0], 1.0));
    // Nor does the next priority take its place, and a failure of all keeps the first.
    for name in ["one.test", "three.test"] {
        dns.set(name, Reply::Failure);
        eventually("another one is missed", || {
            (failure(&gateway).contains(name) || said(&gateway, "does not resolve") == 1).then_some(())
        });
        assert_eq!(tally(&gateway, 20), [10, 10, 0], "{name}");
    }
    eventually("nothing resolves", || (said(&gateway, "does not resolve") == 1).then_some(()));
    assert_eq!(tally(&gateway, 20), [10, 10, 0]);
    dns.addresses("one.test", &[[127, 0, 0, 1]]);
    dns.addresses("three.test", &[[127, 0, 0, 3]]);
    dns.forget("two.test");
    eventually("the target is gone", || (count(&gateway) == 1).then_some(()));
    eventually("the rest is back", || (said(&gateway, "resolves again") == 1).then_some(()));
    assert_eq!((tally(&gateway, 10), unresolved(&gateway)), ([10, 0, 0], 0.0));
    let asked = dns.questions();
    eventually("it is asked for again", || (dns.questions() > asked + 20).then_some(()));
    assert_eq!(said(&gateway, "SRV target has no address"), 1);
    assert_eq!(said(&gateway, "DNS answer is incomplete"), 1);
}

#[test]
fn a_family_that_is_never_answered_for_does_not_keep_back_what_changes() {
    let ([_old, _new], port) = servers();
    let dns = Dns::start();
    let v4 = |number| records(vec![Record::A([127, 0, 0, number].into())]);
    dns.set("u.test", split(v4(1), Reply::Silence));
    let gateway = gateway(&dns, &format!("http://u.test:{port}"), "");
    assert_eq!(gateway.get("/").text(), "1", "it has its address from the start");
    let changed = Instant::now();
    dns.set("u.test", split(v4(2), Reply::Silence));
    eventually("the new address is in force", || (gateway.get("/").text() == "2").then_some(()));
    assert!(changed.elapsed() < Duration::from_millis(2_500), "{:?}", changed.elapsed());
    assert_eq!(unresolved(&gateway), 0.0, "nobody misses it");
}

#[test]
fn a_family_that_comes_late_is_added_when_it_comes() {
    let dns = Dns::start();
    let v4 = Reply::Records(60, vec![Record::A([127, 0, 0, 1].into())]);
    let v6 =
        Reply::Late(Duration::from_millis(1_500), vec![Record::Aaaa("::1".parse().expect("an address"))]);
    dns.set("u.test", split(v4, v6));
    let gateway = gateway(&dns, "http://u.test:1", "");
    assert_eq!(count(&gateway), 1);
    eventually("the other family is there", || (count(&gateway) == 2).then_some(()));
    assert_eq!(said(&gateway, "name of the server resolves to new addresses"), 2, "{:?}", gateway.stderr());
}

#[test]
fn a_service_goes_by_weight_and_to_the_next_priority_if_none_of_the_first_is_there() {
    let (_servers, port) = servers::<3>();
    let dns = Dns::start();
    for (name, number) in [("one.test", 1), ("two.test", 2), ("three.test", 3)] {
        dns.addresses(name, &[[127, 0, 0, number]]);
    }
    let records = |first: u16| {
        vec![
            Record::Srv(10, 3, first, "one.test"),
            Record::Srv(10, 1, first, "two.test"),
            Record::Srv(20, 1, port, "three.test"),
            Record::Srv(10, 1, port, "no host\r\n"),
        ]
    };
    dns.set("_http._tcp.u.test", Reply::Records(1, records(port)));
    let gateway = gateway(&dns, "http+srv://_http._tcp.u.test", "balance = \"round-robin\"");
    eventually("the name resolves", || (count(&gateway) == 2).then_some(()));
    assert_eq!(tally(&gateway, 40), [30, 10, 0]);
    dns.set("_http._tcp.u.test", Reply::Records(1, records(1)));
    eventually("the next priority is used", || (gateway.get("/").text() == "3").then_some(()));
}

#[test]
fn answers_that_are_too_long_never_end_or_hold_for_no_time_do_no_harm() {
    let (_servers, port) = servers::<1>();
    let dns = Dns::start();
    let many = (0..1_000_u16).map(|n| Record::A([127, 1, (n >> 8) as u8, (n & 255) as u8].into()));
    dns.set("many.test", Reply::Records(0, many.collect()));
    dns.set("loop.test", Reply::Records(0, vec![Record::Alias("loop.test")]));
    dns.set("chase.test", Reply::Records(0, vec![Record::Alias("chased.test")]));
    dns.set("chased.test", Reply::Records(0, vec![Record::Alias("chase.test")]));
    dns.set("now.test", Reply::Records(0, vec![Record::A([127, 0, 0, 1].into())]));
    let names = ["many", "loop", "chase", "now"];
    let upstreams =
        names.map(|name| format!("[upstream.{name}]\nservers = [\"http://{name}.test:{port}\"]\n"));
    let routes = names.map(|name| format!("[[route]]\npath = \"/{name}\"\nto = \"{name}\"\n"));
    let gateway = Gateway::start(&[dns.config(), upstreams.concat(), routes.concat()].concat());
    eventually("the good one resolves", || (gateway.get("/now").status == 200).then_some(()));
    eventually("the long one is cut", || (said(&gateway, "too many addresses") == 1).then_some(()));
    let shown = gateway.admin("/v1/upstreams").json();
    let of = |name: &str| shown.as_array()?.iter().find(|upstream| upstream["name"] == name).cloned();
    assert_eq!(of("many").expect("it is shown")["servers"].as_array().map(Vec::len), Some(256));
    eventually("loops have no answer", || (said(&gateway, "does not resolve") == 2).then_some(()));
    assert_eq!(gateway.get("/loop").status, 503);
    assert_eq!(gateway.get("/chase").status, 503);
    let (asked, began) = (dns.questions(), Instant::now());
    eventually("time passes", || (began.elapsed() > Duration::from_secs(2)).then_some(()));
    assert!(
        dns.questions() - asked < 120,
        "names are asked for about once a second: {}",
        dns.questions() - asked
    );
    assert_eq!(gateway.get("/now").status, 200);
}

/// How many servers a name has in the end, and after how long, if these name servers are asked.
fn count_by(servers: &[&Dns]) -> (usize, Duration) {
    let began = Instant::now();
    let gateway = Gateway::start(&format!(
        "workers = 1\n{}[upstream.u]\nservers = [\"http://u.test:1\"]\n[[route]]\nto = \"u\"",
        Dns::config_of(servers)
    ));
    let is_resolved = || {
        let resolved = gateway.admin("/v1/upstreams").json()[0]["servers"][0]["addresses"][0].is_string();
        resolved.then(|| count(&gateway))
    };
    (eventually("the name resolves", is_resolved), began.elapsed())
}

#[test]
fn a_cut_answer_is_asked_for_by_tcp_whatever_other_name_servers_do() {
    let long: Vec<_> = (0..150).map(|number| Record::A([127, 1, 0, number].into())).collect();
    for reply in [Reply::Silence, Reply::Failure] {
        let (good, bad) = (Dns::start(), Dns::start());
        good.set("u.test", Reply::Records(1, long.clone()));
        bad.set("u.test", reply);
        assert_eq!(count_by(&[&good, &bad]).0, 150);
        assert_eq!(count_by(&[&bad, &good]).0, 150);
    }
}

#[test]
fn an_answer_that_comes_late_is_taken() {
    let dns = Dns::start();
    dns.set("u.test", Reply::Late(Duration::from_millis(1_500), vec![Record::A([127, 0, 0, 1].into())]));
    assert_eq!(count_by(&[&dns]).0, 1);
}

#[test]
fn what_a_name_server_does_not_answer_keeps_back_no_address_for_long() {
    let (dns, silent) = (Dns::start(), Dns::start());
    silent.set("u.test", Reply::Silence);
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let (count, after) = count_by(&[&silent, &dns]);
    assert!(count == 1 && after < Duration::from_secs(4), "{count} after {after:?}");
    // The other family of the name has no answer, or none that is good.
    for reply in [Reply::Silence, Reply::Failure] {
        let good = Reply::Records(1, vec![Record::A([127, 0, 0, 1].into())]);
        dns.set("u.test", Reply::Split(Box::new(good), Box::new(reply)));
        let (count, after) = count_by(&[&dns]);
        assert!(count == 1 && after < Duration::from_millis(900), "{count} after {after:?}");
    }
}

#[test]
fn forged_answers_are_left_without_a_word() {
    let dns = Dns::start();
    dns.set("u.test", Reply::Forged(20, vec![Record::A([127, 0, 0, 1].into())]));
    let gateway = gateway(&dns, "http://u.test:1", "");
    eventually("the name resolves", || {
        (said(&gateway, "name of the server resolves to new addresses") == 1).then_some(())
    });
    assert_eq!(said(&gateway, "hickory"), 0, "{:?}", gateway.stderr());
}

#[test]
fn the_gateway_s_own_requests_go_by_the_same_name_servers() {
    let (dns, collector) = (Dns::start(), crate::traces::collector());
    // A family that is not answered for keeps nothing back.
    let loopback = Reply::Records(60, vec![Record::A([127, 0, 0, 1].into())]);
    dns.set("collector.test", Reply::Split(Box::new(loopback), Box::new(Reply::Silence)));
    let gateway = Gateway::start(&format!(
        "{}[trace]\notlp = \"http://collector.test:{}\"\nsample = \"100%\"\n[[route]]\nrespond = {{}}\n",
        dns.config(),
        collector.addr().port()
    ));
    gateway.get("/");
    assert_eq!(crate::traces::span(&collector).name, "GET /{*rest}");
}
