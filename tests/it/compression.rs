//! Compression of answers: which ones, in which coding, what becomes of their fields, and that they still stream.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, PATIENCE, Response, Upstream, eventually, run, stdout_of};

/// A text of this length, with some repetition and some change.
fn sample(length: usize) -> String {
    let mut text = String::with_capacity(length + 64);
    let mut number: u64 = 1;
    while text.len() < length {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{{\"item\": {}, \"kind\": \"order\"}},\n", number >> 48));
    }
    text.truncate(length);
    text
}

/// An upstream whose answers have the status, the fields (between `|`) and the length that the request asks for.
fn obedient() -> Upstream {
    Upstream::replying(|request| {
        let status = request.header("x-status").unwrap_or_else(|| "200 OK".to_owned());
        let fields = request.header("x-fields").unwrap_or_else(|| "Content-Type: text/plain".to_owned());
        let fields = fields.replace('|', "\r\n");
        let length: usize =
            request.header("x-length").map_or(4_096, |length| length.parse().expect("a number"));
        let body = if request.line.starts_with("HEAD") { String::new() } else { sample(length) };
        format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    })
}

fn compressing(rules: &str, upstream: &Upstream) -> Gateway {
    Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\ncompress = {rules}\nto = \"http://{}\"",
        upstream.addr()
    ))
}

const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd";

fn ask(gateway: &Gateway, fields: &[&str]) -> Response {
    gateway.client().request("GET", "/", fields, "")
}

#[test]
fn the_answer_comes_in_the_coding_that_the_client_prefers_and_decodes_to_what_was_sent() {
    let upstream = obedient();
    let gateway = compressing("true", &upstream);
    let url = format!("http://{}/", gateway.plain());
    for (accepted, coding) in [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, br", "br"),
        ("gzip", "gzip"),
        ("br;q=0.2, gzip;q=0.3, zstd;q=0.1", "gzip"),
        ("*;q=0, br", "br"),
    ] {
        for protocol in ["--http1.1", "--http2-prior-knowledge"] {
            for length in [1_024, 16_384, 3_000_000] {
                let whole = sample(length);
                let arguments = ["-s", "--compressed", protocol, "-D", "/dev/stderr"];
                let fields = [format!("Accept-Encoding: {accepted}"), format!("x-length: {length}")];
                let arguments = [&arguments[..], &["-H", &fields[0], "-H", &fields[1], &url]].concat();
                let answer = run("curl", &arguments);
                let head = String::from_utf8_lossy(&answer.stderr).to_ascii_lowercase();
                assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{accepted}: {head}");
                assert!(head.contains("vary: accept-encoding\r\n"), "{head}");
                assert!(!head.contains("content-length"), "{head}");
                assert!(answer.stdout == whole.as_bytes(), "{accepted} {protocol} {length}");
            }
        }
    }
    for unwilling in ["identity", "gzip;q=0", "deflate", "gzip;q=0.1, identity", ""] {
        let answer = ask(&gateway, &[&format!("Accept-Encoding: {unwilling}")]);
        assert_eq!((answer.header("content-encoding"), answer.number("content-length")), (None, 4_096));
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "a cache must know: {unwilling}");
        assert_eq!(answer.text(), sample(4_096));
    }
}

