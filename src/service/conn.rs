//! The facts of one client's connection: what its requests share, and what the server and the requests tell each other
//! through it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;

use super::activity::Activity;
use super::config;
use super::drain::Drain;
use super::reason::Reason;
use crate::auth::mtls::Certificate;
use crate::upstream::http1::Upgraded;

/// What the requests of one connection share.
pub struct Conn {
    /// The listener's configuration when it came.
    pub config: Arc<config::Listener>,
    /// Whom its other end speaks for: itself, or the client that the PROXY protocol announced.
    pub peer: Peer,
    /// The address it comes from, an IPv4-mapped one as IPv4.
    pub tcp_peer: IpAddr,
    /// Which TLS is spoken; empty in the clear.
    pub tls: &'static str,
    /// The name the client asked for in its TLS hello; empty if it named none.
    pub sni: Box<str>,
    /// The certificate the client showed; `None` if it showed none.
    pub certificate: Option<Box<Certificate>>,
    /// What it is doing.
    pub activity: Rc<Activity>,
    /// The drain of its worker.
    pub drain: Rc<Drain>,
    /// Set when a deadline takes the connection down under its requests.
    pub stalled: Cell<bool>,
    /// Requests over HTTP/2 that were reset because of what their client did, and have not ended yet.
    pub broken: Cell<u32>,
    /// Set when no more requests are wanted over HTTP/2.
    pub leaving: Cell<bool>,
    /// The other side of a switched protocol, once its answer is on the way.
    pub switched: RefCell<Option<Switched>>,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Conn").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// An address that forwarding fields name, written once a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address, an IPv4-mapped one as IPv4.
    pub ip: IpAddr,
    /// The same as text.
    pub text: HeaderValue,
}

impl Peer {
    /// The peer at this address.
    pub fn new(ip: IpAddr) -> Peer {
        let ip = ip.to_canonical();
        let text = HeaderValue::from_str(&ip.to_string()).unwrap_or(HeaderValue::from_static(""));
        Peer { ip, text }
    }
}

/// The upstream's side of a switched protocol, waiting for the client's.
pub struct Switched {
    /// The connection to the server.
    pub upstream: Upgraded,
    /// Whether frames of WebSocket pass.
    pub is_websocket: bool,
    /// The request that switched, which ends with the tunnel.
    pub request: Box<dyn SwitchedRequest>,
}

/// A request as long as bytes pass in its place.
pub trait SwitchedRequest {
    /// So many bytes came from the client, and went to it.
    fn add_bytes(&mut self, from_client: u64, to_client: u64);

    /// Both sides have ended.
    fn complete(&mut self);

    /// Something else ended the tunnel.
    fn fail(&mut self, reason: Reason);
}
