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

pub const LIMIT_HEADERS: [(&str, LimitHeaders); 4] = [
    ("ietf", LimitHeaders::Ietf),
    ("legacy", LimitHeaders::Legacy),
    ("both", LimitHeaders::Both),
    ("none", LimitHeaders::None),
];
/// The values of `header` and `request-id` in `[node]`.
pub const SHOWN: [(&str, FieldAudience); 3] =
    [("always", FieldAudience::Always), ("trusted", FieldAudience::Trusted), ("never", FieldAudience::Never)];
pub const ADDRESSES: [(&str, AddressDetail); 3] =
    [("whole", AddressDetail::Whole), ("prefix", AddressDetail::Prefix), ("hash", AddressDetail::Hash)];
pub const UPGRADE_MAX: Duration = Duration::from_secs(3_600);
/// More threads than any machine has cores for.
const WORKERS_MAX: u64 = 1_024;
/// Less than the program itself takes, so every request would be refused.
const OVERLOAD_MEMORY_MIN: u64 = 1 << 20;
const LIMITS_MEMORY_MIN: u64 = 64 << 10;
const MEMORY_MAX: u64 = 1 << 40;

sections! {
    ROOT = "the configuration", "gateway.toml" {
        "include": Texts;
        "workers": Any(&[Number(1, WORKERS_MAX), Word("auto")]), Value("auto");
        "listener": Map(&Table(&listener::LISTENER)), Means("plain HTTP on 127.0.0.1:8080");
        "client-ip": Table(&listener::CLIENT_IP), Defaults;
        "dns": Table(&DNS);
        "overload": Table(&OVERLOAD), Defaults;
        "auth": Map(&Tagged(auth::KINDS));
        "upstream": Map(&Table(&upstream::UPSTREAM));
        "limits": Table(&LIMITS), Defaults;
        "tier": Map(&Table(&policy::TIER));
        "policy": Map(&Table(&policy::POLICY));
        "compress": Any(&[Bool, Table(&route::COMPRESS)]), Value("false");
        "route": List(&Table(&route::ROUTE));
        "rls": Map(&Table(&policy::DOMAIN));
        "admin": Any(&[Table(&admin::ADMIN), Only("false")]), Defaults;
        "redis": Table(&shared_tier::REDIS);
        "database": Table(&shared_tier::DATABASE);
        "errors": Map(&Texts);
        "shutdown": Table(&SHUTDOWN), Defaults;
        "node": Table(&NODE), Defaults;
        "privacy": Table(&PRIVACY), Defaults;
        "log": Table(&log::LOG), Defaults;
        "trace": Table(&log::TRACE);
        "tier-table": Added(&policy::TIER_ROW);
        "peers": Elsewhere("`peers` is reserved: this version does not support it", "leave it out");
    }
    DNS = "[dns]", "dns" {
        "servers": Texts, Means("the system's");
    }
    OVERLOAD = "[overload]", "overload" {
        "memory": Any(&[Size(OVERLOAD_MEMORY_MIN, MEMORY_MAX), Word("auto"), Only("false")]), Value("auto");
        "keep-alive": Share, Value("92%");
        "requests": Share, Value("95%");
        "connections": Share, Value("98%");
    }
    LIMITS = "[limits]", "limits" {
        "memory": Size(LIMITS_MEMORY_MIN, MEMORY_MAX), Value("64MiB");
        "headers": Words(|| words(&LIMIT_HEADERS)), Value("both");
        "hot-keys": Bool, Value("true");
    }
    SHUTDOWN = "[shutdown]", "shutdown" {
        "ready-delay": Time(ZERO), Value("0s");
        "drain": Time(ZERO), Value("30s");
        "drain-tunnels": Time(ZERO), Value("0s");
        "upgrade": TimeWithin(MS, UPGRADE_MAX, ": until then two processes run"), Value("1m");
    }
    NODE = "[node]", "node" {
        "name": Text, Means("the host's name");
        "header": Words(|| words(&SHOWN)), Value("trusted");
        "request-id": Words(|| words(&SHOWN)), Value("always");
    }
    PRIVACY = "[privacy]", "privacy" {
        "addresses": Words(|| words(&ADDRESSES)), Value("whole");
    }
}