#[test]
fn only_answers_that_may_change_are_compressed() {
    let upstream = obedient();
    let gateway = compressing("{ min = \"1KiB\" }", &upstream);
    let text = "Content-Type: text/plain";
    for (fields, length, status, is_changed) in [
        ("Content-Type: application/problem+json; charset=utf-8", 1_024, "200 OK", true),
        (text, 1_024, "404 Not Found", true),
        (text, 1_023, "200 OK", false),
        ("Content-Type: image/png", 9_999, "200 OK", false),
        ("X-None: 1", 9_999, "200 OK", false),
        ("Content-Type: text/plain|Content-Encoding: br", 9_999, "200 OK", false),
        ("Content-Type: text/plain|Content-Encoding: identity", 9_999, "200 OK", false),
        (
            "Content-Type: text/plain|Cache-Control: public|Cache-Control: max-age=1, No-Transform",
            9_999,
            "200 OK",
            false,
        ),
        ("Content-Type: text/plain|Set-Cookie: a=b", 9_999, "200 OK", false),
        ("Content-Type: text/plain|Content-Digest: sha-256=:AA==:", 9_999, "200 OK", false),
        ("Content-Type: application/grpc-web+proto", 9_999, "200 OK", false),
    ] {
        let (fields, length) = (format!("x-fields: {fields}"), format!("x-length: {length}"));
        let answer = ask(&gateway, &[BROWSER, &fields, &length, &format!("x-status: {status}")]);
        let coding = answer.header("content-encoding").filter(|coding| *coding == "zstd");
        assert_eq!(coding.is_some(), is_changed, "{fields} {length} {status}: {answer:?}");
        assert_eq!(answer.header("vary").is_some(), is_changed, "{fields} {length} {status}");
    }
    // A part is none of it, but caches must know that of the whole (RFC 9110 section 15.3.7).
    for kind in ["text/plain", "multipart/byteranges; boundary=a"] {
        let fields = format!("x-fields: Content-Type: {kind}|Content-Range: bytes 0-1023/5000|Vary: Origin");
        let answer = ask(&gateway, &[BROWSER, &fields, "x-length: 1024", "x-status: 206 Partial Content"]);
        assert_eq!(answer.header("content-encoding"), None, "{kind}");
        assert_eq!(answer.all("vary"), ["Origin", "accept-encoding"], "{kind}");
    }
    // A request may forbid it, and HTTP/1.0 knows no chunks.
    let answer = ask(&gateway, &[BROWSER, "Cache-Control: no-transform"]);
    assert_eq!(answer.header("content-encoding"), None);
    let mut old = gateway.client();
    old.send(format!("GET / HTTP/1.0\r\nHost: a\r\n{BROWSER}\r\n\r\n"));
    assert_eq!(old.response().header("content-encoding"), None);
    // Whoever refuses an answer without a coding gets short ones in one, too.
    let insisting = ["Accept-Encoding: gzip, identity;q=0", "x-length: 10"];
    assert_eq!(ask(&gateway, &insisting).header("content-encoding"), Some("gzip"));
    let impossible = ask(&gateway, &["Accept-Encoding: identity;q=0", "x-length: 2000"]);
    assert_eq!((impossible.status, impossible.header("content-encoding")), (200, None));
}

#[test]
fn the_fields_of_a_compressed_answer_are_those_of_its_new_form() {
    let upstream = obedient();
    let gateway = compressing("{ encodings = [\"gzip\"], set-cookie = true }", &upstream);
    let fields =
        "x-fields: Content-Type: text/css|ETag: \"v1\"|Accept-Ranges: bytes|Vary: Origin|Set-Cookie: a=b";
    let answer = ask(&gateway, &[BROWSER, fields]);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!((answer.header("etag"), answer.header("accept-ranges")), (Some("W/\"v1\""), None));
    assert_eq!(
        (answer.all("vary"), answer.header("set-cookie")),
        (vec!["Origin", "accept-encoding"], Some("a=b"))
    );
    let weak = ask(&gateway, &[BROWSER, "x-fields: Content-Type: text/css|ETag: W/\"v1\"|Vary: *"]);
    assert_eq!((weak.header("etag"), weak.header("vary")), (Some("W/\"v1\""), Some("*")));
    let plain = ask(&gateway, &[fields]);
    assert_eq!((plain.header("etag"), plain.header("accept-ranges")), (Some("\"v1\""), Some("bytes")));

    // HEAD says what GET would.
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let url = format!("http://{}/", gateway.plain());
        let head =
            stdout_of("curl", &["-sI", protocol, "-H", BROWSER, "-H", fields, &url]).to_ascii_lowercase();
        assert!(head.contains("content-encoding: gzip") && !head.contains("content-length"), "{head}");
        assert!(head.contains("etag: w/\"v1\""), "{head}");
    }
    // A 304 has the tag that its client knows.
    for (known, tag) in [("W/\"v1\"", "W/\"v1\""), ("\"v1\"", "\"v1\""), ("W/\"v1\", \"v1\"", "\"v1\"")] {
        let known = format!("If-None-Match: {known}");
        let asked = [BROWSER, &known, "x-status: 304 Not Modified", "x-length: 0", fields];
        let answer = ask(&gateway, &asked);
        assert_eq!((answer.status, answer.header("etag")), (304, Some(tag)), "{known}");
        assert_eq!(answer.all("vary"), ["Origin", "accept-encoding"]);
    }
    let empty = ask(&gateway, &[BROWSER, "x-status: 204 No Content", "x-fields: Content-Type: text/css"]);
    assert_eq!((empty.status, empty.header("content-encoding"), empty.header("vary")), (204, None, None));
}

