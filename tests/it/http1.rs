//! HTTP/1.1 from a client, through the gateway, to an upstream.

use std::sync::Mutex;
use std::sync::mpsc;

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Nginx, Upstream, heavy, stdout_of, text};

/// A gateway that forwards everything to one upstream.
fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()))
}

#[test]
fn a_kept_connection_keeps_one_to_the_upstream() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for number in 0..100 {
        assert_eq!(client.get(&format!("/{number}")).text(), "ok");
        assert_eq!(upstream.request().line, format!("GET /{number} HTTP/1.1"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::replying(|request| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes()
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    let all: String = (0..1000).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(all);
    for number in 0..1000 {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HT");
    assert_eq!(client.response().text(), "ok");
    assert_eq!(client.send("TP/1.1\r\nHost: a\r\n\r\n").response().text(), "ok");
}

#[test]
fn nginx_serves_curl() {
    let nginx = Nginx::start("location / { return 200 \"$request_method $request_uri $http_user_agent\"; }");
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", nginx.addr()));
    let url = format!("http://{}/a/b?c=d&e", gateway.plain());
    let said = stdout_of("curl", &["-sS", "--http1.1", "-A", "tester", &url]);
    assert_eq!(said, "GET /a/b?c=d&e tester");
}

#[test]
fn an_nginx_that_closes_its_connections_costs_no_request() {
    let _alone = heavy();
    let nginx = Nginx::start("keepalive_requests 7; location / { return 200 ok; }");
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", nginx.addr()));
    let url = format!("http://{}/", gateway.plain());
    let report = stdout_of("h2load", &["--h1", "-n", "5000", "-c", "8", &url]);
    assert!(report.contains("status codes: 5000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{report}");
}

#[test]
fn a_head_answer_keeps_its_length_and_has_no_body() {
    let upstream = Upstream::replying(|request| {
        let body = if request.line.starts_with("HEAD") { "" } else { "hello" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}").into_bytes()
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..3 {
        let head = client.request("HEAD", "/", &[], "");
        assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
        assert_eq!(client.get("/").text(), "hello");
    }
}

#[test]
fn answers_without_a_body_leave_the_connection_in_step() {
    let upstream = Upstream::replying(|request| match request.line.as_str() {
        "GET /304 HTTP/1.1" => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 7\r\n\r\n".to_vec()
        }
        _ => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..3 {
        let none = client.get("/204");
        assert_eq!(
            (none.status, none.header("content-length"), none.header("transfer-encoding")),
            (204, None, None)
        );
        let unchanged = client.get("/304");
        assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some("\"x\"")));
    }
}

#[test]
fn chunked_bodies_pass_both_ways() {
    let upstream = Upstream::replying(|request| {
        let size = request.body.len();
        let body = format!("{size:x}\r\n{}\r\n3;ext=1\r\nend\r\n0\r\n\r\n", text(&request.body));
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("5\r\nhello\r\n").send("1\r\n \r\n5\r\nworld\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "hello worldend");
        assert_eq!(upstream.request().all("transfer-encoding"), ["chunked"]);
    }
}

#[test]
fn a_body_that_ends_with_the_connection_arrives_whole() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send("HTTP/1.1 200 OK\r\n\r\nuntil the end");
        }
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.text(), "until the end");
        assert_eq!(
            answer.header("transfer-encoding"),
            Some("chunked"),
            "so that this connection can be kept"
        );
    }
}

#[test]
fn an_http_1_0_client_gets_no_chunks() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let upstream = Upstream::answering(chunks);
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("transfer-encoding")), ("hello", None));
    assert!(client.is_closed());
}

#[test]
fn a_close_from_the_client_is_kept() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    assert_eq!(client.request("GET", "/", &["Connection: close"], "").header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn pieces_pass_on_as_they_come() {
    let (go, may) = mpsc::channel::<()>();
    let may = Mutex::new(may);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_none() {
            return;
        }
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for number in 0..3 {
            peer.send(format!("2\r\n{number}\n\r\n"));
            may.lock().expect("nobody panics with it").recv().expect("the client has seen the piece");
        }
        peer.send("0\r\n\r\n");
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for number in 0..3 {
        assert_eq!(client.line(), "2");
        assert_eq!(client.bytes(4), format!("{number}\n\r\n").as_bytes());
        go.send(()).expect("the upstream waits for it");
    }
    assert_eq!(client.line(), "0");
}

#[test]
fn pieces_of_a_request_pass_on_as_they_come() {
    let (seen, piece) = mpsc::channel();
    let seen = Mutex::new(seen);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if peer.try_head().is_none() {
            return;
        }
        for _ in 0..3 {
            let got = peer.bytes(5);
            seen.lock().expect("nobody panics with it").send(text(&got)).ok();
        }
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n");
    for word in ["first", "other", "third"] {
        client.send(word);
        assert_eq!(piece.recv_timeout(crate::support::PATIENCE).as_deref(), Ok(word));
    }
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_client_that_expects_100_gets_100() {
    let upstream = Upstream::replying(|request| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", text(&request.body)).into_bytes()
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(client.head().status, 100);
        assert_eq!(client.send("hello").response().text(), "hello");
    }
}

#[test]
fn curl_waits_for_100_and_posts() {
    let nginx = Nginx::start("location = /ok { return 200 done; }");
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", nginx.addr()));
    let url = format!("http://{}/ok", gateway.plain());
    let said = stdout_of("curl", &["-sS", "-H", "Expect: 100-continue", "--data", "x=1", &url]);
    assert_eq!(said, "done");
}

#[test]
fn a_refused_request_never_gets_100() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"\nmax-body = 10\nlimit = \"1/h by ip\"\nmethods = [\"POST\"]",
        upstream.addr()
    ));
    let ask = |method: &str, length: u64| {
        let mut client = gateway.client();
        client.send(format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.head().status
    };
    assert_eq!(ask("POST", 11), 413);
    assert_eq!(ask("PUT", 5), 405);
    assert_eq!(gateway.client().request("POST", "/", &[], "x").status, 200);
    assert_eq!(ask("POST", 5), 429);
    assert!(upstream.request().line.starts_with("POST") && upstream.is_quiet());
}

#[test]
fn an_upstream_that_refuses_what_was_announced_is_heard() {
    let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if peer.try_head().is_some() {
            peer.send(refusal);
        }
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.status, answer.text().as_str()), (401, "no"));
}

