//! One request in many spellings: paths that servers read in more than one way, hosts, methods and headers that would
//! be counted anew. Over HTTP/1.1 and HTTP/2; the upstream shows what got through.

use crate::support::h2::{Connection, GOAWAY, HEADERS, RST_STREAM};
use crate::support::{Gateway, Upstream, eventually};

/// Paths that are refused unless a route keeps them.
const IN_DOUBT: &[&str] = &[
    "/a%2fb",
    "/a%2Fb",
    "/%2F/a",
    "/a%5cb",
    "/a%5C..b",
    "/a\\b",
    "/a%252fb",
    "/a%252Eb",
    "/%25%32%46",
    "/a;b=c",
    "/a;/b",
    "/;",
    "/a%3bb=c",
    "/a%3B/b",
];

/// Paths that no route may keep.
const REFUSED: &[&str] = &[
    "/a%00",
    "/a%00.png",
    "/%0d%0aX:%20y",
    "/a%0a",
    "/a%09b",
    "/a%1b",
    "/a%7f",
    "/%c0%af",
    "/%c0%ae%c0%ae/a",
    "/%e0%80%af",
    "/%f0%80%80%af",
    "/a%",
    "/a%2",
    "/a%zz",
    "/a%u002f",
    "/a/..%2fb",
    "/a%2f..%2fb",
    "/a/..%5cb",
    "/a\\..\\b",
    "/a/..;/b",
    "/a/..%3b/b",
    "/a/..%3Bx/b",
    "/a/.;x/b",
    "/a/%252e%252e/b",
    "/a/%252e%252e%252fb",
    "/%2e%2e%2fa",
];

#[test]
fn a_path_that_can_be_read_in_two_ways_is_refused() {
    let upstream = Upstream::ok();
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()));
    for path in IN_DOUBT.iter().chain(REFUSED) {
        let mut client = gateway.client();
        let answer = client.request("GET", path, &[], "");
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (400, Some("malformed")), "{path}");
        assert!(client.is_closed());
        // The same over HTTP/2: a stream's refusal, the connection goes on.
        let mut h2 = Connection::open(gateway.plain());
        h2.request(1, "GET", path, true);
        assert!(String::from_utf8_lossy(&h2.answer(1)).contains("malformed"), "{path}");
        h2.request(3, "TRACE", "/", true);
        h2.answer(3);
    }
    let lines = 2 * (IN_DOUBT.len() + REFUSED.len());
    eventually("a line for each", || {
        let lines_now = gateway.access_log();
        (lines_now.iter().filter(|line| line["reason"] == "malformed").count() == lines).then_some(())
    });
    assert_eq!(gateway.get("/last").status, 200);
    assert_eq!(upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn a_route_may_keep_escapes_and_still_nothing_climbs() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"kept\"\npath = \"/kept/{{id}}/end\"\nto = \"http://{0}\"\npath-escapes = \"keep\"\n\
         limit = \"100/h by param:id\"\n\
         [[route]]\nname = \"rest\"\npath = \"/{{*rest}}\"\nto = \"http://{0}\"",
        upstream.addr()
    ));
    for (sent, forwarded) in [
        ("/kept/a%2fb/end", "/kept/a%2Fb/end"),
        ("/kept/a%5cb/end", "/kept/a%5Cb/end"),
        ("/kept/a\\b/end", "/kept/a%5Cb/end"),
        ("/kept/a%252fb/end?x=%2f", "/kept/a%252fb/end?x=%2f"),
        ("/kept/a;v=1/end", "/kept/a;v=1/end"),
        ("/kept/a%3bv=1/end", "/kept/a%3Bv=1/end"),
    ] {
        assert_eq!(gateway.get(sent).status, 200, "{sent}");
        assert_eq!(upstream.request().line, format!("GET {forwarded} HTTP/1.1"));
        assert_eq!(gateway.logged(sent)["route"], "kept");
    }
    for path in [
        "/kept/a%2f..%2fb/end",
        "/kept/..%2fb/end",
        "/kept/..;/end",
        "/kept/%252e%252e/end",
        "/kept/a%00/end",
    ] {
        assert_eq!(gateway.get(path).status, 400, "{path}");
    }
    for path in ["/other/a%2fb", "/kept/a%2fb", "/kept/a;b", "/kept%2fa/end"] {
        assert_eq!(gateway.get(path).status, 400, "{path}: this route does not keep it");
    }
    assert!(upstream.is_quiet());
}

