//! Reads windows and how they count: `limit`, `algorithm`, `max-delay`, `overshoot` and `when-redis-down`, which a
//! policy and each of its tiers may have.

use std::num::NonZeroU64;
use std::time::Duration;

use base::words;
use limit::{Algorithm, Quota, sliding_log};
use policy::counting::shorthand;
use policy::counting::shorthand::{Shorthand, ShorthandProblem};
use policy::definition::Dimension;

use crate::keys::foreign::foreign_value;
use crate::keys::policy::ALGORITHMS;
use crate::limits::limit_text;
use crate::limits::time_zone::CalendarKeys;
use crate::load::text::Text;
use crate::printer::{array, text as show_text};
use crate::reader::{Table, Value};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting {
    pub(crate) algorithm: Algorithm,
    /// Whether the algorithm is written. Otherwise windows of the calendar are fixed ones.
    pub(crate) is_chosen: bool,
    pub(crate) calendar: CalendarKeys,
    pub(crate) delay_max: Option<Duration>,
}

impl Default for Counting {
    fn default() -> Self {
        Counting {
            algorithm: Algorithm::TokenBucket,
            is_chosen: false,
            calendar: CalendarKeys::default(),
            delay_max: None,
        }
    }
}

impl Counting {
    /// The same with another algorithm. Only a leaky bucket has a delay.
    pub(crate) fn by(self, algorithm: Option<Algorithm>) -> Counting {
        let is_chosen = self.is_chosen || algorithm.is_some();
        match algorithm {
            Some(algorithm) if algorithm != self.algorithm => {
                Counting { algorithm, is_chosen, delay_max: None, ..self }
            }
            _ => Counting { is_chosen, ..self },
        }
    }
}

/// Reads `algorithm`, `max-delay`, `time-zone` and `anchor`; what is not written is that of `base`.
pub(crate) fn counting(table: &Table<'_>, base: Counting) -> Counting {
    let algorithm = table.value("algorithm").map(|value| value.choice(&ALGORITHMS));
    let delay_max = table.value("max-delay");
    let calendar = CalendarKeys::read(table).or(base.calendar);
    let is_chosen = base.is_chosen || algorithm.is_some();
    let mut counting = Counting { is_chosen, calendar, ..base.by(algorithm.flatten()) };
    if let Some(value) = delay_max {
        if counting.algorithm == Algorithm::LeakyBucket {
            counting.delay_max = value.duration();
        } else {
            value.wrong_key(
                "only a leaky bucket lets requests wait",
                "leave `max-delay` out, or write `algorithm = \"leaky-bucket\"`",
            );
        }
    }
    counting
}

/// One dimension, as `by` names them.
pub(crate) fn dimension(text: &Text<'_>) -> Option<Dimension> {
    match shorthand::dimension(&text.text) {
        Ok(dimension) => {
            text.spell(dimension.to_string());
            Some(dimension)
        }
        Err(problem) => {
            no_dimension(text, shorthand::DIMENSIONS, &problem.hint());
            None
        }
    }
}

fn no_dimension(text: &Text<'_>, names: &[&str], hint: &str) {
    let kind = text.text.trim_end_matches(':');
    let is_kind = names.iter().any(|name| name.strip_suffix(':') == Some(kind));
    // The balance of an upstream says what it does with the dimension.
    let hash = if text.key == "balance" { "hash:" } else { "" };
    let foreign = || foreign_value(&text.key, &text.text, &[]).map(str::to_owned);
    let meant = match is_kind {
        true => Some(format!("write `{hash}{kind}:NAME`")),
        false => words::did_you_mean(&text.text, names)
            .or_else(foreign)
            .or_else(|| text.each().filter(|_| text.text.contains(','))),
    };
    text.wrong(format!("{} is not a dimension", text.shown()), meant.unwrap_or_else(|| hint.to_owned()));
}

/// One dimension that a choice of an upstream or a server stays by. Only the head of a request is known then.
pub(crate) fn dimension_of_choice(text: &Text<'_>) -> Option<Dimension> {
    let dimension = match shorthand::dimension_of_choice(&text.text) {
        Ok(dimension) => dimension,
        Err(problem) => {
            let of_balance = if text.key == "balance" { "write `hash:" } else { "write `" };
            let meant = problem.hint().strip_prefix("write `").map(|meant| format!("{of_balance}{meant}"));
            let hint = meant.as_deref().unwrap_or(WRITE_CHOICE);
            no_dimension(text, shorthand::DIMENSIONS_OF_CHOICES, hint);
            return None;
        }
    };
    let message = match dimension {
        Dimension::Body(_) => "a field of the body is not known when an upstream or a server is chosen",
        Dimension::Entry(_) => "an entry of a descriptor is not known when an upstream or a server is chosen",
        _ => {
            text.spell(dimension.to_string());
            return Some(dimension);
        }
    };
    text.wrong(message, "use a header, for example `header:x-user`");
    None
}

