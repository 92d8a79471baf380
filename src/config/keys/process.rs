//! The keys of the file as a whole, and of the sections about the process.

use std::time::Duration;

use ::policy::keys::naming::AddressDetail;
use gateway::proxy::config::{FieldAudience, LimitHeaders};

use super::KeyDefault::{Defaults, Means, Value};
use super::Kind::{
    Added, Any, Bool, Elsewhere, List, Map, Number, Only, Share, Size, Table, Tagged, Text, Texts, Time,
    TimeWithin, Word, Words,
};
use super::{MS, ZERO, admin, auth, listener, log, policy, route, sections, shared_tier, upstream, words};

/// The values of `headers` in `[limits]`.
pub const LIMIT_HEADERS: [(&str, LimitHeaders); 4] = [
    ("ietf", LimitHeaders::Ietf),
    ("legacy", LimitHeaders::Legacy),
    ("both", LimitHeaders::Both),
    ("none", LimitHeaders::None),
];
/// The values of `header` and `request-id` in `[node]`.
pub const SHOWN: [(&str, FieldAudience); 3] =
    [("always", FieldAudience::Always), ("trusted", FieldAudience::Trusted), ("never", FieldAudience::Never)];
/// The values of `addresses` in `[privacy]`.
pub const ADDRESSES: [(&str, AddressDetail); 3] =
    [("whole", AddressDetail::Whole), ("prefix", AddressDetail::Prefix), ("hash", AddressDetail::Hash)];
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
        /// [more files](syntax.md#include), relative to the main one; `*` and `?` match in the file's name
        "include": Texts;
        /// threads that serve requests; `"auto"`: one for each core that the process may use
        "workers": Any(&[Number(1, WORKERS_MAX), Word("auto")]), Value("auto");
        /// where [clients connect](listener.md)
        "listener": Map(&Table(&listener::LISTENER)), Means("plain HTTP on 127.0.0.1:8080");
        /// which [proxies may name the client](client-ip.md)
        "client-ip": Table(&listener::CLIENT_IP), Defaults;
        /// [name servers](dns.md) to use instead of the system's
        "dns": Table(&DNS);
        /// how the gateway [sheds load](#overload) when memory runs out
        "overload": Table(&OVERLOAD), Defaults;
        /// [authentication](auth.md) methods
        "auth": Map(&Tagged(auth::KINDS));
        /// [servers](upstream.md) to which requests are forwarded
        "upstream": Map(&Table(&upstream::UPSTREAM));
        /// the [table of limiter keys](#limits), and rate-limit headers
        "limits": Table(&LIMITS), Defaults;
        /// [limits by tier](tiers.md), shared by policies
        "tier": Map(&Table(&policy::TIER));
        /// [limits](policy.md): how requests are counted, and how many are admitted
        "policy": Map(&Table(&policy::POLICY));
        /// [compression](compression.md) on routes that do not configure it
        "compress": Any(&[Bool, Table(&route::COMPRESS)]), Value("false");
        /// [which requests](route.md) go where, and under which limits
        "route": List(&Table(&route::ROUTE));
        /// rate limit rules for the [descriptors of other proxies](rls.md)
        "rls": Map(&Table(&policy::DOMAIN));
        /// the [admin listener](admin.md); `false`: none
        "admin": Any(&[Table(&admin::ADMIN), Only("false")]), Defaults;
        /// the [Redis](redis.md) through which the nodes of a fleet share limits
        "redis": Table(&shared_tier::REDIS);
        /// the [database](database.md) of policies, tiers, overrides and API keys that change at run time
        "database": Table(&shared_tier::DATABASE);
        /// your own [bodies for the gateway's errors](errors.md): files, by status or class
        "errors": Map(&Texts);
        /// how the process [drains](#shutdown)
        "shutdown": Table(&SHUTDOWN), Defaults;
        /// the [name of this gateway](#node) in a fleet, and who may see it
        "node": Table(&NODE), Defaults;
        /// how much of [client addresses](#privacy) is shown
        "privacy": Table(&PRIVACY), Defaults;
        /// the process log, the access log, and samples of decisions: [logs](log.md#log)
        "log": Table(&log::LOG), Defaults;
        /// [distributed tracing](log.md#trace): which requests are sampled, and where spans go
        "trace": Table(&log::TRACE);
        "tier-table": Added(&policy::TIER_ROW);
        "peers": Elsewhere("`peers` is reserved: this version does not support it", "leave it out");
    }
    DNS = "[dns]" {
        /// name servers, at most 8: `["127.0.0.1:53"]`. With this key, the gateway tries no search domains. Fixed at
        /// start
        "servers": Texts, Means("the system's");
    }
    OVERLOAD = "[overload]" {
        /// the resident memory that counts as 100 % for the next three keys. `"auto"`: the memory of the machine or
        /// control group. `false`: load is never shed
        "memory": Any(&[Size(OVERLOAD_MEMORY_MIN, MEMORY_MAX), Word("auto"), Only("false")]), Value("auto");
        /// above this, each connection ends after its response (`Connection: close`, or GOAWAY), and HTTP/2 connections without a
        /// request are closed
        "keep-alive": Share, Value("92%");
        /// above this, requests get 503
        "requests": Share, Value("95%");
        /// above this, new connections are closed at once
        "connections": Share, Value("98%");
    }
    LIMITS = "[limits]" {
        /// size of the table of limiter keys, fixed at start; the kernel allocates memory as keys arrive. A slot takes
        /// 32 bytes. Plan for 64 bytes per key, so that half of the slots stay free. Sliding logs may take another
        /// eighth of `memory`
        "memory": Size(LIMITS_MEMORY_MIN, MEMORY_MAX), Value("64MiB");
        /// which rate-limit headers responses carry
        "headers": Words(|| words(&LIMIT_HEADERS)), Value("both");
        /// whether the [busiest keys of each policy](../../hot-keys.md) are tracked; fixed at start
        "hot-keys": Bool, Value("true");
    }
    SHUTDOWN = "[shutdown]" {
        /// how long `/readyz` answers 503 and responses say `Connection: close` before listeners close
        "ready-delay": Time(ZERO), Value("0s");
        /// how long requests in flight may take after that
        "drain": Time(ZERO), Value("30s");
        /// how long WebSocket and other tunnels continue before they are asked to end. They then have three seconds,
        /// even if `drain` expires earlier. After an upgrade, they continue for at least `drain`
        "drain-tunnels": Time(ZERO), Value("0s");
        /// how long the new process of an upgrade may take to start serving. After that, the old one continues
        "upgrade": TimeWithin(MS, UPGRADE_MAX, ": until then two processes run"), Value("1m");
    }
    NODE = "[node]" {
        /// up to 255 letters, digits, `-`, `_`, `.` and `:`. Each node of a fleet needs its own
        "name": Text, Means("the host's name");
        /// which clients see the name (`X-Gateway-Node`, and `node` in problem+json): `"trusted"` for [trusted
        /// hops](client-ip.md), `"always"` for all, `"never"` for none
        "header": Words(|| words(&SHOWN)), Value("trusted");
        /// which clients see the request id (`X-Request-Id`, and in the body of refusals): all, [trusted
        /// hops](client-ip.md), or none. An upstream's own `X-Request-Id` is replaced, or removed if the client may not
        /// see the id; with `"never"` it is left unchanged. A route's `response-headers` may change the header
        "request-id": Words(|| words(&SHOWN)), Value("always");
    }
    PRIVACY = "[privacy]" {
        /// `"prefix"`: only the network, 24 bits of IPv4 and 48 of IPv6. `"hash"`: a hash of each address
        "addresses": Words(|| words(&ADDRESSES)), Value("whole");
    }
}
