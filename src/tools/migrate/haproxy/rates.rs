//! Stick tables that count requests, and the rules that refuse by them.

use config::printer::text;

use super::super::draft::Section as Policy;
use super::Reading;
use super::conditions::Rate;
use super::lines::{Line, Section};
use super::rules::deny_status;
use super::values::time;

impl<'d> Reading<'d> {
    /// The policy of a rule that refuses clients above a rate; `None` if it cannot be said, which is listed.
    /// `is_changed` says whether another rule changes a field before it is counted.
    pub(super) fn rate(
        &mut self,
        rule: &'d Line,
        rate: &Rate,
        section: &'d Section,
        is_changed: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let mut key = Some("src".to_owned());
        let mut table = rate.table.clone();
        if let Some(counter) = &rate.counter {
            let begin = format!("http-request track-sc{counter}");
            let track = self.line(section, &begin);
            let is_plain = track.is_some_and(|track| track.condition().is_none());
            key = track.filter(|_| is_plain).map(|track| track.word(2).to_owned());
            table = table.or_else(|| track.and_then(|track| track.after("table")).map(str::to_owned));
        }
        let dimension = key.as_deref().and_then(dimension);
        let dimension = dimension.filter(|(it, _)| !it.strip_prefix("header:").is_some_and(is_changed));
        let period = self.period(section, table.as_deref());
        let (Some((dimension, may_be_absent)), Some(period)) = (dimension, period) else {
            let why = "only `http_req_rate` of `src` or of a header that no rule changes, tracked without a \
                condition, becomes a limit; all routes of this section are closed (501) until you rewrite it";
            self.draft.notes.left_out_line(rule.taken(), why);
            return None;
        };
        if deny_status(rule.taken()) != Some(429) {
            self.draft.notes.line_differs(rule, "refusals are answered 429");
        }
        let mut policy = Policy::new(table.unwrap_or_else(|| section.name.clone()));
        policy.key("by", format!("[{}]", text(&dimension)));
        policy.key("limit", text(&format!("{}/{period}", rate.most)));
        policy.key("algorithm", text("sliding-window"));
        // Refused requests count, because HAProxy counts them, too.
        policy.key("count-denied", true);
        if may_be_absent {
            policy.key("missing", text("skip"));
        }
        Some(self.draft.add_policy(policy))
    }

    /// The period of a table's `http_req_rate`, as a limit writes it.
    fn period(&self, section: &'d Section, table: Option<&str>) -> Option<String> {
        let section = match table {
            Some(name) => {
                self.sections.iter().find(|section| section.name == name && section.kind != "defaults")?
            }
            None => section,
        };
        let table = section.lines.iter().find(|line| line.begins("stick-table"))?;
        let stores = table.taken().after("store")?;
        let rate = stores.split(',').find_map(|stored| stored.strip_prefix("http_req_rate("));
        let rate = rate.or_else(|| table.words.iter().find_map(|word| word.strip_prefix("http_req_rate(")));
        let period = time(rate?.trim_end_matches(')'))?;
        let seconds = period.as_secs();
        (period.subsec_nanos() == 0 && seconds > 0).then(|| match seconds {
            1 => "s".to_owned(),
            60 => "m".to_owned(),
            3_600 => "h".to_owned(),
            seconds => format!("{seconds}s"),
        })
    }
}

/// The dimension of what is tracked, and whether requests may lack it.
fn dimension(key: &str) -> Option<(String, bool)> {
    if key == "src" {
        return Some(("ip".to_owned(), false));
    }
    let field = key.strip_prefix("req.hdr(").or_else(|| key.strip_prefix("hdr("))?.strip_suffix(')')?;
    let is_name = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_name && !field.is_empty()).then(|| (format!("header:{}", field.to_lowercase()), true))
}
