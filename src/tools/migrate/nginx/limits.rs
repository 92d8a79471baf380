//! `limit_req` and `limit_conn` as policies.

use config::printer::{array, text};

use super::super::draft::Section;
use super::Reading;
use super::lexer::Directive;
use super::scope::Scope;
use super::values::VarScope;

/// Who a zone counts.
struct Key {
    dimensions: Vec<String>,
    /// Whether each server is counted apart.
    by_server: bool,
    /// Whether requests without it are not counted, as nginx has it of an empty key.
    may_be_absent: bool,
}

impl<'d> Reading<'d> {
    /// The policies that hold at a place; `None` if one of its limits has no counterpart, which is listed.
    pub(super) fn limits(&mut self, scope: &Scope<'_>, around: &VarScope<'_, '_>) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut is_closed = false;
        for limit in scope.all("limit_req") {
            match self.rate(limit.taken(), scope, around) {
                Some(name) => names.push(name),
                None => is_closed |= !scope.is_on("limit_req_dry_run"),
            }
        }
        for limit in scope.all("limit_conn") {
            match self.in_flight(limit.taken(), scope, around) {
                Some(name) => names.push(name),
                None => is_closed |= !scope.is_on("limit_conn_dry_run"),
            }
        }
        for (word, status) in [("limit_req_status", "429"), ("limit_conn_status", "503")] {
            if let Some(found) = scope.last(word).filter(|found| found.taken().arg(0) != status) {
                let why = format!("refusals are answered {status}");
                self.draft.notes.line_differs(found, why);
            }
        }
        (!is_closed).then_some(names)
    }

    fn rate(&mut self, limit: &Directive, scope: &Scope<'_>, around: &VarScope<'_, '_>) -> Option<String> {
        let (zone, key, mut policy) = self.zone(limit, "limit_req_zone", option(limit, "zone")?, around)?;
        let Some((units, period)) = option(zone, "rate").and_then(rate) else {
            self.draft.notes.left_out_line(
                zone,
                "its rate cannot be read; its locations are closed (501) until you rewrite it",
            );
            return None;
        };
        let burst: u64 = option(limit, "burst").and_then(|burst| burst.parse().ok()).unwrap_or(0);
        let is_immediate = limit.args.iter().any(|arg| arg == "nodelay");
        if let Some(delay) = option(limit, "delay").filter(|_| !is_immediate) {
            let why = format!("nginx lets {delay} requests of a burst pass at once, here each waits");
            self.draft.notes.line_differs(limit, why);
        }
        if is_immediate || burst == 0 {
            // One more, because nginx admits one and then `burst` more at once.
            policy.key("limit", text(&format!("{units}/{period} burst {}", burst + 1)));
        } else {
            policy.key("limit", text(&format!("{units}/{period} burst {burst}")));
            policy.key("algorithm", text("leaky-bucket"));
        }
        self.note_shared_zone(limit, &policy);
        Some(self.named_policy(policy, key, scope.is_on("limit_req_dry_run")))
    }

    /// The policy of a `limit_conn`: nginx counts a connection only while a request is served on it.
    fn in_flight(
        &mut self,
        limit: &Directive,
        scope: &Scope<'_>,
        around: &VarScope<'_, '_>,
    ) -> Option<String> {
        let (_, key, mut policy) = self.zone(limit, "limit_conn_zone", limit.arg(0), around)?;
        let most: u64 = limit.arg(1).parse().ok().filter(|most| *most > 0)?;
        policy.key("limit", text(&format!("{most} in flight")));
        self.note_shared_zone(limit, &policy);
        Some(self.named_policy(policy, key, scope.is_on("limit_conn_dry_run")))
    }

    /// The zone of a name, whom it counts, and the policy so far.
    fn zone(
        &mut self,
        limit: &Directive,
        kind: &str,
        name: &str,
        around: &VarScope<'_, '_>,
    ) -> Option<(&'d Directive, Key, Section)> {
        let is_it = |zone: &&Directive| {
            let called = option(zone, "zone").unwrap_or_default();
            zone.name == kind && called.split(':').next() == Some(name)
        };
        let http = self.http;
        let Some(zone) = http.iter().find(is_it) else {
            self.draft.notes.left_out_line(
                limit,
                "its zone is not in this file; the location is closed (501) until you rewrite it",
            );
            return None;
        };
        let Some(key) = key(zone.taken().arg(0)) else {
            let why = "limits cannot count by this key; its locations are closed (501) until you rewrite it";
            self.draft.notes.left_out_line(zone, why);
            return None;
        };
        let mut policy = Section::new(name);
        if key.by_server && !around.server_name.is_empty() {
            policy.name = format!("{name}-{}", around.server_name);
        }
        policy.key("by", array(key.dimensions.iter().map(|dimension| text(dimension))));
        Some((zone, key, policy))
    }

    /// Says it if another place counts in the same zone by another limit: those are two counts here.
    fn note_shared_zone(&mut self, limit: &Directive, policy: &Section) {
        let other = self.draft.policies.iter().find(|known| known.name == policy.name);
        if other.is_some_and(|known| known.value("limit") != policy.value("limit")) {
            let why = "other limits of this zone have another burst; here each burst has its own counts";
            self.draft.notes.line_differs(limit, why);
        }
    }

    fn named_policy(&mut self, mut policy: Section, key: Key, is_dry: bool) -> String {
        if key.may_be_absent {
            policy.key("missing", text("skip"));
        }
        if is_dry {
            policy.key("shadow", true);
        }
        self.draft.add_policy(policy)
    }
}

/// The value of `name=value` among the arguments.
pub(super) fn option<'d>(directive: &'d Directive, name: &str) -> Option<&'d str> {
    directive.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
}

/// `10r/s` or `30r/m`.
fn rate(text: &str) -> Option<(u64, &'static str)> {
    let (units, period) = text.split_once("r/")?;
    let period = match period {
        "s" => "s",
        "m" => "m",
        _ => return None,
    };
    Some((units.parse().ok().filter(|units| *units > 0)?, period))
}

/// The dimensions that a key of variables means.
fn key(text: &str) -> Option<Key> {
    let mut key = Key { dimensions: Vec::new(), by_server: false, may_be_absent: false };
    for piece in text.split('$').skip(usize::from(text.starts_with('$'))) {
        let name = piece.trim_matches(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
        let dimension = match name {
            "binary_remote_addr" | "remote_addr" => "ip".to_owned(),
            "host" | "http_host" => "host".to_owned(),
            "request_method" => "method".to_owned(),
            "server_name" => {
                key.by_server = true;
                continue;
            }
            _ => {
                key.may_be_absent = true;
                match (name.strip_prefix("http_"), name.strip_prefix("arg_")) {
                    (Some(header), _) => format!("header:{}", header.replace('_', "-")),
                    (_, Some(argument)) => format!("query:{argument}"),
                    _ => return None,
                }
            }
        };
        key.dimensions.push(dimension);
    }
    (key.by_server || !key.dimensions.is_empty()).then_some(key)
}
