//! Upstreams that fail well: servers that do not work are noticed, left out, and taken back without a rush.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::edge::Edge;
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, end, eventually, signal};

/// A server that answers with its name, and what its test may change of it.
struct Server {
    upstream: Upstream,
    /// The status of requests.
    status: Arc<AtomicU16>,
    /// The status of checks.
    check: Arc<AtomicU16>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(name: &'static str) -> Server {
        let (status, check) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200)));
        let requests = Arc::new(AtomicUsize::new(0));
        let told = (Arc::clone(&status), Arc::clone(&check), Arc::clone(&requests));
        let upstream = Upstream::raw(move |stream| {
            let (status, check, requests) = &told;
            let mut peer = Client::over(stream);
            while let Some(request) = receive(&mut peer) {
                let is_check = request.line.starts_with("GET /healthz");
                requests.fetch_add(usize::from(!is_check), Ordering::SeqCst);
                let status = if is_check { check } else { status }.load(Ordering::SeqCst);
                let length = name.len();
                peer.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{name}"));
            }
        });
        Server { upstream, status, check, requests }
    }

    fn taken(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

/// A gateway in front of these servers; `keys` are the upstream's.
fn gateway(servers: &[SocketAddr], keys: &str) -> Gateway {
    Gateway::start(&config(servers, keys))
}

fn config(servers: &[SocketAddr], keys: &str) -> String {
    let servers: Vec<String> = servers.iter().map(|addr| format!("\"http://{addr}\"")).collect();
    let servers = servers.join(", ");
    format!(
        "workers = 2\n[upstream.u]\nservers = [{servers}]\n{keys}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\""
    )
}

/// The state of each server, as the admin listener says.
fn states(gateway: &Gateway) -> Vec<String> {
    let shown = gateway.admin("/v1/upstreams").json();
    let servers = shown[0]["servers"].as_array().expect("an upstream has servers").clone();
    servers.iter().map(|server| server["state"].as_str().expect("a word").to_owned()).collect()
}

fn wait_for(gateway: &Gateway, wanted: &[&str]) {
    eventually(&format!("servers are {wanted:?}"), || (states(gateway) == wanted).then_some(()));
}

/// How often the log has a line with all of these.
fn said(gateway: &Gateway, parts: &[&str]) -> usize {
    gateway.stderr().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

const CHECK: &str = "health = { path = \"/healthz\", every = \"50ms\", timeout = \"1s\" }";

#[test]
fn a_server_whose_checks_fail_gets_no_request_until_they_succeed() {
    let servers = [Server::start("one"), Server::start("two")];
    let gateway = gateway(&servers.each_ref().map(|server| server.upstream.addr()), CHECK);
    let mut client = gateway.client();
    servers[0].check.store(503, Ordering::SeqCst);
    wait_for(&gateway, &["unhealthy", "healthy"]);
    servers[0].taken();
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), "two");
    }
    assert_eq!(servers[0].taken(), 0);
    let shown = gateway.admin("/v1/upstreams").json();
    assert_eq!(shown[0]["servers"][0]["check-failure"], "it answered its health check with status 503");
    assert_eq!(gateway.metric("sluicegate_upstream_servers", &["state=\"unhealthy\""]), 1.0);
    assert!(gateway.metric("sluicegate_upstream_health_checks_total", &["result=\"failed\""]) >= 3.0);
    servers[0].check.store(200, Ordering::SeqCst);
    wait_for(&gateway, &["healthy", "healthy"]);
    eventually("requests go there again", || (client.get("/").text() == "one").then_some(()));
    // A line at each change, and none between.
    let address = servers[0].upstream.addr().to_string();
    assert_eq!(said(&gateway, &["server is unhealthy", &address]), 1);
    assert_eq!(said(&gateway, &["server is healthy again", &address]), 1);
}

#[test]
fn when_no_server_passes_its_checks_all_are_used() {
    let servers = [Server::start("one"), Server::start("two")];
    servers.iter().for_each(|server| server.check.store(500, Ordering::SeqCst));
    let gateway = gateway(&servers.each_ref().map(|server| server.upstream.addr()), CHECK);
    wait_for(&gateway, &["unhealthy", "unhealthy"]);
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(servers.iter().all(|server| server.taken() > 0));
    eventually("it is said once", || (said(&gateway, &["too few servers are healthy"]) == 1).then_some(()));
    assert_eq!(gateway.metric("sluicegate_upstream_panic", &[]), 1.0);
}

