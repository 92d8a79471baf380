//! Answers that the gateway makes itself: what they take from a request, and in which form they come.

use crate::auth::keys::hashed;
use crate::support::gateway::binary_off_by;
use crate::support::h2::{Connection, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::{Directory, Gateway, Response, Upstream, stdout_of, tls};

fn ask(gateway: &Gateway, target: &str, fields: &[&str]) -> Response {
    gateway.client().request("GET", target, fields, "")
}

#[test]
fn a_body_takes_values_and_keeps_other_braces() {
    let gateway = Gateway::start(
        r#"[[route]]
path = "/json/{id}"
respond = { body = '{"id":"{id}","of":{"who":"{ip}"},"as":"{{id}}","empty":{}}', headers = { content-type = "application/json" } }
[[route]]
path = "/text/{id}"
respond = { body = "{method} {host} {path} {query}|{id}|{request_id}" }
[[route]]
path = "/html/{id}"
respond = { body = "<style>b{color:red}</style><p title='{id}'>{id}", headers = { content-type = "text/html" } }"#,
    );
    let answer = ask(&gateway, "/json/a%22%5Cb%0A%C3%A9", &[]);
    assert_eq!(answer.status, 400, "a backslash is refused before");
    let json = ask(&gateway, "/json/a%22b%C3%A9", &[]).json();
    let expected =
        serde_json::json!({ "id": "a\"b\u{e9}", "of": { "who": "127.0.0.1" }, "as": "{id}", "empty": {} });
    assert_eq!(json, expected);

    let answer = ask(&gateway, "/text/%3Cb%3E?x=1", &["Host: a.example"]);
    let id = answer.header("x-request-id").unwrap_or_default().to_owned();
    assert!(answer.text().starts_with("GET a.example /text/%3Cb%3E x=1|<b>|"), "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8"),
        "no browser guesses it is HTML"
    );
    assert!(id.is_empty() || answer.text().ends_with(&id));

    let answer = ask(&gateway, "/html/%3Cscript%3E'%22&", &[]);
    let escaped = "&lt;script&gt;&#39;&quot;&amp;";
    assert_eq!(answer.text(), format!("<style>b{{color:red}}</style><p title='{escaped}'>{escaped}"));
    assert_eq!(answer.number("content-length"), answer.body.len() as u64);
}

#[test]
fn an_error_comes_in_the_form_the_client_prefers() {
    let gateway = Gateway::start(
        "[policy.\"<b>\"]\nby = [\"ip\"]\nlimit = \"1/h\"\n\
         [[route]]\npath = \"/limited\"\nrespond = {}\nlimit = \"<b>\"\n\
         [[route]]\npath = \"/gone\"\nto = \"http://127.0.0.1:1\"",
    );
    let browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    assert_eq!(ask(&gateway, "/limited", &[]).status, 200);
    for (target, status) in [("/nowhere", 404), ("/limited", 429), ("/gone", 502)] {
        for (fields, kind, begin) in [
            (&[][..], "application/problem+json", "{"),
            (&["Accept: */*"], "application/problem+json", "{"),
            (&[browser], "text/html; charset=utf-8", "<!doctype html>"),
            (&["Accept: text/plain"], "text/plain; charset=utf-8", "4"),
        ] {
            let answer = ask(&gateway, target, fields);
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (status, Some(kind)),
                "{target} {fields:?}"
            );
            let id = answer.header("x-request-id").unwrap_or_default().to_owned();
            let (body, begin) = (answer.text(), if status == 502 && begin == "4" { "5" } else { begin });
            assert!(body.starts_with(begin) && body.contains(&id) && !id.is_empty(), "{body}");
            assert_eq!(answer.all("retry-after").len(), usize::from(status == 429), "{answer:?}");
            assert_eq!(answer.header("cache-control"), Some("no-store"));
        }
    }
    let page = ask(&gateway, "/limited", &[browser]).text();
    assert!(page.contains("&lt;b&gt; allows 1 per hour") && !page.contains("<b>"), "{page}");
    // curl asks for anything, and a page can be asked for over HTTP/2, too.
    let url = format!("http://{}/nowhere", gateway.plain());
    let kind = |arguments: &[&str]| {
        let format = ["-s", "-o", "/dev/null", "-w", "%{http_version} %{content_type}", &url];
        stdout_of("curl", &[&format[..], arguments].concat())
    };
    assert_eq!(kind(&[]), "1.1 application/problem+json");
    let html = ["--http2-prior-knowledge", "-H", browser];
    assert_eq!(kind(&html), "2 text/html; charset=utf-8");
    assert_eq!(kind(&["-I", "-H", browser]), "1.1 text/html; charset=utf-8");
}

