//! The PROXY protocol: a client's address is announced by the proxies that the configuration names. From them a header is
//! required, from any other peer it is not accepted.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::support::client::closes_within;
use crate::support::redis::free_port;
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, end, eventually, h2, stdout_of, tls};

const PROXY: [u8; 4] = [127, 0, 0, 2];
const STRANGER: [u8; 4] = [127, 0, 0, 3];
const GET: &str = "GET /asked HTTP/1.1\r\nHost: a\r\n\r\n";

fn config(listener: &str, route: &str) -> String {
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nproxy-protocol = {{ from = [\"127.0.0.2\", \"2001:db8::/32\"] }}\n\
         {listener}\n[[route]]\npath = \"/{{*rest}}\"\n{route}"
    )
}

fn responding(listener: &str) -> Gateway {
    Gateway::start(&config(listener, "respond = { status = 200, body = \"ok\" }"))
}

fn failures(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_proxy_protocol_failures_total", &["listener=\"plain\""])
}

/// Version 2, PROXY, TCP over IPv4, and a field of 3 bytes.
fn binary(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12".to_vec();
    header.extend(client);
    header.extend(b"\x0a\0\0\x01\x0f\xa0\x01\xbb\x04\0\x03\0\0\0");
    header
}

#[test]
fn the_client_is_the_one_that_the_proxy_announces() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config("", &format!("to = \"http://{}\"", upstream.addr())));
    for (header, client) in [
        (&b"PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n"[..], "203.0.113.7"),
        (b"PROXY TCP6 2001:db9::7 2001:db8::1 4000 443\r\n", "2001:db9::7"),
        (&binary([203, 0, 113, 8]), "203.0.113.8"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.2"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0", "127.0.0.2"),
    ] {
        // In one piece with the request, and a byte at a time.
        let mut whole = Client::connect_from(PROXY, gateway.plain());
        whole.send([header, GET.as_bytes()].concat());
        assert_eq!(whole.response().status, 200, "{client}");
        assert_eq!(upstream.request().all("x-forwarded-for"), [client]);
        assert_eq!(whole.get("/again").status, 200, "the header counts for the connection");
        assert_eq!(upstream.request().all("x-forwarded-for"), [client]);
        let mut drip = Client::connect_from(PROXY, gateway.plain());
        for byte in header {
            drip.send([*byte]);
        }
        assert_eq!(drip.get("/asked").status, 200, "{client}");
        assert_eq!(upstream.request().all("x-forwarded-for"), [client]);
    }
    assert_eq!(failures(&gateway), 0.0);
}

#[test]
fn a_proxy_that_announces_no_client_is_closed() {
    let gateway = responding("");
    let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(120));
    let far_too_long = [&binary([192, 0, 2, 1])[..14], b"\xff\xff"].concat();
    for (index, begin) in [
        GET.as_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4000\r\nGET / HTTP/1.1\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\nGET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c\xcb\0\x71\x07\x0a\0\0\x01\x0f\xa0\x01\xbb",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0b\xcb\0\x71\x07\x0a\0\0\x01\x0f\xa0\x01",
        too_long.as_bytes(),
        &far_too_long,
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect_from(PROXY, gateway.plain());
        client.send(begin);
        assert!(client.try_head().is_none(), "{}", begin.escape_ascii());
        eventually("it is counted", || (failures(&gateway) == (index + 1) as f64).then_some(()));
    }
    assert!(gateway.access_log().is_empty());
    let lines = gateway.stderr().into_iter().filter(|line| line.contains("PROXY protocol header"));
    let lines: Vec<String> = lines.collect();
    assert!(
        lines.len() == 1 && lines[0].contains("peer=127.0.0.2") && lines[0].contains("plain"),
        "{lines:?}"
    );
}

#[test]
fn half_a_header_and_none_at_all_have_the_deadline_of_a_head() {
    let gateway = responding("timeouts = { header = \"300ms\" }");
    for begin in [&b""[..], b"PROXY", b"PROXY TCP4 203.0.113.7", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb"] {
        let mut client = Client::connect_from(PROXY, gateway.plain());
        client.send(begin);
        assert!(closes_within(client.socket(), PATIENCE), "{}", begin.escape_ascii());
    }
    assert_eq!(gateway.metric("sluicegate_connection_deadlines_total", &["deadline=\"header\""]), 4.0);
    // A look whether somebody listens is no failure.
    drop(Client::connect_from(PROXY, gateway.plain()));
    assert_eq!(failures(&gateway), 0.0);
}

#[test]
fn an_unlisted_peer_cannot_announce_a_client() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config("", &format!("to = \"http://{}\"", upstream.addr())));
    let mut honest = Client::connect_from(STRANGER, gateway.plain());
    assert_eq!(honest.get("/asked").status, 200);
    assert_eq!(upstream.request().all("x-forwarded-for"), ["127.0.0.3"]);
    for header in [&b"PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n"[..], &binary([203, 0, 113, 7])] {
        let mut client = Client::connect_from(STRANGER, gateway.plain());
        client.send([header, GET.as_bytes()].concat());
        assert_eq!(client.head().status, 400, "{}", header.escape_ascii());
    }
    assert!(upstream.is_quiet());
}