#[test]
fn compression_is_off_unless_it_is_written_and_a_route_goes_before_the_default() {
    let body = "x".repeat(2_000);
    let route = |path: &str, rules: &str| {
        format!(
            "[[route]]\npath = \"{path}\"\n{rules}\nrespond = {{ body = \"{body}\", headers = {{ content-type = \"text/html\" }} }}\n"
        )
    };
    let routes = [
        route("/default", ""),
        route("/off", "compress = false"),
        route("/on", "compress = true"),
        route("/long", "compress = { min = \"2KB\" }"),
        route("/longer", "compress = { min = \"2001B\" }"),
        route("/br", "compress = { encodings = [\"br\", \"gzip\"], level = { br = 6 } }"),
        route("/css", "compress = { types = \"text/css\" }"),
    ];
    let coding = |gateway: &Gateway, path: &str| {
        let answer = gateway.client().request("GET", path, &[BROWSER], "");
        answer.header("content-encoding").map(str::to_owned)
    };
    let gateway = Gateway::start(&routes.concat());
    let codings = |gateway: &Gateway| {
        ["/default", "/off", "/on", "/long", "/longer", "/br", "/css"].map(|path| coding(gateway, path))
    };
    let some = |coding: &str| Some(coding.to_owned());
    let zstd = some("zstd");
    assert_eq!(codings(&gateway), [None, None, zstd.clone(), zstd, None, some("br"), None]);
    gateway.reload(&format!("[compress]\nencodings = [\"gzip\"]\n{}", routes.concat()));
    let gzip = some("gzip");
    assert_eq!(codings(&gateway), [gzip.clone(), None, gzip.clone(), gzip, None, some("br"), None]);
    let head = stdout_of("curl", &["-sI", "-H", BROWSER, &format!("http://{}/on", gateway.plain())]);
    assert!(head.contains("content-encoding: gzip") && !head.contains("content-length"), "{head}");
    // The log counts what was sent.
    let sent =
        gateway.logged_where("the first of /on", |line| line["path"] == "/on" && line["method"] == "GET");
    assert!((1..200).contains(&sent["bytes_out"].as_u64().unwrap_or(0)), "{sent}");
    let head = gateway.logged_where("HEAD", |line| line["method"] == "HEAD");
    assert_eq!((&head["status"], head.get("reason")), (&200.into(), None), "{head}");
}

/// A server of one answer, which goes on when the test says so.
fn told(orders: mpsc::Receiver<&'static str>, kind: &'static str) -> Upstream {
    let orders = Mutex::new(orders);
    Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
            ));
            let orders = orders.lock().expect("nothing panics with it");
            while let Ok(order) = orders.recv_timeout(PATIENCE) {
                match order {
                    "break" => return,
                    "end" => break,
                    chunk => drop(peer.send(format!("{:x}\r\n{chunk}\r\n", chunk.len()))),
                }
            }
            peer.send("0\r\nX-Sum: 7\r\n\r\n");
        }
    })
}

