//! The keys of the file as a whole, and of the sections about the process.

use std::time::Duration;

use ::policy::keys::naming::Addresses;
use gateway::proxy::config::{LimitHeaders, Shown};

use super::Kind::{
    Added, Any, Bool, Elsewhere, List, Map, Number, Only, Share, Size, Table, Tagged, Text, Texts, Time,
    TimeWithin, Word, Words,
};
use super::Unwritten::{Means, Value};
use super::{MS, ZERO, admin, auth, listener, log, policy, route, sections, shared, upstream, words};

/// The values of `headers` in `[limits]`.
pub const LIMIT_HEADERS: [(&str, LimitHeaders); 4] = [
    ("ietf", LimitHeaders::Ietf),
    ("legacy", LimitHeaders::Legacy),
    ("both", LimitHeaders::Both),
    ("none", LimitHeaders::None),
];
/// The values of `header` and `request-id` in `[node]`.
pub const SHOWN: [(&str, Shown); 3] =
    [("always", Shown::Always), ("trusted", Shown::Trusted), ("never", Shown::Never)];
/// The values of `addresses` in `[privacy]`.
pub const ADDRESSES: [(&str, Addresses); 3] =
    [("whole", Addresses::Whole), ("prefix", Addresses::Prefix), ("hash", Addresses::Hash)];
/// The longest that `shutdown.upgrade` can be.
pub const UPGRADE_MAX: Duration = Duration::from_secs(3_600);
/// More threads than any machine has cores for.
const WORKERS_MAX: u64 = 1_024;
/// Less than the program itself takes, so every request would be refused.
const OVERLOAD_MEMORY_MIN: u64 = 1 << 20;
const LIMITS_MEMORY_MIN: u64 = 64 << 10;
const MEMORY_MAX: u64 = 1 << 40;