#[test]
fn a_redirect_goes_where_it_is_told() {
    let gateway = Gateway::start(
        r#"[[route]]
path = "/old/{id}"
redirect = "/new/{id}"
[[route]]
path = "/moved/{*rest}"
redirect = { to = "https://new.example.com:8443/{rest}", status = 301 }
[[route]]
path = "/keep/{*rest}"
redirect = { to = "http://{host}:81{path}?", status = 307 }
[[route]]
path = "/find/{what}"
redirect = { to = "https://search.example.com/?q={what}&from={path}", status = 302 }
[[route]]
path = "/back/{id}"
redirect = "https://login.example.com/?return={query}&id={id}"
[[route]]
path = "/more/{id}"
redirect = "/less?{query}&id={id}&{query}"
[[route]]
path = "/tls/{*rest}"
redirect = { to = "https:8443", status = 303 }
[[route]]
path = "/any/{*rest}"
redirect = "/{rest}""#,
    );
    for (target, status, location) in [
        ("/old/7?a=b", 308, "/new/7?a=b"),
        ("/old/a%20b", 308, "/new/a%20b"),
        ("/moved/x/y?z", 301, "https://new.example.com:8443/x/y?z"),
        ("/keep/x?a=b", 307, "http://a.example:81/keep/x"),
        (
            "/find/a%26b=c%20d",
            302,
            "https://search.example.com/?q=a%26b%3Dc%20d&from=%2Ffind%2Fa%26b%3Dc%20d",
        ),
        ("/back/7?a=b&c=%20d", 308, "https://login.example.com/?return=a%3Db%26c%3D%2520d&id=7"),
        ("/back/7", 308, "https://login.example.com/?return=&id=7"),
        ("/more/7?a=b&c=%20d", 308, "/less?a=b&c=%20d&id=7&a=b&c=%20d"),
        ("/tls/x?y", 303, "https://a.example:8443/tls/x?y"),
        ("/any//evil.example/x", 308, "/evil.example/x"),
        ("/any/", 308, "/"),
    ] {
        let answer = ask(&gateway, target, &["Host: a.example"]);
        assert_eq!((answer.status, answer.header("location")), (status, Some(location)), "{target}");
    }
    // As a client follows it.
    let url = format!("http://{}/old/7?a=b", gateway.plain());
    let format = "%{http_code} %{redirect_url}";
    let said = stdout_of("curl", &["-s", "-o", "/dev/null", "-w", format, &url]);
    assert_eq!(said, format!("308 http://{}/new/7?a=b", gateway.plain()));
}

#[test]
fn a_listener_s_redirect_names_host_port_and_status() {
    let gateway = Gateway::start(
        r#"[listener.plain]
bind = "127.0.0.1:0"
redirect = { to = "https://www.example.com:8443{path}", status = 301 }
[[route]]
path = "/{*rest}"
respond = {}"#,
    );
    let answer = ask(&gateway, "/a?b=c", &["Host: example.com"]);
    assert_eq!(answer.status, 301);
    assert_eq!(answer.header("location"), Some("https://www.example.com:8443/a?b=c"));
}

