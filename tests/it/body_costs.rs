//! Costs that are known from bodies: numbers in answers, also in streams, estimates and keys from requests, and bytes and
//! time that the gateway measures.

use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use flate2::write::GzEncoder;

use crate::auth::keys::hashed;
use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::redis::Redis;
use crate::support::upstream::{Recorded, receive, reset};
use crate::support::{Client, Directory, Gateway, Response, Upstream, eventually};

/// A gateway with one policy `p` of 1,000 units a day in front of an upstream.
fn before(upstream: &Upstream, policy: &str, more: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\n{more}\n\
         [policy.p]\nby = [\"ip\"]\nlimit = \"1_000/d\"\n{policy}\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"u\"\n",
        upstream.addr()
    ))
}

const TOKENS: &str = "cost = { response-json = \"usage.total_tokens\", estimate = 100 }";

/// What is left of the policy.
fn left(gateway: &Gateway) -> u64 {
    let limit = gateway.admin("/v1/explain?url=/a").json()["limits"][0].clone();
    let remaining = limit["remaining"].as_u64().unwrap_or_else(|| panic!("{limit}"));
    remaining + if limit["admitted"] == true { limit["cost"].as_u64().unwrap_or(0) } else { 0 }
}

/// What is left once the request before has been settled.
#[track_caller]
fn settles_to(gateway: &Gateway, expected: u64, what: &str) {
    eventually(&format!("{expected} are left: {what}"), || (left(gateway) == expected).then_some(()));
}

fn costs(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("sluicegate_costs_total", &["policy=\"p\"", &format!("outcome=\"{outcome}\"")])
}

fn answer(status: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn json(body: &str) -> Vec<u8> {
    answer("200 OK", "Content-Type: application/json\r\n", body)
}

fn usage(tokens: &str) -> String {
    format!("{{\"id\":\"x\",\"choices\":[],\"usage\":{{\"total_tokens\":{tokens}}}}}")
}

/// Answers with the body of the request.
fn saying_back() -> Upstream {
    Upstream::replying(|request| json(&String::from_utf8_lossy(&request.body)))
}

fn post(gateway: &Gateway, body: &str) -> Response {
    gateway.client().request("POST", "/a", &[], body)
}

#[test]
fn a_json_answer_says_what_it_cost() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        let upstream = saying_back();
        let gateway = before(&upstream, &format!("{TOKENS}\nalgorithm = \"{algorithm}\""), "");
        let said = gateway.client().request("POST", "/a", &["accept-encoding: gzip, br"], &usage("42"));
        assert_eq!((said.status, said.text()), (200, usage("42")), "{algorithm}");
        assert_eq!(said.number("x-ratelimit-remaining"), 900, "{algorithm}: the estimate is reserved");
        assert_eq!(upstream.request().header("accept-encoding").as_deref(), Some("identity"));
        settles_to(&gateway, 958, algorithm);
        post(&gateway, &usage("150"));
        settles_to(&gateway, 808, algorithm);
        post(&gateway, &usage("0"));
        settles_to(&gateway, 808, algorithm);
        post(&gateway, &usage("1e30"));
        settles_to(&gateway, 0, algorithm);
        assert_eq!(post(&gateway, &usage("1")).status, 429, "{algorithm}: what is owed refuses");
        assert_eq!(costs(&gateway, "known"), 4.0);
    }
}

#[test]
fn a_stream_that_is_one_list_says_what_it_cost() {
    let upstream = saying_back();
    let gateway =
        before(&upstream, &TOKENS.replace("usage.total_tokens", "usageMetadata.totalTokenCount"), "");
    let part = |tokens: u64| {
        format!(
            "{{\"candidates\": [{{\"index\": 0}}], \"usageMetadata\": {{\"totalTokenCount\": {tokens}}}}}"
        )
    };
    post(&gateway, &format!("[{}\n,\r\n{}\n,\r\n{}\n]\n", part(30), part(35), part(42)));
    settles_to(&gateway, 958, "as Gemini streams");
    post(&gateway, &part(8));
    settles_to(&gateway, 950, "as it answers whole");
    assert_eq!(costs(&gateway, "known"), 2.0);
}

