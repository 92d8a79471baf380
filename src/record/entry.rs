//! [`Entry`]: one line of the access log as plain values, filled by the data plane when a request is over.

use std::net::IpAddr;
use std::time::Duration;

use http::HeaderValue;

use super::{Field, Query};

/// One request. Texts that are empty and options that are `None` leave their field out of the line.
///
/// Bytes (`&[u8]`) come from the client as they are; the line escapes them and cuts them at a bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<'a> {
    /// When it ended, since the Unix epoch.
    pub time: Duration,
    /// Its id: the client's where that is trusted, else made here.
    pub request_id: &'a [u8],
    /// The listener's name.
    pub listener: &'a str,
    /// The client, as trusted hops and the PROXY protocol tell.
    pub client: Option<IpAddr>,
    /// The other end of the connection; left out where it is the client itself.
    pub peer: Option<IpAddr>,
    /// `HTTP/1.1`, `HTTP/2.0`.
    pub protocol: &'static str,
    /// `TLSv1.3`; empty over plain text.
    pub tls: &'static str,
    /// The name the client asked for in its TLS hello.
    pub sni: &'a [u8],
    /// Its method.
    pub method: &'a [u8],
    /// The host it asked for.
    pub host: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The query, without `?`; `None` where there is no `?`.
    pub query: Option<&'a [u8]>,
    /// How much of that is shown.
    pub shown_query: Query,
    /// The route's name.
    pub route: &'a str,
    /// Who called, as authentication knows.
    pub consumer: &'a str,
    /// For which organisation.
    pub tenant: &'a str,
    /// On which plan.
    pub tier: &'a str,
    /// Fields of the head that are shown.
    pub fields: &'a [Field],
    /// Their values.
    pub values: &'a [Option<HeaderValue>],
    /// Status answered; 0: none was sent.
    pub status: u16,
    /// Why this gateway answered itself, or cut the exchange short: a fixed code.
    pub reason: &'static str,
    /// What exactly was wrong, where the reason leaves that open: a fixed word.
    pub cause: &'static str,
    /// What the limiter said.
    pub decision: Decision<'a>,
    /// Where that was decided: `local`, `global` or `fallback`; empty where nothing was.
    pub decided: &'a str,
    /// The upstream's name.
    pub upstream: &'a str,
    /// The server's address.
    pub server: &'a str,
    /// Second tries.
    pub retries: u32,
    /// From the request's head to the last byte of the answer, microseconds; `None` where the head never came whole.
    pub total_us: Option<u64>,
    /// Of which: from the head to the decision on its limits.
    pub decide_us: Option<u64>,
    /// Of which: waiting for its turn in a queue of its limits.
    pub delay_us: Option<u64>,
    /// Of which: waiting for an upstream connection to come free.
    pub wait_us: Option<u64>,
    /// Of which: opening one.
    pub connect_us: Option<u64>,
    /// Of which: from the request's head sent to the answer's head.
    pub first_byte_us: Option<u64>,
    /// Body bytes received from the client.
    pub bytes_in: u64,
    /// Body bytes sent to the client.
    pub bytes_out: u64,
}

/// What the limiter said of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Nothing: no policy applied, or it did not come that far.
    #[default]
    None,
    /// All policies admitted it.
    Admitted,
    /// This policy refused it.
    Denied(&'a str),
    /// This policy, in shadow, would have refused it.
    ShadowDenied(&'a str),
    /// This policy keeps the client out, which did not wait when it was told to.
    Penalised(&'a str),
    /// This policy, in shadow, would keep it out.
    ShadowPenalised(&'a str),
}
