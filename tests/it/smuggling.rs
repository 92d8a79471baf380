//! Requests mutated by the hundred, through the gateway to servers that frame by themselves: each sees exactly the
//! requests that the gateway says it has forwarded, and none of those that hide in others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;

use crate::support::{Client, Gateway, Nginx, Python, eventually, get, heavy};

/// How often a target came.
type Targets = BTreeMap<String, usize>;

/// Numbers that are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Fields that attacks are made of.
const FIELDS: &[&str] = &[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding:\n chunked",
    " Transfer-Encoding: chunked",
    "X: x\nTransfer-Encoding: chunked",
    "X: x\rTransfer-Encoding: chunked",
    "transfer_encoding: chunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: CHUNKED",
    "Transfer-Encoding",
    "Transfer\u{0}-Encoding: chunked",
    "Content-Length: 0",
    "Content-Length: 1",
    "Content-Length: 40",
    "Content-Length: 400",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: 5, 5",
    "Content-Length : 5",
    "Content-Length: 05",
    "Content-Length: -1",
    "Content-Length\t: 5",
    "content_length: 5",
    "Content-Length: 5\n",
    "X: y\nContent-Length: 5",
    "Content-Length:",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding",
    "Connection: close",
    "Connection: keep-alive",
    "Expect: 100-continue",
    "Expect: x",
    "Upgrade: h2c",
    "Upgrade: websocket",
    "TE: trailers",
    "Trailer: X",
    "Host: b",
    "Host: a\nX: y",
    "X: y\r\n z",
    ": x",
    "X",
    "\u{b}X: y",
    "Keep-Alive: 5",
    "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
];

/// Lines in front of chunks.
const SIZES: &[&str] = &[
    "5",
    "05",
    "5;x=y",
    "5 ",
    " 5",
    "0x5",
    "5\n",
    "+5",
    "-5",
    "5;\n",
    "6",
    "4",
    "00000000000000000005",
    "5\r",
    "fffffffffffffffff",
];