#[test]
fn what_parallel_requests_owe_is_waited_for_over_several_windows() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        let all = Arc::new(Barrier::new(5));
        let upstream = Upstream::replying(move |request| {
            all.wait();
            json(&String::from_utf8_lossy(&request.body))
        });
        let gateway = before(&upstream, &format!("{TOKENS}\nalgorithm = \"{algorithm}\""), "");
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| assert_eq!(post(&gateway, &usage("1000")).status, 200, "{algorithm}"));
            }
        });
        let limit = eventually("all of them are settled", || {
            let limit = gateway.admin("/v1/explain?url=/a").json()["limits"][0].clone();
            (costs(&gateway, "known") == 5.0 && limit["admitted"] == false).then_some(limit)
        });
        assert_eq!(limit["remaining"], 0, "{algorithm}: {limit}");
        let refused = post(&gateway, &usage("1"));
        let days = refused.number("retry-after") as f64 / 86_400.0;
        // Four days of refill, a window that is under way, and what clients are spread by.
        assert!(refused.status == 429 && (4.0..7.0).contains(&days), "{algorithm}: {days} days");
    }
}

#[test]
fn what_is_no_number_leaves_the_estimate() {
    let upstream = saying_back();
    let costs_max = TOKENS.replace("estimate = 100", "estimate = 100, max = 250");
    let gateway = before(&upstream, &costs_max, "");
    let mut expected = 1_000;
    let deep = format!("{{\"a\":{}{},\"usage\":{{\"total_tokens\":7}}}}", "[".repeat(200), "]".repeat(200));
    let huge = format!("{{\"text\":\"{}\",\"usage\":{{\"total_tokens\":7}}}}", "x".repeat(300_000));
    let long = usage(&"9".repeat(300));
    let twice = "{\"usage\":{\"total_tokens\":5,\"total_tokens\":6},\"usage\":{\"total_tokens\":7}}";
    let cases = [
        (huge.as_str(), 7),
        (twice, 7),
        ("{\"usage\":{\"total_tokens\":7}} trailing", 7),
        ("{\"us\\u0061ge\":{\"total_tokens\":6.5}}", 7),
        (long.as_str(), 250),
        (deep.as_str(), 100),
        ("{\"usage\":{\"total_tokens\":\"7\"}}", 7),
        ("{\"usage\":{\"total_tokens\":-7}}", 100),
        ("{\"usage\":{\"total_tokens\":null}}", 100),
        ("{\"usage\":{\"total", 100),
        ("not JSON", 100),
        ("[]", 100),
    ];
    for (body, charged) in cases {
        assert_eq!(post(&gateway, body).text(), body, "answers pass as they are");
        expected -= charged;
        settles_to(&gateway, expected, &body[..body.len().min(40)]);
    }
    assert_eq!((costs(&gateway, "known"), costs(&gateway, "absent")), (6.0, 6.0));
}

/// An upstream that sends what the test tells it, piece by piece, as one chunked stream of events.
fn streaming(head: &'static str) -> (Upstream, mpsc::Sender<Option<String>>) {
    let (tx, rx) = mpsc::channel::<Option<String>>();
    let rx = Arc::new(Mutex::new(rx));
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n"));
            loop {
                let piece = rx.lock().expect("no test panics with it").recv();
                match piece {
                    Ok(Some(piece)) if piece == "reset" => return reset(peer.into_stream()),
                    Ok(Some(piece)) => {
                        peer.try_send(format!("{:x}\r\n{piece}\r\n", piece.len()));
                    }
                    Ok(None) => {
                        peer.send("0\r\n\r\n");
                        break;
                    }
                    Err(_) => return,
                }
            }
        }
    });
    (upstream, tx)
}

const EVENTS: &str = "Content-Type: text/event-stream; charset=utf-8\r\n";

/// Reads one chunk.
fn chunk(client: &mut Client) -> String {
    let size = usize::from_str_radix(&client.line(), 16).expect("a chunk begins with its size");
    let data = client.bytes(size);
    assert_eq!(client.bytes(2), b"\r\n");
    String::from_utf8(data).expect("events are text")
}

