//! The configuration that a migration builds: sections with values that are written out already.
//!
//! It keeps names legal and apart, and notices routes that tie. It does not know where anything came from.

use std::path::Path;

use config::printer::text;
use policy::matching::pattern::Pattern;

use super::notes::{Notes, SourceLine};

#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) workers: Option<u64>,
    pub(super) listeners: Vec<Section>,
    /// Hops that may speak for a client.
    pub(super) trust: Vec<String>,
    pub(super) auth: Vec<Section>,
    pub(super) upstreams: Vec<Section>,
    pub(super) policies: Vec<Section>,
    pub(super) routes: Vec<Route>,
    pub(super) domains: Vec<Domain>,
    /// The URL of the Redis that limits were shared through.
    pub(super) redis: Option<String>,
    pub(super) notes: Notes,
    /// Clients and the hashes of their keys, for a file of their own.
    pub(super) keys: Vec<KeyEntry>,
}

/// A client's key, as an entry of a file of keys has it.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) digest: String,
    pub(super) consumer: String,
    pub(super) groups: Vec<String>,
}

/// A part of a draft, by its place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DraftItem {
    Listener(usize),
    Auth(usize),
    Upstream(usize),
    Policy(usize),
    Route(usize),
    /// A rule, by the places of its domain and itself.
    Rule {
        domain: usize,
        rule: usize,
    },
}

/// A named table, and its keys with values as TOML writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) keys: Vec<(&'static str, String)>,
}

/// A route. What decides whether two routes tie is typed, the rest is keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    pub(super) place: SourceLine,
    pub(super) name: String,
    /// Empty: any.
    pub(super) hosts: Vec<String>,
    /// A pattern as `path` of a route has it.
    pub(super) path: String,
    /// Empty: any.
    pub(super) methods: Vec<String>,
    /// Fields that a request must have, with a value or with any.
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) limits: Vec<String>,
    pub(super) keys: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
}

/// What is done about some descriptors of a domain.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) place: SourceLine,
    /// What it is listed as.
    pub(super) what: String,
    /// Keys and values, in their order.
    pub(super) entries: Vec<(String, String)>,
    pub(super) name: Option<String>,
    pub(super) instead_of: Vec<String>,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Limited(String),
    Unlimited,
    Denied,
}

impl Section {
    pub(super) fn new(name: impl Into<String>) -> Section {
        Section { name: name.into(), keys: Vec::new() }
    }

    pub(super) fn key(&mut self, key: &'static str, value: impl ToString) {
        self.keys.push((key, value.to_string()));
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }
}

impl Route {
    pub(super) fn key(&mut self, key: &'static str, value: impl ToString) {
        self.keys.push((key, value.to_string()));
    }

    /// Answers with a status and nothing else.
    pub(super) fn respond(&mut self, status: u16) {
        self.key("respond", format!("{{ status = {status} }}"));
    }

    /// Answers 501, because what belongs here was not taken over, and its requests must not go to another route.
    pub(super) fn close(&mut self) {
        self.limits.clear();
        self.keys = vec![("respond", CLOSED.to_owned())];
    }

    pub(super) fn is_closed(&self) -> bool {
        self.keys.iter().any(|(key, value)| *key == "respond" && value == CLOSED)
    }

    /// Whether both are for one path of one host, whatever methods and fields they ask for.
    pub(super) fn is_beside(&self, other: &Route) -> bool {
        let hosts = self.hosts.is_empty() && other.hosts.is_empty()
            || self.hosts.iter().any(|host| other.hosts.contains(host));
        hosts && shape(&self.path) == shape(&other.path)
    }

