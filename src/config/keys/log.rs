//! The keys of `[log]` and `[trace]`.

use std::time::Duration;

use observe::record::QueryDetail;
use observe::trace::{Decides, OtlpProtocol, TraceparentTrust};

use super::Kind::{Any, Bool, Map, Only, Pattern, Secret, Share, Table, Text, Texts, Time, Words};
use super::Unwritten::{Means, Needs, Value};
use super::upstream::TLS;
use super::{sections, words};

/// The values of `query`.
pub const QUERIES: [(&str, QueryDetail); 3] =
    [("keep", QueryDetail::Keep), ("drop", QueryDetail::Drop), ("names", QueryDetail::Names)];
/// The values of `protocol`.
pub const PROTOCOLS: [(&str, OtlpProtocol); 2] = [("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)];
/// The values of `decides`.
pub const DECIDES: [(&str, Decides); 2] = [("parent", Decides::Parent), ("ratio", Decides::Ratio)];
/// The values of `parent`.
pub const HEEDED: [(&str, TraceparentTrust); 3] = [
    ("trusted", TraceparentTrust::Trusted),
    ("always", TraceparentTrust::Always),
    ("never", TraceparentTrust::Never),
];
/// The database is rid of what is over once an hour.
const RETENTION_MIN: Duration = Duration::from_secs(3_600);

sections! {
    LOG = "[log]" {
        /// `off`, `error`, `warn`, `info`, `debug`, `trace`, or directives as in `"info,sluicegate::proxy=debug"`.
        /// The process's own log, to standard error
        "level": Text, Value("info");
        /// the access log
        "access": Any(&[Table(&ACCESS), Only("false")]);
        /// samples of decisions on limits: [what they are for](refusals.md). Not written, every refusal is kept in
        /// memory and written nowhere; `false`: nothing is kept, and what was is forgotten
        "decisions": Any(&[Table(&DECISIONS), Only("false")]);
    }
    ACCESS = "`access`" {
        /// `"stdout"`, `"stderr"`, `"off"`, a file's path, which holds a `/`, or [syslog](observability.md#syslog):
        /// `"syslog"`, `"unix:/dev/log"`, `"udp://127.0.0.1:514"`
        "to": Any(&[Text, Table(&SYSLOG)]), Value("stdout");
        /// the form of a line: `"json"`, `"common"`, `"combined"`, `"ecs"`, or [a text with
        /// `{...}`](observability.md#the-access-log)
        "format": Text, Value("json");
        /// fields of requests that are shown, eight at most, each cut after 512 bytes. `[]`: none
        "headers": Texts, Value("[\"user-agent\", \"referer\"]");
        /// how much of a query is shown, in `path` and in `referer`: `"keep"` all of it, `"drop"` nothing,
        /// `"names"` the names of parameters and a star for each value (`?code=*`); what has no name is a star
        "query": Words(|| words(&QUERIES)), Value("names");
        /// shares kept, by status or class: `{ "2xx" = "10%", "429" = "100%" }`. A status goes before its class;
        /// what is not named is kept whole
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
        /// where they are written, as the access log
        "to": Any(&[Text, Table(&SYSLOG)]), Value("stdout");
        /// of requests that are admitted
        "sample": Share, Value("0%");
        /// of requests that are refused
        "denied": Share, Value("100%");
        /// the most in a second, up to `"20000/s"`, of the whole process; those admitted take at most half of it
        "max": Pattern(r"^[0-9][0-9_]*/s$"), Value("1000/s");
        /// whether they are written to the [database](#database), too, if there is one
        "database": Bool, Value("true");
        /// how long a database keeps them; PostgreSQL drops them by the month
        "retention": Time(RETENTION_MIN), Value("7d");
    }
    TRACE = "[trace]" {
        /// the collector: `"http://127.0.0.1:4318"`, `"https://collector.example.com"`. The path of the call is
        /// appended, over HTTP `/v1/traces`; a URL that ends in that already is used as it is
        "otlp": Text, Needs("[trace] needs `otlp`", "write `otlp = \"http://127.0.0.1:4318\"`");
        /// `"http"`: protobuf in POST requests; `"grpc"`: gRPC, mostly on port 4317
        "protocol": Words(|| words(&PROTOCOLS)), Value("http");
        /// how a collector of `https` is checked, with the keys of an upstream's `tls`. A file that cannot be used
        /// is an error of `check`, a start and a reload
        "tls": Table(&TLS), Means("the system's authorities");
        /// fields that the collector asks for, such as `authorization`; `/config` masks their values. Fields of the
        /// message itself (`content-type`, `host`, `te` and the like, `grpc-…`) are refused
        "headers": Map(&Secret), Value("{}");
        /// traces that begin here and are sampled
        "sample": Share, Value("1%");
        /// whether a request is sampled that continues a trace: `"parent"` as its sender's flag says, `"ratio"` by
        /// `sample`
        "decides": Words(|| words(&DECIDES)), Value("parent");
        /// whose `traceparent` is continued: that of `"trusted"` hops (`[client-ip]`), `"always"`, `"never"`
        "parent": Words(|| words(&HEEDED)), Value("trusted");
        /// the name of the service in traces
        "service": Text, Value("sluicegate");
    }
}
