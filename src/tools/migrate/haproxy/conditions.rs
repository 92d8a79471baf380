//! `acl` and conditions, as far as routes can say them.

use super::super::draft::literal_path;
use super::super::values::{is_field, methods};
use super::lines::Line;

/// Which requests a condition means: all parts must hold, of each part any value.
#[derive(Clone, Debug, Default)]
pub(super) struct Criteria {
    pub(super) hosts: Vec<String>,
    /// Patterns of routes. Empty: any.
    pub(super) paths: Vec<String>,
    pub(super) methods: Vec<String>,
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) source: Option<Source>,
    pub(super) rate: Option<Rate>,
    /// `ssl_fc`, or that it is not.
    pub(super) tls: Option<bool>,
    /// It takes paths in upper and lower case, which routes do not.
    pub(super) is_any_case: bool,
    /// It takes values of fields in upper and lower case.
    pub(super) is_any_case_of_value: bool,
}

/// Addresses of clients, or all others.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ranges: Vec<String>,
    pub(super) is_negated: bool,
}

/// A rate that is passed: which counter, and from how many requests on.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    /// `0` of `sc_http_req_rate(0)`; nothing for the source's address itself.
    pub(super) counter: Option<String>,
    pub(super) table: Option<String>,
    /// The last number that is still admitted.
    pub(super) most: u64,
}

impl Criteria {
    /// Whether it says nothing but this of a rate.
    pub(super) fn only_rate(&self) -> Option<&Rate> {
        self.is_any_request().then_some(self.rate.as_ref()).flatten().filter(|_| self.source.is_none())
    }

    pub(super) fn only_source(&self) -> Option<&Source> {
        self.is_any_request().then_some(self.source.as_ref()).flatten().filter(|_| self.rate.is_none())
    }

    /// Whether routes can say all of it.
    pub(super) fn is_route(&self) -> bool {
        self.source.is_none() && self.rate.is_none() && self.tls.is_none()
    }

    /// Whether it asks for addresses, and for nothing else that routes cannot say exactly.
    pub(super) fn is_route_by_address(&self) -> bool {
        self.source.is_some()
            && self.rate.is_none()
            && self.tls.is_none()
            && self.headers.is_empty()
            && !self.is_any_case
    }

    pub(super) fn is_any_request(&self) -> bool {
        self.hosts.is_empty()
            && self.paths.is_empty()
            && self.methods.is_empty()
            && self.headers.is_empty()
            && self.tls.is_none()
    }

    /// Both conditions. `None` where a route cannot say it.
    fn and(mut self, other: Criteria) -> Option<Criteria> {
        let both = |left: &mut Vec<String>, right: Vec<String>| {
            if left.is_empty() {
                *left = right;
            } else if !right.is_empty() {
                left.retain(|value| right.contains(value));
                return !left.is_empty();
            }
            true
        };
        let fits = both(&mut self.hosts, other.hosts)
            && both(&mut self.paths, other.paths)
            && both(&mut self.methods, other.methods);
        self.headers.extend(other.headers);
        let is_twice =
            self.source.is_some() && other.source.is_some() || self.rate.is_some() && other.rate.is_some();
        self.source = self.source.or(other.source);
        self.rate = self.rate.or(other.rate);
        self.tls = self.tls.or(other.tls);
        self.is_any_case |= other.is_any_case;
        self.is_any_case_of_value |= other.is_any_case_of_value;
        (fits && !is_twice).then_some(self)
    }
}

/// The alternatives that a condition means; `None` if a part of it cannot be said.
pub(super) fn read(words: &[String], acls: &[&Line]) -> Option<Vec<Criteria>> {
    let (whole, parts) = sides(words, acls);
    parts.is_empty().then_some(whole)
}

/// The alternatives that a condition means: those that can be said, and what can be said of the others, which is more than
/// they mean.
pub(super) fn sides(words: &[String], acls: &[&Line]) -> (Vec<Criteria>, Vec<Criteria>) {
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for side in words.split(|word| word == "||" || word == "or") {
        let (which, is_whole) = alternative(side, acls);
        if is_whole { whole.push(which) } else { parts.push(which) }
    }
    (whole, parts)
}