#[test]
fn checks_ask_for_what_the_configuration_says() {
    let server = Server::start("the body");
    let other = Server::start("elsewhere");
    let port = other.upstream.addr().port();
    for (keys, state) in [
        ("path = \"/healthz\", body = \"bod\"".to_owned(), "healthy"),
        ("path = \"/healthz\", body = \"soul\"".to_owned(), "unhealthy"),
        ("path = \"/healthz\", status = \"5xx\"".to_owned(), "unhealthy"),
        ("path = \"/healthz\", status = [204, \"200-201\"]".to_owned(), "healthy"),
        (format!("path = \"/healthz\", body = \"elsewhere\", port = {port}"), "healthy"),
        ("tcp = true".to_owned(), "healthy"),
        ("tcp = true, port = 1".to_owned(), "unhealthy"),
    ] {
        let keys = format!("health = {{ {keys}, every = \"20ms\" }}");
        let gateway = gateway(&[server.upstream.addr()], &keys);
        let (expected, other) = if state == "healthy" { ("good", "failed") } else { ("failed", "good") };
        let counted = |result: &str| {
            let label = format!("result=\"{result}\"");
            gateway.metric("sluicegate_upstream_health_checks_total", &[&label])
        };
        eventually(&keys, || (counted(expected) >= 5.0).then_some(()));
        assert_eq!(states(&gateway), [state], "{keys}");
        assert_eq!(counted(other), 0.0, "{keys}");
    }
}

/// Endpoints that hang, never end, or answer nonsense: the check is over in time, and holds no memory.
#[test]
fn hostile_health_endpoints_are_unhealthy_and_cost_nothing() {
    let bytes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&bytes);
    let large = Upstream::raw(move |mut stream| {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {
            counted.fetch_add(65536, Ordering::SeqCst);
        }
    });
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let heads = Upstream::raw(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let nonsense = Upstream::answering("SSH-2.0-OpenSSH_9.2\r\n");
    let servers = [large.addr(), silent.addr(), heads.addr(), nonsense.addr()];
    let keys = "health = { path = \"/\", body = \"not there\", every = \"50ms\", timeout = \"200ms\" }";
    let gateway = gateway(&servers, keys);
    wait_for(&gateway, &["unhealthy"; 4]);
    let before = (gateway.memory_kib(), large.connections(), bytes.load(Ordering::SeqCst));
    eventually("many checks more", || (large.connections() > before.1 + 20).then_some(()));
    let each = (bytes.load(Ordering::SeqCst) - before.2) / (large.connections() - before.1);
    assert!(each < 8 << 20, "{each} bytes were taken of each answer");
    assert!(gateway.memory_kib() < before.0 + 8 * 1024, "from {} to {} KiB", before.0, gateway.memory_kib());
    let shown = gateway.admin("/v1/upstreams").json();
    let failure =
        |index: usize| shown[0]["servers"][index]["check-failure"].as_str().unwrap_or("").to_owned();
    assert!(failure(0).contains("body"), "{}", failure(0));
    assert!(failure(1).contains("within"), "{}", failure(1));
}

/// The server is another gateway: over TLS, and over HTTP/2.
#[test]
fn checks_go_the_way_that_requests_go() {
    let edge = Edge::start();
    let (plain, tls) = (edge.gateway.plain(), edge.gateway.listener("tls").port());
    let check = "health = { path = \"/\", body = \"ok\", every = \"20ms\" }";
    for (url, keys, result) in [
        (format!("http://{plain}"), "http = \"h2\"", "good"),
        (format!("https://localhost:{tls}"), "tls = { verify = false }", "good"),
        (format!("https://localhost:{tls}"), "http = \"h2\"\ntls = { verify = false }", "good"),
        // Spoken to in the clear, a TLS server is no server.
        (format!("http://localhost:{tls}"), "", "failed"),
    ] {
        let gateway = Gateway::start(&format!(
            "[upstream.u]\nservers = \"{url}\"\n{keys}\n{check}\n[[route]]\nto = \"u\""
        ));
        let name = "sluicegate_upstream_health_checks_total";
        let counted = |result: &str| gateway.metric(name, &[&format!("result=\"{result}\"")]);
        eventually(&format!("{url} {keys}"), || (counted(result) >= 5.0).then_some(()));
        let shown = gateway.admin("/v1/upstreams").text();
        let other = if result == "good" { "failed" } else { "good" };
        assert_eq!(counted(other), 0.0, "{url} {keys}: {shown}");
    }
}

