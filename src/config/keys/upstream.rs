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
pub const SITES: [(&str, SameSite); 3] =
    [("lax", SameSite::Lax), ("strict", SameSite::Strict), ("none", SameSite::None)];
const GATHER_BYTES_MAX: u64 = 1 << 20;
const RATE_MAX: u64 = 1 << 30;
pub const WEIGHT_MAX: u64 = 1_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
const IN_A_ROW_MAX: u64 = 1_000;
/// The shortest interval, because servers are looked at four times a second: more often they cannot be compared.
const EVERY_MIN: Duration = Duration::from_millis(250);
const REQUESTS_MAX: u64 = 1_000_000;
/// How many times as long as the others' a server's answers may take.
const TIMES_MAX: u64 = 1_000;

sections! {
    UPSTREAM = "[upstream.<name>]", "upstream" {
        "servers": Any(&[Text, List(&Any(&[Text, Table(&SERVER)]))]),
            Needs("an upstream needs `servers`", "write `servers = [\"http://127.0.0.1:3000\"]`");
        "balance": Any(&[Words(|| words(&BALANCES)), Pattern("^hash:.+$")]), Value("p2c");
        "sticky": Table(&STICKY);
        "http": Words(|| words(&VERSIONS)), Value("h1");
        "tls": Table(&TLS), Means("the system's CAs");
        "health": Table(&HEALTH);
        "eject": Table(&EJECT);
        "slow-start": Time(MS);
        "panic": Share, Value("25%");
        "host": Words(|| words(&HOSTS)), Value("client");
        "connections": Table(&CONNECTIONS), Defaults;
        "timeouts": Table(&TIMEOUTS), Defaults;
        "retry": Table(&RETRY), Defaults;
        "uploads": Table(&UPLOADS), Defaults;
    }
    SERVER = "a server", "upstream.servers[]" {
        "url": Text, Needs("a server needs `url`", "write `{ url = \"http://127.0.0.1:3000\", weight = 2 }`");
        "weight": Number(1, WEIGHT_MAX), Value("1");
    }
    TLS = "`tls`", "upstream.tls" {
        "ca": Path, Means("the system's");
        "cert": Path;
        "key": Path;
        "sni": Text, Means("the URL's host");
        "min-version": Words(|| words(&super::listener::TLS_VERSIONS)), Value("\"1.2\"");
        "verify": Bool, Value("true");
    }
    HEALTH = "`health`", "upstream.health" {
        "path": Text;
        "status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]), ValueBeside(&["path"], "200-399");
        "body": Text;
        "tcp": Bool;
        "grpc": Any(&[Bool, Text]);
        "every": Time(MS), Value("5s");
        "timeout": Time(MS), Value("1s");
        "unhealthy-after": Number(1, IN_A_ROW_MAX), Value("3");
        "healthy-after": Number(1, IN_A_ROW_MAX), Value("2");
        "port": Number(1, u16::MAX as u64), Means("the server's");
    }
    EJECT = "`eject`", "upstream.eject" {
        "after": Number(1, IN_A_ROW_MAX), Value("5");
        "for": Time(MS), Value("30s");
        "most": Share, Value("50%");
        "success-rate": Share;
        "latency": Number(2, TIMES_MAX);
        "every": Time(EVERY_MIN), ValueBeside(&["success-rate", "latency"], "10s");
        "requests": Number(1, REQUESTS_MAX), ValueBeside(&["success-rate", "latency"], "100");
    }
    CONNECTIONS = "`connections`", "upstream.connections" {
        "max": Number(1, CONNECTIONS_MAX), Value("1024");
        "idle": Number(0, CONNECTIONS_MAX), Value("256");
        "idle-timeout": Time(MS), Value("4s");
        "max-age": Time(MS), Value("10m");
        "wait": Time(MS), Value("1s");
        "waiting": Number(0, CONNECTIONS_MAX), Value("1024");
        "streams": Number(1, CONNECTIONS_MAX), Value("100");
    }
    TIMEOUTS = "`timeouts`", "upstream.timeouts" {
        "connect": Time(MS), Value("1s");
        "try": Time(MS), Means("the same as `response`");
        "response": Time(MS), Value("15s");
        "stall": TimeOrOff(MS), Value("60s");
        "total": Time(MS);
    }
    UPLOADS = "`uploads`", "upstream.uploads" {
        "gather": Size(0, GATHER_BYTES_MAX), Value("16KiB");
        "least-rate": Size(0, RATE_MAX), Value("1KiB");
    }
    RETRY = "`retry`", "upstream.retry" {
        "times": Number(0, 1), Value("1");
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        "budget": Share, Value("20%");
        "hedge-after": Time(MS);
    }
    STICKY = "`sticky`", "upstream.sticky" {
        "cookie": Text, Needs("`sticky` needs the name of a cookie", "write `cookie = \"server\"`");
        "secret": Secret, Needs(
            "`sticky` needs `secret`, which signs the cookie",
            "keep it out of the file: `secret = \"${NAME}\"` or `\"${file:/path}\"`",
        );
        "max-age": Time(SECOND);
        "path": Text, Value("/");
        "same-site": Words(|| words(&SITES)), Value("lax");
        "secure": Bool, Means("over TLS");
    }
}
