//! `health`, `eject`, `slow-start` and `panic` of `[upstream.*]`, and sets of statuses.

use std::ops::RangeInclusive;

use crate::printer::{array, text};
use crate::reader::{Table, Value};
use policy::retry::Statuses;
use upstream::config::{
    ConfiguredServer, Eject, HealthCheckConfig, HealthConfig, HealthProbe, HttpVersion, Outliers,
    ServerLocation,
};
use upstream::health::SERVERS_MIN;

/// Reads what an upstream with these servers says of their health.
pub(crate) fn read(upstream: &Table<'_>, http: HttpVersion, servers: &[ConfiguredServer]) -> HealthConfig {
    let mut health = HealthConfig::default();
    if let Some(value) = upstream.value("health") {
        health.check = check(&value, http, servers);
    }
    if let Some(value) = upstream.value("eject") {
        health.eject = eject(&value, servers);
    }
    upstream.duration_if("slow-start", &mut health.slow_start);
    upstream.percent("panic", &mut health.panic_percent);
    health
}

fn check(value: &Value<'_>, http: HttpVersion, servers: &[ConfiguredServer]) -> Option<HealthCheckConfig> {
    let table = value.table()?;
    let mut check = HealthCheckConfig::default();
    let (path, tcp, grpc) = (table.value("path"), table.value("tcp"), table.value("grpc"));
    match (&path, &tcp, &grpc) {
        (Some(path), None, None) => check.probe = http_probe(&table, path).unwrap_or(check.probe),
        (None, Some(tcp), None) => {
            if tcp.boolean() == Some(false) {
                tcp.wrong("`tcp` can only be true", "leave `health` out to check nothing");
            }
        }
        (None, None, Some(grpc)) => check.probe = HealthProbe::Grpc(service(grpc, http)?),
        (None, None, None) => value.wrong_key("`health` does not say what to check", ASKS),
        _ => value
            .wrong_key("`health` has more than one kind of check", "keep one of `path`, `tcp` and `grpc`"),
    }
    for value in ["status", "body"].into_iter().filter_map(|key| table.value(key)).filter(|_| path.is_none())
    {
        let hint = "leave it out: only a check by `path` reads a status and a body";
        value.wrong_key(format!("`{}` needs `path`", value.key), hint);
    }
    table.duration("every", &mut check.every);
    table.duration("timeout", &mut check.timeout);
    table.number("unhealthy-after", &mut check.unhealthy_after);
    table.number("healthy-after", &mut check.healthy_after);
    table.set("port", &mut check.port, |written| Some(written.integer()?.try_into().ok()));
    if let Some(value) = table.value("port")
        && servers.iter().any(|server| matches!(server.place, ServerLocation::Unix(_)))
    {
        value.wrong_key("`port` cannot be combined with a Unix socket", "leave it out");
    }
    Some(check)
}

fn http_probe(table: &Table<'_>, path: &Value<'_>) -> Option<HealthProbe> {
    let path = path.text()?;
    let is_path = path.text.starts_with('/')
        && path.text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        && path.text.parse::<http::uri::PathAndQuery>().is_ok();
    if !is_path {
        path.wrong(format!("{} is not a path", path.shown()), "write it like `/healthz`");
    }
    let status = match table.value("status") {
        Some(value) => statuses(&value, 100),
        None => Statuses::new(vec![200..=399]),
    };
    let body = table.value("body").and_then(|body| body.text()).map(|body| body.text);
    is_path.then_some(HealthProbe::Http { path: path.text, status, body })
}

/// `true`, or the name of a service.
fn service(grpc: &Value<'_>, http: HttpVersion) -> Option<String> {
    if http != HttpVersion::H2 {
        grpc.wrong_key("`grpc` needs HTTP/2", "write `http = \"h2\"` in the upstream");
    }
    match grpc.is_string() {
        true => {
            let service = grpc.text()?;
            if service.text.len() > SERVICE_BYTES_MAX {
                service.wrong("the name of the service is too long", "write at most 100 bytes");
            }
            Some(service.text)
        }
        false => {
            if grpc.boolean() == Some(false) {
                grpc.wrong("`grpc` can only be true or a service's name", "remove `health` to check nothing");
            }
            Some(String::new())
        }
    }
}

