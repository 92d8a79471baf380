//! Limits as operators write them: `"100/m burst 20 by ip"`, `"5/s"`, `"10_000/d by consumer, route"`.
//!
//! ```text
//! limit     = ( rate ("/" | "per") period [ "burst" units ] | units "in flight" ) [ "by" dimension … ]
//! rate      = units [ "." digits ]
//! units     = digits, with `_` where it reads better
//! period    = [ digits ] ( s | m | h | d, or sec, second, seconds, min … ) | day | week | month | year
//! dimension = consumer | tenant | ip | route | method | host | header:x | cookie:x | query:x | param:x | claim:x |
//!             body:x | entry:x, parted by commas or spaces
//! ```
//!
//! It only parses: the default of `by`, the algorithm and the zone of the calendar are up to the section that uses it. `day`
//! without a number is one of the calendar, as `week`, `month` and `year` are; `d`, `1day` and `days` are 24 hours each.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::ops::Range;

use crate::definition::Dimension;
use crate::json::JsonPath;
use limit::{Algorithm, Calendar, CalendarUnit, Quota, Zone};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shorthand {
    /// The window, as a token bucket whose burst is its limit if none is written, as concurrency, or by the calendar in UTC, on
    /// a clock that counts from 1970.
    pub window: Quota,
    /// Who is counted; empty where nothing is written.
    pub by: Vec<Dimension>,
    pub has_burst: bool,
    /// The text in whole units, if it has a decimal number: `5/3s by ip` of `1.67/s by ip`.
    pub counted_as: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Error {
    /// The part of the text that is wrong, bytes; empty at its end where something is missing.
    pub span: Range<usize>,
    pub problem: ShorthandProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShorthandProblem {
    #[error("the limit is empty")]
    Empty,
    #[error("a limit cannot be negative")]
    Negative,
    #[error("`burst` needs a number")]
    NoBurst,
    #[error("a limit must begin with a number of requests")]
    NoNumber,
    #[error("this number is too large")]
    TooLarge,
    #[error("this number must be whole")]
    Fraction,
    #[error("a limit per {unit} must be whole")]
    CalendarFraction { unit: &'static str },
    #[error("this rate rounds to nothing")]
    TooSlow,
    #[error("`{found}` is not part of a number")]
    Letters { found: String },
    #[error("`{found}` is not a limit")]
    Unlimited { found: String },
    #[error("a limit of 0 admits nothing")]
    ZeroLimit,
    #[error("a burst of 0 admits nothing")]
    ZeroBurst,
    #[error("a period cannot be 0")]
    ZeroPeriod,
    #[error("the period of the limit is missing")]
    NoPeriod,
    #[error("`{found}` is not a unit of time")]
    UnknownUnit { found: String },
    #[error("a period of the calendar takes no number")]
    CalendarCount { unit: &'static str },
    #[error("`{found}` is not expected here")]
    Unexpected { found: String },
    #[error("{message}")]
    Foreign {
        message: String,
        /// The limit as it is written here, without what it counts by.
        meant: String,
    },
    #[error("what to count by is missing after `by`")]
    NoDimension,
    #[error("requests cannot be counted by `{found}`")]
    UnknownDimension { found: String },
    #[error("`{found}` does not name the {kind}")]
    DimensionName {
        found: String,
        /// `header`, `cookie`, `query` or `param`.
        kind: &'static str,
    },
    #[error("`{found}` is named twice")]
    DimensionTwice { found: String },
}

impl ShorthandProblem {
    pub fn hint(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            ShorthandProblem::Foreign { meant, .. } => return Cow::Owned(format!("write `{meant}`")),
            ShorthandProblem::DimensionName { kind, .. } => {
                return Cow::Owned(format!("write `{kind}:NAME`"));
            }
            ShorthandProblem::UnknownDimension { found } if matches!(&**found, "and" | "&" | "+" | "by") => {
                "separate dimensions with commas, for example `by ip, route`"
            }
            ShorthandProblem::UnknownDimension { found }
                if matches!(found.trim_start_matches('$'), "path" | "uri" | "url" | "request_uri") =>
            {
                "no limit counts by path: `route` counts each route, `param:NAME` by a part of its path"
            }
            ShorthandProblem::UnknownDimension { found } if matches!(&**found, "tier" | "tiers") => {
                "a tier chooses the limit: write `limit = \"tier\"` in a `[policy.NAME]` that counts by consumer"
            }
            ShorthandProblem::UnknownDimension { found } if let Some(meant) = meant_dimension(found) => {
                return Cow::Owned(format!("write `{meant}`"));
            }
            ShorthandProblem::Empty | ShorthandProblem::NoNumber | ShorthandProblem::NoPeriod => {
                "write it as \"100/m\", \"5/s burst 10\", \"1_000/10s by consumer\" or \"32 in flight\""
            }
            ShorthandProblem::Fraction => {
                "only the number of requests per period may have decimals; 1 in 1.5 s is `2/3s`"
            }
            ShorthandProblem::CalendarFraction { .. } => {
                "write a whole number, or a period of fixed length, for example `1.5/d` or `1.5/30d`"
            }
            ShorthandProblem::TooSlow => "write a longer period, for example `1/30d`",
            ShorthandProblem::Letters { .. } => "write its digits, for example `10_000/d`",
            ShorthandProblem::TooLarge => "write a smaller number",
            ShorthandProblem::ZeroLimit => {
                "write 1 or more; to refuse every request of a client, block it: `sluicegate ctl block add`"
            }
            ShorthandProblem::Unlimited { .. } => {
                "write `limit = []` for a tier or a route without a limit; to lift the limits of a client, use `exempt` of \
                 the policy or `sluicegate ctl unlimited add`"
            }
            ShorthandProblem::Negative | ShorthandProblem::ZeroBurst | ShorthandProblem::ZeroPeriod => {
                "write 1 or more"
            }
            ShorthandProblem::NoBurst => "write it like `5/s burst 10`",
            ShorthandProblem::UnknownUnit { found } if SHORT_UNITS.contains(&&**found) => {
                "the shortest period is 1s: write how many per second, for example `200/s`"
            }
            ShorthandProblem::CalendarCount { unit } => {
                return Cow::Owned(format!("write `/{unit}`, or a number of days such as `/60d`"));
            }
            ShorthandProblem::UnknownUnit { .. } => {
                "write s, m, h or d, with a number if needed: `10s`, `30d`; or day, week, month or year without one"
            }
            ShorthandProblem::Unexpected { found } if found == "nodelay" => {
                "leave it out: a burst is admitted at once"
            }
            ShorthandProblem::Unexpected { .. } => {
                "after the period write `burst` and a number, then `by` and what to count by"
            }
            ShorthandProblem::NoDimension | ShorthandProblem::UnknownDimension { .. } => {
                "write consumer, tenant, ip, route, method, host, header:<name>, cookie:<name>, query:<name>, \
                 param:<name>, claim:<name>, body:<field>, or entry:<key> of descriptors"
            }
            ShorthandProblem::DimensionTwice { .. } => "name it once",
        })
    }
}

/// Names of the dimensions, for "did you mean"; those with a colon want a name behind it.
pub const DIMENSIONS: &[&str] = &[
    "consumer", "tenant", "ip", "route", "method", "host", "header:", "cookie:", "query:", "param:",
    "claim:", "body:", "entry:",
];

/// Names of the dimensions that a choice may stay by.
pub const DIMENSIONS_OF_CHOICES: &[&str] = &[
    "consumer", "tenant", "ip", "route", "method", "host", "path", "header:", "cookie:", "query:", "param:",
    "claim:",
];

/// Reads a limit.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(text: &str) -> Result<Shorthand, Error> {
    read(text).map_err(|error| match &error.problem {
        ShorthandProblem::NoPeriod
        | ShorthandProblem::Letters { .. }
        | ShorthandProblem::UnknownUnit { .. }
        | ShorthandProblem::NoBurst
        | ShorthandProblem::UnknownDimension { .. }
        | ShorthandProblem::Unexpected { .. } => foreign(text).unwrap_or(error),
        _ => error,
    })
}

fn read(text: &str) -> Result<Shorthand, Error> {
    let mut reader = ShorthandReader { text, at: 0 };
    let rate = reader.rate()?;
    if reader.takes_in_flight() {
        let limit = rate.whole(ShorthandProblem::ZeroLimit)?;
        let by = if reader.takes_word("by") { reader.dimensions()? } else { Vec::new() };
        reader.end()?;
        // Any period would do, because it is no part of what it says.
        let window = Quota::new(Algorithm::Concurrency, limit, NonZeroU64::MIN, limit);
        return Ok(Shorthand { window, by, has_burst: false, counted_as: None });
    }
    let is_decimal = rate.scale > 1;
    let period = reader.period()?;
    let (limit, period_ns) = match period {
        Period::Fixed(period_ns) => rate.over(period_ns)?,
        Period::Calendar(unit) if is_decimal => {
            let problem = ShorthandProblem::CalendarFraction { unit: unit.word() };
            return Err(Error { span: rate.span, problem });
        }
        Period::Calendar(_) => (rate.whole(ShorthandProblem::ZeroLimit)?, NonZeroU64::MIN),
    };
    let counted_as = is_decimal
        .then(|| format!("{limit}/{}{}", show_period(period_ns.get() / 1_000_000_000), reader.rest()));
    let burst = if reader.takes_word("burst") { Some(reader.burst()?) } else { None };
    let by = if reader.takes_word("by") { reader.dimensions()? } else { Vec::new() };
    reader.end()?;
    let mut window = Quota::new(Algorithm::TokenBucket, limit, period_ns, burst.unwrap_or(limit));
    if let Period::Calendar(unit) = period {
        window = window.on_calendar(Calendar::new(unit, Zone::utc(), 0));
    }
    Ok(Shorthand { window, by, has_burst: burst.is_some(), counted_as })
}

#[derive(Clone, Copy)]
enum Period {
    Fixed(NonZeroU64),
    Calendar(CalendarUnit),
}

/// A number as it is written: `1.67` is 167 with a scale of 100.
struct DecimalNumber {
    span: Range<usize>,
    digits: u64,
    scale: u64,
}

impl DecimalNumber {
    fn whole(self, zero: ShorthandProblem) -> Result<NonZeroU64, Error> {
        match self.scale {
            1 => NonZeroU64::new(self.digits).ok_or(Error { span: self.span, problem: zero }),
            _ => Err(Error { span: self.span, problem: ShorthandProblem::Fraction }),
        }
    }

    /// So many units in each period, as whole units over the fewest periods for which that changes the rate by at most 1 %.
    fn over(self, period_ns: NonZeroU64) -> Result<(NonZeroU64, NonZeroU64), Error> {
        if self.scale == 1 || self.digits == 0 {
            let units = DecimalNumber { scale: 1, ..self }.whole(ShorthandProblem::ZeroLimit)?;
            return Ok((units, period_ns));
        }
        let (digits, scale) = (u128::from(self.digits), u128::from(self.scale));
        let whole = (1..=MULTIPLES).find_map(|periods| {
            let units = (digits * u128::from(periods) + scale / 2) / scale;
            let off_by = (units * scale).abs_diff(digits * u128::from(periods));
            (units > 0 && off_by * 100 <= units * scale).then_some(units)
        });
        let wrong = |problem| Error { span: self.span, problem };
        let Some(units) = whole else { return Err(wrong(ShorthandProblem::TooSlow)) };
        let periods = u64::try_from((units * scale + digits / 2) / digits).ok();
        let period_ns = periods.and_then(|periods| period_ns.get().checked_mul(periods));
        let period_ns = period_ns.filter(|ns| i64::try_from(*ns).is_ok());
        match (u64::try_from(units).ok().and_then(NonZeroU64::new), period_ns.and_then(NonZeroU64::new)) {
            (Some(units), Some(period_ns)) => Ok((units, period_ns)),
            _ => Err(wrong(ShorthandProblem::TooLarge)),
        }
    }
}

/// The most periods that a decimal rate is counted over: a day of seconds.
const MULTIPLES: u64 = 86_400;

/// What is wrong with a limit that another gateway would take, if it is clear what it means.
fn foreign(text: &str) -> Option<Error> {
    several(text).or_else(|| counted_per(text)).or_else(|| spelt_otherwise(text))
}

fn several(text: &str) -> Option<Error> {
    let alone = text.split(" by ").next().unwrap_or_default().trim_end();
    [alone, text].into_iter().find_map(|text| {
        let split = |by: &str| text.split(by).map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        let is_several = |parts: &Vec<String>| parts.len() > 1 && parts.iter().all(|part| read(part).is_ok());
        let parts = [",", ";", " and "].map(split).into_iter().find(is_several)?;
        let message = "a text can hold only one limit".to_owned();
        let meant = format!("[\"{}\"]", parts.join("\", \""));
        Some(Error { span: 0..text.len(), problem: ShorthandProblem::Foreign { message, meant } })
    })
}

/// The same of one without a second `per`.
fn spelt_otherwise(text: &str) -> Option<Error> {
    let limit = text.split(" by ").next()?.trim_end();
    let start = limit.find(|char: char| char.is_ascii_digit())?;
    let is_of_number = |char: char| char.is_ascii_digit() || "_,'\u{2019} ".contains(char);
    let end = start + limit[start..].find(|char| !is_of_number(char))?;
    let number = limit[start..end].trim_end();
    let rest = &limit[end..];
    let (word, after) = rest.split_at(rest.find(|char: char| !char.is_alphabetic()).unwrap_or(rest.len()));
    let after = after.trim_start();
    let unexpected = |found: &str| format!("`{found}` is not expected here");
    let mut span = end..limit.len();
    let (before, burst) = limit.split_once(" burst").unwrap_or((limit, ""));
    let (message, meant) = match word.to_ascii_lowercase().as_str() {
        _ if before.len() < limit.len() && before.trim_end().ends_with("in flight") => {
            span = before.len() + 1..limit.len();
            ("a limit of requests in flight has no burst".to_owned(), before.trim_end().to_owned())
        }
        _ if burst.trim_start().starts_with(['=', ':']) => {
            span = before.len() + 1..limit.len();
            let number = burst.trim_start_matches([' ', '=', ':']).split(' ').next().unwrap_or_default();
            let before = match spelt_otherwise(before) {
                Some(Error { problem: ShorthandProblem::Foreign { meant, .. }, .. }) => meant,
                _ => before.to_owned(),
            };
            ("a space separates `burst` from its number".to_owned(), format!("{before} burst {number}"))
        }
        _ if number.contains(|char: char| !char.is_ascii_digit() && char != '_') => {
            let mut groups = number.split(|char: char| !char.is_ascii_digit());
            if groups.next().is_none_or(|first| first.len() > 3)
                || !groups.clone().all(|group| group.len() == 3)
            {
                return None;
            }
            span = start..start + number.len();
            let by =
                [(',', "a comma"), (' ', "a space")].into_iter().find(|(char, _)| number.contains(*char));
            let by = by.map_or("an apostrophe", |(_, by)| by);
            let digits = number.replace(|char: char| !char.is_ascii_digit(), "_");
            (format!("{by} cannot group digits"), format!("{digits}{}", &limit[span.end..]))
        }
        short @ ("rps" | "rpm" | "rph" | "rpd") if after.is_empty() => {
            let message = format!("`{word}` is not a period");
            (message, format!("{number}/{}", &short[2..]))
        }
        "r" | "req" | "reqs" | "request" | "requests" => {
            (unexpected(word), format!("{number} {after}").replace(" /", "/"))
        }
        "a" | "an" | "each" | "every" => (unexpected(word), format!("{number} per {after}")),
        _ if CONCURRENT.contains(&rest.to_ascii_lowercase().as_str()) => {
            (unexpected(rest), format!("{number} in flight"))
        }
        _ if rest.starts_with('/') && rest.ends_with(" in flight") => {
            ("a limit of requests in flight has no period".to_owned(), format!("{number} in flight"))
        }
        _ => return None,
    };
    read(&meant).ok()?;
    Some(Error { span, problem: ShorthandProblem::Foreign { message, meant } })
}

/// What is wrong with a limit whose dimension stands behind a second `per` or `/`: `10/s per ip`.
fn counted_per(text: &str) -> Option<Error> {
    let (limit, found) = [" per ", "/"].into_iter().find_map(|per| {
        let (limit, found) = text.rsplit_once(per)?;
        Some((limit.trim_end(), found)).filter(|(limit, _)| limit.contains("per ") || limit.contains('/'))
    })?;
    let by = meant_dimension(found).or_else(|| dimension(found).ok().map(|_| found.to_owned()))?;
    let limit = match read(limit)
        .err()
        .map(|error| spelt_otherwise(limit).map_or(error.problem, |error| error.problem))
    {
        None => limit.to_owned(),
        Some(ShorthandProblem::Foreign { meant, .. }) => meant,
        Some(_) => return None,
    };
    let span = text.len() - found.len()..text.len();
    let message = format!("`{found}` is what to count by, not a period");
    Some(Error { span, problem: ShorthandProblem::Foreign { message, meant: format!("{limit} by {by}") } })
}

/// The dimension that is meant by a word of others, or by one in capitals.
fn meant_dimension(text: &str) -> Option<String> {
    let word = text.trim().to_ascii_lowercase();
    let word = word.strip_prefix("each ").unwrap_or(&word);
    let squeezed = word.replace(['-', '_', ' ', '$'], "");
    let foreign = FOREIGN_DIMENSIONS.iter().find(|(words, _)| words.split(' ').any(|one| one == squeezed));
    if let Some((_, meant)) = foreign {
        return Some((*meant).to_owned());
    }
    let is_header =
        word.contains('-') && !word.contains(':') && http::HeaderName::from_bytes(word.as_bytes()).is_ok();
    let meant = match word.split_once(':') {
        Some(("jwt" | "token" | "claims", name)) => format!("claim:{name}"),
        _ if is_header => format!("header:{word}"),
        _ => word.to_owned(),
    };
    (meant != text && dimension(&meant).is_ok()).then_some(meant)
}

/// Words of others, without `-`, `_`, blanks and `$`, and the dimension that each means.
const FOREIGN_DIMENSIONS: [(&str, &str); 4] = [
    (
        "client clientip address ipaddress addr remoteaddr binaryremoteaddr remoteaddress src source sourceip ips",
        "ip",
    ),
    ("user users consumers customer clientid apikey key token credential account", "consumer"),
    ("org organization organisation team tenants", "tenant"),
    ("endpoint routes service", "route"),
];

/// Units of time that are shorter than any period.
const SHORT_UNITS: [&str; 5] = ["ms", "msec", "millisecond", "milliseconds", "us"];

const UNLIMITED: [&str; 6] = ["unlimited", "infinite", "infinity", "none", "no limit", "off"];

const CONCURRENT: [&str; 8] = [
    "inflight",
    "in-flight",
    "in_flight",
    "concurrent",
    "concurrent requests",
    "parallel",
    "simultaneous",
    "connections",
];

/// Reads one dimension: `ip`, `header:x-api-key`.
///
/// # Errors
/// Where it is none.
pub fn dimension(text: &str) -> Result<Dimension, ShorthandProblem> {
    let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
    let token = || http::HeaderName::from_bytes(name?.as_bytes()).ok();
    let named = || name.filter(|name| !name.is_empty()).map(str::to_owned);
    let (kind, found) = match (word, name) {
        ("consumer", None) => return Ok(Dimension::Consumer),
        ("tenant", None) => return Ok(Dimension::Tenant),
        ("ip", None) => return Ok(Dimension::Ip),
        ("route", None) => return Ok(Dimension::Route),
        ("method", None) => return Ok(Dimension::Method),
        ("host", None) => return Ok(Dimension::Host),
        // The normalised host counts instead, because the field has many spellings, and over HTTP/2 it may be absent.
        ("header", Some(_)) if token() == Some(http::header::HOST) => return Ok(Dimension::Host),
        ("header", _) => ("header", token().map(Dimension::Header)),
        // It is checked like a name of a header field, because both are tokens.
        ("cookie", _) => ("cookie", token().and_then(|_| named()).map(Dimension::Cookie)),
        ("query", _) => ("query", named().map(Dimension::Query)),
        ("param", _) => ("param", named().map(Dimension::Param)),
        ("claim", _) => ("claim", named().map(Dimension::Claim)),
        ("entry", _) => ("entry", named().map(Dimension::Entry)),
        ("body", _) => ("body", name.and_then(|path| JsonPath::parse(path).ok()).map(Dimension::Body)),
        _ => return Err(ShorthandProblem::UnknownDimension { found: text.to_owned() }),
    };
    found.ok_or_else(|| ShorthandProblem::DimensionName { found: text.to_owned(), kind })
}

/// Reads one dimension that a choice of an upstream or a server may stay by: those of policies, and `path`.
///
/// # Errors
/// Where it is none.
pub fn dimension_of_choice(text: &str) -> Result<Dimension, ShorthandProblem> {
    if text == "path" { Ok(Dimension::Path) } else { dimension(text) }
}

struct ShorthandReader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> ShorthandReader<'t> {
    /// A whole number of units that is not 0.
    fn burst(&mut self) -> Result<NonZeroU64, Error> {
        self.skip_space();
        match self.rest().starts_with(|char: char| char.is_ascii_digit()) {
            true => self.rate()?.whole(ShorthandProblem::ZeroBurst),
            false => Err(self.error_here(ShorthandProblem::NoBurst)),
        }
    }

    /// A number of units, which may have decimals.
    fn rate(&mut self) -> Result<DecimalNumber, Error> {
        self.skip_space();
        let (mut span, mut digits) = self.number()?.ok_or_else(|| {
            let digits =
                self.rest().strip_prefix('-').map(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
            self.error_here(match digits {
                Some(true) => ShorthandProblem::Negative,
                None if self.rest().is_empty() => ShorthandProblem::Empty,
                None if UNLIMITED.contains(&self.rest().trim_end().to_ascii_lowercase().as_str()) => {
                    ShorthandProblem::Unlimited { found: self.rest().trim_end().to_owned() }
                }
                _ => ShorthandProblem::NoNumber,
            })
        })?;
        let mut scale = 1;
        if self.rest().starts_with('.') {
            self.at += 1;
            let decimals = self.token(|char| char.is_ascii_digit());
            span.end = self.at;
            let wrong = |problem| Error { span: span.clone(), problem };
            if decimals.is_empty() {
                return Err(wrong(ShorthandProblem::Fraction));
            }
            let number = format!("{digits}{decimals}").parse().ok();
            scale =
                u32::try_from(decimals.len()).ok().and_then(|length| 10_u64.checked_pow(length)).unwrap_or(0);
            digits = number.filter(|_| scale > 0).ok_or_else(|| wrong(ShorthandProblem::TooLarge))?;
        }
        let start = self.at;
        let found = self.token(char::is_alphabetic);
        if !matches!(found, "" | "per" | "in" | "by" | "burst") {
            return Err(Error {
                span: start..self.at,
                problem: ShorthandProblem::Letters { found: found.to_owned() },
            });
        }
        // Back to before the word, so that whoever reads on finds it.
        self.at = start;
        Ok(DecimalNumber { span, digits, scale })
    }

    /// `/m`, `/10s`, `per minute`, `/month`.
    fn period(&mut self) -> Result<Period, Error> {
        self.skip_space();
        if self.rest().starts_with('/') {
            self.at += 1;
        } else if !self.takes_word("per") {
            return Err(self.error_here(ShorthandProblem::NoPeriod));
        }
        self.skip_space();
        let start = self.at;
        let count = self.number()?.map(|(_, number)| number);
        if count.is_some() && self.rest().starts_with('.') {
            self.skip(|char| char.is_ascii_digit() || char == '.');
            return Err(Error { span: start..self.at, problem: ShorthandProblem::Fraction });
        }
        self.skip_space();
        let unit = self.token(|char| char.is_alphanumeric());
        let calendar = CalendarUnit::of_word(unit).filter(|_| count.is_none());
        if let Some(unit) = calendar {
            return Ok(Period::Calendar(unit));
        }
        let unit_ns = unit_ns(unit).ok_or_else(|| Error {
            span: self.at - unit.len()..self.at,
            problem: match CalendarUnit::of_word(unit.trim_end_matches('s')).filter(|_| count.is_some()) {
                Some(unit) => ShorthandProblem::CalendarCount { unit: unit.word() },
                None => ShorthandProblem::UnknownUnit { found: unit.to_owned() },
            },
        })?;
        let wrong = |problem| Error { span: start..self.at, problem };
        // Not more, because the arithmetic of limits has room for times up to 2^63 nanoseconds.
        let period_ns = count.unwrap_or(1).checked_mul(unit_ns).filter(|ns| i64::try_from(*ns).is_ok());
        NonZeroU64::new(period_ns.ok_or_else(|| wrong(ShorthandProblem::TooLarge))?)
            .map(Period::Fixed)
            .ok_or_else(|| wrong(ShorthandProblem::ZeroPeriod))
    }

    /// Whether `in flight` follows; passes it then.
    fn takes_in_flight(&mut self) -> bool {
        let before = self.at;
        let found = self.takes_word("in") && self.takes_word("flight");
        if !found {
            self.at = before;
        }
        found
    }

    fn dimensions(&mut self) -> Result<Vec<Dimension>, Error> {
        let mut by = Vec::new();
        loop {
            self.skip(|char| char.is_whitespace() || char == ',');
            let found = self.token(|char| !char.is_whitespace() && char != ',');
            if found.is_empty() {
                break;
            }
            let wrong = |problem| Error { span: self.at - found.len()..self.at, problem };
            if found == "burst" {
                return Err(wrong(ShorthandProblem::Unexpected { found: found.to_owned() }));
            }
            let dimension = dimension(found).map_err(wrong)?;
            if by.contains(&dimension) {
                return Err(wrong(ShorthandProblem::DimensionTwice { found: found.to_owned() }));
            }
            by.push(dimension);
        }
        if by.is_empty() { Err(self.error_here(ShorthandProblem::NoDimension)) } else { Ok(by) }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.skip_space();
        let start = self.at;
        match self.token(|char| !char.is_whitespace()) {
            "" => Ok(()),
            found => Err(Error {
                span: start..self.at,
                problem: ShorthandProblem::Unexpected { found: found.to_owned() },
            }),
        }
    }

    /// Digits with underscores; `None` where there is no digit.
    fn number(&mut self) -> Result<Option<(Range<usize>, u64)>, Error> {
        let start = self.at;
        if !self.rest().starts_with(|char: char| char.is_ascii_digit()) {
            return Ok(None);
        }
        let digits = self.token(|char| char.is_ascii_digit() || char == '_').replace('_', "");
        let span = start..self.at;
        match digits.parse() {
            Ok(number) => Ok(Some((span, number))),
            Err(_) => Err(Error { span, problem: ShorthandProblem::TooLarge }),
        }
    }

    /// Whether the next word is this one; passes it then.
    fn takes_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let behind = self.rest().strip_prefix(word);
        let found = behind
            .is_some_and(|behind| !behind.starts_with(|char: char| char.is_alphanumeric() || char == '_'));
        if found {
            self.at += word.len();
        }
        found
    }

    fn token(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let start = self.at;
        self.skip(belongs);
        &self.text[start..self.at]
    }

    fn skip_space(&mut self) {
        self.skip(char::is_whitespace);
    }

    fn skip(&mut self, belongs: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|char| !belongs(char)).unwrap_or(rest.len());
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// An error over the word that starts here.
    fn error_here(&self, problem: ShorthandProblem) -> Error {
        let rest = self.rest();
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        Error { span: self.at..self.at + length, problem }
    }
}

