//! Heads that ask for what a gateway must not do: name another host than the connection's, take protected fields away,
//! switch the protocol on their own terms. In the clear and under TLS; the upstream shows what got through.

use crate::support::edge::{Edge, field};
use crate::support::upstream::receive;
use crate::support::{Client, Upstream, text, tls};

#[test]
fn what_follows_a_request_to_switch_waits_for_the_answer() {
    // Bytes behind it are HTTP where the upstream does not switch, and the new protocol's where it does.
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let (tx, seen) = std::sync::mpsc::channel();
    let tx = std::sync::Mutex::new(tx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            let seen = tx.lock().expect("nobody panics with it");
            seen.send(request.line.clone()).ok();
            if request.line.contains("/switch") {
                peer.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                );
                seen.send(text(&peer.bytes(10))).ok();
                return;
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let edge = Edge::before(upstream);
    let next = "GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let mut client = edge.gateway.client();
    client.send(format!("GET /stay HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n{next}"));
    assert_eq!((client.response().status, client.response().status), (200, 200));
    let said = |count: usize| -> Vec<String> {
        (0..count)
            .map(|_| seen.recv_timeout(crate::support::PATIENCE).expect("the upstream is asked"))
            .collect()
    };
    assert_eq!(said(2), ["GET /stay HTTP/1.1", "GET /next HTTP/1.1"]);
    let mut client = edge.gateway.client();
    client.send(format!("GET /switch HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n\u{1}\nraw\r\n"));
    assert_eq!(client.head().status, 101);
    client.send("more");
    assert_eq!(said(2), ["GET /switch HTTP/1.1", "\u{1}\nraw\r\nmor"]);
    let mut client = edge.gateway.client();
    client.send(format!("GET /stay HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n\u{1}\nraw\r\n"));
    assert_eq!((client.response().status, client.response().status), (200, 400));
}

#[test]
fn connection_names_no_field_that_others_judge_by() {
    let names = [
        "Host",
        "keep-alive, host",
        "Authorization",
        "Cookie",
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "x-forwarded-anything",
        "X-Real-IP",
        "X-Request-Id",
        "traceparent",
        "tracestate",
        "Content-Length",
        "Content-Type",
        "Transfer-Encoding",
        "close,,Host",
    ];
    let cases = names.map(|names| (field(&format!("Connection: {names}")), 400));
    Edge::start().refuses(cases, "malformed");
}

#[test]
fn an_expectation_is_100_continue_or_417() {
    let edge = Edge::start();
    for value in ["200-ok", "100-continue, 200-ok", "x=y", ""] {
        for mut client in [edge.gateway.client(), edge.gateway.client()] {
            client.send(format!(
                "POST /x HTTP/1.1\r\nHost: a.example\r\nExpect: {value}\r\nContent-Length: 3\r\n\r\n"
            ));
            assert_eq!(client.response().status, 417, "{value:?}");
            // The body was never asked for; what comes in its place is no request.
            client.try_send("GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n").shutdown();
            assert!(!text(&client.rest()).contains("HTTP/1.1 200"));
        }
    }
    edge.gateway.logged_where("the reason", |line| line["reason"] == "expectation-failed");
    assert_eq!(edge.gateway.get("/last").status, 200);
    assert_eq!(edge.upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn a_connection_is_for_the_host_in_its_hello() {
    let edge = Edge::start();
    for host in ["a.example", "A.EXAMPLE", "a.example.", "a.example:443"] {
        assert_eq!(edge.secure().request("GET", "/", &[&format!("Host: {host}")], "").status, 200, "{host}");
        edge.upstream.request();
    }
    for host in ["b.example", "x.a.example", "127.0.0.1", "[::1]", "localhost"] {
        let mut client = edge.secure();
        assert_eq!(client.request("GET", "/", &[&format!("Host: {host}")], "").status, 421, "{host}");
        assert_eq!(client.request("GET", "/ok", &["Host: a.example"], "").status, 200, "no reason to close");
        assert_eq!(edge.upstream.request().line, "GET /ok HTTP/1.1");
        let mut client = edge.secure();
        client.send(format!("GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, 421, "{host}");
    }
    edge.gateway.logged_where("the reason", |line| line["reason"] == "misdirected");
    // An address as the host makes a hello without a name: any host may be asked for then.
    let addr = edge.gateway.listener("tls");
    let nameless = tls::connect(addr, "127.0.0.1", &[]).expect("the handshake succeeds");
    assert_eq!(Client::over(nameless).request("GET", "/", &["Host: b.example"], "").status, 200);
}

#[test]
fn a_stream_is_for_the_host_in_the_connection_s_hello() {
    let edge = Edge::start();
    let url = |host: &str| format!("https://{host}:{}/", edge.gateway.listener("tls").port());
    let ask = |host: &str, field: &str| {
        let to = format!("{host}:{}:127.0.0.1", edge.gateway.listener("tls").port());
        let arguments = [
            "-sSk",
            "--http2",
            "--resolve",
            &to,
            "-H",
            field,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
        ];
        crate::support::stdout_of("curl", &[&arguments[..], &[&url(host)]].concat())
    };
    assert_eq!(ask("a.example", "X: y"), "200 2");
    assert_eq!(ask("a.example", "Host: b.example"), "421 2");
}

#[test]
fn a_request_to_switch_is_one_and_without_a_body() {
    let handshake = |lines: &str| {
        format!(
            "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{lines}\r\n"
        )
    };
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "Sec-WebSocket-Version: 13\r\n";
    let cases = [
        handshake(&format!("{key}{version}Content-Length: 34\r\n"))
            + "\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n",
        handshake(&format!("{key}{version}Transfer-Encoding: chunked\r\n")) + "\r\n0\r\n\r\n",
        handshake(key),
        handshake(version),
        handshake(&format!("{key}{version}{version}")),
        handshake(&format!("{key}{key}{version}")),
        handshake(&format!("{version}Sec-WebSocket-Key: short\r\n")),
        handshake(&format!("{version}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n")),
        handshake(&format!("{key}{version}")).replace("GET", "POST"),
    ];
    // Behind the head of each but the first two there is nothing to be told from a body.
    let cases = cases
        .into_iter()
        .map(|bytes| (if bytes.ends_with("\r\n\r\n") { bytes } else { bytes + "\r\n" }, 400));
    Edge::start().refuses(cases, "malformed");
}

#[test]
fn a_websocket_of_another_version_is_told_which_one_there_is() {
    let edge = Edge::start();
    let answer = edge.gateway.client().request(
        "GET",
        "/ws",
        &[
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 8",
        ],
        "",
    );
    assert_eq!(answer.status, 426);
    let told = ["connection", "upgrade", "sec-websocket-version"].map(|name| answer.header(name));
    assert_eq!(told, [Some("upgrade"), Some("websocket"), Some("13")]);
}

#[test]
fn what_is_not_switched_to_is_asked_for_plainly() {
    let edge = Edge::start();
    for (path, fields) in [
        (
            "/a",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        ),
        ("/b", "Connection: Upgrade\r\nUpgrade: H2C"),
        ("/c", "Connection: Upgrade\r\nUpgrade: websocket, h2c"),
        ("/d", "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket"),
        ("/e", "Upgrade: websocket"),
        ("/f", "Connection: Upgrade"),
        ("/plain/g", "Connection: Upgrade\r\nUpgrade: websocket"),
        ("/h", "Connection: Upgrade\r\nUpgrade: h2"),
    ] {
        let mut client = edge.gateway.client();
        let body = if path == "/a" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}"));
        assert_eq!(client.response().status, 200, "{fields}");
        assert_eq!(client.get("/next").status, 200, "the connection goes on");
        let request = edge.upstream.request();
        assert_eq!(request.line, format!("POST {path} HTTP/1.1"));
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(request.header(name), None, "{fields}: {request:?}");
        }
        assert_eq!(edge.upstream.request().line, "GET /next HTTP/1.1");
    }
}

#[test]
fn a_request_names_one_host_in_one_way() {
    let head = |target: &str, lines: &str| format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
    let cases = [
        head("/", ""),
        head("/", "Host: a.example\r\nHost: a.example\r\n"),
        head("/", "Host: a.example\r\nHost: b.example\r\n"),
        head("/", "Host: a.example, b.example\r\n"),
        head("/", "Host: user@a.example\r\n"),
        head("/", "Host: a.example/path\r\n"),
        head("/", "Host: a.example\\b\r\n"),
        head("/", "Host: a.example#b\r\n"),
        head("/", "Host: a.example?b\r\n"),
        head("/", "Host: a b\r\n"),
        head("/", "Host: a.example:80:80\r\n"),
        head("/", "Host: a.example:port\r\n"),
        head("/", "Host: a.example:99999\r\n"),
        head("/", "Host: [::1\r\n"),
        head("/", "Host: [zz]\r\n"),
        head("/", "Host: ::1\r\n"),
        head("/", "Host: a..example\r\n"),
        head("/", "Host: %61.example\r\n"),
        head("/", "Host: caf\u{e9}.example\r\n"),
        head("/", "Host:\r\n"),
        head("http://b.example/", "Host: a.example\r\n"),
        head("http://a.example:80/", "Host: a.example:81\r\n"),
        head("http://user@a.example/", "Host: a.example\r\n"),
        head("http:///", "Host: a.example\r\n"),
        head("a.example:80", "Host: a.example:80\r\n"),
    ];
    Edge::start().refuses(cases.map(|bytes| (bytes, 400)), "malformed");
}