fn event(body: &str) -> String {
    format!("data: {body}\n\n")
}

#[test]
fn events_are_passed_on_as_they_come_and_the_last_number_counts() {
    let (upstream, tell) = streaming(EVENTS);
    let gateway = before(&upstream, TOKENS, "");
    let mut client = gateway.client();
    for (ends, expected) in [(["\n", "\n"], 977), (["\r\n", "\r\n"], 954), (["\r", "\r"], 931)] {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let pieces = ["{\"choices\":[{}],\"usage\":null}", "{\"usage\":{\"total_tokens\":9}}"];
        for (number, piece) in pieces.into_iter().enumerate() {
            tell.send(Some(event(piece).replace('\n', ends[0]))).expect("the upstream runs");
            if number == 0 {
                assert_eq!(client.head().status, 200);
            }
            // The next piece is not sent before this one has come.
            assert_eq!(chunk(&mut client), event(piece).replace('\n', ends[0]));
        }
        assert_eq!(left(&gateway), expected + 23 - 100, "the estimate is reserved while it streams");
        // One event in two pieces and several lines of data.
        for piece in ["data: {\"usage\":\ndata:{\"total_tok", "ens\":23}}\nid: 7\n\n", "data: [DONE]\n\n"] {
            let piece = piece.replace('\n', ends[1]);
            tell.send(Some(piece.clone())).expect("the upstream runs");
            assert_eq!(chunk(&mut client), piece);
        }
        tell.send(None).expect("the upstream runs");
        assert_eq!((client.line().as_str(), client.line().as_str()), ("0", ""));
        settles_to(&gateway, expected, "the last event that has it");
    }
}

#[test]
fn who_hangs_up_is_charged_what_had_come() {
    let (upstream, tell) = streaming(EVENTS);
    let gateway = before(&upstream, TOKENS, "");
    let ask = |pieces: &[&str]| {
        let mut client = gateway.client();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        for (number, piece) in pieces.iter().enumerate() {
            tell.send(Some(event(piece))).expect("the upstream runs");
            if number == 0 {
                client.head();
            }
            chunk(&mut client);
        }
        client
    };
    drop(ask(&["{\"usage\":{\"total_tokens\":3}}", "{\"usage\":{\"total_tokens\":12}}"]));
    settles_to(&gateway, 988, "the last number that had come");
    drop(tell);
    let (upstream, tell) = streaming(EVENTS);
    let other = before(&upstream, TOKENS, "");
    let mut client = other.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    tell.send(Some(event("{\"choices\":[]}"))).expect("the upstream runs");
    client.head();
    chunk(&mut client);
    drop(client);
    eventually("it is over", || (costs(&other, "cut") == 1.0).then_some(()));
    settles_to(&other, 900, "none had come, so the estimate stays");
}

#[test]
fn a_stream_that_breaks_is_charged_what_had_come() {
    for (pieces, charged) in [
        (
            vec![
                event("{\"usage\":{\"total_tokens\":30}}"),
                "data: {\"usage\":{\"total_tokens\":4".to_owned(),
            ],
            30,
        ),
        (vec![event("{\"choices\":[]}"), "data: {\"usage\":{\"total_tokens\":4".to_owned()], 100),
    ] {
        let (upstream, tell) = streaming(EVENTS);
        let gateway = before(&upstream, TOKENS, "");
        let mut client = gateway.client();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        for (number, piece) in pieces.iter().enumerate() {
            tell.send(Some(piece.clone())).expect("the upstream runs");
            if number == 0 {
                client.head();
            }
            chunk(&mut client);
        }
        tell.send(Some("reset".to_owned())).expect("the upstream runs");
        assert!(client.is_closed());
        settles_to(&gateway, 1_000 - charged, "what had come before the break");
    }
}