/// One attack: a request for `/c/N`, mutated, with requests for `/hidden/N` in its body and perhaps behind it.
fn attack(number: usize, random: &mut Random) -> Vec<u8> {
    let hidden = format!("GET /hidden/{number} HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
    let (framing, body) = match random.below(4) {
        0 => (String::new(), String::new()),
        1 => (format!("Content-Length: {}\r\n", hidden.len()), hidden.clone()),
        2 => (
            "Transfer-Encoding: chunked\r\n".to_owned(),
            format!("{}\r\nhello\r\n0\r\n\r\n", random.of(SIZES)),
        ),
        _ => {
            let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
            ("Transfer-Encoding: chunked\r\n".to_owned(), chunk)
        }
    };
    let method = random.of(&["GET", "POST", "POST", "OPTIONS", "PUT"]);
    let version = random.of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2"]);
    let mut head = format!("{method} /c/{number} {version}\r\nHost: a\r\n{framing}");
    for _ in 0..random.below(3) {
        head.push_str(random.of(FIELDS));
        head.push_str("\r\n");
    }
    let mut bytes = format!("{head}\r\n{body}").into_bytes();
    for _ in 0..random.below(3) {
        let at = head.len().min(16) + random.below(bytes.len() - head.len().min(16));
        let byte = [b' ', b'\t', b'\r', b'\n', 0, 0x0b, b';', b':', b'0', b','][random.below(10)];
        match random.below(3) {
            0 => bytes.insert(at, byte),
            1 => bytes[at] = byte,
            _ => drop(bytes.remove(at)),
        }
    }
    if random.below(2) == 0 {
        bytes.extend_from_slice(hidden.as_bytes());
    }
    bytes.extend_from_slice(b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    bytes
}

/// Sends every attack on a connection of its own, and says what the gateway has forwarded: all of it, and of that what
/// was answered, because its body was whole.
fn attacked(upstream: SocketAddr, seed: u64) -> (Gateway, Targets, Targets) {
    // One worker: its lines come in order, so that the last one says that all are there.
    let gateway = Gateway::start(&format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\n\
         timeouts = {{ header = \"1s\", idle = \"1s\", body-stall = \"1s\" }}\n\
         [upstream.u]\nservers = [\"http://{upstream}\"]\ntimeouts = {{ response = \"10s\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\nupgrade = true"
    ));
    let mut random = Random(seed);
    let attacks: Vec<Vec<u8>> = (0..ATTACKS).map(|number| attack(number, &mut random)).collect();
    // A body that lacks its end is waited for until the deadline: many at once.
    thread::scope(|scope| {
        for some in attacks.chunks(ATTACKS.div_ceil(16)) {
            let addr = gateway.plain();
            scope.spawn(move || {
                for bytes in some {
                    Client::connect(addr).try_send(bytes).rest();
                }
            });
        }
    });
    assert_eq!(get(gateway.plain(), "/last").status, 200);
    gateway.logged("/last");
    let (mut forwarded, mut answered) = (Targets::new(), Targets::new());
    for line in gateway.access_log().iter().filter(|line| line["server"].is_string()) {
        let path = line["path"].as_str().expect("what was forwarded has a path");
        *forwarded.entry(path.to_owned()).or_default() += 1;
        if line["status"] == 200 {
            *answered.entry(path.to_owned()).or_default() += 1;
        }
    }
    (gateway, forwarded, answered)
}

/// The attacks must not all be refused, or nothing was tried.
fn is_worth_it(forwarded: &Targets) -> bool {
    let count: usize = forwarded.values().sum();
    (ATTACKS / 10..ATTACKS * 2).contains(&count)
}

#[test]
fn a_strict_server_sees_what_was_forwarded_and_finds_no_fault() {
    let _alone = heavy();
    let server = Python::serve("strict_server.py");
    let (gateway, forwarded, answered) = attacked(server.addr(), 0x9e37_79b9_7f4a_7c15);
    assert!(is_worth_it(&forwarded) && is_worth_it(&answered), "{forwarded:?}");
    let seen = get(server.addr(), "/seen").json();
    assert_eq!(seen["faults"].as_array().map(Vec::len), Some(0), "{}", seen["faults"]);
    let mut counted = Targets::new();
    for request in seen["requests"].as_array().expect("a list") {
        *counted.entry(request[0].as_str().expect("a target").to_owned()).or_default() += 1;
    }
    // It counts a request when its body has ended.
    assert_eq!(counted, answered);
    // The head of one whose body goes wrong at once may never have left the gateway.
    let heads = seen["heads"].as_u64().expect("a number") as usize;
    assert!(heads <= forwarded.values().sum() && heads >= answered.values().sum(), "{heads}");
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0);
}

#[test]
fn nginx_sees_what_was_forwarded() {
    let _alone = heavy();
    let nginx = Nginx::start("access_log @ROOT@seen.log; location / { return 200 ok; }");
    let (_gateway, forwarded, answered) = attacked(nginx.addr(), 0x1234_5678_9abc_def1);
    assert!(is_worth_it(&forwarded), "{forwarded:?}");
    // `"GET /c/1 HTTP/1.1"` is the sixth word and the next two.
    let counted = || {
        let mut counted = Targets::new();
        for line in nginx.read("seen.log").lines() {
            let request = line.split('"').nth(1).unwrap_or_default();
            *counted.entry(request.split(' ').nth(1).unwrap_or(request).to_owned()).or_default() += 1;
        }
        counted
    };
    eventually("nginx has written its log", || (counted().contains_key("/last")).then_some(()));
    let within =
        |few: &Targets, many: &Targets| few.iter().all(|(target, count)| many.get(target) >= Some(count));
    eventually("nginx has logged what it answered", || within(&answered, &counted()).then_some(()));
    // It logs what has lost its client within the body, too, unless the head never left the gateway.
    assert!(within(&counted(), &forwarded), "{:?} of {forwarded:?}", counted());
}

/// How many attacks there are.
const ATTACKS: usize = 600;
