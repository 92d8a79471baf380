//! The keys of `[upstream.*]`.

use std::time::Duration;

use ::upstream::config::{Balance, HostHeader, HttpVersion, SameSite};

use super::KeyDefault::{Defaults, Means, Needs, Value, ValueBeside};
use super::Kind::{
    Any, Bool, List, Number, Path, Pattern, Secret, Share, Size, Table, Text, Texts, Time, TimeOrOff, Words,
};
use super::{MS, SECOND, sections, words};

/// The words of `balance`; a dimension follows `hash:`.
pub const BALANCES: [(&str, Balance); 3] =
    [("p2c", Balance::P2c), ("round-robin", Balance::RoundRobin), ("least-requests", Balance::LeastRequests)];
pub const VERSIONS: [(&str, HttpVersion); 2] = [("h1", HttpVersion::H1), ("h2", HttpVersion::H2)];
pub const HOSTS: [(&str, HostHeader); 2] = [("client", HostHeader::Client), ("server", HostHeader::Server)];
/// The values of `same-site`.
pub const SITES: [(&str, SameSite); 3] =
    [("lax", SameSite::Lax), ("strict", SameSite::Strict), ("none", SameSite::None)];
const GATHER_BYTES_MAX: u64 = 1 << 20;
const RATE_MAX: u64 = 1 << 30;
/// The most a weight may be.
pub const WEIGHT_MAX: u64 = 1_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
const IN_A_ROW_MAX: u64 = 1_000;
/// The shortest interval, because servers are looked at four times a second: more often they cannot be compared.
const EVERY_MIN: Duration = Duration::from_millis(250);
const REQUESTS_MAX: u64 = 1_000_000;
/// How many times as long as the others' a server's answers may take.
const TIMES_MAX: u64 = 1_000;