/// One status or several: `200`, `"2xx"`, `"200-399"`.
pub(crate) fn statuses(value: &Value<'_>, least: u16) -> Statuses {
    let values = if value.is_array() { value.array().unwrap_or_default() } else { vec![value.clone()] };
    if values.is_empty() {
        value.wrong("the list of statuses is empty", STATUS_HINT);
    }
    let statuses = Statuses::new(values.iter().filter_map(|value| statuses_of(value, least)).collect());
    value.spell(array(show_statuses(&statuses)));
    statuses
}

fn statuses_of(value: &Value<'_>, least: u16) -> Option<RangeInclusive<u16>> {
    if value.is_integer() {
        let status = value.integer()?;
        return u16::try_from(status).ok().map(|status| status..=status);
    }
    let text = value.text()?;
    let range = range(&text.text).filter(|range| *range.start() >= least && !range.is_empty());
    if range.is_none() {
        text.wrong(format!("{} is not a status", text.shown()), STATUS_HINT);
    }
    range
}

/// The statuses that a word stands for.
pub(crate) fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| {
        let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten().filter(|it| (100..=STATUS_MAX).contains(it))
    };
    if let Some(class) = word.strip_suffix("xx") {
        let first = number(&format!("{class}00"))?;
        return Some(first..=first + 99);
    }
    match word.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(word).map(|status| status..=status),
    }
}

/// The words that stand for a set of statuses.
pub(crate) fn show_statuses(statuses: &Statuses) -> impl Iterator<Item = String> {
    statuses.words().map(|word| text(&word))
}

fn eject(value: &Value<'_>, servers: &[ConfiguredServer]) -> Option<Eject> {
    let (has_names, servers) = (servers.iter().any(|server| server.unresolved().is_some()), servers.len());
    let table = value.table()?;
    let mut eject = Eject::default();
    table.number("after", &mut eject.after);
    table.duration("for", &mut eject.time);
    let checkpoint = table.checkpoint();
    table.percent("most", &mut eject.most_percent);
    let is_read = servers > 0 && !checkpoint.is_flawed();
    outliers(&table, value, &mut eject.outliers);
    let is_compared = eject.outliers.is_on();
    if is_compared && (1..SERVERS_MIN).contains(&servers) && !has_names {
        value.warn(
            format!("outliers cannot be found among {servers} servers"),
            "list at least three servers, or leave `success-rate` and `latency` out",
        );
    }
    let percent = eject.most_percent;
    if let Some(most) = table.value("most").filter(|_| is_read && servers * (percent as usize) < 100) {
        most.warn(
            format!("{percent}% of {servers} is less than one server, so none is ever ejected"),
            "write a higher percentage",
        );
    }
    Some(eject)
}

/// When a server is worse than the others.
fn outliers(table: &Table<'_>, eject: &Value<'_>, outliers: &mut Outliers) {
    if let Some(value) = table.value("success-rate") {
        match value.percent() {
            Some(0) => value.wrong(
                "`success-rate` must be above 0: how far a server may fall below the others",
                "write it like `\"15%\"`, or leave it out",
            ),
            percent => outliers.success_rate_percent = percent,
        }
    }
    table.set("latency", &mut outliers.latency_times, |written| Some(written.integer()?.try_into().ok()));
    table.duration("every", &mut outliers.every);
    table.number("requests", &mut outliers.requests_min);
    let is_set = table.value("every").is_some() || table.value("requests").is_some();
    if is_set && table.value("success-rate").is_none() && table.value("latency").is_none() {
        eject.wrong_key(
            "`every` and `requests` have no effect without `success-rate` or `latency`",
            "write `success-rate = \"15%\"` or `latency = 3` beside them",
        );
    }
}

const ASKS: &str = "write `health = { path = \"/healthz\" }`, `{ tcp = true }` or `{ grpc = true }`";
const STATUS_HINT: &str = "write it like `200`, `\"2xx\"` or `\"200-399\"`";
/// So short, because one byte holds the length of a field with it in protobuf.
const SERVICE_BYTES_MAX: usize = 100;
const STATUS_MAX: u16 = 599;
