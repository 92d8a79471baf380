//! Who may come in: `allow`, `deny`, and what only nginx can check.

use super::super::draft::texts;
use super::super::values::{is_among, is_named};
use super::Reading;
use super::lexer::Directive;
use super::real_ip::RealIp;
use super::scope::Scope;
use super::values::network;

/// Words that keep clients out in a way that has no counterpart: their place is closed.
const GUARDS: &[(&str, &str)] = &[
    (
        "auth_basic",
        "the hashes in the file cannot be used: write `kind = \"basic\"` and make new ones with `sluicegate hash-key \
         --basic`",
    ),
    ("auth_request", "authentication by another service has no counterpart: write an `[auth.<name>]`"),
    ("auth_jwt", "write an `[auth.<name>]` with `kind = \"jwt\"`"),
    ("satisfy", "a route always requires all of its rules"),
    ("valid_referers", "referers are not checked"),
    ("secure_link", "signed links are not checked"),
    ("secure_link_secret", "signed links are not checked"),
    ("access_by_lua*", SCRIPT),
    ("rewrite_by_lua*", SCRIPT),
    ("server_rewrite_by_lua*", SCRIPT),
    ("content_by_lua*", SCRIPT),
    ("header_filter_by_lua*", SCRIPT),
    ("js_access", SCRIPT),
    ("js_content", SCRIPT),
    ("js_header_filter", SCRIPT),
    ("perl", SCRIPT),
    ("modsecurity", "the gateway has no web application firewall"),
    ("app_protect_enable", "the gateway has no web application firewall"),
    ("SecRulesEnabled", "the gateway has no web application firewall"),
    ("DeniedUrl", "the gateway has no web application firewall"),
    ("CheckRule", "the gateway has no web application firewall"),
    ("internal", "clients' requests do not reach it"),
];

const SCRIPT: &str = "the gateway has no scripts, and this one may refuse requests";

/// Variables that say where a request is for. A redirect by them alone moves it, and keeps nobody out.
const ADDRESS: &str = "\
    scheme https http_x_forwarded_proto server_port host http_host server_name request_method uri document_uri \
    request_uri";

/// The list of `deny all`.
pub(super) const EVERYBODY: &[&str] = &["0.0.0.0/0", "::/0"];

/// What a list of `allow` and `deny` comes to.
pub(super) enum Addresses {
    All,
    Only {
        allow: Vec<String>,
        deny: Vec<String>,
    },
    /// The order of the list decides something that two lists cannot say.
    Unknown,
}

/// Whether a block itself keeps clients out.
pub(super) fn is_guarded(block: &[Directive]) -> bool {
    block.iter().any(|inside| match inside.name.as_str() {
        "deny" | "limit_except" => true,
        "return" => is_refusal(inside),
        "if" => keeps_out(inside),
        _ => is_guard(inside),
    })
}

/// Whether a directive is one of [`GUARDS`] that is not switched off.
fn is_guard(inside: &Directive) -> bool {
    inside.arg(0) != "off" && GUARDS.iter().any(|(guard, _)| is_named(&inside.name, guard))
}

/// Whether a block refuses all that comes to it.
pub(super) fn refuses(block: &[Directive]) -> bool {
    block.iter().any(|inside| inside.name == "return" && is_refusal(inside))
}

/// Whether a `return` is a refusal.
fn is_refusal(found: &Directive) -> bool {
    found.arg(0).starts_with(['4', '5'])
}

/// Whether a condition keeps requests from what its place does: it refuses them or has them answered elsewhere.
fn keeps_out(condition: &Directive) -> bool {
    let is_by_address = asks_for_address(condition);
    condition.block().iter().any(|inside| match inside.name.as_str() {
        "deny" => true,
        "return" => is_refusal(inside) || !is_by_address,
        "rewrite" => !is_by_address || !is_redirect(inside),
        _ => is_guard(inside),
    })
}

/// Whether a condition asks for nothing but where a request is for.
fn asks_for_address(condition: &Directive) -> bool {
    let words = condition.args.join(" ");
    let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    // Empty names do not count, because a dollar without a name ends an expression.
    let names = words.split('$').skip(1).map(|rest| rest.split(|sign| !is_name(sign)).next().unwrap_or(""));
    names.filter(|name| !name.is_empty()).all(|name| is_among(name, ADDRESS))
}