/// A period in the largest unit that divides it.
pub fn show_period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (unit_seconds, unit) =
        units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    match seconds / unit_seconds {
        1 => unit.to_owned(),
        count => format!("{count}{unit}"),
    }
}

fn unit_ns(unit: &str) -> Option<u64> {
    let seconds = match unit {
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        _ => return None,
    };
    Some(seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (u64, u64, u64, Vec<Dimension>) {
        let Shorthand { window, by, .. } = parse(text).expect("a limit");
        (window.limit().get(), window.period_ns().get() / 1_000_000_000, window.burst().get(), by)
    }

    fn error(text: &str) -> (&str, ShorthandProblem) {
        let Error { span, problem } = parse(text).expect_err("a mistake");
        (&text[span], problem)
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(read("100/m burst 20 by ip"), (100, 60, 20, vec![Dimension::Ip]));
        assert_eq!(read("5/s"), (5, 1, 5, vec![]));
        assert_eq!(read("10_000/d"), (10_000, 86_400, 10_000, vec![]));
        assert_eq!(read("100/10s"), (100, 10, 100, vec![]));
        assert_eq!(read(" 100 / 5 m "), (100, 300, 100, vec![]));
        assert_eq!(read("100 per minute"), (100, 60, 100, vec![]));
        assert_eq!(read("1 per 2 hours burst 3"), (1, 7_200, 3, vec![]));
        let both = vec![Dimension::Consumer, Dimension::Route];
        assert_eq!(read("5/s by consumer, route").3, both);
        assert_eq!(read("5/s by consumer route").3, both);
        assert_eq!(read("5/s by consumer,route").3, both);
        let header = Dimension::Header(http::HeaderName::from_static("x-api-key"));
        assert_eq!(read("5/s by header:X-Api-Key").3, [header]);
        assert_eq!(read("5/s by host").3, [Dimension::Host]);
        assert_eq!(read("5/s by header:Host").3, [Dimension::Host]);
        assert_eq!(
            read("5/s by query:q param:id").3,
            [Dimension::Query("q".into()), Dimension::Param("id".into())]
        );
    }

    #[test]
    fn a_unit_without_a_number_is_one_of_the_calendar_from_the_day_on() {
        for (text, limit, unit) in [
            ("1000/day", 1_000, CalendarUnit::Day),
            ("5_000 per week by ip", 5_000, CalendarUnit::Week),
            ("10_000/month by consumer", 10_000, CalendarUnit::Month),
            ("9 / year", 9, CalendarUnit::Year),
        ] {
            let window = parse(text).expect("a limit").window;
            let calendar = window.calendar().expect("a calendar");
            assert_eq!((window.limit().get(), calendar.unit()), (limit, unit), "{text}");
            assert_eq!(
                (window.algorithm(), calendar.zone().name()),
                (Algorithm::FixedWindow, "UTC"),
                "{text}"
            );
        }
        for (text, days) in [("9/d", 1), ("9/1day", 1), ("9 per 2 days", 2), ("9/days", 1), ("9/30d", 30)] {
            let window = parse(text).expect("a limit").window;
            assert_eq!((read(text).1, window.calendar()), (days * 86_400, None), "{text}");
        }
        for (text, found, unit) in
            [("9/2months", "months", "month"), ("9/1 month", "month", "month"), ("9/3year", "year", "year")]
        {
            assert_eq!(error(text), (found, ShorthandProblem::CalendarCount { unit }));
        }
        assert_eq!(error("9/weeks"), ("weeks", ShorthandProblem::UnknownUnit { found: "weeks".into() }));
        let (found, problem) = error("1.5/month by ip");
        assert_eq!((found, &problem), ("1.5", &ShorthandProblem::CalendarFraction { unit: "month" }));
        assert_eq!(problem.to_string(), "a limit per month must be whole");
        assert_eq!(error("0/month"), ("0", ShorthandProblem::ZeroLimit));
    }

    #[test]
    fn reads_what_is_in_flight() {
        let read = parse("32 in flight by consumer").expect("a limit");
        assert_eq!((read.window.algorithm(), read.window.limit().get()), (Algorithm::Concurrency, 32));
        assert_eq!(read.by, [Dimension::Consumer]);
        assert_eq!(parse("1 in flight").expect("a limit").by, []);
    }

    #[test]
    fn what_other_gateways_write_is_told_as_it_is_written_here() {
        for (text, found, message, meant) in [
            ("10,000/d", "10,000", "a comma cannot group digits", "10_000/d"),
            ("1,000,000/d burst 5 by ip", "1,000,000", "a comma cannot group digits", "1_000_000/d burst 5"),
            ("10'000 per day", "10'000", "an apostrophe cannot group digits", "10_000 per day"),
            ("10 000/d", "10 000", "a space cannot group digits", "10_000/d"),
            ("10 inflight by ip", "inflight", "`inflight` is not expected here", "10 in flight"),
            ("10 concurrent by ip", "concurrent", "`concurrent` is not expected here", "10 in flight"),
            ("10 In-Flight", "In-Flight", "`In-Flight` is not expected here", "10 in flight"),
            ("300rpm", "rpm", "`rpm` is not a period", "300/m"),
            ("5 RPS by ip", "RPS", "`RPS` is not a period", "5/s"),
            ("70rph", "rph", "`rph` is not a period", "70/h"),
            ("10r/s", "r/s", "`r` is not expected here", "10/s"),
            (
                "3 requests per minute",
                "requests per minute",
                "`requests` is not expected here",
                "3 per minute",
            ),
            ("300 a minute", "a minute", "`a` is not expected here", "300 per minute"),
            ("5/s burst=10 by ip", "burst=10", "a space separates `burst` from its number", "5/s burst 10"),
            ("10/s per ip", "ip", "`ip` is what to count by, not a period", "10/s by ip"),
            ("5/m/user", "user", "`user` is what to count by, not a period", "5/m by consumer"),
            (
                "9 requests per minute per X-Key-Id",
                "X-Key-Id",
                "`X-Key-Id` is what to count by, not a period",
                "9 per minute by header:x-key-id",
            ),
            (
                "5r/m burst=5 nodelay",
                "burst=5 nodelay",
                "a space separates `burst` from its number",
                "5/m burst 5",
            ),
            ("32 in flight burst 3", "burst 3", "a limit of requests in flight has no burst", "32 in flight"),
            ("5/m in flight", "/m in flight", "a limit of requests in flight has no period", "5 in flight"),
        ] {
            let Error { span, problem } = parse(text).expect_err("it is not written so");
            assert_eq!((&text[span], problem.to_string().as_str()), (found, message), "{text}");
            assert_eq!(problem.hint(), format!("write `{meant}`"), "{text}");
            assert!(parse(meant).is_ok(), "{meant}");
        }
        let Error { span, problem } = parse("100/m, 5/s by ip").expect_err("it is two");
        assert_eq!((span, problem.to_string().as_str()), (0..10, "a text can hold only one limit"));
        assert_eq!(problem.hint(), "write `[\"100/m\", \"5/s\"]`");
        for text in ["100/m by ip, 5/s by ip", "100/m by ip; 5/s by ip", "100/m by ip and 5/s by ip"] {
            let problem = parse(text).expect_err("it is two").problem;
            assert_eq!(problem.hint(), "write `[\"100/m by ip\", \"5/s by ip\"]`");
        }
        for text in ["10,00/d", "10, 5/s", "300rpx", "10 inflights", "5 requests", "5 a fortnight", "10k/d"] {
            let problem = parse(text).expect_err("it means nothing").problem;
            assert!(!matches!(problem, ShorthandProblem::Foreign { .. }), "{text}: {problem}");
        }
    }

    #[test]
    fn a_dimension_in_words_of_others_is_told_as_it_is_written_here() {
        for (word, meant) in [
            ("IP", "ip"),
            ("$remote_addr", "ip"),
            ("api_key", "consumer"),
            ("X-Tenant-Id", "header:x-tenant-id"),
            ("jwt:sub", "claim:sub"),
        ] {
            let problem = dimension(word).expect_err("it is none");
            assert_eq!(problem.hint(), format!("write `{meant}`"), "{word}");
            assert!(dimension(meant).is_ok(), "{meant}");
        }
        assert!(dimension("fortnight").expect_err("it is none").hint().starts_with("write consumer, tenant"));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        assert_eq!(error(""), ("", ShorthandProblem::Empty));
        assert_eq!(error("fast"), ("fast", ShorthandProblem::NoNumber));
        for text in ["unlimited", "None", "no limit "] {
            let problem = parse(text).expect_err("it is no number").problem;
            assert_eq!(problem, ShorthandProblem::Unlimited { found: text.trim_end().to_owned() });
            assert!(problem.hint().contains("ctl unlimited add"));
        }
        assert!(error("0/s").1.hint().contains("ctl block add"));
        assert_eq!(error("-5/s"), ("-5/s", ShorthandProblem::Negative));
        assert_eq!(error("_5/s"), ("_5/s", ShorthandProblem::NoNumber));
        assert_eq!(error("0/s"), ("0", ShorthandProblem::ZeroLimit));
        assert_eq!(error("5/s burst 0"), ("0", ShorthandProblem::ZeroBurst));
        assert_eq!(error("5/0s"), ("0s", ShorthandProblem::ZeroPeriod));
        assert_eq!(error("5/s burst"), ("", ShorthandProblem::NoBurst));
        assert_eq!(error("5/s burst by ip"), ("by", ShorthandProblem::NoBurst));
        assert_eq!(error("5"), ("", ShorthandProblem::NoPeriod));
        assert_eq!(error("1.5 in flight"), ("1.5", ShorthandProblem::Fraction));
        for (text, hint) in [
            ("100/500ms", "per second, for example `200/s`"),
            ("100/m burst 20 nodelay", "a burst is admitted at once"),
            ("100/m by tier", "write `limit = \"tier\"`"),
        ] {
            assert!(error(text).1.hint().contains(hint), "{text}");
        }
        assert_eq!(error("5/w"), ("w", ShorthandProblem::UnknownUnit { found: "w".into() }));
        assert_eq!(error("5/"), ("", ShorthandProblem::UnknownUnit { found: "".into() }));
        assert_eq!(error("99999999999999999999/s"), ("99999999999999999999", ShorthandProblem::TooLarge));
        assert_eq!(error("1/999999999d"), ("999999999d", ShorthandProblem::TooLarge));
        assert_eq!(error("32 in").1, ShorthandProblem::NoPeriod);
        assert_eq!(error("0 in flight").1, ShorthandProblem::ZeroLimit);
        assert_eq!(error("5/s by ip burst 3").1, ShorthandProblem::Unexpected { found: "burst".into() });
        assert_eq!(error("5/s extra"), ("extra", ShorthandProblem::Unexpected { found: "extra".into() }));
        assert_eq!(error("5/s by"), ("", ShorthandProblem::NoDimension));
        assert_eq!(error("5/s by ips"), ("ips", ShorthandProblem::UnknownDimension { found: "ips".into() }));
        assert_eq!(error("5/s by ip, ip"), ("ip", ShorthandProblem::DimensionTwice { found: "ip".into() }));
        let nameless = ShorthandProblem::DimensionName { found: "header:".into(), kind: "header" };
        assert_eq!(error("5/s by header:"), ("header:", nameless));
        assert_eq!(
            error("5/s by claims:sub").1,
            ShorthandProblem::UnknownDimension { found: "claims:sub".into() }
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_and_every_span_lies_in_it(text in "\\PC{0,30}") {
            if let Err(error) = parse(&text) {
                prop_assert!(text.get(error.span).is_some());
            }
        }

        #[test]
        fn what_is_written_is_read(limit in 1u64.., count in 1u64..1_000, burst in 1u64..) {
            let text = format!("{limit}/{count}m burst {burst} by ip");
            prop_assert_eq!(read(&text), (limit, count * 60, burst, vec![Dimension::Ip]));
        }
    }

    #[test]
    fn numbers_that_are_not_whole_say_what_is_wrong_with_them() {
        for text in ["5/s burst 0.5", "1.5 in flight", "5./s"] {
            assert_eq!(parse(text).map_err(|error| error.problem), Err(ShorthandProblem::Fraction), "{text}");
        }
        assert_eq!(error("5/1.5s by ip"), ("1.5", ShorthandProblem::Fraction));
        for (text, found) in [("10k/d", "k"), ("2M/h by ip", "M"), ("5/s burst 1k", "k")] {
            let problem = ShorthandProblem::Letters { found: found.to_owned() };
            assert_eq!(parse(text).map_err(|error| error.problem), Err(problem), "{text}");
        }
        assert!(parse("5per minute").is_ok() && parse("5in flight").is_ok());
    }

    #[test]
    fn decimal_rates_are_counted_in_whole_units_over_the_fewest_periods() {
        for (text, limit, seconds) in [
            ("0.5/s", 1, 2),
            ("1.67/s", 5, 3),
            ("0.33/s", 1, 3),
            ("2.5 per minute burst 7", 5, 120),
            ("1.0/s", 1, 1),
            ("1_000.4/s", 1_000, 1),
            ("0.0001/s", 1, 10_000),
            ("12.5/10s", 25, 20),
        ] {
            let read = parse(text).expect("a limit");
            assert_eq!(
                (read.window.limit().get(), read.window.period_ns().get()),
                (limit, seconds * 1_000_000_000),
                "{text}"
            );
            let meant = read.counted_as.expect("it is decimal");
            let whole = parse(&meant).expect("a limit");
            assert_eq!((whole.window, whole.counted_as), (read.window, None), "{meant}");
        }
        for (text, problem) in [
            ("0.000001/s", ShorthandProblem::TooSlow),
            ("0.0/s", ShorthandProblem::ZeroLimit),
            ("0.00001/365d", ShorthandProblem::TooSlow),
            ("0.0001/30d", ShorthandProblem::TooLarge),
            ("0.00000000000000000001/s", ShorthandProblem::TooLarge),
        ] {
            assert_eq!(parse(text).map_err(|error| error.problem), Err(problem), "{text}");
        }
    }
}
