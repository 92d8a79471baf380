//! Bodies over HTTP/1.1 that nobody wants: the answer is there before the client has sent them. The connection goes on, or
//! its last answer says that it does not.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Client, Directory, Gateway, PATIENCE, Response, Upstream, eventually, heavy};

fn gateway(more: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::ok();
    let directory = Directory::new();
    let key = format!("[[key]]\nsha256 = \"{}\"\nconsumer = \"ann\"\n", "0".repeat(64));
    directory.write("keys.toml", key);
    let gateway = Gateway::start_in(
        directory,
        &format!(
            r#"workers = 1
        [listener.plain]
        bind = "127.0.0.1:0"
        {more}
        [auth.key]
        kind = "api-key"
        keys = {{ file = "keys.toml" }}
        [[route]]
        path = "/served/{{*rest}}"
        respond = {{ body = "fixed" }}
        [[route]]
        path = "/authenticated"
        auth = "key"
        to = "http://{addr}"
        [[route]]
        path = "/read"
        methods = ["GET"]
        to = "http://{addr}"
        [[route]]
        path = "/small"
        max-body = "1KiB"
        to = "http://{addr}"
        [[route]]
        path = "/limited"
        to = "http://{addr}"
        limit = "1/h by ip""#,
            addr = upstream.addr(),
        ),
    );
    (gateway, upstream)
}

/// What the gateway answers itself, before it has read a body.
const ANSWERED: [(&str, u16); 6] = [
    ("/served/x", 200),
    ("/authenticated", 401),
    ("/none", 404),
    ("/read", 405),
    ("/limited", 429),
    ("/small", 413),
];

/// A request of which only the head is sent, with one more field; its answer.
fn head_first(client: &mut Client, path: &str, field: &str) -> Response {
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
    client.response()
}

fn closes(answer: &Response) -> bool {
    answer.header("connection") == Some("close")
}

#[test]
fn a_body_that_comes_after_its_answer_leaves_the_connection_as_it_was() {
    let (gateway, _upstream) = gateway("");
    assert_eq!(gateway.get("/limited").status, 200);
    // What looks like a request is none, also after the time in which an idle connection is put aside.
    let body = "GET /forged HTTP/1.1\r\nHost: a\r\n\r\n".repeat(90);
    for pause in [0, 250] {
        for (path, status) in ANSWERED {
            let mut client = gateway.client();
            for _ in 0..if pause == 0 { 3 } else { 1 } {
                let answer = head_first(&mut client, path, &format!("Content-Length: {}", body.len()));
                assert_eq!((answer.status, closes(&answer)), (status, false), "{path}");
                thread::sleep(Duration::from_millis(pause));
                let (first, second) = body.split_at(body.len() / 2);
                client.send(first);
                thread::sleep(Duration::from_millis(pause));
                client.send(second);
            }
            assert_eq!(client.get("/served/after").text(), "fixed", "{path}");
            if path == "/small" {
                // Of chunks only what comes tells that they are too long.
                continue;
            }
            // In chunks, and together with the request behind it.
            let answer = head_first(&mut client, path, "Transfer-Encoding: chunked");
            assert!(!closes(&answer), "{path}");
            client.send("5\r\nhello\r\n0\r\n\r\nGET /served/behind HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "fixed", "{path}");
        }
    }
    assert!(gateway.access_log().iter().all(|line| line["path"] != "/forged"));
}

#[test]
fn the_last_answer_says_that_the_connection_closes_where_it_does() {
    let (gateway, _upstream) = gateway("");
    assert_eq!(gateway.get("/limited").status, 200);
    for (path, status) in ANSWERED {
        // Too long to be read, and one that its client holds back until it is asked for.
        for fields in ["Content-Length: 300000", "Expect: 100-continue\r\nContent-Length: 5000"] {
            let mut client = gateway.client();
            let answer = head_first(&mut client, path, fields);
            assert_eq!((answer.status, closes(&answer)), (status, true), "{path} {fields}");
            client.try_send("x".repeat(5000));
            assert!(client.is_closed(), "{path} {fields}");
        }
    }
}

#[test]
fn chunks_without_end_and_a_body_that_never_comes_end_the_connection() {
    let (gateway, _upstream) = gateway("timeouts = { body-stall = \"300ms\" }");
    let mut endless = gateway.client();
    assert_eq!(head_first(&mut endless, "/none", "Transfer-Encoding: chunked").status, 404);
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let began = Instant::now();
    while endless.is_taking(&chunk) {
        assert!(began.elapsed() < PATIENCE, "it is read without end");
    }
    let mut silent = gateway.client();
    assert_eq!(head_first(&mut silent, "/none", "Content-Length: 10").status, 404);
    assert!(silent.is_closed());
}

#[test]
fn a_rest_that_drips_ends_at_its_time() {
    let (gateway, _upstream) = gateway("timeouts = { body-stall = \"1s\" }");
    for (field, drip) in [
        ("Content-Length: 200000", "x".repeat(2_000)),
        ("Transfer-Encoding: chunked", format!("7d0\r\n{}\r\n", "x".repeat(2_000))),
    ] {
        let mut client = gateway.client();
        assert_eq!(head_first(&mut client, "/none", field).status, 404);
        let began = Instant::now();
        while client.is_taking(&drip) {
            assert!(began.elapsed() < Duration::from_secs(6), "drips renew its time");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_rest_that_is_late_holds_little_memory() {
    const CLIENTS: usize = 600;
    let _alone = heavy();
    let (gateway, _upstream) = gateway("timeouts = { body-stall = \"60s\" }");
    assert_eq!(gateway.get("/limited").status, 200);
    let resident = || gateway.metric("sluicegate_memory_resident_bytes", &[]);
    let before = eventually("memory is looked at", || Some(resident()).filter(|bytes| *bytes > 0.0));
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = gateway.client();
            assert_eq!(head_first(&mut client, "/limited", "Content-Length: 200000").status, 429);
            client.send("x".repeat(30_000));
            client
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let each = (resident() - before) / CLIENTS as f64;
    assert!(each <= 16_384.0, "{each} bytes each");
    // Each can go on.
    for mut client in clients.into_iter().take(5) {
        client.send("x".repeat(170_000));
        assert_eq!(client.get("/served/after").text(), "fixed");
    }
}