#[test]
fn limits_and_caps_count_the_announced_client() {
    let gateway = Gateway::start(&config(
        "max-connections-per-ip = 2\nmax-connections = 4",
        "respond = { status = 200, body = \"ok\" }\nlimit = \"1/h by ip\"",
    ));
    let connect = |client: u8| {
        let mut connection = Client::connect_from(PROXY, gateway.plain());
        connection.send(binary([203, 0, 113, client]));
        connection
    };
    let (mut first, mut second) = (connect(1), connect(1));
    assert_eq!(first.get("/").status, 200);
    assert_eq!(second.get("/").status, 429, "one client, one limit");
    assert!(connect(1).try_head().is_none(), "a third connection of one client");
    let refused = |cap: &str| gateway.metric("sluicegate_connections_refused_total", &[cap]);
    assert_eq!(refused("cap=\"max-connections-per-ip\""), 1.0);
    let mut other = connect(2);
    assert_eq!(other.get("/").status, 200, "another client");
    eventually("the refused one is counted out", || {
        (gateway.metric("sluicegate_connections_open", &["listener=\"plain\""]) == 3.0).then_some(())
    });
    let refused_one = || {
        let mut fifth = Client::connect_from(PROXY, gateway.plain());
        fifth.send(binary([203, 0, 113, 3]));
        fifth.try_send(GET).try_head().is_none()
    };
    // Those that have not said whom they are for are counted, too, once they are accepted. A later one may meet another
    // worker sooner and take the place: then the next silent one has it.
    let mut silent = Vec::new();
    eventually("four are open", || {
        silent.push(Client::connect_from(PROXY, gateway.plain()));
        refused_one().then_some(())
    });
    assert!(refused("cap=\"max-connections\"") >= 1.0);
    drop(other);
    eventually("a place is free again", || (!refused_one()).then_some(()));
}

/// A real HAProxy that passes TCP on.
struct Haproxy(Child);

impl Haproxy {
    fn start(directory: &Directory, gateway: SocketAddr) -> (Haproxy, SocketAddr) {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let config = format!(
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             listen pass\n bind {addr}\n source 127.0.0.2\n server gateway {gateway} send-proxy-v2 check inter 50ms\n"
        );
        let file = directory.write("haproxy.cfg", config);
        let child = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed (tests/all does it)");
        eventually("haproxy listens", || std::net::TcpStream::connect(addr).ok());
        (Haproxy(child), addr)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

#[test]
fn haproxy_and_curl_are_understood_in_front_of_tls() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let upstream = Upstream::ok();
    let certs = format!("certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]");
    let text = config(&certs, &format!("to = \"http://{}\"", upstream.addr()));
    let gateway = Gateway::start_in(directory, &text);
    let directory = Directory::new();
    let (_haproxy, addr) = Haproxy::start(&directory, gateway.plain());

    let stream = tls::connect(addr, "localhost", &["h2"]).expect("TLS passes through");
    let mut http2 = h2::Connection::over(stream);
    http2.request(1, "GET", "/over-haproxy", true);
    assert_eq!(http2.answer(1), b"ok");
    assert_eq!(upstream.request().all("x-forwarded-for"), ["127.0.0.1"], "its client, not itself");
    assert_eq!(gateway.logged("/over-haproxy")["client"], "127.0.0.1");

    let port = gateway.plain().port();
    let url = format!("https://localhost:{port}/over-curl");
    let resolve = format!("localhost:{port}:127.0.0.1");
    let asked = ["-sSk", "--haproxy-protocol", "--interface", "127.0.0.2", "--resolve", &resolve, &url];
    assert_eq!(stdout_of("curl", &asked), "ok");
    assert_eq!(upstream.request().all("x-forwarded-for"), ["127.0.0.2"], "curl names its own end");
    assert_eq!(failures(&gateway), 0.0, "health checks are none");
}

#[test]
fn the_log_keeps_the_proxy_and_the_client() {
    let gateway = responding("[client-ip]\ntrust = [\"203.0.113.0/24\"]");
    let ends = |path: &str| {
        let line = gateway.logged(path);
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        (text("client"), text("peer"))
    };
    let both = |client: &str, peer: &str| (client.to_owned(), peer.to_owned());
    let mut client = Client::connect_from(PROXY, gateway.plain());
    client.send("PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\nGET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(ends("/first"), both("198.51.100.7", "127.0.0.2"));
    // A connection that has rested is built anew.
    eventually("it rests", || (gateway.resting() > 0).then_some(()));
    assert_eq!(client.get("/rested").status, 200);
    assert_eq!(ends("/rested"), both("198.51.100.7", "127.0.0.2"));
    // Whom a trusted hop behind the balancer speaks for; the balancer stays the other end.
    let mut client = Client::connect_from(PROXY, gateway.plain());
    client.send("PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n");
    client.request("GET", "/hop", &["X-Forwarded-For: 192.0.2.9"], "");
    assert_eq!(ends("/hop"), both("192.0.2.9", "127.0.0.2"));
    // A head that nobody can read, and a balancer that speaks for itself.
    let mut client = Client::connect_from(PROXY, gateway.plain());
    client.send("PROXY TCP4 198.51.100.8 10.0.0.1 4000 443\r\nGET  /two HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let line = gateway.logged_where("an unread head", |line| line["client"] == "198.51.100.8");
    assert_eq!(line["peer"], "127.0.0.2", "{line}");
    let mut client = Client::connect_from(PROXY, gateway.plain());
    client.send("PROXY UNKNOWN\r\n");
    client.get("/own");
    assert_eq!(ends("/own"), both("127.0.0.2", "-"));
}