    /// Whether no rule says which of the two is for a request that both take.
    pub(super) fn ties(&self, other: &Route) -> bool {
        let methods = self.methods.is_empty() && other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method));
        let headers = self.headers.len() == other.headers.len() && !self.contradicts(other);
        self.is_beside(other) && methods && headers
    }

    /// Whether they tie because each asks for a field that the other does not ask for. A third route, which asks for
    /// both, tells them apart.
    pub(super) fn meets(&self, other: &Route) -> bool {
        let asks = |route: &Route, name: &String| route.headers.iter().any(|(known, _)| known == name);
        self.ties(other) && other.headers.iter().any(|(name, _)| !asks(self, name))
    }

    /// Whether both ask for one field with different values.
    pub(super) fn contradicts(&self, other: &Route) -> bool {
        self.headers.iter().any(|(name, value)| {
            let theirs = other.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            theirs.is_some_and(|(_, theirs)| value.is_some() && theirs.is_some() && theirs != value)
        })
    }
}

impl Draft {
    /// Lists which paths of a file's requests are read otherwise than there, if any are forwarded. `rejects`: encoded
    /// slashes were refused there, too; `normalizes`: its routes and servers saw normalized paths.
    pub(super) fn list_paths(&mut self, file: &Path, rejects: bool, normalizes: bool) {
        let is_forwarded = |route: &Route| route.keys.iter().any(|(key, _)| *key == "to");
        if !self.routes.iter().any(is_forwarded) {
            return;
        }
        let slashes = if rejects { "" } else { "an encoded slash, " };
        let mut why = format!(
            "paths with {slashes}a backslash, `;` or double encoding are answered 400; with `path-escapes = \"keep\"` a \
             route forwards them"
        );
        if !normalizes {
            why.push_str(
                "; others are normalized for routes and servers: `//` to `/`, `/./` and `/x/../` to `/`, `/%41` to `/A`",
            );
        }
        self.notes.differs(&SourceLine::default(), &file.display().to_string(), why);
    }

    /// Adds a route, unless an earlier one takes its requests. Those that ask for different fields are told apart by who
    /// adds them: see `order`.
    pub(super) fn add_route(&mut self, mut route: Route, what: &str) {
        if let Some(first) = self.routes.iter().find(|first| first.ties(&route) && !first.meets(&route)) {
            let why = format!("the route `{}` takes these requests already", first.name);
            self.notes.left_out(&route.place, what, why);
            return;
        }
        let wanted = if route.name.is_empty() { route.path.clone() } else { route.name.clone() };
        let taken: Vec<&str> = self.routes.iter().map(|route| route.name.as_str()).collect();
        route.name = unique(&wanted, "route", &taken);
        self.routes.push(route);
    }

    /// Adds an upstream, or finds the one that is the same but for its name. Returns its name.
    pub(super) fn add_upstream(&mut self, mut upstream: Section) -> String {
        if upstream.name == "echo" {
            upstream.name = "echo-servers".to_owned();
        }
        add(&mut self.upstreams, upstream, "upstream")
    }

    /// Adds a method to authenticate clients, or finds the one that is the same but for its name. Returns its name.
    pub(super) fn add_auth(&mut self, method: Section) -> String {
        add(&mut self.auth, method, "auth")
    }

    /// Adds a policy that counts for itself, whatever others are like it. Returns its name.
    pub(super) fn add_own_policy(&mut self, mut policy: Section) -> String {
        let taken: Vec<&str> = self.policies.iter().map(|policy| policy.name.as_str()).collect();
        policy.name = unique(&policy.name, "limit", &taken);
        self.policies.push(policy);
        self.policies.last().map(|policy| policy.name.clone()).unwrap_or_default()
    }

    /// Adds a policy, or finds the one that is the same but for its name. Returns its name.
    pub(super) fn add_policy(&mut self, policy: Section) -> String {
        add(&mut self.policies, policy, "limit")
    }
}

/// Adds a section under a name of its own. One whose name was wanted before and whose keys are the same is that one.
fn add(sections: &mut Vec<Section>, mut section: Section, kind: &str) -> String {
    let wanted = legal(&section.name, kind);
    let known = |known: &&Section| {
        let of_this_name = known.name == wanted || known.name.strip_prefix(&wanted).is_some_and(is_number);
        of_this_name && known.keys == section.keys
    };
    if let Some(known) = sections.iter().find(known) {
        return known.name.clone();
    }
    let taken: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
    section.name = unique(&wanted, kind, &taken);
    sections.push(section);
    sections.last().map(|section| section.name.clone()).unwrap_or_default()
}

