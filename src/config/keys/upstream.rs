//! The keys of `[upstream.*]`.

use std::time::Duration;

use ::upstream::config::{Balance, HostHeader, HttpVersion, SameSite};
use net::trust;

use super::Kind::{
    Any, Bool, List, Number, Path, Pattern, Secret, Share, Size, Table, Text, Texts, Time, TimeOrOff, Words,
};
use super::Unwritten::{Means, Needs, Value};
use super::{MS, SECOND, sections, words};

/// The words of `balance`; a dimension follows `hash:`.
pub const BALANCES: [(&str, Balance); 3] =
    [("p2c", Balance::P2c), ("round-robin", Balance::RoundRobin), ("least-requests", Balance::LeastRequests)];
/// The values of `http`.
pub const VERSIONS: [(&str, HttpVersion); 2] = [("h1", HttpVersion::H1), ("h2", HttpVersion::H2)];
/// The values of `host`.
pub const HOSTS: [(&str, HostHeader); 2] = [("client", HostHeader::Client), ("server", HostHeader::Server)];
/// The values of `min-version` in `tls`.
pub const TLS_VERSIONS: [(&str, trust::TrustTlsVersion); 2] =
    [("1.2", trust::TrustTlsVersion::V1_2), ("1.3", trust::TrustTlsVersion::V1_3)];
/// The values of `same-site`.
pub const SITES: [(&str, SameSite); 3] =
    [("lax", SameSite::Lax), ("strict", SameSite::Strict), ("none", SameSite::None)];
const GATHER_BYTES_MAX: u64 = 1 << 20;
const RATE_MAX: u64 = 1 << 30;
/// The most a weight may be.
pub const WEIGHT_MAX: u64 = 1_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
const IN_A_ROW_MAX: u64 = 1_000;
/// Servers are looked at four times a second; more often they cannot be compared.
const EVERY_MIN: Duration = Duration::from_millis(250);
const REQUESTS_MAX: u64 = 1_000_000;
/// How many times as long as the others' a server's answers may take.
const TIMES_MAX: u64 = 1_000;

