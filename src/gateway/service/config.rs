//! The settings of listeners and of overload, parsed and resolved: nothing in them can be invalid. `config` fills
//! them from the file.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use acme::config::Challenge;
use base::identity::NO_ADDRESS;
use net::listening::Bind;
use net::tls;
use net::unix_socket::Rights;
use policy::access::AddressRules;
use policy::definition::HttpsRedirect;
use policy::nat64::Nat64;
use policy::response::changes::FixedChanges;

#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// Names it in metrics and logs, and finds it again at a reload.
    pub name: String,
    pub bind: Bind,
    /// Who may connect, if that is a Unix socket.
    pub rights: Rights,
    pub http1: bool,
    /// HTTP/2 is served: by ALPN over TLS, by prior knowledge in the clear.
    pub http2: bool,
    /// Certificates; the first is the default. Empty: plain text.
    pub certs: Vec<tls::CertificatePair>,
    /// Those of `certs` that are ordered by ACME.
    pub acme: Vec<acme::Config>,
    /// The versions of TLS and the cipher suites that it agrees to.
    pub protocol: tls::TlsPolicy,
    /// A request must be for the host that the TLS hello named.
    pub sni_strict: bool,
    /// What happens to fields with `_` in their names.
    pub underscores: Underscores,
    /// Whether clients over HTTP/1.1 get early hints.
    pub early_hints: bool,
    /// The authorities of client certificates. `None`: clients are not asked for one.
    pub client_auth: Option<tls::ClientAuth>,
    /// The clients that may connect, by their addresses.
    pub addresses: AddressRules,
    /// Proxies that announce their clients by the PROXY protocol. From them a header is required, from all others it is
    /// not accepted.
    pub proxies: Vec<IpNet>,
    /// Whoever connects over a Unix socket is such a proxy, too.
    pub has_unix_proxies: bool,
    /// Every request is answered by this redirect.
    pub redirect_https: Option<HttpsRedirect>,
    /// What is done to the fields of every answer.
    pub response_headers: FixedChanges,
    /// Another process may listen on the address, too; the kernel spreads connections over both.
    pub reuse_port: bool,
    /// Connections at once; those beyond are closed.
    pub connections_max: usize,
    /// For each client address; for IPv6, each /64.
    pub connections_per_ip_max: usize,
    /// Translators whose clients count by their IPv4 addresses.
    pub nat64: Nat64,
    pub timeouts: ClientTimeouts,
    /// What its clients may send at most.
    pub max: Sizes,
}

/// The default of [`ListenerConfig::connections_max`].
pub const CONNECTIONS_MAX_UNWRITTEN: usize = 50_000;

impl ListenerConfig {
    pub fn named(name: String) -> ListenerConfig {
        ListenerConfig {
            name,
            bind: Bind::Tcp(SocketAddr::from(([127, 0, 0, 1], 8080))),
            rights: Rights { mode: 0o660, owner: None, group: None },
            http1: true,
            http2: true,
            certs: Vec::new(),
            acme: Vec::new(),
            protocol: tls::TlsPolicy::default(),
            sni_strict: true,
            underscores: Underscores::default(),
            early_hints: false,
            client_auth: None,
            addresses: AddressRules::default(),
            proxies: Vec::new(),
            has_unix_proxies: false,
            redirect_https: None,
            response_headers: FixedChanges::default(),
            reuse_port: false,
            connections_max: CONNECTIONS_MAX_UNWRITTEN,
            connections_per_ip_max: 50_000,
            nat64: Nat64::default(),
            timeouts: ClientTimeouts::default(),
            max: Sizes::default(),
        }
    }

    /// How control of the names of one of its certificates can be proved, the preferred way first.
    pub fn ways(&self, ordered: &acme::Config, listeners: &[ListenerConfig]) -> Vec<Challenge> {
        let has_plain = listeners.iter().any(|other| other.certs.is_empty() && other.http1);
        // Not where one is required, because the authority has no certificate to show.
        let insists = self.client_auth.as_ref().is_some_and(|auth| auth.demand == tls::Demand::Require);
        let possible = [(Challenge::Http01, has_plain), (Challenge::TlsAlpn01, !insists)];
        let possible = possible.into_iter().filter(|(_, is_possible)| *is_possible).map(|(way, _)| way);
        possible.filter(|way| ordered.challenge.is_none_or(|wanted| wanted == *way)).collect()
    }

    /// Whether a connection from this address begins with a PROXY protocol header.
    pub fn announces(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        if peer == NO_ADDRESS {
            return self.has_unix_proxies;
        }
        self.proxies.iter().any(|network| network.contains(&peer))
    }
}

/// What happens to a request that has fields with `_` in their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// It is refused, because many servers (all that speak CGI or WSGI) read them as the fields with `-`, so a client
    /// could slip past what the gateway removes.
    #[default]
    Refuse,
    Keep,
}

/// The deadlines of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    pub handshake: Duration,
    /// From the first byte of a head to its last; of a new connection's first head, from accept.
    pub header: Duration,
    /// For a connection without a request.
    pub idle: Duration,
    /// For a request body that makes no progress, and for an answer that the client does not read.
    pub body_stall: Duration,
}

/// What a client may send at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a head.
    pub header_bytes: usize,
    pub headers: usize,
    /// Bytes of a request target.
    pub uri_bytes: usize,
    /// The default for routes that set no limit of their own.
    pub body_bytes: u64,
    /// HTTP/2 streams at once on one connection.
    pub streams: u32,
}

/// When the gateway sheds work to save its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverloadConfig {
    /// What the marks are fractions of.
    pub memory: MemoryLimit,
    /// Fractions of `memory` in parts per million, rising. From the first on connections are not kept alive, from the
    /// second requests are refused, from the third connections are not accepted.
    pub marks_ppm: [u32; 3],
}

/// How much memory the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// As much as the machine has or the control group allows, whichever is less.
    Machine,
    Bytes(u64),
    /// No limit: no work is shed.
    Unbounded,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        ClientTimeouts {
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

impl Default for OverloadConfig {
    fn default() -> Self {
        OverloadConfig { memory: MemoryLimit::Machine, marks_ppm: [920_000, 950_000, 980_000] }
    }
}