#[test]
fn events_are_not_held_back() {
    for coding in ["gzip", "br", "zstd"] {
        for protocol in ["--http1.1", "--http2-prior-knowledge"] {
            let (orders, taken) = mpsc::channel();
            let upstream = told(taken, "text/event-stream");
            let gateway = compressing("true", &upstream);
            let accepted = format!("Accept-Encoding: {coding}");
            let mut curl = Command::new("curl")
                .args(["-sN", "--compressed", protocol, "-m", "60", "-H", &accepted])
                .arg(format!("http://{}/events", gateway.plain()))
                .stdout(Stdio::piped())
                .spawn()
                .expect("curl is installed");
            let mut lines = BufReader::new(curl.stdout.take().expect("it was asked for")).lines();
            for event in ["data: one\n", "data: two\n", "data: three\n"] {
                orders.send(event).expect("the server listens");
                // Only then the next is sent.
                let line = lines.next().expect("the stream goes on").expect("it is text");
                assert_eq!(line, event.trim_end(), "{coding} {protocol}");
            }
            orders.send("end").expect("the server listens");
            assert!(lines.next().is_none());
            assert!(curl.wait().expect("it is a child of ours").success(), "{coding} {protocol}");
        }
    }
}

#[test]
fn an_answer_that_breaks_off_gives_what_came_and_no_end() {
    let (orders, taken) = mpsc::channel();
    let upstream = told(taken, "text/plain");
    let gateway = compressing("{ encodings = [\"gzip\"] }", &upstream);
    let mut client = gateway.client();
    client.send(format!("GET /broken HTTP/1.1\r\nHost: a\r\n{BROWSER}\r\n\r\n"));
    orders.send("half of it").expect("the server listens");
    orders.send("break").expect("the server listens");
    assert_eq!(client.head().header("content-encoding"), Some("gzip"));
    let rest = client.rest();
    assert!(!rest.is_empty() && !rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
    assert_eq!(gateway.logged("/broken")["reason"], "upstream-reset");
}

#[test]
fn trailers_follow_a_compressed_answer() {
    let (orders, taken) = mpsc::channel();
    let upstream = told(taken, "text/plain\r\nTrailer: X-Sum");
    let gateway = compressing("true", &upstream);
    for order in ["some text", "end"] {
        orders.send(order).expect("the server listens");
    }
    let answer = ask(&gateway, &[BROWSER, "TE: trailers"]);
    assert_eq!((answer.header("content-encoding"), answer.header("x-sum")), (Some("zstd"), Some("7")));
}

/// Noise that no coding makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

#[test]
fn a_client_that_does_not_read_stops_the_upstream_and_one_that_leaves_ends_it() {
    let (said, heard) = mpsc::channel();
    let said = Mutex::new(said);
    let upstream = Upstream::raw(move |mut stream: TcpStream| {
        let mut peer = Client::over(stream.try_clone().expect("a socket can be had twice"));
        receive(&mut peer);
        let (total, piece) = (256 << 20, noise(1 << 20));
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {total}\r\n\r\n").ok();
        stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket takes a timeout");
        let (mut written, mut is_told) = (0, false);
        let said = said.lock().expect("nothing panics with it").clone();
        while written < total {
            match stream.write(&piece) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // The first time only: then it waits for the connection's end.
                    if !std::mem::replace(&mut is_told, true) {
                        said.send(Some(written)).ok();
                    }
                }
                Err(_) => {
                    said.send(None).ok();
                    return;
                }
            }
        }
    });
    let gateway = compressing("true", &upstream);
    let before = gateway.memory_kib();
    let mut client = gateway.client();
    client.send(format!("GET /flood HTTP/1.1\r\nHost: a\r\n{BROWSER}\r\n\r\n"));
    assert_eq!(client.head().header("content-encoding"), Some("zstd"));
    let written = heard.recv_timeout(PATIENCE).expect("the upstream is stopped").expect("and not broken");
    assert!(written < 64 << 20, "{written} bytes were taken from the upstream");
    let held = gateway.memory_kib().saturating_sub(before);
    assert!(held < 16 << 10, "{held} KiB are held for a client that does not read");
    drop(client);
    let ended = heard.recv_timeout(PATIENCE).expect("the upstream's connection ends");
    assert_eq!(ended, None);
    eventually("its line is in the log", || {
        gateway.access_log().iter().any(|line| line["reason"] == "client-gone").then_some(())
    });
}

