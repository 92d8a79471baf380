//! The keys of `[listener.*]` and `[client-ip]`.

use ::acme::config::Challenge;
use gateway::proxy::config::ForwardedHeader;
use gateway::service::config::Underscores;
use net::tls::{Demand, ListenerTlsVersion};

use super::Kind::{Any, Bool, List, Number, Path, Secret, Size, Table, Text, Texts, Time, Words};
use super::Unwritten::{Means, Needs, Required, Value};
use super::{MS, route, sections, words};

/// The values of `client-cert`.
pub const DEMANDS: [(&str, Demand); 2] = [("ask", Demand::Ask), ("require", Demand::Require)];
/// The values of `sni`: whether a name must be that of the hello.
pub const SNI: [(&str, bool); 2] = [("strict", true), ("any", false)];
/// The values of `underscores`.
pub const UNDERSCORES: [(&str, Underscores); 2] =
    [("refuse", Underscores::Refuse), ("keep", Underscores::Keep)];
/// The values of `min-version`.
pub const VERSIONS: [(&str, ListenerTlsVersion); 2] =
    [("1.2", ListenerTlsVersion::Tls12), ("1.3", ListenerTlsVersion::Tls13)];
/// The values of `challenge`.
pub const CHALLENGES: [(&str, Challenge); 2] =
    [("http-01", Challenge::Http01), ("tls-alpn-01", Challenge::TlsAlpn01)];
/// The values of `header` in `[client-ip]`.
pub const FORWARDED: [(&str, ForwardedHeader); 2] =
    [("x-forwarded-for", ForwardedHeader::XForwarded), ("forwarded", ForwardedHeader::Forwarded)];
const CONNECTIONS_MAX: u64 = 10_000_000;
const HEADER_BYTES_MAX: u64 = 1 << 20;
const HEADERS_MAX: u64 = 1_000;
/// The `http` crate's own bound of a target is just below 64 KiB.
const URI_BYTES_MAX: u64 = 65_534;
/// One PiB, in effect "no limit".
pub const BODY_BYTES_MAX: u64 = 1 << 50;
const STREAMS_MAX: u64 = 100_000;