#[test]
fn several_numbers_are_added_and_all_of_them_are_needed_from_a_cut_answer() {
    let policy = "cost = { response-json = [\"message.usage.input_tokens\", \"usage.output_tokens\"], estimate = 100 }";
    let begin = event("{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":40}}}");
    let delta = |tokens: u64| event(&format!("{{\"usage\":{{\"output_tokens\":{tokens}}}}}"));
    let whole = [begin.clone(), delta(3), delta(9)].concat();
    let upstream = Upstream::answering(answer("200 OK", EVENTS, &whole));
    let gateway = before(&upstream, policy, "");
    assert_eq!(gateway.get("/a").text(), whole);
    settles_to(&gateway, 951, "40 and 9");
    let (upstream, tell) = streaming(EVENTS);
    let gateway = before(&upstream, policy, "");
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    tell.send(Some(begin)).expect("the upstream runs");
    client.head();
    chunk(&mut client);
    drop(client);
    eventually("it is over", || (costs(&gateway, "cut") == 1.0).then_some(()));
    assert_eq!(left(&gateway), 900, "who leaves before the other number does not get away with the first");
}

#[test]
fn each_window_is_charged_as_much_as_it_holds() {
    for (source, body) in [
        ("response-json = \"usage.total_tokens\"", usage("300")),
        ("response-header = \"x-cost\"", String::new()),
    ] {
        let upstream =
            Upstream::answering(answer("200 OK", "X-Cost: 300\r\nContent-Type: application/json\r\n", &body));
        let gateway = Gateway::start(&format!(
            "[policy.p]\nby = []\nlimit = [\"100/d\", \"1_000/30d\"]\ncost = {{ default = 10, {source} }}\n\
             [[route]]\npath = \"/a\"\nlimit = \"p\"\nto = \"http://{}\"\n",
            upstream.addr()
        ));
        assert_eq!(gateway.get("/a").status, 200);
        eventually("both are settled", || {
            let limits = gateway.admin("/v1/explain?url=/a").json()["limits"].clone();
            let left = |window: usize| limits[window]["remaining"].as_u64();
            (left(0) == Some(0) && left(1).is_some_and(|left| (690..=700).contains(&left))).then_some(())
        });
    }
}

#[test]
fn a_compressed_answer_says_what_it_cost_and_passes_as_it_is() {
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    };
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 3).expect("memory takes it");
    let list = "{\"usage\":[{\"tokens\":30},{\"tokens\":12}]}";
    let events = format!("{}{}", event("{\"usage\":[{\"tokens\":1}]}"), event(list));
    for (kind, coding, body) in [
        ("application/json", "gzip", gzip(list)),
        ("application/x-ndjson", "x-gzip", gzip(&format!("{{\"usage\":[{{\"tokens\":1}}]}}\n{list}\n"))),
        ("text/event-stream", "zstd", zstd(&events)),
        ("text/event-stream", "gzip", gzip(&events)),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let upstream = Upstream::answering([head.as_bytes(), &body].concat());
        let gateway = before(&upstream, &TOKENS.replace("usage.total_tokens", "usage.*.tokens"), "");
        let answer = gateway.get("/a");
        assert_eq!(
            (answer.header("content-encoding"), &answer.body),
            (Some(coding), &body),
            "{kind} {coding}"
        );
        settles_to(&gateway, 958, coding);
        assert_eq!(costs(&gateway, "known"), 1.0);
    }
}

/// The server ends a response in the middle of what it compresses, or of a list, or breaks it there.
#[test]
fn a_sum_of_which_a_part_is_missing_is_not_charged() {
    let begun = "{\"usage\":[{\"tokens\":30},";
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(begun.as_bytes()).expect("memory takes it");
    encoder.flush().expect("memory takes it");
    let compressed = encoder.get_ref().clone();
    let two = "cost = { response-json = [\"usage.*.tokens\", \"input\"], estimate = 100 }";
    let input = "{\"input\":7,\"usage\":[{\"tokens\":1}]}\n";
    let mut both = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    both.write_all(format!("{input}{begun}").as_bytes()).expect("memory takes it");
    both.flush().expect("memory takes it");
    let one = TOKENS.replace("usage.total_tokens", "usage.*.tokens");
    for (policy, coding, body, missing, charged, outcome) in [
        (one.as_str(), "gzip", compressed.clone(), 0, 100, "encoded"),
        (one.as_str(), "gzip", compressed, 9, 100, "cut"),
        (one.as_str(), "identity", begun.as_bytes().to_vec(), 0, 100, "absent"),
        (one.as_str(), "identity", begun.as_bytes().to_vec(), 9, 100, "cut"),
        (two, "gzip", both.get_ref().clone(), 0, 8, "known"),
        (two, "identity", format!("{input}{begun}").into_bytes(), 9, 8, "known"),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
            body.len() + missing
        );
        let upstream = Upstream::answering([head.as_bytes(), &body].concat());
        let gateway = before(&upstream, policy, "");
        let mut client = gateway.client();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.head();
        assert_eq!(client.bytes(body.len()), body);
        drop(client);
        eventually("it is counted", || (costs(&gateway, outcome) == 1.0).then_some(()));
        settles_to(&gateway, 1_000 - charged, &format!("{policy} {coding} {missing}"));
    }
}