/// Whether a `rewrite` is answered with a redirect.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    matches!(rewrite.arg(2), "redirect" | "permanent") || rewrite.arg(1).contains("://")
}

impl Reading<'_> {
    /// Whether a condition keeps requests out, which is listed: its place is closed.
    pub(super) fn has_refusing_condition(&mut self, scope: &Scope<'_>) -> bool {
        let mut has_one = false;
        for condition in scope.every("if").into_iter().filter(|condition| keeps_out(condition)) {
            condition.taken_whole();
            let why = "a condition that refuses requests or sends them elsewhere cannot be taken over; the location \
                is closed (501) until you rewrite it";
            self.draft.notes.left_out_line(condition, why);
            has_one = true;
        }
        has_one
    }

    /// The keys of a route for its lists; `None` if clients are kept out in a way that has no counterpart, which is listed.
    pub(super) fn access(&mut self, scope: &Scope<'_>) -> Option<Vec<(&'static str, String)>> {
        let mut is_closed = false;
        for (name, why) in GUARDS {
            let found = scope.last_of(|found| is_named(&found.name, name));
            if let Some(found) = found.filter(|found| found.arg(0) != "off") {
                let why = format!("{why}; the location is closed (501) until you rewrite it");
                self.draft.notes.left_out_line(found.taken(), why);
                is_closed = true;
            }
        }
        if is_closed {
            // Marked as read, because what only says how the guard works needs no line of its own.
            for companion in
                ["auth_basic_user_file", "auth_request_set", "auth_jwt_key_file", "auth_jwt_key_request"]
            {
                scope.all(companion).iter().for_each(|found| found.taken_whole());
            }
        }
        is_closed |= self.has_refusing_condition(scope);
        let rules: Vec<&Directive> = scope.rules();
        let by_address = rules.iter().find(|rule| rule.arg(0) != "all");
        if let Some(rule) = by_address.filter(|_| self.real_ip != Some(RealIp::of(scope))) {
            let why = "it tests addresses set by `set_real_ip_from` and `real_ip_header`, which differ from the \
                gateway's (`client-ip`); the location is closed (501) until you rewrite it";
            self.draft.notes.left_out_line(*rule, why);
            is_closed = true;
        }
        match addresses(&rules) {
            _ if is_closed => None,
            Addresses::All => Some(Vec::new()),
            Addresses::Only { allow, deny } => {
                let lists =
                    [("allow", allow), ("deny", deny)].into_iter().filter(|(_, list)| !list.is_empty());
                Some(lists.map(|(key, list)| (key, texts(&list))).collect())
            }
            Addresses::Unknown => {
                if let Some(first) = rules.first() {
                    let why = "`deny` is always checked before `allow` here; the location is closed (501) until you \
                        rewrite both";
                    self.draft.notes.left_out_line(*first, why);
                }
                None
            }
        }
    }
}

/// The lists that do the same as rules of which the first that fits decides.
fn addresses(rules: &[&Directive]) -> Addresses {
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    let mut is_after_allow = false;
    for rule in rules {
        let address = network(rule.taken().arg(0));
        match (rule.name.as_str(), address.as_str()) {
            (_, "unix:") => return Addresses::Unknown,
            ("allow", "all") => return lists(Vec::new(), deny, is_after_allow),
            ("deny", "all") if allow.is_empty() => {
                let deny = EVERYBODY.iter().map(|range| (*range).to_owned()).collect();
                return Addresses::Only { allow: Vec::new(), deny };
            }
            ("deny", "all") => return lists(allow, deny, is_after_allow),
            ("allow", _) => allow.push(address),
            _ => {
                // It matters, because what was allowed before may lie in what is denied now, where ours would deny it.
                is_after_allow |= !allow.is_empty();
                deny.push(address);
            }
        }
    }
    lists(Vec::new(), deny, is_after_allow)
}

fn lists(allow: Vec<String>, deny: Vec<String>, is_unknown: bool) -> Addresses {
    match (is_unknown, allow.is_empty() && deny.is_empty()) {
        (true, _) => Addresses::Unknown,
        (false, true) => Addresses::All,
        (false, false) => Addresses::Only { allow, deny },
    }
}