#[test]
fn a_server_that_fails_requests_is_ejected_for_a_growing_time() {
    let servers = [Server::start("one"), Server::start("two")];
    servers[0].status.store(500, Ordering::SeqCst);
    let keys = "eject = { after = 3, for = \"300ms\" }";
    let gateway = gateway(&servers.each_ref().map(|server| server.upstream.addr()), keys);
    let mut client = gateway.client();
    let ejections = || gateway.metric("sluicegate_upstream_ejections_total", &[]);
    let failed = (0..100).filter(|_| client.get("/").status == 500).count();
    assert!((3..20).contains(&failed), "{failed} of 100 failed");
    // Back again it has one try, so that what follows costs clients one answer each.
    let mut later = 0;
    eventually("it is ejected again and again", || {
        later += usize::from(client.get("/").status == 500);
        (ejections() >= 4.0).then_some(())
    });
    assert!(later <= 5, "{later} more failed");
    let one_try = &["server is ejected", "its first request after an ejection failed"];
    eventually("the log says so too", || (said(&gateway, one_try) >= 3).then_some(()));
    assert!(said(&gateway, &["server is ejected", "seconds=0.3"]) == 1);
    assert!(said(&gateway, &["server is ejected", "seconds=0.6"]) == 1);
    assert!(said(&gateway, &["server is ejected", "3 requests failed in a row"]) == 1);
    servers[0].status.store(200, Ordering::SeqCst);
    eventually("it is used again", || (client.get("/").text() == "one").then_some(()));
}

#[test]
fn a_reload_keeps_what_is_known_of_servers_that_stay() {
    let servers = [Server::start("one"), Server::start("two"), Server::start("three")];
    let addrs = servers.each_ref().map(|server| server.upstream.addr());
    let keys = "health = { path = \"/healthz\", every = \"20ms\" }\nslow-start = \"1h\"";
    let gateway = gateway(&addrs[..2], keys);
    servers[0].check.store(503, Ordering::SeqCst);
    wait_for(&gateway, &["unhealthy", "healthy"]);
    // Whatever the reload does not keep would have to be found out anew, once an hour.
    let slow = "health = { path = \"/healthz\", every = \"1h\" }\nslow-start = \"1h\"";
    let addrs = [addrs[1], addrs[0], addrs[2]];
    gateway.reload(&config(&addrs, slow));
    assert_eq!(states(&gateway), ["healthy", "unhealthy", "warming-up"]);
}

#[test]
fn a_request_is_sent_again_after_a_status_or_a_silence_if_the_upstream_says_so() {
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (bad, good) = (Server::start("bad"), Server::start("good"));
    bad.status.store(503, Ordering::SeqCst);
    let keys = "balance = \"round-robin\"\nretry = { on = [\"timeout\", \"503\"], budget = \"100%\" }\n\
                timeouts = { try = \"100ms\" }";
    for first in [bad.upstream.addr(), silent.addr()] {
        let gateway = gateway(&[first, good.upstream.addr()], keys);
        let mut client = gateway.client();
        for _ in 0..6 {
            let answer = client.get("/");
            assert_eq!((answer.status, answer.text()), (200, "good".to_owned()));
        }
        // What changes something is not sent twice.
        let statuses: Vec<u16> = (0..2)
            .map(|_| gateway.client())
            .filter(|_| first == bad.upstream.addr())
            .map(|mut client| client.request("POST", "/", &[], "x").status)
            .collect();
        assert!(statuses.is_empty() || statuses.contains(&503), "{statuses:?}");
    }
}

#[test]
fn a_try_is_waited_for_where_the_budget_has_no_room_for_another() {
    let slow = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(200));
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        }
    });
    let keys = "retry = { on = [\"timeout\"], budget = \"0%\" }\n\
                timeouts = { try = \"50ms\", response = \"10s\" }";
    let gateway = gateway(&[slow.addr()], keys);
    let mut client = gateway.client();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text()), (200, "slow".to_owned()));
    }
    assert_eq!(slow.connections(), 1, "its connection was waited on");
    assert_eq!(gateway.metric("sluicegate_upstream_retries_total", &["result=\"over-budget\""]), 3.0);
}

