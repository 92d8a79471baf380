//! gRPC: HTTP/2 on both sides, every kind of call, the status in the trailers.

use serde_json::Value;

use crate::support::h2::{Connection, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::{Directory, Gateway, Python, Upstream, python, tls};
use crate::traces;

#[test]
fn a_grpc_client_talks_to_a_grpc_server() {
    let server = Python::serve("grpc_server.py");
    let gateway = Gateway::start(&format!(
        "[upstream.echo-service]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"echo-service\"",
        server.addr()
    ));
    assert_eq!(python::client("grpc_client.py", &[&gateway.plain().to_string()]), "called\n");
    let line = gateway.logged("/test.Echo/Unary");
    assert_eq!((line["status"].as_u64(), line["protocol"].as_str()), (Some(200), Some("HTTP/2.0")));
    assert_eq!(line["grpc_status"], 0, "it stands in the trailers");
}

#[test]
fn grpc_runs_over_tls_too() {
    let server = Python::serve("grpc_server.py");
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let text = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
         [upstream.echo-service]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"echo-service\"",
        server.addr()
    );
    let gateway = Gateway::start_in(directory, &text);
    let address = format!("localhost:{}", gateway.listener("tls").port());
    assert_eq!(python::client("grpc_client.py", &[&address, &format!("{file}.pem")]), "called\n");
}

#[test]
fn a_call_that_its_server_cannot_read_spoils_no_later_one_on_the_same_connection() {
    let server = Python::serve("grpc_server.py");
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        server.addr()
    ));
    let method = "/test.Echo/Unary";
    let fields = ["Content-Type: application/grpc", "TE: trailers", "grpc-timeout: 1s"];
    for _ in 0..2 {
        gateway.client().request("POST", method, &fields, "");
    }
    assert!(ends(&gateway, &[method; 5]).iter().all(|end| end["code"] == "OK"));
    assert_eq!(gateway.metric("sluicegate_upstream_connections", &["u"]), 1.0);
}

/// How calls of these methods end.
fn ends(gateway: &Gateway, methods: &[&str]) -> Vec<Value> {
    let address = gateway.plain().to_string();
    let said = python::client("grpc_refused.py", &[&[address.as_str()], methods].concat());
    said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_refused_call_gets_a_grpc_status() {
    let server = Python::serve("grpc_server.py");
    let silent = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while peer.frame().is_some() {}
    });
    let older = Upstream::answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let gone_at = gone.local_addr().expect("it is bound");
    drop(gone);
    let directory = Directory::new();
    directory.write("keys.toml", "");
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
             [upstream.gone]\nservers = [\"http://{gone_at}\"]\nhttp = \"h2\"\n\
             [upstream.older]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
             [upstream.silent]\nservers = [\"http://{}\"]\nhttp = \"h2\"\ntimeouts = {{ response = \"200ms\" }}\n\
             [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
             [policy.wants]\nby = [\"header:x-key\"]\nlimit = \"1/h\"\nmissing = \"reject\"\n\
             [[route]]\nname = \"limited\"\npath = \"/test.Echo/Unary\"\nto = \"u\"\nlimit = \"1/h by ip\"\n\
             [[route]]\npath = \"/test.Keys/{{m}}\"\nto = \"u\"\nauth = \"keys\"\n\
             [[route]]\npath = \"/test.Denied/{{m}}\"\nto = \"u\"\ndeny = \"127.0.0.0/8\"\n\
             [[route]]\npath = \"/test.Small/{{m}}\"\nto = \"u\"\nmax-body = 3\n\
             [[route]]\npath = \"/test.Wants/{{m}}\"\nto = \"u\"\nlimit = \"wants\"\n\
             [[route]]\npath = \"/test.Gone/{{m}}\"\nto = \"gone\"\n\
             [[route]]\npath = \"/test.Older/{{m}}\"\nto = \"older\"\n\
             [[route]]\npath = \"/test.Silent/{{m}}\"\nto = \"silent\"\n",
            server.addr(),
            older.addr(),
            silent.addr()
        ),
    );
    let expected = [
        ("/test.Echo/Unary", "OK", ""),
        ("/test.Keys/M", "UNAUTHENTICATED", "this route requires valid credentials"),
        ("/test.Denied/M", "PERMISSION_DENIED", "this route does not allow the client's address"),
        ("/test.Unknown/M", "UNIMPLEMENTED", "no route matches this host and path"),
        ("/test.Small/M", "UNKNOWN", "the request body is larger than this route allows"),
        (
            "/test.Wants/M",
            "INTERNAL",
            "the rate limit counts by header:x-key: send the header `x-key` exactly once",
        ),
        ("/test.Gone/M", "UNAVAILABLE", "the upstream cannot be reached"),
        ("/test.Older/M", "UNAVAILABLE", "the upstream does not speak HTTP/2"),
        ("/test.Silent/M", "DEADLINE_EXCEEDED", "the upstream did not respond in time"),
    ];
    let methods: Vec<&str> = expected.iter().map(|(method, ..)| *method).collect();
    for (end, (method, code, details)) in ends(&gateway, &methods).iter().zip(expected) {
        assert_eq!(end["code"], code, "{method}: {end}");
        assert_eq!(end["details"].as_str().unwrap_or_default(), details, "{method}");
        assert!(code == "OK" || end["trailing"]["x-request-id"].is_string(), "{method}: {end}");
    }
    let line = gateway.logged("/test.Keys/M");
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(200), Some("unauthenticated")));
    assert_eq!(gateway.logged("/test.Older/M")["cause"], "not-http2");
    for (method, status) in [("/test.Keys/M", 16), ("/test.Unknown/M", 12), ("/test.Gone/M", 14)] {
        assert_eq!(gateway.logged(method)["grpc_status"], status, "{method}");
    }
}