/// The windows of a text or of an array of them.
pub(crate) fn windows(value: &Value<'_>, counting: Counting) -> Vec<Quota> {
    let mut windows = Vec::new();
    for text in value.texts() {
        if text.text == "tier" {
            let (message, hint) = match value.is_array() {
                true => ("`tier` cannot be combined with other limits", "write `limit = \"tier\"`"),
                false => ("a tier's limit cannot be `tier`", "write it, for example `limit = \"100/m\"`"),
            };
            text.wrong(message, hint);
            continue;
        }
        let Some((window, by)) = window(&text, counting, hint_without_by) else { continue };
        if !by.is_empty() {
            let by = array(by.iter().map(|by| show_text(&by.to_string())));
            text.wrong(
                "a limit of a policy or a tier cannot name dimensions",
                format!("end it before `by`: the policy that uses it says `by = {by}`"),
            );
        }
        text.spell(limit_text::show_window(&window));
        let is_fixed = |one: &Quota| one.algorithm() == Algorithm::FixedWindow && one.has_periods_of(&window);
        if windows.iter().any(is_fixed) && window.algorithm() == Algorithm::FixedWindow {
            text.warn(
                "two limits have this period: only the lower one ever refuses",
                "leave the higher one out",
            );
        }
        windows.push(window);
    }
    windows
}

/// One window, and the dimensions that its text names after `by`.
/// `hint` says what to write in the place of one that cannot be read.
pub(crate) fn window(
    text: &Text<'_>,
    counting: Counting,
    hint: fn(&ShorthandProblem) -> String,
) -> Option<(Quota, Vec<Dimension>)> {
    match shorthand::parse(&text.text) {
        // Whatever the algorithm, because concurrency limits have only one algorithm.
        Ok(Shorthand { window, by, .. }) if window.algorithm() == Algorithm::Concurrency => {
            Some((window, by))
        }
        Ok(Shorthand { window, by, has_burst, counted_as }) => {
            let is_bucket = matches!(counting.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
            if has_burst && (window.calendar().is_some() || !is_bucket) {
                let way_on = match window.calendar() {
                    Some(calendar) => {
                        let (limit, days, burst) = (window.limit(), calendar.unit().days(), window.burst());
                        format!("write a period in `d`: `{limit}/{days}d burst {burst}`")
                    }
                    None => "remove `algorithm`".to_owned(),
                };
                text.wrong(
                    "`burst` needs a token bucket or a leaky bucket",
                    format!("remove `burst` from the limit, or {way_on}"),
                );
            }
            let window = counted(text, window, counting)?;
            if let Some(shown) = counted_as {
                text.warn(format!("{} is counted as {shown}", text.shown()), format!("write `{shown}`"));
            }
            Some((window, by))
        }
        // Without the error's own words, because they would quote the text, which may be a secret if it came from
        // outside the file.
        Err(error) if text.has_reference => {
            let problem = match error.problem {
                // It quotes the text too.
                ShorthandProblem::Foreign { .. } => ShorthandProblem::NoPeriod,
                problem => problem,
            };
            text.wrong(format!("{} is not a limit", text.shown()), hint(&problem));
            None
        }
        Err(error) => {
            text.wrong_within(error.span, error.problem.to_string(), hint(&error.problem));
            None
        }
    }
}

/// The same for a limit of a policy or a tier, whose `by` is a key of the policy.
pub(crate) fn hint_without_by(problem: &ShorthandProblem) -> String {
    match problem {
        ShorthandProblem::Unexpected { .. } => {
            "only `burst` and a number may follow the period; dimensions go into the policy's `by`".to_owned()
        }
        other => other.hint().replace(" by consumer", ""),
    }
}

/// The window with its policy's or tier's algorithm.
pub(crate) fn counted(text: &Text<'_>, window: Quota, counting: Counting) -> Option<Quota> {
    if window.algorithm() == Algorithm::Concurrency {
        return Some(window);
    }
    let limit = window.limit();
    if let Some(calendar) = window.calendar() {
        if counting.is_chosen && counting.algorithm != Algorithm::FixedWindow {
            let unit = calendar.unit();
            let (word, days) = (unit.word(), unit.days());
            text.wrong(
                format!("a limit per calendar {word} must be a fixed window"),
                format!(
                    "write `algorithm = \"fixed-window\"`, or a period of fixed length: `{limit}/{days}d`"
                ),
            );
            return None;
        }
        return Some(counting.calendar.put_on(window));
    }
    if counting.algorithm == Algorithm::SlidingLog && limit.get() > sliding_log::LIMIT_MAX {
        text.wrong(
            format!("a sliding log stores every unit, so its limit is at most {}", sliding_log::LIMIT_MAX),
            "write a smaller limit, or `algorithm = \"sliding-window\"`",
        );
        return None;
    }
    let Some(delay_max) = counting.delay_max else { return Some(window.counted_by(counting.algorithm)) };
    // The queue holds what drains within `max-delay`, so that even its last request waits no longer.
    let drains = delay_max.as_nanos() * u128::from(limit.get()) / u128::from(window.period_ns().get());
    let queue = u64::try_from(drains).unwrap_or(u64::MAX).min(window.burst().get());
    let Some(queue) = NonZeroU64::new(queue) else {
        text.wrong(
            "`max-delay` is shorter than the time between two requests, so no request could wait",
            "write a longer `max-delay`, or a higher limit",
        );
        return None;
    };
    Some(Quota::new(counting.algorithm, limit, window.period_ns(), queue))
}

/// `overshoot`: a share of the window, or the number 0.
pub(crate) fn overshoot(value: &Value<'_>) -> Option<u32> {
    if value.is_zero() { Some(0) } else { value.share_ppm() }
}

/// Writes windows as `limit` has them.
pub(crate) fn show(windows: &[Quota]) -> String {
    array(windows.iter().map(|window| show_text(&limit_text::show_window(window))))
}

const WRITE_CHOICE: &str = "write consumer, tenant, ip, route, method, host, path, header:<name>, cookie:<name>, \
                            query:<name>, param:<name> or claim:<name>";
