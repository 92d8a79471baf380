//! The keys of `[listener.*]` and `[client-ip]`.

use ::acme::config::Challenge;
use gateway::proxy::config::ForwardedHeader;
use gateway::service::config::Underscores;
use net::tls::Demand;
use net::trust::TlsVersion;

use super::KeyDefault::{Defaults, Means, Needs, Required, Value, ValueBeside};
use super::Kind::{Any, Bool, List, Number, Path, Secret, Size, Table, Text, Texts, Time, Words};
use super::{MS, route, sections, words};

pub const DEMANDS: [(&str, Demand); 2] = [("ask", Demand::Ask), ("require", Demand::Require)];
/// The values of `sni`: whether a name must be that of the hello.
pub const SNI: [(&str, bool); 2] = [("strict", true), ("any", false)];
pub const UNDERSCORES: [(&str, Underscores); 2] =
    [("refuse", Underscores::Refuse), ("keep", Underscores::Keep)];
/// The values of `min-version`, also of an upstream.
pub const TLS_VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
pub const CHALLENGES: [(&str, Challenge); 2] =
    [("http-01", Challenge::Http01), ("tls-alpn-01", Challenge::TlsAlpn01)];
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
    LISTENER = "[listener.<name>]", "listener" {
        "bind": Text, Needs("a listener needs `bind`", "write `bind = \"127.0.0.1:8080\"`");
        "mode": Text, ValueBeside(&[], "\"0660\"");
        "owner": Text, Means("the gateway's own");
        "group": Text, Means("the gateway's own");
        "http": Texts, Value("[\"h2\", \"http/1.1\"]");
        "certs": Any(&[Table(&ORDERED), Table(&PAIR), List(&Any(&[Table(&ORDERED), Table(&PAIR)]))]);
        "sni": Words(|| words(&SNI)), Value("strict");
        "underscores": Words(|| words(&UNDERSCORES)), Value("refuse");
        "early-hints": Bool, Value("false");
        "proxy-protocol": Table(&PROXY_PROTOCOL);
        "min-version": Words(|| words(&TLS_VERSIONS)), ValueBeside(&["certs"], "\"1.2\"");
        "ciphers": Texts, Means("all that are supported");
        "client-ca": Path;
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "require");
        "client-crl": Path;
        "allow": Texts, Means("all");
        "deny": Texts;
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        "reuse-port": Bool, Value("false");
        "max-connections": Number(1, CONNECTIONS_MAX), Value("50000");
        "max-connections-per-ip": Number(1, CONNECTIONS_MAX), Means("`50000`, or `max-connections` if less");
        "response-headers": Table(&route::CHANGES);
        "timeouts": Table(&TIMEOUTS), Defaults;
        "max": Table(&SIZES), Defaults;
    }
    PAIR = "a pair of `certs`", "listener.certs" {
        "cert": Path, Needs("a pair of `certs` needs `cert`", "write a PEM file: `cert = \"certs/api.pem\"`");
        "key": Path, Needs("a pair of `certs` needs `key`", "write its private key too: `key = \"certs/api.key\"`");
        "self-signed": Bool, Value("false");
    }
    ORDERED = "a pair of `certs`", "listener.certs acme" {
        "acme": Text, Required;
        "names": Texts, Needs(
            "a certificate from `acme` needs `names`",
            "write the names that clients use, for example `names = [\"api.example.com\"]`",
        );
        "email": Text;
        "agree": Bool, Required;
        "ca": Path, Means("the system's");
        "challenge": Words(|| words(&CHALLENGES)), Means("what the listeners allow");
        "state": Path, Value("/var/lib/sluicegate");
        "secret": Secret;
    }
    REDIRECT = "`redirect`", "listener.redirect" {
        "to": Text, Needs("a redirect needs `to`", "write `{ to = \"https\", status = 301 }`");
        "status": Number(300, 399), Value("308");
    }
    PROXY_PROTOCOL = "`proxy-protocol`", "listener.proxy-protocol" {
        "from": Texts, Needs(
            "`proxy-protocol` needs `from`",
            "name the proxies that speak it, for example `from = [\"10.0.0.0/8\"]`",
        );
    }
    TIMEOUTS = "`timeouts`", "listener.timeouts" {
        "handshake": Time(MS), Value("5s");
        "header": Time(MS), Value("5s");
        "idle": Time(MS), Value("60s");
        "body-stall": Time(MS), Value("30s");
    }
    SIZES = "`max`", "listener.max" {
        "header-bytes": Size(1024, HEADER_BYTES_MAX), Value("32KiB");
        "headers": Number(1, HEADERS_MAX), Value("100");
        "uri-bytes": Size(64, URI_BYTES_MAX), Value("8KiB");
        "body": Size(0, BODY_BYTES_MAX), Value("10MiB");
        "streams": Number(1, STREAMS_MAX), Value("100");
    }
    CLIENT_IP = "[client-ip]", "client-ip" {
        "trust": Texts, Value("[]");
        "header": Words(|| words(&FORWARDED)), Value("x-forwarded-for");
        "ipv6-prefix": Number(1, 128), Value("64");
        "nat64": Texts, Value("[]");
    }
}
