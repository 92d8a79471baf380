//! The keys of `[listener.*]` and `[client-ip]`.

use ::acme::config::Challenge;
use gateway::proxy::config::ForwardedHeader;
use gateway::service::config::Underscores;
use net::tls::Demand;
use net::trust::TlsVersion;

use super::KeyDefault::{Defaults, Means, Needs, Required, Value, ValueBeside};
use super::Kind::{Any, Bool, List, Number, Path, Secret, Size, Table, Text, Texts, Time, Words};
use super::{MS, route, sections, words};

/// The values of `client-cert`.
pub const DEMANDS: [(&str, Demand); 2] = [("ask", Demand::Ask), ("require", Demand::Require)];
/// The values of `sni`: whether a name must be that of the hello.
pub const SNI: [(&str, bool); 2] = [("strict", true), ("any", false)];
pub const UNDERSCORES: [(&str, Underscores); 2] =
    [("refuse", Underscores::Refuse), ("keep", Underscores::Keep)];
/// The values of `min-version`, also of an upstream.
pub const TLS_VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
pub const CHALLENGES: [(&str, Challenge); 2] =
    [("http-01", Challenge::Http01), ("tls-alpn-01", Challenge::TlsAlpn01)];
/// The values of `header` in `[client-ip]`.
pub const FORWARDED: [(&str, ForwardedHeader); 2] =
    [("x-forwarded-for", ForwardedHeader::XForwarded), ("forwarded", ForwardedHeader::Forwarded)];
const CONNECTIONS_MAX: u64 = 10_000_000;
const HEADER_BYTES_MAX: u64 = 1 << 20;
const HEADERS_MAX: u64 = 1_000;
/// No more can be written, because the `http` crate's own bound of a target is just below 64 KiB.
const URI_BYTES_MAX: u64 = 65_534;
/// One PiB, in effect "no limit".
pub const BODY_BYTES_MAX: u64 = 1 << 50;
const STREAMS_MAX: u64 = 100_000;