#[test]
fn the_outcome_of_a_call_is_in_its_line_and_its_span() {
    let (server, collector) = (Python::serve("grpc_server.py"), traces::collector());
    let gateway = Gateway::start(&format!(
        "[trace]\notlp = \"http://{}\"\nsample = \"100%\"\n\
         [upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/test.Echo/{{m}}\"\nto = \"u\"\n",
        collector.addr(),
        server.addr()
    ));
    // The server itself has no such method.
    assert_eq!(ends(&gateway, &["/test.Echo/Nothing"])[0]["code"], "UNIMPLEMENTED");
    let span = traces::span(&collector);
    let attributes = traces::shown(&span.attributes);
    let shown = ["rpc.system", "rpc.grpc.status_code"].map(|key| attributes[key].as_str());
    assert_eq!((shown, span.status.map(|status| status.code)), (["grpc", "12"], Some(2)));
    let line = gateway.logged("/test.Echo/Nothing");
    assert_eq!((&line["grpc_status"], &line["status"]), (&12.into(), &200.into()));
    assert_eq!(gateway.metric("sluicegate_grpc_calls_total", &["grpc_status=\"12\""]), 1.0);
    // Who is no call has no such field.
    gateway.get("/test.Echo/Plain");
    assert_eq!(gateway.logged("/test.Echo/Plain").get("grpc_status"), None);
    assert_eq!(gateway.metric("sluicegate_grpc_calls_total", &[]), 1.0);
}

#[test]
fn a_call_over_its_limit_gets_a_retry_delay() {
    let gateway = Gateway::start(
        "[limits]\nheaders = \"ietf\"\n[policy.p]\nby = [\"ip\"]\nlimit = \"1/10s\"\n\
         [[route]]\npath = \"/{*rest}\"\nto = \"echo\"\nlimit = \"p\"",
    );
    assert_eq!(gateway.get("/").status, 200);
    let end = ends(&gateway, &["/a.B/C"]).remove(0);
    assert_eq!(end["code"], "RESOURCE_EXHAUSTED", "{end}");
    let message = end["details"].as_str().unwrap_or_default();
    let seconds =
        message.strip_prefix("`p` allows 1 in 10 s; try again in ").and_then(|rest| rest.strip_suffix(" s"));
    let seconds: u8 = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
    assert!((1..=11).contains(&seconds), "{end}");
    assert!(end["trailing"]["ratelimit"].is_string(), "{end}");
    // google.rpc.Status with google.rpc.RetryInfo.
    let kind = b"type.googleapis.com/google.rpc.RetryInfo";
    let delay = [8, seconds];
    let retry_info = [&[10, delay.len() as u8][..], &delay].concat();
    let any = [&[10, kind.len() as u8][..], kind, &[18, retry_info.len() as u8], &retry_info].concat();
    let status =
        [&[8, 8, 18, message.len() as u8][..], message.as_bytes(), &[26, any.len() as u8], &any].concat();
    let hex: String = status.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(end["trailing"]["grpc-status-details-bin"], hex.as_str(), "{end}");
}

#[test]
fn a_request_that_is_not_a_grpc_call_is_refused_over_http() {
    let gateway = Gateway::start("[[route]]\npath = \"/known\"\nto = \"echo\"");
    let ask = |method: &str, kind: &str| {
        let mut h2 = Connection::open(gateway.plain());
        let head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/unknown"),
            ("content-type", kind),
        ];
        h2.send(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&head));
        h2.until(HEADERS).flags & END_STREAM == END_STREAM
    };
    assert!(ask("POST", "application/grpc+proto"), "a call's answer is one head");
    for (method, kind) in
        [("POST", "application/grpc-web"), ("POST", "application/json"), ("GET", "application/grpc")]
    {
        assert!(!ask(method, kind), "{method} {kind} is told more");
    }
    let answer = gateway.client().request("POST", "/unknown", &["Content-Type: application/grpc"], "x");
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (404, Some("no-route")));
}