#[test]
fn a_fragment_belongs_to_no_request() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"a\"\npath = \"/a\"\nto = \"http://{}\"\nlimit = \"2/h by ip\"",
        upstream.addr()
    ));
    assert_eq!(gateway.get("/a#/../b").status, 400);
    // HTTP/2's target loses it before anybody reads it: what is routed, counted and forwarded is the path.
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/a#b", true);
    assert_eq!(h2.answer(1), b"ok");
    assert_eq!(upstream.request().line, "GET /a HTTP/1.1");
    assert_eq!((gateway.get("/a").status, gateway.get("/a").status), (200, 429));
}

#[test]
fn no_spelling_of_a_query_is_counted_anew() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nto = \"http://{}\"\nlimit = \"1/h by query:key\"",
        upstream.addr()
    ));
    assert_eq!(gateway.get("/?key=a").status, 200);
    for same in ["/?key=a", "/?x&key=a", "/?x;y&key=a", "/?%6bey=%61", "/x?key=a&", "/?key=a&key=%61"] {
        assert_eq!(gateway.get(same).status, 429, "{same}");
    }
    // One server goes by the first of them, another by the last.
    // And some take a semicolon for what separates them.
    for several in [
        "/?key=b&key=a",
        "/?key=a&key=b",
        "/?key=&key=a",
        "/?key=a&key",
        "/?key=a;key=b",
        "/?key=b;key=a",
        "/?key=b;",
        "/?x;key=a",
        "/?key=a&x;key=b",
    ] {
        assert_eq!(gateway.get(several).status, 400, "{several}");
        assert_eq!(gateway.logged(several)["reason"], "missing-key");
    }
}

#[test]
fn no_spelling_of_a_request_is_counted_anew() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nhost = \"api.example.com\"\npath = \"/limited/{{id}}\"\nto = \"http://{}\"\n\
         limit = \"1/h by ip, param:id, header:x-tenant\"",
        upstream.addr()
    ));
    let ask = |method: &str, target: &str, fields: &[&str]| {
        let fields = [&["X-Tenant: t"], fields].concat();
        gateway.client().request(method, target, &fields, "").status
    };
    assert_eq!(ask("GET", "/limited/a", &["Host: api.example.com"]), 200);
    for host in [
        "api.example.com",
        "API.example.COM",
        "api.example.com.",
        "api.example.com:80",
        "Api.Example.Com.:8080",
    ] {
        assert_eq!(ask("GET", "/limited/a", &[&format!("Host: {host}")]), 429, "{host}");
    }
    for target in [
        "/limited/a/",
        "/limited/a?x",
        "/limited/a?",
        "//limited/a",
        "/limited//a",
        "/./limited/a",
        "/x/../limited/a",
        "/limited/%61",
        "/%6c%69mited/a",
        "/limited/b/../a",
        "/limited/a/.",
        "http://api.example.com/limited/a",
        "http://API.EXAMPLE.COM/limited/a",
    ] {
        let host = if target.contains("API") { "Host: API.EXAMPLE.COM" } else { "Host: api.example.com" };
        assert_eq!(ask("GET", target, &[host]), 429, "{target}");
    }
    for fields in [
        "X-HTTP-Method-Override: PUT",
        "X-Method-Override: DELETE",
        "X-Original-URL: /free",
        "X-Rewrite-URL: /free",
        "X-Forwarded-For: 203.0.113.1",
        "X-Real-IP: 203.0.113.1",
        "Forwarded: for=203.0.113.1",
        "True-Client-IP: 203.0.113.1",
        "CF-Connecting-IP: 203.0.113.1",
        "X-Client-IP: 203.0.113.1",
        "X-Forwarded-Host: other.example",
        "X-Tenant: t",
        "x-TENANT:  t ",
    ] {
        assert_eq!(ask("GET", "/limited/a", &["Host: api.example.com", fields]), 429, "{fields}");
    }
    for method in ["POST", "HEAD", "PUT", "get", "PROPFIND"] {
        let mut client = gateway.client();
        client.send(format!("{method} /limited/a HTTP/1.1\r\nHost: api.example.com\r\nX-Tenant: t\r\n\r\n"));
        assert_eq!(client.head().status, 429, "{method}");
    }
    // What could be counted in two ways is not counted at all.
    for (fields, target) in
        [("X-Tenant: u", "/limited/a"), ("X-Tenant: T", "/limited/a"), ("X_Tenant: u", "/limited/a")]
    {
        assert_eq!(ask("GET", target, &["Host: api.example.com", fields]), 400, "{fields}");
    }
    assert_eq!(upstream.request().line, "GET /limited/a HTTP/1.1");
    assert!(upstream.is_quiet(), "one request was admitted");
}