sections! {
    UPSTREAM = "[upstream.<name>]" {
        /// `"http://host:port"`, `"https://host"`, `"unix:/run/app.sock"` (HTTP without TLS over a Unix socket), or `{
        /// url = "…", weight = 2 }`
        "servers": Any(&[Text, List(&Any(&[Text, Table(&SERVER)]))]),
            Needs("an upstream needs `servers`", "write `servers = [\"http://127.0.0.1:3000\"]`");
        /// how servers are [picked](#load-balancing)
        "balance": Any(&[Words(|| words(&BALANCES)), Pattern("^hash:.+$")]), Value("p2c");
        /// keeps a client at its server [by a cookie](sticky-sessions.md#session-cookies)
        "sticky": Table(&STICKY);
        /// `"h2"`, which gRPC needs: prior knowledge for `http`, ALPN for `https`
        "http": Words(|| words(&VERSIONS)), Value("h1");
        /// for `https` servers: how they are verified, and which client certificate the gateway presents
        "tls": Table(&TLS), Means("the system's CAs");
        /// [health checks](health.md#health)
        "health": Table(&HEALTH);
        /// [outlier detection](health.md#eject): the gateway ejects servers whose requests fail
        "eject": Table(&EJECT);
        /// how long a server that returns, or is new among others, takes to grow from a tenth of its share to all of it
        "slow-start": Time(MS);
        /// if fewer servers than this are usable, all are used, and the log says so. `"0%"`: only if none is usable
        "panic": Share, Value("25%");
        /// the `Host` header: `"client"` forwards the client's, `"server"` sends the server's own name. A request
        /// without a `Host`, as HTTP/1.0 allows, gets the server's, unless the route sets the header
        "host": Words(|| words(&HOSTS)), Value("client");
        /// [connection pools](upstream-connections.md#connections)
        "connections": Table(&CONNECTIONS), Defaults;
        /// how long servers [may take](upstream-connections.md#timeouts)
        "timeouts": Table(&TIMEOUTS), Defaults;
        /// when a request is [retried](retry.md)
        "retry": Table(&RETRY), Defaults;
        /// how [slow request bodies](uploads.md) are handled
        "uploads": Table(&UPLOADS), Defaults;
    }
    SERVER = "a server" {
        /// the server's URL
        "url": Text, Needs("a server needs `url`", "write `{ url = \"http://127.0.0.1:3000\", weight = 2 }`");
        /// its share of the requests
        "weight": Number(1, WEIGHT_MAX), Value("1");
    }
    TLS = "`tls`" {
        /// a PEM file with the CAs that verify the server
        "ca": Path, Means("the system's");
        /// a PEM file with the client certificate to present if the server asks for one, and its chain
        "cert": Path;
        /// a PEM file with its private key
        "key": Path;
        /// the name that the handshake sends and the server's certificate must match
        "sni": Text, Means("the URL's host");
        /// the oldest version of TLS that is accepted
        "min-version": Words(|| words(&super::listener::TLS_VERSIONS)), Value("\"1.2\"");
        /// `false` accepts any certificate, so that anyone on the network path can pose as the server; draws a warning
        "verify": Bool, Value("true");
    }
    HEALTH = "`health`" {
        /// a GET of this path, over the protocol in `http`
        "path": Text;
        /// with `path`: statuses of a healthy server: `200`, `"2xx"`, `"200-399"`
        "status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]), ValueBeside(&["path"], "200-399");
        /// with `path`: text that the first 64 KiB of the response must contain. Without the key, no body is read
        "body": Text;
        /// a check that only opens a connection, with TLS to an `https` server. Without TLS, a process that hangs still
        /// passes
        "tcp": Bool;
        /// a call of `grpc.health.v1.Health/Check`, for a service if one is named. The status must be SERVING. Needs
        /// `http = "h2"`
        "grpc": Any(&[Bool, Text]);
        /// time between checks, ±10 %
        "every": Time(MS), Value("5s");
        /// the longest time that a check may take, including the connection
        "timeout": Time(MS), Value("1s");
        /// number of failed checks in a row after which a server is unhealthy
        "unhealthy-after": Number(1, IN_A_ROW_MAX), Value("3");
        /// number of successful checks in a row after which an unhealthy server is healthy again
        "healthy-after": Number(1, IN_A_ROW_MAX), Value("2");
        /// the port to check. Not for servers on Unix sockets
        "port": Number(1, u16::MAX as u64), Means("the server's");
    }
    EJECT = "`eject`" {
        /// number of failures in a row, over all workers, that ejects a server. A failure is a connection that fails,
        /// breaks or carries no HTTP; a response or a body that does not begin in time; a status of 5xx; or a gRPC call
        /// that ends without a response body and with UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE or DATA_LOSS
        "after": Number(1, IN_A_ROW_MAX), Value("5");
        /// length of the first ejection. The second lasts twice as long, the third three times, up to ten times. Every
        /// `for` that passes without an ejection makes the next ejection one `for` shorter
        "for": Time(MS), Value("30s");
        /// largest share of servers that may be ejected at once, rounded down, so a single server is never ejected
        "most": Share, Value("50%");
        /// ejects a server whose success rate is this many percentage points below the median of the others, and by
        /// more than chance (three standard deviations)
        "success-rate": Share;
        /// ejects a server whose good responses take this many times as long to begin as the median of the others
        "latency": Number(2, TIMES_MAX);
        /// the interval at which servers are compared by `success-rate` and `latency`, each time over the responses
        /// since the last comparison
        "every": Time(EVERY_MIN), ValueBeside(&["success-rate", "latency"], "10s");
        /// minimum number of requests in an interval for a server to be compared; at least three servers must reach
        /// this number
        "requests": Number(1, REQUESTS_MAX), ValueBeside(&["success-rate", "latency"], "100");
    }
    CONNECTIONS = "`connections`" {
        /// maximum number of open connections to each server, over all workers, including WebSocket and other switched
        /// connections
        "max": Number(1, CONNECTIONS_MAX), Value("1024");
        /// maximum number of idle connections to each server, over all workers
        "idle": Number(0, CONNECTIONS_MAX), Value("256");
        /// an idle connection (over HTTP/2: one without a request) is closed after this time. If a server says
        /// `Keep-Alive: timeout=5`, the connection gets no new request after 4 s: one second earlier or, for a timeout
        /// below two seconds, after half of it
        "idle-timeout": Time(MS), Value("4s");
        /// every connection is closed after this time, ±10 %
        "max-age": Time(MS), Value("10m");
        /// how long a request waits for a free connection before it gets 503
        "wait": Time(MS), Value("1s");
        /// maximum number of requests that may wait, in each worker
        "waiting": Number(0, CONNECTIONS_MAX), Value("1024");
        /// maximum number of concurrent requests on an HTTP/2 connection, or the server's own maximum if that is lower
        "streams": Number(1, CONNECTIONS_MAX), Value("100");
    }
    TIMEOUTS = "`timeouts`" {
        /// TCP, TLS and HTTP handshake; over HTTP/2 until the server's SETTINGS have arrived
        "connect": Time(MS), Value("1s");
        /// like `response`, for a first attempt that may be retried: see `"timeout"` in [`retry.on`](retry.md#retry)
        "try": Time(MS), Means("the same as `response`");
        /// from the end of the request until the response begins. While the body is being sent: how long the server may
        /// accept nothing
        "response": Time(MS), Value("15s");
        /// how long a response body may make no progress. The gateway may notice up to a tenth late. `"off"`: no limit
        "stall": TimeOrOff(MS), Value("60s");
        /// the whole request, from its headers to the last byte of the response
        "total": Time(MS);
    }
    UPLOADS = "`uploads`" {
        /// how much of a request body is read before it takes a connection. `0`: nothing
        "gather": Size(0, GATHER_BYTES_MAX), Value("16KiB");
        /// lowest rate of a body that holds a connection, in bytes per second over any five seconds. A slower request
        /// gets 408. Time in which the server accepts nothing does not count. `0`: no limit
        "least-rate": Size(0, RATE_MAX), Value("1KiB");
    }
    RETRY = "`retry`" {
        /// retries per request
        "times": Number(0, 1), Value("1");
        /// `"connect"`: no connection. `"reset-before-bytes"`: the connection broke before the first byte of a response
        /// or of an interim response (`100 Continue`). `"timeout"`: no response within `timeouts.try`, or within
        /// `response` if `try` is not set. Or response statuses
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        /// retries as a share of the last ten seconds' requests, in each worker. A few retries are always allowed,
        /// unless the budget is `"0%"`
        "budget": Share, Value("20%");
        /// if no response has begun after this time, another server gets the request, too ([hedging](retry.md#hedging))
        "hedge-after": Time(MS);
    }
    STICKY = "`sticky`" {
        /// the name of the cookie
        "cookie": Text, Needs("`sticky` needs the name of a cookie", "write `cookie = \"server\"`");
        /// the secret that signs the cookie, at least 32 bytes. Keep it out of the file: `"${NAME}"` or
        /// `"${file:/path}"`
        "secret": Secret, Needs(
            "`sticky` needs `secret`, which signs the cookie",
            "keep it out of the file: `secret = \"${NAME}\"` or `\"${file:/path}\"`",
        );
        /// how long clients keep the cookie; without the key, until the browser is closed
        "max-age": Time(SECOND);
        /// the paths for which clients send the cookie
        "path": Text, Value("/");
        /// whether clients send the cookie with requests from other sites; `"none"` implies `Secure`
        "same-site": Words(|| words(&SITES)), Value("lax");
        /// must be `true` if TLS is terminated in front of the gateway: the cookie is then `Secure` on every connection
        "secure": Bool, Means("over TLS");
    }
}
