//! The one place where a limit's text, `"100/m burst 20 by ip"`, becomes a window and the dimensions it counts.

use std::num::NonZeroU64;

use crate::policy::definition::Dimension;

/// What a text of a limit says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitText {
    pub(super) limit: NonZeroU64,
    pub(super) period_ns: NonZeroU64,
    /// Where it was written.
    pub(super) burst: Option<NonZeroU64>,
    /// Who is counted; empty where no `by` was written: everybody together.
    pub(super) by: Vec<Dimension>,
}

/// What is wrong with a text, from which byte on, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: String,
}

/// Reads `<units>/<period>[ burst <units>][ by <dimension>[,<dimension>...]]`.
pub(super) fn parse(text: &str) -> Result<LimitText, Wrong> {
    let mut words = words(text);
    let (at, rate) = words.next().ok_or_else(|| wrong(0, "the limit is empty"))?;
    let (units, period) = rate.split_once('/').ok_or_else(|| wrong(at, "a limit is units per period"))?;
    let limit =
        count(units).ok_or_else(|| wrong(at, "the units of a limit are a whole number above zero"))?;
    let period_ns = period_ns(period).ok_or_else(|| {
        wrong(at + units.len() + 1, "the period of a limit is s, m, h, d or a number of them")
    })?;
    let mut read = LimitText { limit, period_ns, burst: None, by: Vec::new() };
    while let Some((at, word)) = words.next() {
        let value = words.next();
        match (word, value) {
            ("burst", Some((at, units))) if read.burst.is_none() => {
                let burst = count(units).ok_or_else(|| wrong(at, "a burst is a whole number above zero"))?;
                read.burst = Some(burst);
            }
            ("by", Some((at, list))) if read.by.is_empty() => {
                let mut at = at;
                for name in list.split(',') {
                    read.by.push(dimension(name).map_err(|error| Wrong { at: at + error.at, ..error })?);
                    at += name.len() + 1;
                }
            }
            _ => return Err(wrong(at, &format!("`{word}` has no place here"))),
        }
    }
    Ok(read)
}

/// Reads one dimension.
pub(super) fn dimension(text: &str) -> Result<Dimension, Wrong> {
    let named = text.split_once(':').filter(|(_, name)| !name.is_empty());
    let known = match (text, named) {
        ("consumer", _) => Some(Dimension::Consumer),
        ("tenant", _) => Some(Dimension::Tenant),
        ("ip", _) => Some(Dimension::Ip),
        ("route", _) => Some(Dimension::Route),
        ("method", _) => Some(Dimension::Method),
        (_, Some(("header", name))) => {
            http::HeaderName::from_bytes(name.as_bytes()).ok().map(Dimension::Header)
        }
        (_, Some(("query", name))) => Some(Dimension::Query(name.to_owned())),
        (_, Some(("param", name))) => Some(Dimension::Param(name.to_owned())),
        _ => None,
    };
    known.ok_or_else(|| Wrong {
        at: 0,
        message: format!("`{}` is not a dimension", text.escape_debug()),
        hint: "write consumer, tenant, ip, route, method, header:<name>, query:<name> or param:<name>"
            .to_owned(),
    })
}

/// Writes a dimension as [`dimension`] reads it.
pub(super) fn show_dimension(dimension: &Dimension) -> String {
    match dimension {
        Dimension::Consumer => "consumer".to_owned(),
        Dimension::Tenant => "tenant".to_owned(),
        Dimension::Ip => "ip".to_owned(),
        Dimension::Route => "route".to_owned(),
        Dimension::Method => "method".to_owned(),
        Dimension::Header(name) => format!("header:{name}"),
        Dimension::Query(name) => format!("query:{name}"),
        Dimension::Param(name) => format!("param:{name}"),
    }
}

/// Writes a period as [`parse`] reads it: in the largest unit that divides it.
pub(super) fn show_period(period_ns: NonZeroU64) -> String {
    let fits = |(_, unit_ns): &&(&str, u64)| period_ns.get().is_multiple_of(*unit_ns);
    match PERIOD_UNITS.iter().rev().find(fits) {
        Some((unit, unit_ns)) if period_ns.get() == *unit_ns => (*unit).to_owned(),
        Some((unit, unit_ns)) => format!("{}{unit}", period_ns.get() / unit_ns),
        None => format!("{}ns", period_ns),
    }
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr().addr();
    text.split_ascii_whitespace().map(move |word| (word.as_ptr().addr() - start, word))
}

fn count(text: &str) -> Option<NonZeroU64> {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    text.replace('_', "").parse().ok().filter(|_| is_number)
}

fn period_ns(text: &str) -> Option<NonZeroU64> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let number = if number.is_empty() { NonZeroU64::MIN } else { count(number)? };
    let (_, unit_ns) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(NonZeroU64::new(*unit_ns)?)
}

fn wrong(at: usize, message: &str) -> Wrong {
    Wrong {
        at,
        message: message.to_owned(),
        hint: "write it as in `100/m`, `5/10s`, `100/m burst 20 by ip`".to_owned(),
    }
}

const PERIOD_UNITS: [(&str, u64); 4] =
    [("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000), ("d", 86_400_000_000_000)];