/// What can be said of terms that must all hold, and whether that is all of them.
fn alternative(side: &[String], acls: &[&Line]) -> (Criteria, bool) {
    let (mut which, mut is_whole) = (Criteria::default(), true);
    let mut words = side.iter().map(String::as_str).peekable();
    let mut is_negated = false;
    while let Some(word) = words.next() {
        let (word, negates) = match word.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (word, false),
        };
        is_negated ^= negates;
        if word.is_empty() {
            continue;
        }
        let term = match word {
            "{" => {
                let inside: Vec<&str> = words.by_ref().take_while(|word| *word != "}").collect();
                test(&inside, is_negated)
            }
            name => named(name, acls, is_negated),
        };
        match term.and_then(|term| which.clone().and(term)) {
            Some(both) => which = both,
            None => is_whole = false,
        }
        is_negated = false;
    }
    (which, is_whole)
}

/// Whether a condition asks for nothing but where a request is for: path, host, method, TLS.
pub(super) fn asks_for_address(words: &[String], acls: &[&Line]) -> bool {
    let is_of_address = |fetch: &str| {
        let (name, argument) = fetch.trim_start_matches('!').split_once('(').unwrap_or((fetch, ""));
        let begins = ["path", "url", "uri", "base", "method", "ssl_fc", "dst"];
        let is_host = argument
            .trim_end_matches(')')
            .split(',')
            .next()
            .is_some_and(|it| it.eq_ignore_ascii_case("host"));
        begins.iter().any(|begin| name.trim_start_matches('!').starts_with(begin))
            && !name.starts_with("url_param")
            && !name.starts_with("urlp")
            && !name.starts_with("ssl_fc_")
            || name.contains("hdr") && is_host
    };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let is_it = match word.trim_start_matches('!') {
            "" | "||" | "or" => true,
            "{" => {
                let is_it = words.next().is_some_and(is_of_address);
                words.by_ref().find(|word| *word == "}");
                is_it
            }
            name if name.starts_with("METH_") => true,
            name => {
                let mut lines = acls.iter().filter(|line| line.word(1) == name).peekable();
                lines.peek().is_some() && lines.all(|line| is_of_address(line.word(2)))
            }
        };
        if !is_it {
            return false;
        }
    }
    true
}

/// All lines of one name, of which any may hold.
fn named(name: &str, acls: &[&Line], is_negated: bool) -> Option<Criteria> {
    let methods = |names: &[&str]| Criteria {
        methods: names.iter().map(|it| (*it).to_owned()).collect(),
        ..Criteria::default()
    };
    match (name, is_negated) {
        ("TRUE", false) => return Some(Criteria::default()),
        ("METH_GET", false) => return Some(methods(&["GET", "HEAD"])),
        ("METH_POST" | "METH_PUT" | "METH_DELETE" | "METH_PATCH" | "METH_OPTIONS", false) => {
            return Some(methods(&[&name["METH_".len()..]]));
        }
        _ => {}
    }
    let lines: Vec<&&Line> = acls.iter().filter(|line| line.word(1) == name).collect();
    let mut tests = lines.iter().map(|line| {
        let words: Vec<&str> = line.taken().words[2..].iter().map(String::as_str).collect();
        test(&words, is_negated)
    });
    let mut whole = tests.next()??;
    for other in tests {
        let other = other?;
        whole.is_any_case |= other.is_any_case;
        // Several lines are one list if they test the same thing.
        match (whole.paths.is_empty(), whole.hosts.is_empty(), other.paths.is_empty(), other.hosts.is_empty())
        {
            (false, true, false, true) => whole.paths.extend(other.paths),
            (true, false, true, false) => whole.hosts.extend(other.hosts),
            _ => return None,
        }
    }
    Some(whole)
}