/// Every kind of answer that the gateway makes itself: a path for each, and the status to GET and HEAD.
const KINDS: [(&str, u16); 12] = [
    ("/respond", 200),
    ("/compressed", 200),
    ("/echo", 200),
    ("/odd", 299),
    ("/reset", 205),
    ("/moved", 308),
    ("/a%5Cb", 400),
    ("/closed", 401),
    ("/nowhere", 404),
    ("/post", 405),
    ("/limited", 429),
    ("/gone", 502),
];

fn all_kinds() -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    directory.write("405.json", r#"{"sorry": true}"#);
    directory.write("keys.toml", hashed("secret", &["--consumer", "ann"]));
    let text = "some text ".repeat(200);
    let config = format!(
        r#"[listener.plain]
bind = "127.0.0.1:0"
[listener.tls]
bind = "127.0.0.1:0"
certs = [{{ cert = "{0}.pem", key = "{0}.key" }}]
[errors]
405 = "405.json"
[auth.keys]
kind = "api-key"
keys = {{ file = "keys.toml" }}
[[route]]
path = "/respond"
respond = {{ body = "hello" }}
[[route]]
path = "/compressed"
compress = true
respond = {{ body = "{text}", headers = {{ content-type = "text/plain" }} }}
[[route]]
path = "/echo"
to = "echo"
[[route]]
path = "/odd"
respond = {{ status = 299, body = "odd" }}
[[route]]
path = "/reset"
respond = {{ status = 205 }}
[[route]]
path = "/moved"
redirect = "/respond"
[[route]]
path = "/closed"
auth = "keys"
respond = {{}}
[[route]]
path = "/post"
methods = ["POST"]
respond = {{}}
[[route]]
path = "/limited"
limit = "1/d"
respond = {{}}
[[route]]
path = "/gone"
to = "http://127.0.0.1:1"
"#,
        directory.join("a").display()
    );
    Gateway::start_in(directory, &config)
}