#[test]
fn what_a_route_says_of_retries_goes_before_what_its_upstream_says() {
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (bad, good) = (Server::start("bad"), Server::start("good"));
    bad.status.store(503, Ordering::SeqCst);
    let routes = |others: [SocketAddr; 2], upstream: &str, route: &str| {
        let text = config(&others, &format!("balance = \"round-robin\"\n{upstream}"));
        Gateway::start(&format!("{text}\n[[route]]\npath = \"/own/{{*rest}}\"\nto = \"u\"\n{route}"))
    };
    let good_of = |gateway: &Gateway, path: &str| {
        let mut client = gateway.client();
        (0..8).filter(|_| client.get(path).status == 200).count()
    };
    let servers = [bad.upstream.addr(), good.upstream.addr()];
    let again = "retry = { on = [\"503\"], budget = \"100%\" }";
    let never = routes(servers, again, "retry = { times = 0 }");
    assert_eq!((good_of(&never, "/"), good_of(&never, "/own/")), (8, 4));
    let only = routes(servers, "retry = { budget = \"100%\" }", "retry = { on = [\"5xx\"] }");
    assert_eq!((good_of(&only, "/"), good_of(&only, "/own/")), (4, 8));
    // The budget stays the upstream's.
    let none = routes(servers, "retry = { budget = \"0%\" }", "retry = { on = [\"5xx\"] }");
    assert_eq!(good_of(&none, "/own/"), 4);

    let servers = [silent.addr(), good.upstream.addr()];
    for own in [
        "retry = { on = [\"timeout\"] }\ntimeouts = { try = \"100ms\" }",
        "retry = { hedge-after = \"100ms\" }",
    ] {
        let upstream = "retry = { times = 0, budget = \"100%\" }\ntimeouts = { response = \"600ms\" }";
        let gateway = routes(servers, upstream, own);
        let began = Instant::now();
        assert_eq!(good_of(&gateway, "/own/"), 8, "{own}");
        assert!(began.elapsed() < Duration::from_millis(1_800), "{own}: {:?}", began.elapsed());
        let mut client = gateway.client();
        assert!((0..2).any(|_| client.get("/").status == 504), "{own}");
    }
}

/// One of three servers fails every request: the others are asked no more often than their share and the budget allow.
#[test]
fn retries_hold_their_budget_while_a_server_fails() {
    const REQUESTS: usize = 300;
    let servers = [Server::start("one"), Server::start("two"), Server::start("three")];
    servers[0].status.store(503, Ordering::SeqCst);
    let keys = "balance = \"round-robin\"\nretry = { on = [\"503\"], budget = \"20%\" }";
    let gateway = gateway(&servers.each_ref().map(|server| server.upstream.addr()), keys);
    let mut client = gateway.client();
    let failed = (0..REQUESTS).filter(|_| client.get("/").status == 503).count();
    let [bad, others @ ..] = servers.each_ref().map(|server| server.taken());
    let retries = bad + others.iter().sum::<usize>() - REQUESTS;
    // Each worker allows a few to a quiet upstream.
    assert!((1..=REQUESTS / 5 + 3).contains(&retries), "{retries} retries");
    assert!(failed > 0, "the budget would have been passed");
    assert!(others.iter().sum::<usize>() <= REQUESTS * 2 / 3 + retries, "{bad}, {others:?}");
}

/// However one of three servers fails, no other one is asked more often than its share and the budget allow.
#[test]
fn a_server_that_fails_raises_the_load_on_the_others_by_the_budget_at_most() {
    const REQUESTS: usize = 240;
    let refusing = || Upstream::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let breaking = || {
        Upstream::raw(|stream| {
            receive(&mut Client::over(stream));
        })
    };
    let silent = || {
        Upstream::raw(|stream| {
            let mut peer = Client::over(stream);
            while receive(&mut peer).is_some() {}
        })
    };
    for (failing, retry) in [
        (refusing(), "on = [\"503\"]"),
        (breaking(), "on = [\"reset-before-bytes\"]"),
        (silent(), "on = [\"timeout\"]"),
        (silent(), "on = [\"503\"], hedge-after = \"5ms\""),
    ] {
        let others = [Server::start("two"), Server::start("three")];
        let [two, three] = others.each_ref().map(|server| server.upstream.addr());
        let keys = format!(
            "balance = \"round-robin\"\nretry = {{ {retry}, budget = \"20%\" }}\ntimeouts = {{ response = \"20ms\" }}"
        );
        let gateway = gateway(&[failing.addr(), two, three], &keys);
        let mut client = gateway.client();
        let failed = (0..REQUESTS).filter(|_| client.get("/").status != 200).count();
        let retries = gateway.metric("sluicegate_upstream_retries_total", &["result=\"sent\""]);
        // Each worker allows a few to a quiet upstream.
        let budget = REQUESTS / 5 + 3;
        assert!((1.0..=budget as f64).contains(&retries), "{retry}: {retries} retries");
        assert!(failed > 0, "{retry}: the budget would have been passed");
        let taken = others.each_ref().map(Server::taken);
        assert!(taken.iter().all(|taken| *taken <= REQUESTS / 3 + budget), "{retry}: {taken:?}");
        assert!(taken.iter().sum::<usize>() <= REQUESTS * 2 / 3 + budget, "{retry}: {taken:?}");
    }
}