#[test]
fn a_coding_that_is_not_read_is_charged_the_estimate() {
    for coding in ["gzip", "deflate"] {
        let fields = format!("Content-Type: application/json\r\nContent-Encoding: {coding}\r\n");
        let upstream = Upstream::answering(answer("200 OK", &fields, &usage("7")));
        let gateway = before(&upstream, TOKENS, "");
        assert_eq!(gateway.get("/a").header("content-encoding"), Some(coding));
        eventually("it is counted", || (costs(&gateway, "encoded") == 1.0).then_some(()));
        assert_eq!(left(&gateway), 900, "{coding}");
    }
}

#[test]
fn answers_are_compressed_for_clients_all_the_same() {
    let body = format!("{{\"text\":\"{}\",\"usage\":{{\"total_tokens\":7}}}}", "many words ".repeat(500));
    let upstream = Upstream::answering(json(&body));
    let gateway = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = \"1_000/d\"\n{TOKENS}\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"http://{}\"\ncompress = true\n",
        upstream.addr()
    ));
    let said = gateway.client().request("GET", "/a", &["accept-encoding: gzip"], "");
    assert_eq!((said.status, said.header("content-encoding")), (200, Some("gzip")));
    assert!(said.body.len() < body.len() / 2);
    settles_to(&gateway, 993, "it is read before it is compressed");
}

#[test]
fn errors_cost_what_they_say_or_nothing() {
    let upstream = Upstream::replying(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let status = request.header("x-status").unwrap_or_default();
        answer(&format!("{status} Told"), "Content-Type: application/json\r\n", &body)
    });
    let gateway = before(&upstream, TOKENS, "");
    for status in ["400", "429", "500", "502", "503"] {
        let said =
            gateway.client().request("POST", "/a", &[&format!("x-status: {status}")], "{\"error\":{}}");
        assert_eq!(said.status.to_string(), status);
        settles_to(&gateway, 1_000, status);
    }
    assert_eq!(costs(&gateway, "waived"), 5.0);
    gateway.client().request("POST", "/a", &["x-status: 500"], &usage("20"));
    settles_to(&gateway, 980, "an error that says it");

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = nobody.local_addr().expect("it is bound");
    drop(nobody);
    let closed = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = \"1_000/d\"\n{TOKENS}\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"http://{addr}\"\n"
    ));
    assert_eq!(closed.get("/a").status, 502);
    settles_to(&closed, 1_000, "what was never sent");

    let silent = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {}
    });
    let gateway = before(&silent, TOKENS, "timeouts = { response = \"100ms\" }");
    assert_eq!(gateway.get("/a").status, 504);
    eventually("it is counted", || (costs(&gateway, "cut") == 1.0).then_some(()));
    assert_eq!(left(&gateway), 900, "the upstream may have worked on it");
}