/// One test: `path_beg /api`, `hdr(host) -i example.com`, `src 10.0.0.0/8`.
fn test(words: &[&str], is_negated: bool) -> Option<Criteria> {
    let fetch = *words.first()?;
    let method = words.windows(2).find(|pair| pair[0] == "-m").map(|pair| pair[1]);
    let ignores_case = words.contains(&"-i");
    let mut values: Vec<&str> =
        words[1..].iter().copied().filter(|word| !matches!(*word, "-i" | "--" | "-n")).collect();
    if let Some(at) = values.iter().position(|word| *word == "-m") {
        values.drain(at..(at + 2).min(values.len()));
    }
    if values.contains(&"-f") {
        return None;
    }
    if let Some(rate) = rate(fetch, &values) {
        return (!is_negated).then(|| Criteria { rate: Some(rate), ..Criteria::default() });
    }
    if fetch == "src" {
        let ranges = values.iter().map(|value| (*value).to_owned()).collect();
        return Some(Criteria { source: Some(Source { ranges, is_negated }), ..Criteria::default() });
    }
    if fetch == "ssl_fc" {
        return Some(Criteria { tls: Some(!is_negated), ..Criteria::default() });
    }
    if is_negated {
        return None;
    }
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let (name, argument) =
        fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let is_host = argument.split(',').next().is_some_and(|field| field.eq_ignore_ascii_case("host"));
    let paths = |rest: bool| values.iter().map(|value| literal_path(value, rest)).collect::<Option<Vec<_>>>();
    if name.contains("hdr") && !is_host && !is_field(argument) {
        return None;
    }
    let is_any_case =
        ignores_case && values.iter().any(|value| value.bytes().any(|byte| byte.is_ascii_alphabetic()));
    Some(match (name, method) {
        ("path" | "path_str", None | Some("str")) => {
            Criteria { paths: paths(false)?, is_any_case, ..Criteria::default() }
        }
        ("path_beg", _) | ("path", Some("beg")) => {
            Criteria { paths: paths(true)?, is_any_case, ..Criteria::default() }
        }
        ("method", _) => {
            let named = owned(&values);
            let named: Vec<String> = named
                .into_iter()
                .map(|method| if ignores_case { method.to_uppercase() } else { method })
                .collect();
            let is_method = |method: &String| method.bytes().all(|byte| byte.is_ascii_uppercase());
            named.iter().all(is_method).then_some(())?;
            Criteria { methods: methods(named.iter().map(String::as_str)), ..Criteria::default() }
        }
        ("hdr" | "req.hdr" | "hdr_str", None | Some("str")) if is_host => {
            let hosts = values.iter().map(|value| value.split(':').next().unwrap_or_default().to_lowercase());
            Criteria { hosts: hosts.collect(), ..Criteria::default() }
        }
        ("hdr_end", _) | ("hdr" | "req.hdr", Some("end"))
            if is_host && values.iter().all(|it| it.starts_with('.')) =>
        {
            Criteria {
                hosts: values.iter().map(|value| format!("*{}", value.to_lowercase())).collect(),
                ..Criteria::default()
            }
        }
        ("hdr" | "req.hdr", Some("found")) => {
            Criteria { headers: vec![(argument.to_lowercase(), None)], ..Criteria::default() }
        }
        ("hdr" | "req.hdr", None | Some("str")) if values.len() == 1 && !is_host => Criteria {
            headers: vec![(argument.to_lowercase(), Some(values[0].to_owned()))],
            is_any_case_of_value: is_any_case,
            ..Criteria::default()
        },
        _ => return None,
    })
}

/// `sc_http_req_rate(0) gt 100`, `sc0_http_req_rate(table) ge 10`, `src_http_req_rate gt 5`.
fn rate(fetch: &str, values: &[&str]) -> Option<Rate> {
    let (name, argument) =
        fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let table = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (counter, table) = match name {
        "sc_http_req_rate" => {
            let (counter, rest) = argument.split_once(',').unwrap_or((argument, ""));
            (Some(counter.to_owned()), table(rest))
        }
        "src_http_req_rate" => (None, table(argument)),
        _ => {
            let counter = name.strip_prefix("sc")?.strip_suffix("_http_req_rate")?;
            (Some(counter.to_owned()), table(argument))
        }
    };
    let most = match values {
        ["gt", number] => number.parse().ok()?,
        ["ge", number] => number.parse::<u64>().ok()?.checked_sub(1)?,
        _ => return None,
    };
    Some(Rate { counter, table, most })
}
