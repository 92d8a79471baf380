//! `rate_limit` of a descriptor as a policy: a window of the clock that Redis decides.

use config::printer::{array, text};

use super::super::draft::{Section, Verdict, legal};
use super::super::values::seconds;
use super::super::yaml::Node;
use super::Reading;
use super::descriptors::Step;

/// What a rule does, and what others call it.
pub(super) struct Limit {
    pub(super) name: Option<String>,
    pub(super) instead_of: Vec<String>,
    pub(super) verdict: Verdict,
}

struct Rate {
    requests: u64,
    /// As gateway.toml writes it.
    period: String,
}

impl Limit {
    pub(super) fn unlimited() -> Limit {
        Limit { name: None, instead_of: Vec::new(), verdict: Verdict::Unlimited }
    }
}

impl Reading<'_> {
    /// The limit of a descriptor to which these steps lead. `None` if that service would refuse it.
    pub(super) fn limit(&mut self, descriptor: &Node, written: &Node, path: &[Step]) -> Option<Limit> {
        let name = written.word("name").filter(|name| !name.is_empty()).map(|name| legal(name, "rule"));
        let replaced = written.list("replaces").iter().filter_map(|it| it.word("name").or_else(|| it.text()));
        let instead_of = replaced.map(|name| legal(name, "rule")).collect();
        let verdict = self.verdict(descriptor, written, path, name.as_deref())?;
        Some(Limit { name, instead_of, verdict })
    }

    fn verdict(
        &mut self,
        descriptor: &Node,
        written: &Node,
        path: &[Step],
        name: Option<&str>,
    ) -> Option<Verdict> {
        let is_quota = descriptor.is("quota_mode");
        if is_quota {
            let why =
                "it refuses nothing, like `shadow_mode`; excess is counted, but not reported in metadata";
            self.differs(descriptor, "quota_mode", why);
        }
        let is_shadow = descriptor.is("shadow_mode") || is_quota;
        if written.is("unlimited") {
            if let Some(beside) = RATE.iter().find(|key| written.has(key)) {
                self.refuse(written.line, format!("`unlimited` cannot be combined with `{beside}`"));
            }
            return Some(Verdict::Unlimited);
        }
        let Rate { requests, period } = rate(self, written)?;
        match (requests, is_shadow) {
            (0, false) => return Some(Verdict::Denied),
            (0, true) => {
                self.differs(
                    written,
                    "requests_per_unit: 0",
                    "in shadow nothing is refused; here nothing is counted either",
                );
                return Some(Verdict::Unlimited);
            }
            _ => {}
        }
        let mut policy = Section::new(self.name(path, name));
        policy.key(
            "by",
            array(self.counted_by(descriptor, path).iter().map(|key| text(&format!("entry:{key}")))),
        );
        policy.key("limit", text(&format!("{requests}/{period}")));
        policy.key("algorithm", text("fixed-window"));
        policy.key("overshoot", 0);
        if is_shadow {
            policy.key("shadow", true);
        }
        let verdict = Verdict::Limited(policy.name.clone());
        self.draft.policies.push(policy);
        Some(verdict)
    }

    /// The keys whose values are counted apart, each once. One value alone needs no counting.
    fn counted_by<'p>(&mut self, descriptor: &Node, path: &'p [Step]) -> Vec<&'p str> {
        let mut keys: Vec<&str> = Vec::new();
        for step in path.iter().filter(|step| step.value.ends_with('*') && !step.is_shared) {
            if !keys.contains(&step.key.as_str()) {
                keys.push(&step.key);
            }
        }
        if path.iter().any(|step| step.is_shared && keys.contains(&step.key.as_str())) {
            let why = "another entry of the rule has the same key, so each value has its own count: the limit is wider";
            self.differs(descriptor, "share_threshold", why);
        }
        keys
    }

    /// A name for a policy: the rule's, or the way that leads to it.
    fn name(&mut self, path: &[Step], name: Option<&str>) -> String {
        let mut wanted = self.domain.name.clone();
        match name {
            Some(name) => wanted.push_str(&format!("-{name}")),
            None => path.iter().for_each(|step| {
                wanted.push_str(&format!("-{}", step.key));
                if step.value != "*" {
                    wanted.push_str(&format!("-{}", step.value));
                }
            }),
        }
        let wanted = legal(&wanted, "limit");
        let mut unique = wanted.clone();
        for number in 2.. {
            if self.names.insert(unique.clone()) {
                break;
            }
            unique = format!("{wanted}-{number}");
        }
        unique
    }
}

/// How many requests in which period. `None`, and said so, if the service would refuse the file.
fn rate(reading: &mut Reading<'_>, written: &Node) -> Option<Rate> {
    if let Some(key) = RATE.iter().find(|key| exceeds_word(written, key)) {
        reading.refuse(written.line, format!("`{key}` is more than {}", u32::MAX));
    }
    let unit = written.word("unit").unwrap_or_default().to_ascii_lowercase();
    let Some((_, unit_seconds)) = UNITS.iter().find(|(known, _)| *known == unit) else {
        reading.left_out(
            written,
            &format!("unit: {unit}"),
            "it is not a unit, so the service refuses the file; its requests are not limited",
        );
        return None;
    };
    let multiplier = written.count("unit_multiplier").unwrap_or(1);
    // 0 if it is not written, because a number that nobody writes is nothing there.
    let requests = written.get("requests_per_unit").map_or(Some(0), Node::number);
    let period = unit_seconds.checked_mul(multiplier).filter(|period| (1..=PERIOD_MAX).contains(period));
    let (Some(requests), Some(period)) = (requests, period) else {
        reading.left_out(
            written,
            "rate_limit",
            "its number of requests or its period is invalid; its requests are not limited",
        );
        return None;
    };
    Some(Rate { requests, period: period_text(&unit, multiplier, period) })
}

/// A period; that of the calendar for a month or a year, because whoever writes one means it.
fn period_text(unit: &str, multiplier: u64, period_seconds: u64) -> String {
    let is_of_calendar = multiplier == 1 && ["month", "year"].contains(&unit);
    if is_of_calendar { unit.to_owned() } else { seconds(period_seconds) }
}

/// Whether a number of that service, which has 32 bits, is larger.
fn exceeds_word(written: &Node, key: &str) -> bool {
    let digits = written.get(key).and_then(Node::peek).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && digits.parse::<u32>().is_err()
}

/// What says how much a limit is.
const RATE: &[&str] = &["requests_per_unit", "unit", "unit_multiplier"];
/// Seconds of each unit, as that service counts them.
const UNITS: &[(&str, u64)] = &[
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];
/// A hundred years, because the arithmetic of limits has room for 292.
const PERIOD_MAX: u64 = 100 * 365 * 86_400;
