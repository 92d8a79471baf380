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
/// The values of `parent`.
pub const HEEDED: [(&str, TraceparentTrust); 3] = [
    ("trusted", TraceparentTrust::Trusted),
    ("always", TraceparentTrust::Always),
    ("never", TraceparentTrust::Never),
];
/// An hour at least, because the database is rid of what is over once in each.
const RETENTION_MIN: Duration = Duration::from_secs(3_600);

sections! {
    LOG = "[log]" {
        /// level of the process log on standard error: `error`, `warn`, `info`, `debug`, or
        /// `"info,gateway::proxy=debug"`
        "level": Text, Value("info");
        /// the access log
        "access": Any(&[Table(&ACCESS), Only("false")]), Defaults;
        /// [samples of decisions](../../refusals.md) on limits. Without this key, refusals are kept in memory only.
        /// `false`: nothing is kept, and earlier samples are dropped
        "decisions": Any(&[Table(&DECISIONS), Only("false")]), Value(r#"{ "to": "off", "database": false }"#);
    }
    ACCESS = "`access`" {
        /// `"stdout"`, `"stderr"`, `"off"`, a file path, which must contain a `/`, or [syslog](../../logs.md#syslog):
        /// `"syslog"`, `"unix:/dev/log"`, `"udp://127.0.0.1:514"`
        "to": Any(&[Table(&SYSLOG), Text]), Value("stdout");
        /// `"json"`, `"common"`, `"combined"`, `"ecs"`, or [a text with `{...}`](../../logs.md#a-format-of-your-own)
        "format": Text, Value("json");
        /// request headers to log, at most eight, each truncated at 512 bytes. `[]`: none
        "headers": Texts, Value("[\"user-agent\", \"referer\"]");
        /// how much of a query is logged, in `path` and in `referer`. `"keep"`: all. `"drop"`: nothing. `"names"`: the
        /// names of parameters, with a star for each value (`?code=*`) and for parts without a name
        "query": Words(|| words(&QUERIES)), Value("names");
        /// shares to keep, by status or class: `{ "2xx" = "10%", "429" = "100%" }`. All other lines are kept
        "sample": Map(&Share), Value("{}");
    }
    SYSLOG = "`to`" {
        /// `"syslog"`, `"unix:/dev/log"` or `"udp://127.0.0.1:514"`
        "syslog": Text, Needs("`to` needs `syslog`", "write `{ syslog = \"udp://127.0.0.1:514\" }`");
        /// `kern` to `local7`
        "facility": Text, Value("local0");
        /// `emerg` to `debug`
        "severity": Text, Value("info");
    }
    DECISIONS = "`decisions`" {
        /// where samples are written, as for the access log
        "to": Any(&[Table(&SYSLOG), Text]), Value("stdout");
        /// share of admitted requests that are sampled
        "sample": Share, Value("0%");
        /// share of refused requests that are sampled
        "denied": Share, Value("100%");
        /// maximum number of samples per second in the whole process, up to `"20000/s"`; admitted requests take at most
        /// half of them
        "max": Pattern(r"^[0-9][0-9_]*/s$"), Value("1000/s");
        /// whether samples are also written to the [database](database.md), if there is one
        "database": Bool, Value("true");
        /// how long the database keeps samples; PostgreSQL drops whole months
        "retention": Time(RETENTION_MIN), Value("7d");
    }
    TRACE = "[trace]" {
        /// the collector: `"http://127.0.0.1:4318"`, `"https://collector.example.com"`. The path of the call is
        /// appended (over HTTP `/v1/traces`), unless the URL already ends in it
        "otlp": Text, Needs("[trace] needs `otlp`", "write `otlp = \"http://127.0.0.1:4318\"`");
        /// `"http"`: protobuf in POST requests; `"grpc"`: gRPC, usually on port 4317
        "protocol": Words(|| words(&PROTOCOLS)), Value("http");
        /// how the collector is verified over `https`, with the keys of an [upstream's `tls`](upstream.md#tls)
        "tls": Table(&TLS), Means("the system's CAs");
        /// headers for the collector, such as `authorization`; `/config` masks their values. Headers of the message
        /// itself (`content-type`, `host`, `te` and the like, `grpc-…`) are refused
        "headers": Map(&Field(&Secret)), Value("{}");
        /// share of new traces that are sampled
        "sample": Share, Value("1%");
        /// whether the sender's flag (`"parent"`) or `sample` (`"ratio"`) decides if a continued trace is sampled
        "decides": Words(|| words(&DECIDES)), Value("parent");
        /// whose `traceparent` is continued: that of [trusted hops](client-ip.md) (`"trusted"`), any (`"always"`) or
        /// none (`"never"`)
        "parent": Words(|| words(&HEEDED)), Value("trusted");
        /// the name of the service in traces
        "service": Text, Value("sluicegate");
    }
}