sections! {
    UPSTREAM = "[upstream.<name>]" {
        /// `"http://host:port"`, `"https://host"`, `"unix:/run/app.sock"` (HTTP in the clear over a Unix
        /// socket), or `{ url = "…", weight = 2 }` with a weight from 1 to 1000
        "servers": Any(&[Text, List(&Any(&[Text, Table(&SERVER)]))]),
            Needs("an upstream needs `servers`", "write `servers = [\"http://127.0.0.1:3000\"]`");
        /// each server in turn, by weight, unless another, drawn at random, is less loaded: equally fast servers
        /// get the shares their weights ask for, slower ones less
        "balance": Any(&[Words(|| words(&BALANCES)), Pattern("^hash:.+$")]), Value("p2c");
        /// a client keeps its server [by a cookie](#sessions-by-a-cookie)
        "sticky": Table(&STICKY);
        /// `"h2"`, which gRPC needs: prior knowledge for `http`, ALPN for `https`
        "http": Words(|| words(&VERSIONS)), Value("h1");
        /// of `https` servers: whom they are checked by, and what we show them
        "tls": Table(&TLS), Means("the system's authorities");
        /// servers are asked whether they work
        "health": Table(&HEALTH);
        /// servers whose requests fail are left out
        "eject": Table(&EJECT);
        /// a server that comes back, or is new beside others, gets a tenth of its share at first and all of it
        /// after this time
        "slow-start": Time(MS);
        /// if fewer servers than this are usable, all are used, and the log says so: what is left would not bear
        /// the load. `"0%"`: only if none is
        "panic": Share, Value("25%");
        /// the `Host` sent: as the client sent it, or `"server"`: the server's own. So is that of a request which
        /// names none, as HTTP/1.0 may, unless its route sets one
        "host": Words(|| words(&HOSTS)), Value("client");
        /// how many connections, and for how long
        "connections": Table(&CONNECTIONS);
        /// how long servers may take
        "timeouts": Table(&TIMEOUTS);
        /// when a request is sent a second time
        "retry": Table(&RETRY);
        /// how bodies of requests come that hold a connection
        "uploads": Table(&UPLOADS);
    }
    SERVER = "a server" {
        /// where it is
        "url": Text, Needs("a server needs `url`", "write `{ url = \"http://127.0.0.1:3000\", weight = 2 }`");
        /// its share of the requests
        "weight": Number(1, WEIGHT_MAX), Value("1");
    }
    TLS = "`tls`" {
        /// PEM, the authorities that vouch for the server, instead of the system's
        "ca": Path, Means("the system's");
        /// PEM, the certificate that we show where the server asks for one, with its chain
        "cert": Path;
        /// PEM, its key
        "key": Path;
        /// the name that the hello says and the certificate must be for
        "sni": Text, Means("the URL's host");
        /// the oldest version of TLS to speak; a server that has only an older one is not used
        "min-version": Words(|| words(&TLS_VERSIONS)), Value("\"1.2\"");
        /// `false`: any certificate is accepted, and anyone on the network path can pose as the server; draws a
        /// warning
        "verify": Bool, Value("true");
    }
    HEALTH = "`health`" {
        /// a GET of this path, over the protocol that `http` says
        "path": Text;
        /// with `path`: what a server that works answers with: `200`, `"2xx"`, `"200-399"`
        "status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]), Value("200-399");
        /// with `path`: what the first 64 KiB of the answer's body must hold. Without it no body is read
        "body": Text;
        /// a connection, with TLS to an `https` server. A process that hangs still passes in the clear: its kernel
        /// accepts
        "tcp": Bool;
        /// `grpc.health.v1.Health/Check`, of this service if one is named; it must say SERVING. Needs `http = "h2"`
        "grpc": Any(&[Bool, Text]);
        /// from one check to the next, ±10 %
        "every": Time(MS), Value("5s");
        /// for the whole of a check, its connection included
        "timeout": Time(MS), Value("1s");
        /// failed checks in a row that take a server out
        "unhealthy-after": Number(1, IN_A_ROW_MAX), Value("3");
        /// good checks in a row that take it back
        "healthy-after": Number(1, IN_A_ROW_MAX), Value("2");
        /// where it is asked. Not for servers on Unix sockets
        "port": Number(1, u16::MAX as u64), Means("the server's");
    }
    EJECT = "`eject`" {
        /// failures in a row, over all workers: a connection that cannot be made, breaks or brings no HTTP, no
        /// answer in time or no body behind its head, a status of 5xx, a call of gRPC that ends without a body as
        /// UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE or DATA_LOSS
        "after": Number(1, IN_A_ROW_MAX), Value("5");
        /// how long a server is left out the first time. Each further ejection is longer by as much, up to ten
        /// times; each `for` without one makes the next shorter again
        "for": Time(MS), Value("30s");
        /// of the servers may be left out so at once, rounded down: of one server none
        "most": Share, Value("50%");
        /// a server is left out if its success rate is so many percentage points below the median of the others',
        /// and by more than chance (three standard deviations)
        "success-rate": Share;
        /// a server is left out if its good answers take so many times as long to their first byte as the median of
        /// the others', and 5 ms at least
        "latency": Number(2, TIMES_MAX);
        /// how often servers are compared by `success-rate` and `latency`, by what was answered since
        "every": Time(EVERY_MIN), Value("10s");
        /// the fewest requests since the last look that say something of a server. Three servers at least must have
        /// as many, or nobody is left out
        "requests": Number(1, REQUESTS_MAX), Value("100");
    }
    CONNECTIONS = "`connections`" {
        /// open at once to each server, over all workers; switched connections (WebSocket) are among them
        "max": Number(1, CONNECTIONS_MAX), Value("1024");
        /// kept without work to each server, over all workers
        "idle": Number(0, CONNECTIONS_MAX), Value("256");
        /// an idle one is closed after this; over HTTP/2 one without a request. Where a server says
        /// `Keep-Alive: timeout=5`, it gets no request any more a second before that, or after half of the time where
        /// that is shorter
        "idle-timeout": Time(MS), Value("4s");
        /// any is closed after this, ±10 %
        "max-age": Time(MS), Value("10m");
        /// how long a request waits for a free one; then 503
        "wait": Time(MS), Value("1s");
        /// requests that may wait, in each worker
        "waiting": Number(0, CONNECTIONS_MAX), Value("1024");
        /// requests at once on an HTTP/2 connection, or as many as the server takes
        /// (SETTINGS_MAX_CONCURRENT_STREAMS) where that is less
        "streams": Number(1, CONNECTIONS_MAX), Value("100");
    }
    TIMEOUTS = "`timeouts`" {
        /// TCP, TLS and HTTP handshake; over HTTP/2 until the server's SETTINGS have come
        "connect": Time(MS), Value("1s");
        /// as `response`, for a first try that may be sent again: see `retry.on` `"timeout"`
        "try": Time(MS), Means("the same as `response`");
        /// from the end of the request to the head of the answer; until then, how long the server may take nothing
        /// of a body
        "response": Time(MS), Value("15s");
        /// an answer's body that stands still, and the request's with it; noticed after one to two of them.
        /// `"off"`: it may
        "stall": TimeOrOff(MS), Value("60s");
        /// the whole exchange
        "total": Time(MS);
    }
    UPLOADS = "`uploads`" {
        /// so much of a request's body is read before a connection is taken for it: a body up to that size is there
        /// as a whole then. `0`: nothing
        "gather": Size(0, GATHER_BYTES_MAX), Value("16KiB");
        /// bytes a second of a body that come at least, over any five seconds, while it holds a connection; slower
        /// is 408. Time in which the server takes nothing does not count. `0`: no such bound
        "least-rate": Size(0, RATE_MAX), Value("1KiB");
    }
    RETRY = "`retry`" {
        /// second tries
        "times": Number(0, 1), Value("1");
        /// no connection; or one that broke before a byte of an answer came, be it of an interim one (`100
        /// Continue`). `"timeout"`: no head of an answer within `timeouts.try`, or `response` without it
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        /// retries at most, of the requests of the last ten seconds in each worker; a few always fit unless it is
        /// `"0%"`
        "budget": Share, Value("20%");
        /// if no head of an answer has come after this, connecting included, another server is asked as well, and
        /// the first head that comes is used
        "hedge-after": Time(MS);
    }
    STICKY = "`sticky`" {
        /// its name
        "cookie": Text, Needs("`sticky` needs the name of a cookie", "write `cookie = \"server\"`");
        /// what signs it, of 32 bytes or more (`check` warns of a shorter one); kept out of the file as `"${NAME}"`
        /// or `"${file:/path}"`
        "secret": Secret, Needs(
            "`sticky` needs `secret`, which signs the cookie",
            "keep it out of the file: `secret = \"${NAME}\"` or `\"${file:/path}\"`",
        );
        /// how long clients keep it; without it until the browser ends
        "max-age": Time(SECOND);
        /// the paths that clients send it to
        "path": Text, Value("/");
        /// whether clients send it with requests from other sites; `"none"` makes it `Secure` always
        "same-site": Words(|| words(&SITES)), Value("lax");
        /// `true` if TLS ends in front of this gateway: it is `Secure` then on every connection
        "secure": Bool, Means("over TLS");
    }
}
