//! A gateway in the clear and under TLS before an upstream that records what reaches it, for tests of hostile clients.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use super::{Client, Directory, Gateway, Upstream, eventually, text, tls};

/// A gateway with a listener in the clear and one under TLS, and its recording upstream.
pub struct Edge {
    /// The gateway; its listeners are `plain` and `tls`.
    pub gateway: Gateway,
    /// Where `/` goes, and `/plain/` without upgrades.
    pub upstream: Upstream,
}

/// What is sent, and the status it is answered with.
pub type Case = (String, u16);

impl Edge {
    /// Before an upstream that answers 200.
    pub fn start() -> Edge {
        Edge::before(Upstream::ok())
    }

    /// Before this upstream.
    pub fn before(upstream: Upstream) -> Edge {
        let directory = Directory::new();
        tls::certify(&directory, "a", &["a.example", "localhost"]);
        let file = directory.join("a").display().to_string();
        let config = format!(
            "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
             [listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
             [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{0}\"\nupgrade = true\n\
             [[route]]\npath = \"/plain/{{*rest}}\"\nto = \"http://{0}\"",
            upstream.addr()
        );
        Edge { gateway: Gateway::start_in(directory, &config), upstream }
    }

    /// A connection to the listener `tls`, for `a.example`.
    pub fn secure(&self) -> Client<tls::Stream> {
        let addr = self.gateway.listener("tls");
        Client::over(tls::connect(addr, "a.example", &["http/1.1"]).expect("the handshake succeeds"))
    }

    /// Asserts for every case, in the clear (whole, in two pieces, byte by byte) and under TLS: the status, the closed
    /// connection, a log line with this reason, the counter, and that nothing reaches the upstream.
    pub fn refuses(&self, cases: impl IntoIterator<Item = Case>, reason: &str) {
        let mut expected: BTreeMap<u16, usize> = BTreeMap::new();
        for (bytes, status) in cases {
            let (head, tail) = bytes.as_bytes().split_at(bytes.len() / 2);
            refused(self.gateway.client(), &[bytes.as_bytes()], status);
            refused(self.gateway.client(), &[head, tail], status);
            refused(self.gateway.client(), &bytes.as_bytes().chunks(1).collect::<Vec<_>>(), status);
            refused(self.secure(), &[bytes.as_bytes()], status);
            *expected.entry(status).or_default() += 4;
        }
        assert_eq!(self.gateway.get("/last").status, 200);
        assert_eq!(self.upstream.request().line, "GET /last HTTP/1.1", "something else reached the upstream");
        let logged = || {
            let mut found: BTreeMap<u16, usize> = BTreeMap::new();
            for line in self.gateway.access_log().iter().filter(|line| line["reason"] == reason) {
                *found.entry(line["status"].as_u64().map_or(0, |status| status as u16)).or_default() += 1;
            }
            found
        };
        eventually("a line for each", || (logged() == expected).then_some(()));
        let label = format!("reason=\"{reason}\"");
        let all: usize = expected.values().sum();
        assert_eq!(self.gateway.metric("sluicegate_refused_requests_total", &[&label]), all as f64);
    }
}

/// These bytes are answered with this status alone, and the connection is closed.
pub fn refused<S: Read + Write>(mut client: Client<S>, pieces: &[&[u8]], status: u16) {
    for piece in pieces {
        client.try_send(piece);
    }
    let shown = text(&pieces.concat()[..pieces.concat().len().min(300)]);
    let answer = client.response();
    assert_eq!(answer.status, status, "{shown:?}: {}", answer.text());
    assert!(client.is_closed(), "the connection stays open after {shown:?}");
}
/// A GET with this line among its fields.
pub fn field(line: &str) -> String {
    format!("GET /outer HTTP/1.1\r\nHost: a.example\r\n{line}\r\nX-Last: 1\r\n\r\n")
}
