//! What one line of an access log tells of a request.

use std::net::IpAddr;

use http::{HeaderMap, Method};

use base::identity::Identity;

/// A request as its line tells it. What the line does not have is absent, and never guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it began, nanoseconds since 1970.
    pub began_ns: u64,
    /// How long it took, nanoseconds; 0 if the line does not say.
    pub lasted_ns: u64,
    /// Whether the line says how long it took.
    pub has_duration: bool,
    /// The name of the listener that took it; empty if the line has none.
    pub listener: Box<str>,
    pub client: Option<Client>,
    pub method: Method,
    /// The authority that it was sent to, as it came; empty if the line has none.
    pub host: Box<str>,
    /// Its path as it came, with the query, whose values may be masked with `*`.
    pub target: Box<str>,
    /// Who sent it. The line's consumer, tenant and tier; lines have no claims.
    pub identity: Identity,
    /// Whether authentication did not recognise its client.
    pub is_unrecognised: bool,
    /// The header fields that the line has.
    pub headers: HeaderMap,
    /// The status it was answered with.
    pub status: u16,
    pub bytes_in: u64,
    /// Bytes of its answer's body.
    pub bytes_out: u64,
    /// Whether it was refused before limits were asked, whatever those are: its head or body is none that is served.
    pub was_refused_before_limits: bool,
    /// Whether limits refused it, if the line tells.
    pub was_denied: Option<bool>,
}

/// The address that a line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The client itself, past trusted hops.
    Found {
        /// Its address.
        ip: IpAddr,
        /// Whether a trusted hop has named it.
        by_hop: bool,
    },
    /// The other side of the connection, which may be a trusted hop.
    Peer(IpAddr),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Request(Box<Request>),
    /// A line of the log that is about no request: a handshake that failed, bytes that were no HTTP.
    NoRequest,
}

/// Why a line is none of its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLine {
    /// Nor is any line of its log before it, or close behind it, one of a format that is read.
    #[error("its format is unknown")]
    Format,
    #[error("it does not have the format of the log")]
    Form,
    /// Its time cannot be read, or is before 1970 or after 2261.
    #[error("its time is invalid")]
    Time,
    /// It is longer than a line may be.
    #[error("it is longer than {} KiB", LINE_BYTES_MAX / 1024)]
    Long,
}

/// The longest line that is read, bytes. The gateway's own longest line fits.
pub const LINE_BYTES_MAX: usize = 256 * 1024;