sections! {
    LISTENER = "[listener.<name>]" {
        /// address and port: `"127.0.0.1:8080"`, `"[::]:443"`. `[::]` takes IPv4 too. Port 0: any free one. Or a
        /// [Unix socket](#unix-sockets): `"unix:/run/sluicegate/edge.sock"`
        "bind": Text, Needs("a listener needs `bind`", "write `bind = \"127.0.0.1:8080\"`");
        /// rights of a Unix socket's file: who may write to it may connect
        "mode": Text, Value("\"0660\"");
        /// who a Unix socket belongs to: a name of `/etc/passwd`, or a number
        "owner": Text, Means("the gateway's own");
        /// the group of a Unix socket: a name of `/etc/group`, or a number
        "group": Text, Means("the gateway's own");
        /// what is spoken. Over TLS ALPN decides; a client that offers nothing by ALPN is spoken to in HTTP/1.1, or
        /// in HTTP/2 by prior knowledge where that is all there is
        "http": Texts, Value("[\"h2\", \"http/1.1\"]");
        /// certificates; with any, the listener speaks TLS. Chosen by SNI: the exact name, then a wildcard, then
        /// the first
        "certs": Any(&[Table(&ORDERED), Table(&PAIR), List(&Any(&[Table(&ORDERED), Table(&PAIR)]))]);
        /// over TLS: `"strict"` answers 421 to a request for another host than the hello named; browsers then open
        /// a connection for it
        "sni": Words(|| words(&SNI)), Value("strict");
        /// a request that has a field with `_` in its name: `"refuse"` answers 400, `"keep"` passes it on
        "underscores": Words(|| words(&UNDERSCORES)), Value("refuse");
        /// `{ from = ["10.0.0.0/8"] }`, with `"unix"` for a Unix socket: connections from there begin with a header
        /// of the PROXY protocol, version 1 or 2, that says whose they are; one that does not is closed
        "proxy-protocol": Table(&PROXY_PROTOCOL);
        /// the oldest version of TLS that is spoken; older ones are not there. Needs `certs`
        "min-version": Words(|| words(&VERSIONS)), Value("\"1.2\"");
        /// the cipher suites that are agreed to, by their names at IANA, the preferred first; those of both
        /// versions in one list. Needs `certs`
        "ciphers": Texts, Means("all there are");
        /// PEM, authorities whose certificates clients may show. Needs `certs`; watched like them
        "client-ca": Path;
        /// without a certificate there is no connection; `"ask"`: clients may have none. One that is shown must be
        /// good in either case
        "client-cert": Words(|| words(&DEMANDS)), Value("require");
        /// PEM, lists of revoked certificates. With it, a client whose issuer has no list in the file, or one that
        /// is past its next update, is refused; a file without any list is an error
        "client-crl": Path;
        /// clients that may come in: addresses and ranges, at most 1,000 each; `deny` wins. The client is who
        /// `[client-ip]` finds. 403, charged nowhere
        "allow": Texts, Means("all");
        /// clients that may come in: addresses and ranges, at most 1,000 each; `deny` wins. The client is who
        /// `[client-ip]` finds. 403, charged nowhere
        "deny": Texts;
        /// every request is sent to the same path and query: `"https"`, `"https:8443"` on the host it names,
        /// `"https://www.example.com{path}"` on another. With 308, or `{ to = "https", status = 301 }`. Not
        /// together with `certs`
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        /// whether another process of the same user may listen on the address too (SO_REUSEPORT), as in a rolling
        /// restart; the kernel then spreads connections over both
        "reuse-port": Bool, Value("false");
        /// at once; one more is closed as soon as it is accepted
        "max-connections": Number(1, CONNECTIONS_MAX), Value("50000");
        /// from one client address; IPv6 by /64
        "max-connections-per-ip": Number(1, CONNECTIONS_MAX), Means("`50000`, or `max-connections` where that is less");
        /// changes of every answer that the listener sends, own refusals and redirects included: `remove`, `set` and
        /// `add` as of a [route](#route), which comes after and may change them again. Values are the same in every
        /// answer, so they have no `{…}`
        "response-headers": Table(&route::CHANGES);
        /// how long clients may take
        "timeouts": Table(&TIMEOUTS);
        /// how much clients may send
        "max": Table(&SIZES);
    }
    PAIR = "a pair of `certs`" {
        /// PEM, the server's certificate first, then the chain
        "cert": Path, Needs("a pair of `certs` needs `cert`", "a PEM file, as in `certs/api.pem`");
        /// PEM, the private key
        "key": Path, Needs("a pair of `certs` needs `key`", "a PEM file, as in `certs/api.pem`");
        /// where neither file is there, a pair for `localhost`, valid for a year, is made
        "self-signed": Bool, Value("false");
    }
    ORDERED = "a pair of `certs`" {
        /// the authority's directory. Plain http only to a loopback address
        "acme": Text, Required;
        /// DNS names of the certificate, at most 100; no wildcards, which neither challenge can prove
        "names": Texts, Needs(
            "a certificate that is ordered needs `names`",
            "write the names that clients use, as in `names = [\"api.example.com\"]`",
        );
        /// whom the authority may write to
        "email": Text;
        /// you agree to the authority's terms of service
        "agree": Bool, Required;
        /// PEM, authorities that the directory's own server is verified by: for one of your own
        "ca": Path, Means("the system's");
        /// `"http-01"`: the authority asks on port 80, where a listener without `certs` must serve HTTP/1.1.
        /// `"tls-alpn-01"`: it asks on port 443; not on a listener that insists on client certificates
        "challenge": Words(|| words(&CHALLENGES)), Means("what the listeners allow");
        /// the folder for the account, the certificates and what is remembered of failures; files are for their
        /// owner only (0600) and are replaced whole
        "state": Path, Value("/var/lib/sluicegate");
        /// what the nodes of a fleet share the certificate under, through [`[redis]`](#redis): the same on all of
        /// them, as in `"${ACME_SECRET}"`. Without it each node orders for itself
        "secret": Secret;
    }
    REDIRECT = "`redirect`" {
        /// where to
        "to": Text, Needs("a redirect needs `to`", "write `{ to = \"https\", status = 301 }`");
        /// 301, 302, 303, 307 or 308
        "status": Number(300, 399), Value("308");
    }
    PROXY_PROTOCOL = "`proxy-protocol`" {
        /// the proxies that speak it: addresses and ranges, `"unix"` for whoever connects over a Unix socket
        "from": Texts, Needs(
            "`proxy-protocol` needs `from`",
            "name the proxies that speak it, as in `from = [\"10.0.0.0/8\"]`",
        );
    }
    TIMEOUTS = "`timeouts`" {
        /// TLS
        "handshake": Time(MS), Value("5s");
        /// from the first byte of a head to its last; also from accept (or handshake) to the first byte of all
        "header": Time(MS), Value("5s");
        /// a connection without a request
        "idle": Time(MS), Value("60s");
        /// a request body, or the reading of an answer, that makes no progress; over HTTP/1.1 also one that moves
        /// less than 1 KiB in this time
        "body-stall": Time(MS), Value("30s");
    }
    SIZES = "`max`" {
        /// of a head; 431 over it
        "header-bytes": Size(1024, HEADER_BYTES_MAX), Value("32KiB");
        /// fields of a head; 431 over it
        "headers": Number(1, HEADERS_MAX), Value("100");
        /// of a target; 414 over it
        "uri-bytes": Size(64, URI_BYTES_MAX), Value("8KiB");
        /// of a request's body; 413 over it. A route's `max-body` goes before it
        "body": Size(0, BODY_BYTES_MAX), Value("10MiB");
        /// HTTP/2 requests at once on a connection; one more is reset with REFUSED_STREAM
        "streams": Number(1, STREAMS_MAX), Value("100");
    }
    CLIENT_IP = "[client-ip]" {
        /// addresses and ranges of hops that may speak for a client: `["10.0.0.0/8", "fd00::/8"]`; `"unix"` for
        /// whoever connects over a Unix socket
        "trust": Texts, Value("[]");
        /// what is read from trusted hops and passed on; `"forwarded"` is that of RFC 7239
        "header": Words(|| words(&FORWARDED)), Value("x-forwarded-for");
        /// bits of an IPv6 address that the dimension `ip` counts as one client
        "ipv6-prefix": Number(1, 128), Value("64");
    }
}
