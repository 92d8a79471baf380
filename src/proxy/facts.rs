//! What is known of a request: plain facts of its head, of its way to an upstream, and of how it ended.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Uri, Version};

use super::request_body::Upload;
use crate::cause::Cause;
use crate::identity::Identity;
use crate::record;
use crate::service::reason::Reason;

/// What a request's head says, and who sent it.
pub struct RequestFacts {
    /// When its head had come.
    pub started: Instant,
    /// As the client sent it: the upstream gets the same.
    pub method: Method,
    /// The target, as the log shows it.
    pub uri: Uri,
    /// The client's protocol; the upstream may be spoken to in another.
    pub version: Version,
    /// Whether it is a call of gRPC, which is refused as one.
    pub is_call: bool,
    /// The authority it names; empty if it names none that can be used.
    pub authority: HeaderValue,
    /// The client it is counted and logged as.
    pub client: IpAddr,
    /// Its id, here and upstream.
    pub request_id: HeaderValue,
    /// The values of the fields that the log shows.
    pub shown: record::Values,
    /// Index of the route that takes it.
    pub route: Option<usize>,
    /// Who sent it, if authentication was asked for and knows.
    pub identity: Option<Arc<Identity>>,
}

/// A server of an upstream, by the indices of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerIndex {
    /// Among the snapshot's upstreams.
    pub upstream: usize,
    /// Among the upstream's servers.
    pub server: usize,
}

/// A request's way to an upstream: its one or two attempts.
#[derive(Debug, Default)]
pub struct Attempts {
    /// The server it went to last.
    pub server: Option<ServerIndex>,
    /// How many times it was sent again.
    pub retries: u8,
    /// Where its time went, those before the first attempt included.
    pub steps: Steps,
}

/// How long each step took, nanoseconds. 0: it was not taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// From the head to the decision on its limits.
    pub decide: u64,
    /// Waiting for its turn in a leaky bucket's queue.
    pub delay: u64,
    /// From the start until the first bytes of its body were there, if they were waited for.
    pub gather: u64,
    /// Waiting for a connection upstream to come free.
    pub wait: u64,
    /// Opening one.
    pub connect: u64,
    /// From the start to when the last try was sent: if nothing was waited for, the step before it.
    pub sent: u64,
    /// From the start to the head of the answer.
    pub answered: u64,
}

impl Steps {
    /// From the request's head sent to the answer's head.
    pub fn first_byte(&self) -> u64 {
        self.answered.saturating_sub(self.sent)
    }
}

/// How a request ends, as far as it has come.
#[derive(Debug)]
pub struct Outcome {
    /// The status that was sent, or is logged in its place.
    pub status: u16,
    /// Why it did not go well, if it did not.
    pub reason: Option<Reason>,
    /// More than any client is told of that.
    pub cause: Option<Cause>,
    /// Whether the last byte of the answer has gone to the client's connection.
    pub is_complete: bool,
    /// What its body does.
    pub upload: Option<Rc<Upload>>,
    /// Bytes of body received, beside those of `upload`.
    pub bytes_in: u64,
    /// Bytes of body sent.
    pub bytes_out: u64,
}

impl Outcome {
    /// Nothing is answered yet: ended now, the client has gone.
    pub fn unanswered() -> Outcome {
        Outcome {
            status: CLIENT_GONE_STATUS,
            reason: Some(Reason::ClientGone),
            cause: None,
            is_complete: false,
            upload: None,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// All bytes of body received.
    pub fn received_bytes(&self) -> u64 {
        self.bytes_in + self.upload.as_ref().map_or(0, |upload| upload.bytes.get())
    }
}

/// A client that went away is logged as nginx does: no such status was sent.
pub const CLIENT_GONE_STATUS: u16 = 499;
