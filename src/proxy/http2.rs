//! What only an HTTP/2 connection needs beside hyper: deadlines that its frames tell of, and the story of what was
//! refused before anybody here read it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use http::Version;

use super::config::Timeouts;
use super::connection::{Conn, Expiry};
use super::exchange::Reason;
use super::framing::Fault;
use super::io::{Gauge, Stream};
use super::{farewell, reply};
use crate::clock;
use crate::frames::{Excess, Meter, Refused};

/// Deadlines of a head that does not end, and of answers that are not taken. Looked at now and then, like all of a
/// connection's.
#[derive(Debug)]
pub(super) struct FrameWatch {
    meter: Rc<RefCell<Meter>>,
    /// How much of our bodies the client had taken, and when.
    taken: u64,
    taken_at: Instant,
    /// The number of the head that is under way, and since when.
    head: u64,
    head_at: Instant,
}

impl FrameWatch {
    pub(super) fn new(meter: &Rc<RefCell<Meter>>) -> FrameWatch {
        let now = clock::instant();
        FrameWatch { meter: Rc::clone(meter), taken: 0, taken_at: now, head: 0, head_at: now }
    }

    /// Which of the two has passed.
    pub(super) fn look(&mut self, gauge: &Gauge, timeouts: &Timeouts, now: Instant) -> Option<Expiry> {
        let meter = self.meter.borrow();
        // A window that opens byte by byte holds as much of us as one that stays shut, and answers to PING go out
        // whatever the windows are.
        if !gauge.is_reading_owed() || meter.data_sent() - self.taken >= DRAIN_BYTES_MIN {
            (self.taken, self.taken_at) = (meter.data_sent(), now);
        }
        let (head, is_under_way) = meter.head();
        if !is_under_way || head != self.head {
            (self.head, self.head_at) = (head, now);
        }
        if now.saturating_duration_since(self.taken_at) >= timeouts.body_stall {
            return Some(Expiry::Stall);
        }
        (now.saturating_duration_since(self.head_at) >= timeouts.header).then_some(Expiry::Head)
    }
}

impl Conn {
    /// Closes on a client that does not begin with the preface where only HTTP/2 is spoken; a GOAWAY would not reach it
    /// (RFC 9113 section 3.4).
    pub(super) async fn refuse_preface(&self, mut stream: Stream) {
        self.refuse_unread(Version::HTTP_2, Reason::Malformed, reply::BAD_REQUEST_STATUS);
        farewell::say(&mut stream, &[]).await;
        farewell::linger(&stream).await;
    }

    /// Whether a first line that names no HTTP may as well be HTTP/2's preface gone wrong: whoever sends that would
    /// read an answer of HTTP/1.1 as frames.
    pub(super) fn may_be_preface(&self, fault: Fault) -> bool {
        let is_sniffed = self.tls.is_empty() && self.config.http2;
        fault == Fault::OtherProtocol && is_sniffed && self.gauge.last_status() == 0
    }

    /// hyper gave the connection up: a peer that broke the protocol or a budget is refused, one that left is not.
    pub(super) fn broken_http2(&self, error: &dyn std::fmt::Display, meter: &Meter) {
        let reason = match (meter.excess(), meter.goaway_sent()) {
            (Some(Excess::RapidReset), _) => Reason::RapidReset,
            // hyper's own bound, for requests it has not handed over yet.
            (None, Some(ENHANCE_YOUR_CALM)) if meter.taken_back() >= UNREAD_RESETS_MAX as u64 => {
                Reason::RapidReset
            }
            (Some(Excess::PseudoTrailers), _) => Reason::Malformed,
            (Some(_), _) | (None, Some(ENHANCE_YOUR_CALM)) => Reason::FrameFlood,
            (None, Some(code)) if code != NO_ERROR => Reason::Malformed,
            (None, _) => {
                tracing::debug!(peer = %self.peer.ip, %error, "HTTP/2 connection");
                return;
            }
        };
        let excess = meter.excess().map_or("", Excess::name);
        tracing::debug!(peer = %self.peer.ip, %error, excess, "HTTP/2 connection closed");
        self.refuse_unread(Version::HTTP_2, reason, reply::BAD_REQUEST_STATUS);
    }

    /// Tells of a request over HTTP/2 that hyper refused without us.
    pub(super) fn tell_refused(&self, refused: Refused) {
        match refused {
            Refused::Reset(REFUSED_STREAM) => {
                self.refuse_unread(Version::HTTP_2, Reason::TooManyStreams, reply::UNAVAILABLE_STATUS)
            }
            Refused::Reset(_) => {
                self.refuse_unread(Version::HTTP_2, Reason::Malformed, reply::BAD_REQUEST_STATUS)
            }
            Refused::TooLarge => {
                self.refuse_unread(Version::HTTP_2, Reason::HeadersTooLarge, reply::HEADERS_TOO_LARGE_STATUS)
            }
        };
    }
}

/// What a client takes at least of what waits for it, within the deadline of a stalled body.
const DRAIN_BYTES_MIN: u64 = 16 * 1024;
/// Requests a client may take back before they are read (hyper's default).
pub(super) const UNREAD_RESETS_MAX: usize = 20;
/// Error codes of HTTP/2 (RFC 9113 section 7).
const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