/// A server in a process of its own, so that it can be stopped as a whole.
struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    fn start() -> Process {
        let code = "import http.server, socketserver\n\
            class H(http.server.BaseHTTPRequestHandler):\n\
            \x20 protocol_version = 'HTTP/1.1'\n\
            \x20 disable_nagle_algorithm = True\n\
            \x20 def do_GET(self):\n\
            \x20   self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers()\n\
            \x20   self.wfile.write(b'ok')\n\
            \x20 def log_message(self, *a): pass\n\
            class S(socketserver.ThreadingMixIn, http.server.HTTPServer):\n\
            \x20 daemon_threads = True\n\
            s = S(('127.0.0.1', 0), H)\n\
            print(s.server_address[1], flush=True)\n\
            s.serve_forever()";
        let mut child = Command::new("python3")
            .args(["-c", code])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is there");
        let mut port = String::new();
        let out = child.stdout.take().expect("it was asked for");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut port).expect("it says its port");
        let port = port.trim().parse().expect("a port");
        Process { child, addr: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// What a steady stream of GETs is answered with.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<BTreeMap<u16, usize>>>,
}

impl Load {
    /// So many GETs a second over as many connections as there are threads.
    fn start(addr: SocketAddr, rate: u32, threads: u32) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let pause = Duration::from_secs(1) * threads / rate;
        let stops = (0..threads).map(|_| Arc::clone(&stop)).collect::<Vec<_>>();
        let threads = stops.into_iter().map(|stop| {
            thread::spawn(move || {
                let mut client = Client::connect(addr);
                let (mut statuses, mut next) = (BTreeMap::new(), Instant::now());
                while !stop.load(Ordering::SeqCst) {
                    *statuses.entry(client.get("/").status).or_default() += 1;
                    next += pause;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                statuses
            })
        });
        let threads = threads.collect();
        Load { stop, threads }
    }

    fn end(self) -> BTreeMap<u16, usize> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = BTreeMap::new();
        for thread in self.threads {
            for (status, count) in thread.join().expect("every request is answered") {
                *all.entry(status).or_default() += count;
            }
        }
        all
    }
}

/// The promise of the whole: one of three servers is stopped, another answers 500 to everything, and clients do not see it.
#[test]
fn a_stopped_server_and_one_that_answers_500_are_not_seen_by_clients() {
    let _alone = crate::support::heavy();
    let (stopped, bad, good) = (Process::start(), Server::start("bad"), Server::start("good"));
    let keys = "health = { path = \"/healthz\", every = \"400ms\", timeout = \"600ms\", unhealthy-after = 3 }\n\
                eject = { after = 5, for = \"2s\" }\nslow-start = \"4s\"\n\
                retry = { on = [\"connect\", \"reset-before-bytes\", \"timeout\", \"500\"] }\n\
                timeouts = { try = \"500ms\" }";
    let gateway = gateway(&[stopped.addr, bad.upstream.addr(), good.upstream.addr()], keys);
    let load = Load::start(gateway.plain(), 500, 20);
    eventually("all are used", || (bad.requests.load(Ordering::SeqCst) > 100).then_some(()));
    signal(stopped.child.id(), "STOP");
    bad.status.store(500, Ordering::SeqCst);
    bad.check.store(500, Ordering::SeqCst);
    let began = Instant::now();
    eventually("both are out", || {
        let states = states(&gateway);
        (states[0] != "healthy" && states[1] != "healthy").then_some(())
    });
    let noticed = began.elapsed();
    eventually("a thousand requests more", || (good.requests.load(Ordering::SeqCst) > 3_000).then_some(()));
    bad.taken();
    signal(stopped.child.id(), "CONT");
    bad.status.store(200, Ordering::SeqCst);
    bad.check.store(200, Ordering::SeqCst);
    // A tenth of its share at first, and more with time: no second brings more than the warm-up allows.
    eventually("it is back", || (bad.taken() > 0).then_some(()));
    let (back, before) = (Instant::now(), good.taken());
    eventually("a second is over", || (back.elapsed() > Duration::from_secs(1)).then_some(before));
    let (first, others) = (bad.taken(), good.taken());
    wait_for(&gateway, &["healthy"; 3]);
    let statuses = load.end();
    let all: usize = statuses.values().sum();
    let failed = all - statuses.get(&200).copied().unwrap_or(0);
    eprintln!("noticed after {noticed:?}; {statuses:?}; first second back: {first} beside {others}");
    assert!(noticed < Duration::from_secs(3), "noticed after {noticed:?}");
    assert!(failed <= 5, "{statuses:?}");
    assert!(first * 2 < others, "{first} requests in the first second back, {others} to the one that stayed");
}