#[test]
fn one_over_the_limit_stays_over_it_beside_any_number_of_others() {
    // A table of the smallest size, and more clients than it has slots.
    let gateway = Gateway::start(
        "[limits]\nmemory = \"64KiB\"\n[[route]]\npath = \"/\"\nlimit = \"1/h by header:x-key\"\nto = \"echo\"",
    );
    let mut client = gateway.client();
    assert_eq!(client.request("GET", "/", &["X-Key: me"], "").status, 200);
    for number in 0..5_000 {
        client.request("GET", "/", &[&format!("X-Key: {number}")], "");
        if number % 500 == 0 {
            assert_eq!(client.request("GET", "/", &["X-Key: me"], "").status, 429, "after {number}");
        }
    }
    assert_eq!(client.request("GET", "/", &["X-Key: me"], "").status, 429);
}

/// A field as HPACK's literal without indexing, new name, no Huffman code (RFC 7541, 6.2.2).
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    for part in [name, value] {
        bytes.push(u8::try_from(part.len()).ok().filter(|length| *length < 127).expect("a short field"));
        bytes.extend(part);
    }
    bytes
}

#[test]
fn what_http_1_could_not_carry_does_not_come_from_http_2() {
    let upstream = Upstream::ok();
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()));
    type Field<'f> = (&'f [u8], &'f [u8]);
    let base: [Field<'_>; 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a.example"), (b":path", b"/outer")];
    let with = |more: &[Field<'static>]| [&base[..], more].concat();
    let changed = |at: usize, value: &'static [u8]| {
        let mut fields = base.to_vec();
        fields[at].1 = value;
        fields
    };
    let without = |at: usize| {
        let mut fields = base.to_vec();
        fields.remove(at);
        fields
    };
    let cases: Vec<Vec<Field<'_>>> = vec![
        with(&[(b"x", b"a\r\nHost: b")]),
        with(&[(b"x", b"a\nb")]),
        with(&[(b"x", b"a\rb")]),
        with(&[(b"x", b"a\0b")]),
        with(&[(b"x\r\nhost", b"b")]),
        with(&[(b"x:y", b"b")]),
        with(&[(b"X-Upper", b"b")]),
        with(&[(b"x y", b"b")]),
        with(&[(b"", b"b")]),
        with(&[(b"transfer-encoding", b"chunked")]),
        with(&[(b"connection", b"close")]),
        with(&[(b"connection", b"host")]),
        with(&[(b"keep-alive", b"1")]),
        with(&[(b"proxy-connection", b"close")]),
        with(&[(b"upgrade", b"websocket")]),
        with(&[(b"te", b"gzip")]),
        with(&[(b"content-length", b"3")]),
        with(&[(b"content-length", b"0"), (b"content-length", b"3")]),
        with(&[(b"content-length", b"-1")]),
        with(&[(b"content-length", b"0"), (b"content-length", b"0")]),
        with(&[(b"content-length", b"00")]),
        with(&[(b"x", b" a")]),
        with(&[(b"x", b"a\t")]),
        with(&[(b"x", b" ")]),
        with(&[(b":path", b"/again")]),
        with(&[(b"x", b"y"), (b":method", b"PUT")]),
        with(&[(b":unknown", b"y")]),
        with(&[(b":status", b"200")]),
        with(&[(b":protocol", b"websocket")]),
        with(&[(b"host", b"b.example")]),
        with(&[(b"host", b"a.example"), (b"host", b"a.example")]),
        with(&[(b"expect", b"x")]),
        changed(0, b"GET /x HTTP/1.1\r\nX: y"),
        changed(0, b"GE T"),
        changed(0, b""),
        changed(0, b"CONNECT"),
        changed(1, b"http://x/"),
        changed(1, b"ftp"),
        changed(1, b"file"),
        changed(2, b"a.example/x"),
        changed(2, b"user@a.example"),
        changed(2, b"a.example:x"),
        changed(2, b"a b"),
        changed(2, b""),
        changed(3, b"outer"),
        changed(3, b"/a b"),
        changed(3, b"/a\r\nX: y"),
        changed(3, b"http://b.example/"),
        changed(3, b"*"),
        changed(3, b""),
        without(0),
        without(1),
        without(2),
        without(3),
    ];
    for fields in &cases {
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        let shown =
            fields.iter().map(|(name, value)| format!("{}={} ", name.escape_ascii(), value.escape_ascii()));
        let shown: String = shown.collect();
        let mut h2 = Connection::open(gateway.plain());
        // END_STREAM and END_HEADERS.
        h2.send(HEADERS, 5, 1, &block);
        let frame = loop {
            let frame = h2.frame().unwrap_or_else(|| panic!("closed without a word after {shown}"));
            if [HEADERS, RST_STREAM, GOAWAY].contains(&frame.kind) {
                break frame;
            }
        };
        // :status 400 is one byte (RFC 7541 appendix A, 12); others are spelled out behind the name's index, 8.
        let is_refusal = match frame.kind {
            RST_STREAM | GOAWAY => true,
            HEADERS => matches!(frame.payload[0], 0x8c | 0x08 | 0x48),
            _ => false,
        };
        assert!(is_refusal, "{shown}: {frame:?}");
    }
    assert_eq!(gateway.get("/last").status, 200);
    assert_eq!(upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn trailers_over_http_2_do_not_become_fields() {
    let upstream = Upstream::ok();
    let next = Gateway::start("[[route]]\npath = \"/{*rest}\"\nto = \"echo\"");
    let gateway = Gateway::start(&format!(
        "[upstream.h2]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/h2\"\nto = \"h2\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        next.plain(),
        upstream.addr()
    ));
    for path in ["/h1", "/h2"] {
        let mut h2 = Connection::open(gateway.plain());
        h2.request(1, "POST", path, false);
        h2.data(1, b"body", false);
        let trailers: [(&[u8], &[u8]); 5] = [
            (b"host", b"evil"),
            (b"authorization", b"x"),
            (b"content-length", b"9"),
            (b"x-forwarded-for", b"1.1.1.1"),
            (b":path", b"/evil"),
        ];
        let block: Vec<u8> = trailers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        h2.send(HEADERS, 5, 1, &block);
        // Either the stream is reset, or the trailers are left out.
        while let Some(frame) = h2.frame() {
            if frame.kind == RST_STREAM || frame.kind == GOAWAY || frame.flags & 1 != 0 {
                break;
            }
        }
    }
    // One line for each connection, and one for a request that had begun before its trailers came.
    eventually("the log", || (gateway.access_log().len() >= 2).then_some(()));
    assert_eq!(gateway.get("/last").status, 200);
    loop {
        let request = upstream.request();
        assert!(
            !request.headers.iter().any(|(_, value)| ["evil", "x", "9", "1.1.1.1"].contains(&&**value)),
            "{request:?}"
        );
        if request.line.contains("last") {
            break;
        }
    }
}

#[test]
fn a_request_chooses_no_upstream() {
    let upstream = Upstream::ok();
    let other = Upstream::ok();
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()));
    let inside = other.addr();
    for (target, host) in [
        (format!("http://{inside}/x"), inside.to_string()),
        ("/x".to_owned(), inside.to_string()),
        ("/x".to_owned(), "169.254.169.254".to_owned()),
        ("http://169.254.169.254/x".to_owned(), "169.254.169.254".to_owned()),
        (format!("//{inside}/x"), "a.example".to_owned()),
        (format!("/http://{inside}/x"), "a.example".to_owned()),
    ] {
        let answer = gateway.client().request("GET", &target, &[&format!("Host: {host}")], "");
        assert_eq!(answer.status, 200, "{target}");
        let request = upstream.request();
        assert!(request.line.starts_with("GET /"), "{request:?}");
        assert_eq!(request.header("host").as_deref(), Some(&*host));
    }
    for target in [format!("ftp://{inside}/x"), format!("{inside}"), format!("http:{inside}/x")] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {inside}\r\n\r\n"));
        assert_eq!(client.response().status, 400, "{target}");
    }
    let mut client = gateway.client();
    client.send(format!("CONNECT {inside} HTTP/1.1\r\nHost: {inside}\r\n\r\n"));
    assert_eq!(client.response().status, 501);
    assert!(upstream.is_quiet() && other.is_quiet());
    assert_eq!(other.connections(), 0);
}