sections! {
    ROOT = "the configuration" {
        /// more files, relative to the main one; `*` and `?` are known in the name
        "include": Texts;
        /// threads that serve requests; `"auto"`: one a core the process may use
        "workers": Any(&[Number(1, WORKERS_MAX), Word("auto")]), Value("auto");
        /// where clients connect
        "listener": Map(&Table(&listener::LISTENER)), Means("plain HTTP on 127.0.0.1:8080");
        /// whose word about a client's address is taken
        "client-ip": Table(&listener::CLIENT_IP);
        /// name servers that are asked instead of the system's
        "dns": Table(&DNS);
        /// what is given up as memory runs out
        "overload": Table(&OVERLOAD);
        /// ways to authenticate clients
        "auth": Map(&Tagged(auth::KINDS));
        /// servers that requests are sent to
        "upstream": Map(&Table(&upstream::UPSTREAM));
        /// the table of limiter keys, and what clients see of limits
        "limits": Table(&LIMITS);
        /// limits of the tiers that policies share
        "tier": Map(&Table(&policy::TIER));
        /// who is counted, and how much they may
        "policy": Map(&Table(&policy::POLICY));
        /// how answers of routes are compressed that say nothing about it
        "compress": Any(&[Bool, Table(&route::COMPRESS)]), Value("false");
        /// which requests, which limits, and where to
        "route": List(&Table(&route::ROUTE));
        /// descriptors that other proxies ask about
        "rls": Map(&Table(&policy::DOMAIN));
        /// the pages for operators; `false`: none
        "admin": Any(&[Table(&admin::ADMIN), Only("false")]);
        /// the Redis through which the nodes of a fleet share their limits
        "redis": Table(&shared::REDIS);
        /// where policies, tiers and overrides that change while traffic runs are kept
        "database": Table(&shared::DATABASE);
        /// own bodies for the errors that the gateway answers itself: files, by status or class
        "errors": Map(&Texts);
        /// how the process drains
        "shutdown": Table(&SHUTDOWN);
        /// what this gateway is called among several, and whom it tells of itself
        "node": Table(&NODE);
        /// how much of clients is shown where keys are named
        "privacy": Table(&PRIVACY);
        /// the process's own log, the access log, and samples of decisions
        "log": Table(&log::LOG);
        /// which requests are traced, and where their spans go
        "trace": Table(&log::TRACE);
        "tier-table": Added(&policy::TIER_ROW);
        "peers": Elsewhere("`peers` is reserved: this version does not support it", "leave it out");
    }
    DNS = "[dns]" {
        /// name servers that are asked instead of those in /etc/resolv.conf, as in `["127.0.0.1:53"]`, at most 8;
        /// search domains are not tried then. Fixed at start
        "servers": Texts, Means("the system's");
    }
    OVERLOAD = "[overload]" {
        /// how much the process may have resident; `"auto"`: what the machine has, or its control group allows.
        /// `false`: nothing is given up
        "memory": Any(&[Size(OVERLOAD_MEMORY_MIN, MEMORY_MAX), Word("auto"), Only("false")]), Value("auto");
        /// from here on a connection ends with its answer: `Connection: close`, or GOAWAY
        "keep-alive": Share, Value("92%");
        /// from here on requests are refused with 503
        "requests": Share, Value("95%");
        /// from here on new connections are closed at once
        "connections": Share, Value("98%");
    }
    LIMITS = "[limits]" {
        /// the table of limiter keys, fixed at start; the kernel backs it as keys come. 32 bytes a slot; plan 64
        /// bytes a key, so that half of the slots stay free. Sliding logs may take an eighth of it more
        "memory": Size(LIMITS_MEMORY_MIN, MEMORY_MAX), Value("64MiB");
        /// rate-limit fields on answers: `ietf`, `legacy`, `both`, `none`
        "headers": Words(|| words(&LIMIT_HEADERS)), Value("both");
        /// whether the [keys that use most of each policy](hot-keys.md) are watched; fixed at start
        "hot-keys": Bool, Value("true");
    }
    SHUTDOWN = "[shutdown]" {
        /// how long `/readyz` says 503 before accepting stops. Answers say `Connection: close` meanwhile, and
        /// HTTP/2 connections get GOAWAY
        "ready-delay": Time(ZERO), Value("0s");
        /// how long requests in flight may take after that
        "drain": Time(ZERO), Value("30s");
        /// how long switched connections (WebSocket) go on before they are told to end; they have three seconds
        /// then, also if `drain` is over. After an upgrade as long as `drain` at least
        "drain-tunnels": Time(ZERO), Value("0s");
        /// how long the new process of an upgrade may take until it serves; then it is ended and
        /// the old one serves on
        "upgrade": TimeWithin(MS, UPGRADE_MAX, ": two processes serve for so long"), Value("1m");
    }
    NODE = "[node]" {
        /// up to 255 letters, digits, `-`, `_`, `.` and `:`. Give each node of a fleet its own: it stands in
        /// decision samples, too
        "name": Text, Means("the host's name");
        /// whose answers carry it as `X-Gateway-Node`, and as `node` in a problem+json body: those to [trusted
        /// hops](#client-ip), `"always"` everybody's, `"never"` nobody's
        "header": Words(|| words(&SHOWN)), Value("trusted");
        /// whose answers carry the id of their request as `X-Request-Id`, and refusals in their body, too: everybody's,
        /// `"trusted"` those to trusted hops, `"never"` nobody's. An upstream's own `X-Request-Id` is replaced, and
        /// removed where the client may not know the id; with `"never"` it passes. A route's `response-headers` may
        /// change the field
        "request-id": Words(|| words(&SHOWN)), Value("always");
    }
    PRIVACY = "[privacy]" {
        /// `"prefix"`: the network, 24 bits of IPv4 and 48 of IPv6. `"hash"`: one word for one address, made with
        /// the salt of the limiter's keys
        "addresses": Words(|| words(&ADDRESSES)), Value("whole");
    }
}