#[test]
fn an_upstream_over_http2_says_it_in_frames() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS && frame.flags & END_STREAM != 0 {
                let head = fields(&[(":status", "200"), ("content-type", "text/event-stream")]);
                peer.send(HEADERS, END_HEADERS, frame.stream, &head);
                peer.send(DATA, 0, frame.stream, b"data: {\"usage\":{\"total_");
                peer.send(DATA, 0, frame.stream, b"tokens\":77}}\n\n");
                peer.send(DATA, END_STREAM, frame.stream, b"data: [DONE]\n\n");
            }
        }
    });
    let gateway = before(&upstream, TOKENS, "http = \"h2\"");
    assert!(gateway.get("/a").text().ends_with("data: [DONE]\n\n"));
    settles_to(&gateway, 923, "over HTTP/2");
}

#[test]
fn a_retry_and_a_mirror_are_not_charged() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::replying(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => answer("503 Busy", "Content-Type: application/json\r\n", &usage("400")),
        _ => json(&usage("11")),
    });
    let mirror = Upstream::answering(json(&usage("300")));
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nretry = {{ times = 1, on = [\"503\"], budget = \"100%\" }}\n\
         [upstream.m]\nservers = [\"http://{}\"]\n\
         [policy.p]\nby = [\"ip\"]\nlimit = \"1_000/d\"\n{TOKENS}\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"u\"\nmirror = {{ to = \"m\" }}\n",
        upstream.addr(),
        mirror.addr()
    ));
    assert_eq!(gateway.get("/a").status, 200);
    mirror.request();
    settles_to(&gateway, 989, "the answer that the client got");
    assert_eq!((asked.load(Ordering::SeqCst), costs(&gateway, "known")), (2, 1.0));
}

/// Policies by a model and by an estimate of the request's own.
const BY_MODEL: &str = "[policy.p]\nby = [\"body:model\"]\nmissing = \"reject\"\nlimit = \"1_000/d\"\n\
    cost = { response-json = \"usage.total_tokens\", estimate = [\"body:max_completion_tokens\", \"body:max_tokens\"], \
    default = 50 }\n";

fn by_model(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!(
        "{BY_MODEL}[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"http://{}\"\n",
        upstream.addr()
    ))
}

#[test]
fn a_field_of_the_body_is_counted_by_and_says_the_estimate() {
    let upstream = Upstream::replying(|_| json("{}"));
    let gateway = by_model(&upstream);
    let ask = |body: &str| {
        let said = post(&gateway, body);
        if said.status != 200 {
            return (said.status, 0);
        }
        let sent: Recorded = upstream.request();
        assert_eq!(String::from_utf8_lossy(&sent.body), body, "it goes on as it came");
        (said.status, said.number("x-ratelimit-remaining"))
    };
    assert_eq!(ask("{\"model\":\"large\",\"max_tokens\":300}"), (200, 700));
    assert_eq!(ask("{\"max_tokens\":200,\"messages\":[],\"model\":\"small\"}"), (200, 800), "another model");
    assert_eq!(ask("{\"model\":\"large\"}"), (200, 650), "the default");
    assert_eq!(ask("{\"model\":\"large\",\"max_tokens\":9,\"max_completion_tokens\":50}"), (200, 600));
    for (odd, reserved) in [("0", 1), ("-5", 50), ("\"70\"", 70), ("\"no\"", 50), ("2.5", 3), ("null", 50)] {
        let before = ask("{\"model\":\"odd\",\"max_tokens\":1}").1;
        let body = format!("{{\"model\":\"odd\",\"max_tokens\":{odd}}}");
        assert_eq!(ask(&body), (200, before - reserved), "{odd}");
    }
    assert_eq!(ask("{\"model\":\"large\",\"max_tokens\":1e30}"), (429, 0), "more than there is");
    let long = format!("{{\"model\":\"large\",\"max_tokens\":{}}}", "1".repeat(300));
    assert_eq!(ask(&long), (429, 0), "longer than any number");
    let escaped = ask("{\"mod\\u0065l\":\"l\\u0061rge\",\"max_tokens\":100}");
    assert_eq!(escaped, (200, 500), "the same model");
    for (spent, seven) in (1..).zip(["7", "7.0", "7e0", "70e-1", "0.7E+1", "\"7\""]) {
        assert_eq!(ask(&format!("{{\"model\":{seven}}}")), (200, 1_000 - 50 * spent), "{seven} is one key");
    }
    for refused in [
        "{}",
        "{\"model\":null}",
        "no JSON",
        "",
        "{\"model\":\"a\",\"model\":\"b\"}",
        "{\"model\":\"a\",\"model\":null}",
        "{\"model\":[],\"model\":\"a\"}",
        "[{\"model\":\"a\"}]",
        "{}{\"model\":\"a\"}",
        "{\"model\":\"a\"}{}",
        "{\"model\":07}",
        "{\"model\":7.}",
    ] {
        assert_eq!(ask(refused), (400, 0), "{refused}");
    }
}