#[test]
fn an_answer_before_the_end_of_the_body_reaches_the_client() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if peer.try_head().is_some() {
            peer.bytes(1000);
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\nConnection: close\r\n\r\nenough");
            peer.rest();
        }
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n").send([b'x'; 2000]);
    let answer = client.response();
    assert_eq!((answer.status, answer.text().as_str()), (403, "enough"));
    // What is left of the body must never be read as a request.
    client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(client);
    let line = gateway.logged("/early");
    assert_eq!(line["status"], 403);
    assert!(gateway.access_log().iter().all(|line| line["path"] != "/smuggled"));
}

#[test]
fn interim_answers_do_not_end_an_exchange() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let upstream = Upstream::answering(format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
    }
}

#[test]
fn early_hints_go_to_clients_over_http1_if_the_listener_has_them() {
    let (tx, rx) = mpsc::channel::<()>();
    let rx = Mutex::new(rx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while peer.try_head().is_some() {
            let long = "a".repeat(9_000);
            for link in ["</a.css>; rel=preload\r\nX-Own: 1", &long] {
                peer.send(format!("HTTP/1.1 103 Early Hints\r\nLink: {link}\r\n\r\n"));
            }
            rx.lock().expect("no test panics with it").recv().expect("the test runs");
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
    for (option, version, is_given) in
        [("early-hints = true\n", "1.1", true), ("early-hints = true\n", "1.0", false), ("", "1.1", false)]
    {
        let gateway = Gateway::start(&format!(
            "[listener.plain]\nbind = \"127.0.0.1:0\"\n{option}[[route]]\nto = \"http://{}\"\n",
            upstream.addr()
        ));
        let mut client = gateway.client();
        for _ in 0..2 {
            client.send(format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"));
            if is_given {
                // They come while the answer is not there yet.
                assert_eq!(client.bytes(hints.len()), hints.as_bytes());
            }
            tx.send(()).expect("the upstream runs");
            assert_eq!(client.response().text(), "ok", "{option} {version}");
        }
    }
}

#[test]
fn a_head_in_single_bytes_is_understood() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for byte in b"GET /slowly HTTP/1.1\r\nHost: a\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "ok");
    assert_eq!(upstream.request().line, "GET /slowly HTTP/1.1");
}
