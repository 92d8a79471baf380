//! Who may come in: `allow`, `deny`, and what only nginx can check.

use super::super::draft::texts;
use super::Reading;
use super::lexer::Directive;
use super::scope::Scope;

/// Words that keep clients out in a way that has no counterpart: their place is closed.
const GUARDS: &[(&str, &str)] = &[
    (
        "auth_basic",
        "the file's hashes are other ones: write `kind = \"basic\"` and make them with `sluicegate hash-key --basic`",
    ),
    ("auth_request", "no other service is asked: write an `[auth.<name>]`"),
    ("auth_jwt", "write an `[auth.<name>]` with `kind = \"jwt\"`"),
    ("satisfy", "a route asks for all of its rules"),
    ("valid_referers", "referers are not checked"),
    ("secure_link", "signed links are not checked"),
    ("access_by_lua_block", "there are no scripts here"),
    ("access_by_lua_file", "there are no scripts here"),
    ("internal", "no request of a client comes here"),
];

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
        "return" => inside.arg(0).starts_with('4'),
        "if" => inside.block().iter().any(|within| within.name == "deny" || within.arg(0).starts_with('4')),
        name => inside.arg(0) != "off" && GUARDS.iter().any(|(guard, _)| *guard == name),
    })
}

impl Reading<'_> {
    /// Whether a condition refuses requests, which is listed: its place is closed.
    pub(super) fn has_refusing_condition(&mut self, scope: &Scope<'_>) -> bool {
        let refuses = |inside: &Directive| {
            inside.name == "return" && inside.arg(0).starts_with('4') || inside.name == "deny"
        };
        let mut has_one = false;
        for condition in scope.every("if") {
            if condition.block().iter().any(refuses) {
                condition.taken_whole();
                let why = "a condition that refuses requests cannot be taken over; the place is closed (501) until then";
                self.draft.notes.left_out(&condition.place, &condition.shown(), why);
                has_one = true;
            }
        }
        has_one
    }

    /// The keys of a route for its lists; `None` if clients are kept out in a way that has no counterpart, which is listed.
    pub(super) fn access(&mut self, scope: &Scope<'_>) -> Option<Vec<(&'static str, String)>> {
        let mut is_closed = false;
        for (name, why) in GUARDS {
            if let Some(found) = scope.last(name).filter(|found| found.arg(0) != "off") {
                let why = format!("{why}; the place is closed (501) until then");
                self.draft.notes.left_out(&found.taken().place, &found.shown(), why);
                is_closed = true;
            }
        }
        if is_closed {
            // What only says how the guard works needs no line of its own.
            for companion in
                ["auth_basic_user_file", "auth_request_set", "auth_jwt_key_file", "auth_jwt_key_request"]
            {
                scope.all(companion).iter().for_each(|found| found.taken_whole());
            }
        }
        is_closed |= self.has_refusing_condition(scope);
        let rules: Vec<&Directive> = scope.rules();
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
                    let why = "`deny` always goes before `allow` here; the place is closed (501) until both are written anew";
                    self.draft.notes.left_out(&first.place, &first.shown(), why);
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
                return Addresses::Only {
                    allow: Vec::new(),
                    deny: vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
                };
            }
            ("deny", "all") => return lists(allow, deny, is_after_allow),
            ("allow", _) => allow.push(address),
            _ => {
                // What was allowed before may lie in what is denied now, where ours would deny it.
                is_after_allow |= !allow.is_empty();
                deny.push(address);
            }
        }
    }
    lists(Vec::new(), deny, is_after_allow)
}

/// A range without the bits behind its prefix, which nginx leaves out with a warning.
pub(super) fn network(text: &str) -> String {
    text.parse::<ipnet::IpNet>().map_or_else(|_| text.to_owned(), |range| range.trunc().to_string())
}

fn lists(allow: Vec<String>, deny: Vec<String>, is_unknown: bool) -> Addresses {
    match (is_unknown, allow.is_empty() && deny.is_empty()) {
        (true, _) => Addresses::Unknown,
        (false, true) => Addresses::All,
        (false, false) => Addresses::Only { allow, deny },
    }
}
