//! The bounds of the admin listener: connections, sizes and deadlines. They cannot be configured, because no operator
//! needs to; tests use shorter ones.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct AdminLimits {
    /// Connections without a page: silent and idle ones, probes, refusals. Beyond this the quietest is closed.
    pub waiting_max: usize,
    pub pages_max: usize,
    /// Clients that watch `/v1/live` at once, beside those pages.
    pub streams_max: usize,
    /// From accepting a connection to the last byte of its first head; of a later head from its own first byte on.
    pub head: Duration,
    /// From the last byte of a head to the last byte of the request's body, for operations that read one.
    pub body: Duration,
    /// From the last byte of a head to the last byte of the answer.
    pub answer: Duration,
    /// For which the reader of `/v1/live` may take nothing.
    pub stall: Duration,
    /// From an answer to the first byte of the next head. Scrapers come once a minute.
    pub idle: Duration,
    /// From the last byte of the last answer to the end of what the client still sends.
    pub linger: Duration,
    /// How long answers in flight get when the listener ends.
    pub grace: Duration,
}

impl Default for AdminLimits {
    fn default() -> AdminLimits {
        AdminLimits {
            waiting_max: 256,
            pages_max: 64,
            streams_max: 256,
            head: Duration::from_secs(2),
            body: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            linger: Duration::from_secs(1),
            grace: Duration::from_secs(1),
        }
    }
}

pub(super) const HEADERS_MAX: usize = 64;
/// A request's head, and what hyper buffers of an answer, bytes.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// What a client may still send while its connection closes, bytes.
pub(super) const LINGER_BYTES_MAX: usize = 1024 * 1024;