fn is_number(suffix: &str) -> bool {
    suffix.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A name that nobody has, from the one that is wanted.
pub(super) fn unique(wanted: &str, kind: &str, taken: &[&str]) -> String {
    let wanted = legal(wanted, kind);
    if !taken.contains(&wanted.as_str()) {
        return wanted;
    }
    // Only numbers are kept, because thousands of servers have thousands of routes of one path.
    let numbers: Vec<&str> =
        taken.iter().filter_map(|name| name.strip_prefix(&wanted)?.strip_prefix('-')).collect();
    let mut is_taken = vec![false; numbers.len() + 2];
    for number in numbers.iter().filter(|number| !number.starts_with('0')) {
        let known = number.parse().ok().and_then(|number: usize| is_taken.get_mut(number.checked_sub(2)?));
        known.into_iter().for_each(|known| *known = true);
    }
    let free = is_taken.iter().position(|is_taken| !is_taken).unwrap_or(0);
    format!("{wanted}-{}", free + 2)
}

/// The nearest text that can be a name: see `config::load::sections::is_name`.
pub(super) fn legal(wanted: &str, kind: &str) -> String {
    let is_kept = |sign: char| (' '..='~').contains(&sign) && !matches!(sign, '"' | '\\' | '\'');
    let kept = wanted.trim().chars().map(|sign| if is_kept(sign) { sign } else { '-' });
    let kept: String = kept.take(NAME_MAX).collect();
    match kept.chars().next() {
        None => kind.to_owned(),
        Some(first) if first.is_ascii_digit() => format!("{kind}-{kept}"),
        Some(_) => kept,
    }
}

/// The pattern of a literal path, with everything that begins so if `rest`. `None` if no request can have such a path.
pub(super) fn literal_path(path: &str, rest: bool) -> Option<String> {
    let mut pattern = String::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        let mut encoded = String::new();
        for byte in segment.bytes() {
            match byte {
                b'?' | b'#' | b'"' | b'<' | b'>' | b'`' | b'^' | b'|' | b'{' | b'}' => {
                    encoded.push_str(&format!("%{byte:02X}"));
                }
                b'!'..=b'~' => encoded.push(char::from(byte)),
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
        }
        pattern.push('/');
        // Literal, because what stands for something in the patterns of others stands for itself here.
        let is_plain = Pattern::parse(&format!("/{encoded}")).is_ok();
        pattern.push_str(&if is_plain { encoded } else { format!("{{={encoded}}}") });
    }
    if rest {
        pattern.push_str(if path.ends_with('/') || pattern.is_empty() { "/{*rest}" } else { "{*rest}" });
    } else if pattern.is_empty() {
        pattern.push('/');
    }
    Pattern::parse(&pattern).is_ok().then_some(pattern)
}

/// A path without what decides nothing: names of parameters, a slash at the end.
pub(super) fn shape(path: &str) -> String {
    let segments = path.trim_end_matches('/').split('/').map(|segment| match segment {
        segment if segment.starts_with("{*") => "{*}",
        segment if segment.starts_with('{') && !segment.starts_with("{=") => "{}",
        segment => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// An array of quoted texts; one alone stands without brackets.
pub(super) fn texts<T: AsRef<str>>(values: &[T]) -> String {
    match values {
        [only] => text(only.as_ref()),
        _ => format!("[{}]", values.iter().map(|value| text(value.as_ref())).collect::<Vec<_>>().join(", ")),
    }
}

/// What a route answers whose action or guard was not taken over.
const CLOSED: &str = "{ status = 501, body = \"left out by the migration\\n\" }";
/// Names are cut to this, because longer ones would leave no room for a number behind them.
const NAME_MAX: usize = 150;
