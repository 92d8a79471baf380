//! What the configuration says of listeners and of memory, parsed and resolved: nothing in it can be wrong.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::policy::access::Addresses;
use crate::tls;

/// One listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub bind: SocketAddr,
    /// HTTP/1.1 is served.
    pub http1: bool,
    /// HTTP/2 is served: by ALPN over TLS, by prior knowledge in the clear.
    pub http2: bool,
    /// Certificates; the first is the default. Empty: plain text.
    pub certs: Vec<tls::Pair>,
    /// A request has to be for the host that the TLS hello named.
    pub sni_strict: bool,
    /// What becomes of fields whose name has `_`.
    pub underscores: Underscores,
    /// Whose certificates clients show. `None`: they are not asked for any.
    pub client_auth: Option<tls::ClientAuth>,
    /// Clients that may come in.
    pub addresses: Addresses,
    /// Who says by the PROXY protocol whom a connection is for, and has to. Nobody else may.
    pub proxies: Vec<IpNet>,
    /// Every request is answered by a redirect to https on this port.
    pub redirect_https: Option<u16>,
    /// Another process may listen on the address too, and the kernel spreads connections over both.
    pub reuse_port: bool,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once from one client address (IPv6: its prefix).
    pub connections_per_ip_max: usize,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Sizes.
    pub max: Sizes,
}

/// Connections of a listener at once if its configuration does not say.
pub const CONNECTIONS_MAX_UNWRITTEN: usize = 50_000;

impl Listener {
    /// One of this name that says nothing else.
    pub fn named(name: String) -> Listener {
        Listener {
            name,
            bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            http1: true,
            http2: true,
            certs: Vec::new(),
            sni_strict: true,
            underscores: Underscores::default(),
            client_auth: None,
            addresses: Addresses::default(),
            proxies: Vec::new(),
            redirect_https: None,
            reuse_port: false,
            connections_max: CONNECTIONS_MAX_UNWRITTEN,
            connections_per_ip_max: 50_000,
            timeouts: Timeouts::default(),
            max: Sizes::default(),
        }
    }

    /// Whether a connection from there begins with a header of the PROXY protocol.
    pub fn announces(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxies.iter().any(|network| network.contains(&peer))
    }
}

/// What becomes of a request that has fields with `_` in their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// It is refused: to many a server they are the fields with `-`.
    #[default]
    Refuse,
    /// They pass.
    Keep,
}

/// Deadlines of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a head to its last.
    pub header: Duration,
    /// A connection without a request.
    pub idle: Duration,
    /// A body, or a reader of ours, that makes no progress.
    pub body_stall: Duration,
}

/// Sizes a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A head, bytes.
    pub header_bytes: usize,
    /// Fields of a head.
    pub headers: usize,
    /// The request target, bytes.
    pub uri_bytes: usize,
    /// A request body, bytes; a route may say otherwise.
    pub body_bytes: u64,
    /// HTTP/2 streams at once.
    pub streams: u32,
}

/// When the gateway gives up work to save its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overload {
    /// How much it may use.
    pub memory: Memory,
    /// Shares of it, parts per million, rising: keep-alive, requests, connections are given up from there on.
    pub marks_ppm: [u32; 3],
}

/// How much memory the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What the machine has, or the control group allows.
    Machine,
    /// So many bytes.
    Bytes(u64),
    /// All it gets: nothing is given up.
    Unbounded,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            body_stall: Duration::from_secs(30),
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            header_bytes: 32 * 1024,
            headers: 100,
            uri_bytes: 8 * 1024,
            body_bytes: 10 * 1024 * 1024,
            streams: 100,
        }
    }
}

impl Default for Overload {
    fn default() -> Self {
        Overload { memory: Memory::Machine, marks_ppm: [920_000, 950_000, 980_000] }
    }
}