#[test]
fn only_the_first_64_kib_of_a_body_are_read_ahead() {
    let upstream = Upstream::replying(|_| json("{}"));
    let gateway = by_model(&upstream);
    let padded = |bytes: usize| format!("{{\"x\":\"{}\",\"model\":\"m\"}}", "y".repeat(bytes));
    let long = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(1_000_000));
    for (body, status) in [(padded(65_000), 200), (padded(66_000), 400), (long.clone(), 200)] {
        assert_eq!(post(&gateway, &body).status, status, "{} bytes", body.len());
        if status == 200 {
            assert_eq!(upstream.request().body, body.as_bytes());
        }
    }
    // In chunks that end anywhere, the first ones one by one.
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in long.as_bytes()[..20].chunks(1).chain(long.as_bytes()[20..].chunks(70_001)) {
        client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.request().body, long.as_bytes());
}

#[test]
fn a_body_that_is_read_ahead_may_break_or_be_too_large() {
    let upstream = Upstream::replying(|_| json("{}"));
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"300ms\" }}\n\
         {BY_MODEL}[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nmax-body = \"1KiB\"\nto = \"http://{}\"\n",
        upstream.addr()
    ));
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n");
    client.try_send("y".repeat(0x800));
    assert_eq!(client.response().status, 413);
    let mut client = gateway.client();
    client.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n{\"model\":");
    assert!(client.is_closed() || client.head().status == 408, "who stands still is not waited for");
    let mut broken = gateway.client();
    broken.send("POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n{\"model\":");
    drop(broken);
    gateway.logged("/gone");
    // Over HTTP/2 the gateway's own deadline watches.
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "POST", "/h2", false);
    h2.data(1, b"{\"model\":", false);
    let line = gateway.logged("/h2");
    assert_eq!(line["status"], 408, "{line}");
    h2.request(3, "POST", "/whole", false);
    h2.data(3, b"{\"model\":", false);
    h2.data(3, b"\"m\"}", true);
    assert_eq!(gateway.logged("/whole")["status"], 200);
    assert_eq!(upstream.request().body, b"{\"model\":\"m\"}");
    assert!(upstream.is_quiet());
}

#[test]
fn bytes_and_time_are_units() {
    let upstream = saying_back();
    let policy = "cost = { request-bytes = \"1KiB\", response-bytes = \"1KiB\" }";
    let gateway = before(&upstream, policy, "");
    post(&gateway, &"x".repeat(3_000));
    settles_to(&gateway, 994, "three KiB each way, begun ones whole");
    gateway.client().request("GET", "/a", &[], "");
    settles_to(&gateway, 994, "nothing was transferred");
    assert_eq!(costs(&gateway, "known"), 2.0);

    // A client that leaves has been sent less than the whole.
    let (upstream, tell) = streaming("");
    let gateway = before(&upstream, "cost = { response-bytes = 1_024 }", "");
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    tell.send(Some("x".repeat(5_000))).expect("the upstream runs");
    client.head();
    drop(client);
    settles_to(&gateway, 995, "what had come");

    let slow = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            thread::sleep(Duration::from_millis(120));
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let gateway = before(&slow, "cost = { response-time = \"10ms\" }", "");
    gateway.get("/a");
    eventually("it is settled", || (left(&gateway) < 990).then_some(()));
    let spent = 1_000 - left(&gateway);
    assert!((12..100).contains(&spent), "{spent} units for 120 ms");
}

