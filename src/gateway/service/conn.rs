//! The facts of one client's connection, which its requests share, and the flags by which the server and the requests
//! signal each other.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue};

use super::activity::Activity;
use super::body_rest::BodyRest;
use super::config;
use super::drain::Drain;
use super::reason::Reason;
use auth::mtls::ClientCertificate;
use net::wire::http2::{Meter, StreamId};
use upstream::http1::UpgradedStream;

/// Longer early hints are not passed on over HTTP/1.1.
const HINTS_BYTES_MAX: usize = 8 * 1024;

/// What the requests of one connection share.
#[derive(derive_more::Debug)]
#[debug("Conn({peer:?})")]
pub struct Conn {
    /// The listener's configuration when the connection was accepted.
    pub config: Arc<config::ListenerConfig>,
    /// The client that the PROXY protocol announced; without it, the other end of the socket.
    pub peer: PeerAddress,
    /// The other end of the socket; IPv4-mapped addresses as IPv4.
    pub tcp_peer: IpAddr,
    /// The TLS version; empty in the clear.
    pub tls: &'static str,
    /// The server name the client asked for; empty if it named none.
    pub sni: Box<str>,
    /// The client's certificate, if it sent one.
    pub certificate: Option<Box<ClientCertificate>>,
    pub activity: Rc<Activity>,
    /// What is left of its current request's body.
    pub rest: BodyRest,
    /// The drain of the worker that serves the connection.
    pub drain: Rc<Drain>,
    /// Set by the server before it drops requests because of a stall, so that they log that reason.
    pub stalled: Cell<bool>,
    /// Requests over HTTP/2 that were reset because the client broke the protocol, and have not ended yet: those that
    /// end next log that reason.
    pub broken: Cell<u32>,
    /// Set by a request to have the server send GOAWAY over HTTP/2.
    pub leaving: Cell<bool>,
    /// Over HTTP/2: the connection's frames, among which interim answers go.
    pub frames: OnceCell<Rc<RefCell<Meter>>>,
    /// Set by a request whose answer switches the protocol; the server takes it and runs the tunnel.
    pub switched: RefCell<Option<UpstreamTunnel>>,
}

impl Conn {
    /// Tells the client over HTTP/2 to go on with the body that it holds back (RFC 9110 section 10.1.1).
    pub fn say_continue(&self, stream: StreamId) {
        if let Some(frames) = self.frames.get() {
            frames.borrow_mut().say_continue(stream);
        }
    }

    /// Passes early hints on to the client (RFC 8297): over HTTP/2 on this stream, over HTTP/1.1 unless they are long.
    pub fn give_hints(&self, stream: Option<StreamId>, fields: &HeaderMap) {
        if let Some(stream) = stream {
            return self.frames.get().map_or((), |frames| frames.borrow_mut().give_hints(stream, fields));
        }
        let mut head = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
        for (name, value) in fields {
            head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        if head.len() <= HINTS_BYTES_MAX {
            self.activity.hints.replace(head.into());
        }
    }
}

/// An address and its text, which forwarding fields need for every request: formatted once per connection.
#[derive(Clone, Debug)]
pub struct PeerAddress {
    /// IPv4-mapped addresses as IPv4.
    pub ip: IpAddr,
    /// The address as a field's value.
    pub text: HeaderValue,
}

/// Bytes of the longest address in the text form of RFC 5952.
const LONGEST_ADDRESS: usize = 39;

impl PeerAddress {
    pub fn new(ip: IpAddr) -> PeerAddress {
        let ip = ip.to_canonical();
        // With room from the start, because `to_string` would allocate anew after each part of the address.
        let mut text = BytesMut::with_capacity(LONGEST_ADDRESS);
        let written = write!(text, "{ip}").ok();
        let text = written.and_then(|()| HeaderValue::from_maybe_shared(text.freeze()).ok());
        PeerAddress { ip, text: text.unwrap_or(HeaderValue::from_static("")) }
    }
}

/// The upstream's side of a tunnel, until the server takes it.
pub struct UpstreamTunnel {
    pub upstream: UpgradedStream,
    /// Whether the bytes are WebSocket frames: only then can a drain say goodbye.
    pub is_websocket: bool,
    /// How long it may carry nothing.
    pub idle: Duration,
    /// The request that switched the protocol. It ends with the tunnel.
    pub request: Box<dyn SwitchedRequest>,
}

/// A request whose connection has become a tunnel. A trait, because the request itself is `proxy`'s.
pub trait SwitchedRequest {
    fn add_bytes(&mut self, from_client: u64, to_client: u64);

    /// The client or the server ended the tunnel.
    fn complete(&mut self);

    /// The gateway ended the tunnel.
    fn fail(&mut self, reason: Reason);
}