#[test]
fn more_bodies_than_a_worker_compresses_go_out_as_they_are() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        receive(&mut peer);
        peer.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        );
        // Until the client leaves.
        peer.is_closed();
    });
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = \"http://{}\"\nconnections = {{ max = 400 }}\n\
         [[route]]\ncompress = {{ encodings = [\"gzip\"], level = {{ gzip = 1 }} }}\nto = \"u\"\n",
        upstream.addr()
    ));
    let open = || {
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        let coding = client.head().header("content-encoding").map(str::to_owned);
        (client, coding)
    };
    let mut clients: Vec<_> = (0..128).map(|_| open()).collect();
    assert!(clients.iter().all(|(_, coding)| coding.as_deref() == Some("gzip")));
    assert_eq!(open().1, None);
    clients.clear();
    eventually("there is room again", || (open().1.is_some()).then_some(()));
}

#[test]
fn what_an_answer_costs_is_read_from_what_the_upstream_sent() {
    let upstream = obedient();
    let gateway = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = \"20/d\"\ncost = {{ default = 1, response-header = \"x-cost\" }}\n\
         [[route]]\npath = \"/\"\nlimit = \"p\"\ncompress = true\nto = \"http://{}\"",
        upstream.addr()
    ));
    let answer = ask(&gateway, &[BROWSER, "x-fields: Content-Type: text/plain|X-Cost: 7"]);
    assert_eq!(answer.header("content-encoding"), Some("zstd"));
    let limit = gateway.admin("/v1/explain?url=/").json()["limits"][0].clone();
    assert_eq!(limit["remaining"], 12, "20 - 7, and the one that is explained: {limit}");
}

#[test]
fn a_weak_tag_in_if_range_asks_for_no_part() {
    let upstream = Upstream::replying(|request| {
        let is_part = request.header("range").is_some();
        let status = if is_part { "206 Partial Content\r\nContent-Range: bytes 5-9/10" } else { "200 OK" };
        let body = if is_part { "56789" } else { "0123456789" };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nETag: \"v1\"\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    });
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/on\"\ncompress = {{ min = \"1B\", encodings = [\"gzip\"] }}\nto = \"http://{0}\"\n\
         [[route]]\npath = \"/off\"\nto = \"http://{0}\"",
        upstream.addr()
    ));
    let ask = |path: &str, condition: &str| {
        let condition = format!("If-Range: {condition}");
        gateway.client().request("GET", path, &[BROWSER, "Range: bytes=5-", &condition], "")
    };
    let whole = gateway.client().request("GET", "/on", &[BROWSER], "");
    assert_eq!((whole.header("content-encoding"), whole.header("etag")), (Some("gzip"), Some("W/\"v1\"")));
    upstream.request();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (path, condition, status) in [
        ("/on", "W/\"v1\"", 200),
        ("/on", "w/\"v1\"", 200),
        ("/on", "\"v1\"", 206),
        ("/on", date, 206),
        ("/off", "W/\"v1\"", 206),
    ] {
        let answer = ask(path, condition);
        assert_eq!(answer.status, status, "{path} {condition}");
        let coding = (status == 200).then_some("gzip");
        assert_eq!(answer.header("content-encoding"), coding, "{path} {condition}");
        let sent = upstream.request();
        let passed = [sent.header("range").is_some(), sent.header("if-range").is_some()];
        assert_eq!(passed, [status == 206; 2], "{path} {condition}");
    }
}