/// One event stream for each request: the number in its path says how many tokens it costs.
fn model() -> (Upstream, Arc<AtomicU64>) {
    let served = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&served);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            let asked: serde_json::Value = serde_json::from_slice(&request.body).expect("clients send JSON");
            let tokens = asked["tokens"].as_u64().expect("they say what it costs");
            let mut stream = peer.into_stream();
            let mut send = |text: String| stream.write_all(text.as_bytes()).is_ok();
            send(format!("HTTP/1.1 200 OK\r\n{EVENTS}Transfer-Encoding: chunked\r\n\r\n"));
            for word in 0..20 {
                let piece = event(&format!("{{\"choices\":[{{\"delta\":\"word {word}\"}}],\"usage\":null}}"));
                send(format!("{:x}\r\n{piece}\r\n", piece.len()));
                thread::sleep(Duration::from_millis(1));
            }
            let last = event(&usage(&tokens.to_string())) + "data: [DONE]\n\n";
            send(format!("{:x}\r\n{last}\r\n0\r\n\r\n", last.len()));
            total.fetch_add(tokens, Ordering::SeqCst);
            peer = Client::over(stream);
        }
    });
    (upstream, served)
}

#[test]
fn a_fleet_keeps_a_budget_of_streamed_tokens() {
    let (redis, (upstream, served)) = (Redis::start(&[]), model());
    let config = format!(
        "[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
         [tier.free]\nlimit = \"1_000/h\"\n[tier.pro]\nlimit = \"100_000/h\"\n\
         [policy.tokens]\nby = [\"consumer\", \"body:model\"]\nmissing = \"reject\"\nlimit = \"tier\"\n\
         algorithm = \"sliding-window\"\n\
         cost = {{ response-json = \"usage.total_tokens\", estimate = \"body:max_tokens\", default = 500 }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nauth = \"keys\"\nlimit = \"tokens\"\nto = \"http://{}\"\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        upstream.addr(),
        redis.addr()
    );
    let entry = hashed("ada's", &["--consumer", "ada", "--tier", "pro"]);
    let node = |config: &str| {
        let directory = Directory::new();
        directory.write("keys.toml", &entry);
        Gateway::start_in(directory, config)
    };
    let nodes: Vec<Gateway> = (0..3).map(|_| node(&config)).collect();
    for node in &nodes {
        eventually("it is connected", || (node.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    }
    let ask = |client: &mut Client, tokens: u64, reserved: u64| {
        let body = format!("{{\"model\":\"large\",\"max_tokens\":{reserved},\"tokens\":{tokens}}}");
        let said = client.request("POST", "/v1/chat", &["x-api-key: ada's"], &body);
        match said.status {
            200 => assert!(said.text().ends_with("data: [DONE]\n\n")),
            status => assert_eq!(status, 429, "{}", said.text()),
        }
        said.status == 200
    };
    thread::scope(|scope| {
        for number in 0..12_u64 {
            let (node, ask) = (&nodes[(number % 3) as usize], &ask);
            scope.spawn(move || {
                let (mut client, mut refused, mut seed) = (node.client(), 0, number * 7_919 + 13);
                while refused < 10 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Between half of what is reserved and a tenth more.
                    let tokens = 250 + (seed >> 33) % 300;
                    if ask(&mut client, tokens, 500) {
                        refused = 0;
                    } else {
                        refused += 1;
                        thread::sleep(Duration::from_millis(30));
                    }
                }
            });
        }
    });
    let by_others = served.load(Ordering::SeqCst);
    assert!(by_others > 95_000, "{by_others} tokens while twelve clients asked");
    // What is left is less than what is reserved for one; small requests take the rest.
    let mut client = nodes[1].client();
    while ask(&mut client, 50, 50) {}
    let spent = served.load(Ordering::SeqCst);
    assert!((99_000..=101_000).contains(&spent), "{spent} tokens of 100,000");
    for node in &nodes {
        assert!(
            node.metric("sluicegate_costs_total", &["outcome=\"known\""]) > 20.0,
            "each node had its part"
        );
    }
    // On a busy machine Redis is not always in time; nearly always it is.
    let alone = |node: &Gateway| node.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]);
    assert!(nodes.iter().map(alone).sum::<f64>() < 10.0);
}
