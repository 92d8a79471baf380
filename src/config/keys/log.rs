//! The keys of `[log]` and `[trace]`.

use std::time::Duration;

use observe::record::QueryDetail;
use observe::trace::{OtlpProtocol, ParentSampling, TraceparentTrust};

use super::KeyDefault::{Defaults, Means, Needs, Value};
use super::Kind::{Any, Bool, Field, Map, Only, Pattern, Secret, Share, Table, Text, Texts, Time, Words};
use super::upstream::TLS;
use super::{sections, words};

pub const QUERIES: [(&str, QueryDetail); 3] =
    [("keep", QueryDetail::Keep), ("drop", QueryDetail::Drop), ("names", QueryDetail::Names)];
pub const PROTOCOLS: [(&str, OtlpProtocol); 2] = [("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)];
pub const DECIDES: [(&str, ParentSampling); 2] =
    [("parent", ParentSampling::Parent), ("ratio", ParentSampling::Ratio)];
pub const HEEDED: [(&str, TraceparentTrust); 3] = [
    ("trusted", TraceparentTrust::Trusted),
    ("always", TraceparentTrust::Always),
    ("never", TraceparentTrust::Never),
];
/// An hour at least, because the database is rid of what is over once in each.
const RETENTION_MIN: Duration = Duration::from_secs(3_600);

sections! {
    LOG = "[log]", "log" {
        "level": Text, Value("info");
        "access": Any(&[Table(&ACCESS), Only("false")]), Defaults;
        "decisions": Any(&[Table(&DECISIONS), Only("false")]), Value(r#"{ "to": "off", "database": false }"#);
    }
    ACCESS = "`access`", "log.access" {
        "to": Any(&[Table(&SYSLOG), Text]), Value("stdout");
        "format": Text, Value("json");
        "headers": Texts, Value("[\"user-agent\", \"referer\"]");
        "query": Words(|| words(&QUERIES)), Value("names");
        "sample": Map(&Share), Value("{}");
    }
    SYSLOG = "`to`", "log.access.to" {
        "syslog": Text, Needs("`to` needs `syslog`", "write `{ syslog = \"udp://127.0.0.1:514\" }`");
        "facility": Text, Value("local0");
        "severity": Text, Value("info");
    }
    DECISIONS = "`decisions`", "log.decisions" {
        "to": Any(&[Table(&SYSLOG), Text]), Value("stdout");
        "sample": Share, Value("0%");
        "denied": Share, Value("100%");
        "max": Pattern(r"^[0-9][0-9_]*/s$"), Value("1000/s");
        "database": Bool, Value("true");
        "retention": Time(RETENTION_MIN), Value("7d");
    }
    TRACE = "[trace]", "trace" {
        "otlp": Text, Needs("[trace] needs `otlp`", "write `otlp = \"http://127.0.0.1:4318\"`");
        "protocol": Words(|| words(&PROTOCOLS)), Value("http");
        "tls": Table(&TLS), Means("the system's CAs");
        "headers": Map(&Field(&Secret)), Value("{}");
        "sample": Share, Value("1%");
        "decides": Words(|| words(&DECIDES)), Value("parent");
        "parent": Words(|| words(&HEEDED)), Value("trusted");
        "service": Text, Value("sluicegate");
    }
}