sections! {
    LISTENER = "[listener.<name>]" {
        /// address and port: `"127.0.0.1:8080"`, `"[::]:443"`. `[::]` also accepts IPv4; port 0 is any free port. Or a
        /// [Unix socket](unix-sockets.md): `"unix:/run/sluicegate/edge.sock"`
        "bind": Text, Needs("a listener needs `bind`", "write `bind = \"127.0.0.1:8080\"`");
        /// permissions of a Unix socket; clients need write permission to connect. `"0660"`: owner and group
        "mode": Text, ValueBeside(&[], "\"0660\"");
        /// owner of a Unix socket: a name from `/etc/passwd`, or a number
        "owner": Text, Means("the gateway's own");
        /// group of a Unix socket: a name from `/etc/group`, or a number
        "group": Text, Means("the gateway's own");
        /// protocols. Over TLS, ALPN selects the protocol. Clients without ALPN get HTTP/1.1, or HTTP/2 if that is the
        /// only protocol
        "http": Texts, Value("[\"h2\", \"http/1.1\"]");
        /// certificates; if there are any, the listener speaks TLS. SNI selects the certificate: by exact name, by
        /// wildcard, otherwise the first
        "certs": Any(&[Table(&ORDERED), Table(&PAIR), List(&Any(&[Table(&ORDERED), Table(&PAIR)]))]);
        /// over TLS, `"strict"` answers 421 to a request for a host other than the one in the handshake
        "sni": Words(|| words(&SNI)), Value("strict");
        /// requests with `_` in a header name: `"refuse"` answers 400, `"keep"` forwards the header
        "underscores": Words(|| words(&UNDERSCORES)), Value("refuse");
        /// whether clients over HTTP/1.1 get [early hints](upstream-responses.md#early-hints), too. Some old clients take
        /// them for the response
        "early-hints": Bool, Value("false");
        /// `{ from = ["10.0.0.0/8"] }`, with `"unix"` for a Unix socket: connections from these proxies start with a
        /// header of the PROXY protocol, version 1 or 2, which names the client; a connection without the header is
        /// closed
        "proxy-protocol": Table(&PROXY_PROTOCOL);
        /// the oldest version of TLS that is accepted. Needs `certs`
        "min-version": Words(|| words(&TLS_VERSIONS)), ValueBeside(&["certs"], "\"1.2\"");
        /// cipher suites to offer, by their IANA names, the preferred first, for both versions of TLS. Needs `certs`
        "ciphers": Texts, Means("all that are supported");
        /// a PEM file with the CAs of client certificates. Needs `certs`; watched like them
        "client-ca": Path;
        /// `"ask"`: a client may connect without a certificate. If it presents one, the certificate must be valid in
        /// either case
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "require");
        /// a PEM file with revocation lists. With the key, a client is refused if the file has no current list of the
        /// client's issuer. A file that contains no list is an error
        "client-crl": Path;
        /// client addresses and ranges that are admitted, at most 1,000; `deny` wins. The client's address is
        /// determined by [`[client-ip]`](client-ip.md). Other clients get 403 and are charged to no limit
        "allow": Texts, Means("all");
        /// client addresses and ranges that are refused, at most 1,000
        "deny": Texts;
        /// redirects every request to the same path and query: `"https"` or `"https:8443"` keeps the host of the
        /// request, `"https://www.example.com{path}"` sets another. The status is 308, or as in `{ to = "https", status
        /// = 301 }`. Cannot be combined with `certs`
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        /// whether another process of the same user may listen on the address, too (SO_REUSEPORT), as in a rolling
        /// restart; the kernel then spreads connections over both
        "reuse-port": Bool, Value("false");
        /// maximum number of concurrent connections; further ones are closed as soon as they are accepted
        "max-connections": Number(1, CONNECTIONS_MAX), Value("50000");
        /// maximum number of connections from one client address; IPv6 by /64
        "max-connections-per-ip": Number(1, CONNECTIONS_MAX), Means("`50000`, or `max-connections` if less");
        /// changes to every response of the listener, including refusals and redirects: `remove`, `set` and `add`, as
        /// on a [route](route.md#how). The changes of the route are applied afterwards. Values are the same in every
        /// response, so they cannot hold `{…}`
        "response-headers": Table(&route::CHANGES);
        /// how long clients may take
        "timeouts": Table(&TIMEOUTS), Defaults;
        /// how much clients may send
        "max": Table(&SIZES), Defaults;
    }
    PAIR = "a pair of `certs`" {
        /// a PEM file, the server's certificate first, then the chain
        "cert": Path, Needs("a pair of `certs` needs `cert`", "write a PEM file: `cert = \"certs/api.pem\"`");
        /// a PEM file with the private key
        "key": Path, Needs("a pair of `certs` needs `key`", "write its private key too: `key = \"certs/api.key\"`");
        /// if neither file exists, the gateway creates a pair for `localhost`, valid for a year
        "self-signed": Bool, Value("false");
    }
    ORDERED = "a pair of `certs`" {
        /// the CA's ACME directory. Plain http only to a loopback address
        "acme": Text, Required;
        /// DNS names of the certificate, at most 100. Wildcards are errors, because neither challenge can prove them
        "names": Texts, Needs(
            "a certificate from `acme` needs `names`",
            "write the names that clients use, for example `names = [\"api.example.com\"]`",
        );
        /// a contact address for the CA
        "email": Text;
        /// must be `true`: you agree to the CA's terms of service
        "agree": Bool, Required;
        /// for a CA of your own: a PEM file with the CAs that verify the server of the directory
        "ca": Path, Means("the system's");
        /// `"http-01"`: the CA connects to port 80, where a listener without `certs` must serve HTTP/1.1.
        /// `"tls-alpn-01"`: it connects to port 443; not possible on a listener that requires client certificates
        "challenge": Words(|| words(&CHALLENGES)), Means("what the listeners allow");
        /// the directory for the account, certificates and records of failures. Only their owner can read the files
        /// (0600)
        "state": Path, Value("/var/lib/sluicegate");
        /// the secret that encrypts the certificate while the nodes of a fleet share it through [`[redis]`](redis.md),
        /// the same on all nodes: `"${ACME_SECRET}"`. Without it, each node orders its own certificate
        "secret": Secret;
    }
    REDIRECT = "`redirect`" {
        /// the target
        "to": Text, Needs("a redirect needs `to`", "write `{ to = \"https\", status = 301 }`");
        /// 301, 302, 303, 307 or 308
        "status": Number(300, 399), Value("308");
    }
    PROXY_PROTOCOL = "`proxy-protocol`" {
        /// the proxies that send the header: addresses and ranges, `"unix"` for every client of a Unix socket
        "from": Texts, Needs(
            "`proxy-protocol` needs `from`",
            "name the proxies that speak it, for example `from = [\"10.0.0.0/8\"]`",
        );
    }
    TIMEOUTS = "`timeouts`" {
        /// the TLS handshake
        "handshake": Time(MS), Value("5s");
        /// from the first byte of the request headers to the last, and from accept to the first byte of a connection
        "header": Time(MS), Value("5s");
        /// a connection without a request
        "idle": Time(MS), Value("60s");
        /// a request body, or the reading of a response, that makes no progress; over HTTP/1.1 also if it transfers
        /// less than 1 KiB in this time
        "body-stall": Time(MS), Value("30s");
    }
    SIZES = "`max`" {
        /// bytes of the request headers; beyond: 431
        "header-bytes": Size(1024, HEADER_BYTES_MAX), Value("32KiB");
        /// number of request headers; beyond: 431
        "headers": Number(1, HEADERS_MAX), Value("100");
        /// bytes of the request target; beyond: 414
        "uri-bytes": Size(64, URI_BYTES_MAX), Value("8KiB");
        /// bytes of a request body; beyond: 413. A route's `max-body` overrides it
        "body": Size(0, BODY_BYTES_MAX), Value("10MiB");
        /// concurrent HTTP/2 requests on a connection; further ones are reset with REFUSED_STREAM
        "streams": Number(1, STREAMS_MAX), Value("100");
    }
    CLIENT_IP = "[client-ip]" {
        /// proxies that may state the client's address: `["10.0.0.0/8", "fd00::/8"]`; `"unix"` for clients of a Unix
        /// socket
        "trust": Texts, Value("[]");
        /// the header that is read from trusted hops and passed on; `"forwarded"` is the header of RFC 7239
        "header": Words(|| words(&FORWARDED)), Value("x-forwarded-for");
        /// length of the IPv6 prefix that the dimension `ip` counts as one client
        "ipv6-prefix": Number(1, 128), Value("64");
        /// prefixes of NAT64 translators, in addition to `64:ff9b::/96`. A client of such a translator counts as
        /// its IPv4 address (RFC 6052)
        "nat64": Texts, Value("[]");
    }
}
