//! [`AccessEntry`]: one line of the access log as plain values, filled by the data plane when a request is over.

use std::net::IpAddr;
use std::time::Duration;

use http::HeaderValue;

use super::{LoggedField, QueryDetail};
use crate::trace::TraceIds;

/// One request. An empty text or a `None` leaves its field out of the line.
///
/// Bytes (`&[u8]`) are as the client sent them; the line escapes and clips them.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessEntry<'a> {
    /// When the request ended, since the Unix epoch.
    pub time: Duration,
    /// The request id: the client's if it is trusted, otherwise generated here.
    pub request_id: &'a [u8],
    /// The trace that it is a part of.
    pub trace: Option<TraceIds>,
    pub node: &'a str,
    pub listener: &'a str,
    /// The client's address, past trusted hops and the PROXY protocol.
    pub client: Option<IpAddr>,
    /// The other end of the connection; lines leave it out if it is the client itself.
    pub peer: Option<IpAddr>,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'static str,
    /// `TLSv1.3`; empty over plain text.
    pub tls: &'static str,
    /// The server name in the client's TLS hello.
    pub sni: &'a [u8],
    pub method: &'a [u8],
    /// The host the request is for, from its target or `Host`.
    pub host: &'a [u8],
    /// The path as the client sent it.
    pub path: &'a [u8],
    /// The query without its `?`; `None` if there is no `?`.
    pub query: Option<&'a [u8]>,
    /// How much of the query is shown.
    pub shown_query: QueryDetail,
    pub route: &'a str,
    pub consumer: &'a str,
    pub tenant: &'a str,
    pub tier: &'a str,
    /// Header fields that lines show, as configured.
    pub fields: &'a [LoggedField],
    /// The values of `fields`, in the same order.
    pub values: &'a [Option<HeaderValue>],
    /// Status answered; 0 if none was sent.
    pub status: u16,
    /// The status of gRPC's that ended a call.
    pub grpc_status: Option<u32>,
    /// Why this gateway answered on its own or cut the answer short: one of a fixed set of codes.
    pub reason: &'static str,
    /// What exactly was wrong, if the reason leaves it open: one of a fixed set of words.
    pub cause: &'static str,
    /// What the limits decided, in a word; empty without a decision.
    pub decision: &'static str,
    /// The policy that refused, would have, or exempts; empty if none did.
    pub policy: &'a str,
    /// Where the limits were decided: `local`, `global` or `fallback`; empty without a decision.
    pub decided: &'static str,
    /// What is left of the limit that binds.
    pub left: Option<RemainingLimit>,
    pub upstream: &'a str,
    /// The upstream's server: as it is configured, and the address of a name.
    pub server: &'a str,
    /// Attempts at the upstream after the first.
    pub retries: u32,
    /// From the request's head to the last byte of the answer, microseconds; `None` if the head was never complete.
    pub total_us: Option<u64>,
    /// Part of `total_us`: from the head to the decision on its limits.
    pub decide_us: Option<u64>,
    /// Part of `total_us`: the delay that a leaky bucket imposed.
    pub delay_us: Option<u64>,
    /// Part of `total_us`: waiting for a free upstream connection.
    pub wait_us: Option<u64>,
    /// Part of `total_us`: opening an upstream connection.
    pub connect_us: Option<u64>,
    /// Part of `total_us`: from sending the request's head to receiving the answer's.
    pub first_byte_us: Option<u64>,
    /// Body bytes received from the client.
    pub bytes_in: u64,
    /// Body bytes sent to the client.
    pub bytes_out: u64,
}

impl AccessEntry<'_> {
    /// The other end of the connection, if it is not the client itself.
    pub(super) fn other_end(&self) -> Option<IpAddr> {
        self.peer.filter(|_| self.peer != self.client)
    }
}

/// The limit of the binding window, the one with the least left, and what is left of it: the numbers of the answer's
/// rate-limit fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingLimit {
    /// Units that the window admits at once.
    pub limit: u64,
    pub remaining: u64,
}