/// An answer's status and fields as curl has them, in order; of those that differ from one answer to the next only the names,
/// and none of those that only an answer to GET has.
fn told(url: &str, path: &str, arguments: &[&str]) -> (String, Vec<String>) {
    let all = ["-sSk", "-H", "Accept-Encoding: gzip", url];
    let head = stdout_of("curl", &[&all[..], arguments].concat()).to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let volatile = ["date", "x-request-id", "ratelimit", "x-ratelimit-reset", "retry-after"];
    let mut fields: Vec<String> = lines
        .filter(|line| {
            !line.is_empty() && !["content-length: 0", "transfer-encoding: chunked"].contains(line)
        })
        .map(|line| match line.split_once(':') {
            // Its body names the method.
            Some(("content-length", _)) if path == "/echo" => "content-length".to_owned(),
            Some((name, _)) if volatile.contains(&name) => name.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    fields.sort();
    (status, fields)
}

#[test]
fn an_answer_to_head_has_the_fields_of_one_to_get_and_no_content() {
    let gateway = all_kinds();
    assert_eq!(gateway.get("/limited").status, 200);
    let (plain, tls) = (gateway.plain(), gateway.listener("tls"));
    let protocols = [
        (format!("http://{plain}"), "--http1.1"),
        (format!("http://{plain}"), "--http2-prior-knowledge"),
        (format!("https://{tls}"), "--http2"),
    ];
    for (base, protocol) in &protocols {
        for (path, status) in KINDS {
            let url = format!("{base}{path}");
            let head = told(&url, path, &[protocol, "-I"]);
            assert_eq!(
                head,
                told(&url, path, &[protocol, "-D", "-", "-o", "/dev/null"]),
                "{protocol} {path}"
            );
            assert_eq!(head.0, status.to_string(), "{protocol} {path}");
        }
        let length = told(&format!("{base}/respond"), "/respond", &[protocol, "-I"]).1;
        assert!(length.contains(&"content-length: 5".to_owned()), "{protocol}: {length:?}");
    }
    for line in gateway.access_log().iter().filter(|line| line["method"] == "HEAD") {
        assert_eq!(line["bytes_out"], 0, "{line}");
    }
    let whole = gateway.logged_where("HEAD", |line| line["method"] == "HEAD" && line["path"] == "/respond");
    assert_eq!(whole.get("reason"), None, "{whole}");
}

#[test]
fn an_answer_to_head_ends_with_its_fields_over_http_2() {
    let gateway = all_kinds();
    assert_eq!(gateway.get("/limited").status, 200);
    let mut client = Connection::open(gateway.plain());
    let mut streams = (1..).step_by(2);
    for ((path, _), stream) in KINDS.iter().zip(&mut streams) {
        let pseudo = [(":method", "HEAD"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
        let block = fields(&[&pseudo[..], &[("accept-encoding", "gzip")]].concat());
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        let head = client.until(HEADERS);
        assert_eq!((head.stream, head.flags & END_STREAM), (stream, END_STREAM), "{path}");
    }
    // A body that would be sent back is not.
    let stream = streams.next().expect("there are more");
    client.request(stream, "HEAD", "/echo", false);
    client.data(stream, b"hello", true);
    let head = client.until(HEADERS);
    assert_eq!((head.stream, head.flags & END_STREAM), (stream, END_STREAM));
    let stream = streams.next().expect("there are more");
    client.request(stream, "GET", "/respond", true);
    assert_eq!(client.answer(stream), b"hello", "the connection goes on");
    let mut old = gateway.client();
    assert_eq!(old.request("HEAD", "/echo", &[], "hello").number("content-length"), 5);
    assert_eq!(old.get("/respond").text(), "hello");
    for line in gateway.access_log() {
        assert_ne!(line["reason"], "client-gone", "{line}");
    }
}

#[test]
fn a_status_without_a_name_gets_no_other() {
    let gateway = all_kinds();
    let mut client = gateway.client();
    client.send("GET /odd HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head_text();
    assert!(head.starts_with("HTTP/1.1 299 \r\n"), "{head}");
    assert_eq!(client.bytes(3), b"odd");
}

/// The hour of an HTTP date, of which there must be one.
fn hour_of(answer: &str) -> u32 {
    let dates: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("date: ")).collect();
    let [date] = dates[..] else { panic!("one Date: {answer}") };
    date.get(17..19).and_then(|hour| hour.parse().ok()).unwrap_or_else(|| panic!("a date: {date}"))
}

#[test]
fn the_date_of_an_answer_follows_a_clock_that_is_set_back() {
    let upstream = Upstream::ok();
    let directory = Directory::new();
    let clock = directory.write("clock", "+0");
    let mut command = binary_off_by("+0");
    command.env_remove("FAKETIME").env("FAKETIME_NO_CACHE", "1").env("FAKETIME_TIMESTAMP_FILE", &clock);
    let config = format!("[[route]]\npath = \"/up\"\nto = \"http://{}\"", upstream.addr());
    let gateway = Gateway::start_by(command, directory, &config);
    let (plain, admin) = (gateway.plain(), gateway.listener("admin"));
    let urls = [
        ("--http1.1", format!("http://{plain}/up")),
        ("--http1.1", format!("http://{plain}/nowhere")),
        ("--http2-prior-knowledge", format!("http://{plain}/up")),
        ("--http2-prior-knowledge", format!("http://{plain}/nowhere")),
        ("--http1.1", format!("http://{admin}/healthz")),
    ];
    let hours = || {
        let ask = |(version, url): &(&str, String)| {
            hour_of(&stdout_of("curl", &["-si", version, url]).to_ascii_lowercase())
        };
        urls.each_ref().map(ask)
    };
    let before = hours();
    gateway.write("clock", "-7200");
    for (url, (before, after)) in urls.iter().zip(before.into_iter().zip(hours())) {
        let back = (before + 24 - after) % 24;
        assert!(back == 2 || back == 1, "{url:?}: {before} {after}");
    }
}
