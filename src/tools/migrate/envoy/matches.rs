//! The condition of a route: its path, its methods, its fields.

use super::super::draft::literal_path;
use super::super::regex;
use super::super::values::methods;
use super::super::yaml::Node;
use super::Reading;

pub(super) struct EnvoyMatch {
    pub(super) path: String,
    /// What `prefix_rewrite` replaces.
    pub(super) prefix: Prefix,
    pub(super) methods: Vec<String>,
    pub(super) headers: Vec<(String, Option<String>)>,
    /// It takes paths in upper and lower case, which routes do not.
    pub(super) is_any_case: bool,
}

/// The part of a path that a rewrite replaces.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Begin,
    /// The segments that a path begins with.
    Segments,
    Whole,
    /// Unknown before a request comes.
    Unknown,
}

/// What a match may ask for that no route can.
pub(super) const BEYOND: &[&str] = &[
    "query_parameters",
    "grpc",
    "runtime_fraction",
    "tls_context",
    "dynamic_metadata",
    "filter_state",
    "connect_matcher",
    "cookies",
];

impl<'d> Reading<'d> {
    /// Reads a `match`; `None` if routes cannot say it.
    pub(super) fn matched(&mut self, node: &'d Node) -> Option<EnvoyMatch> {
        if BEYOND.iter().any(|key| node.get(key).is_some()) {
            return None;
        }
        let (path, prefix) = self.path(node)?;
        let is_any_case = is_any_case(node);
        let mut which = EnvoyMatch { path, prefix, methods: Vec::new(), headers: Vec::new(), is_any_case };
        for header in node.list("headers") {
            header_of(header, &mut which)?;
        }
        which.methods = methods(which.methods.iter().map(String::as_str));
        if is_any_case {
            self.differs(node, "case_sensitive: false", "paths are case-sensitive");
        }
        Some(which)
    }

    pub(super) fn path(&mut self, node: &'d Node) -> Option<(String, Prefix)> {
        if let Some(prefix) = node.word("prefix") {
            return Some((literal_path(prefix, true)?, Prefix::Begin));
        }
        if let Some(prefix) = node.word("path_separated_prefix") {
            return Some((literal_path(&format!("{prefix}/"), true)?, Prefix::Segments));
        }
        if let Some(path) = node.word("path") {
            return Some((literal_path(path, false)?, Prefix::Whole));
        }
        if let Some(expression) = node.at(&["safe_regex", "regex"]).and_then(Node::text) {
            node.at(&["safe_regex"]).into_iter().for_each(|regex| regex.skip(&["google_re2"]));
            let found = regex::pattern(expression, false)?;
            if !found.is_exact {
                let why = format!("`{}` takes more paths than the expression", found.pattern);
                self.differs(node, &format!("safe_regex {expression}"), &why);
            }
            return Some((found.pattern, Prefix::Unknown));
        }
        let policy = node.at(&["path_match_policy", "typed_config"])?;
        node.at(&["path_match_policy"]).into_iter().for_each(|policy| policy.skip(&["name"]));
        policy.skip(&["@type"]);
        Some((of_template(policy.word("path_template")?)?, Prefix::Unknown))
    }
}

/// Whether a match takes its path in upper and lower case.
pub(super) fn is_any_case(node: &Node) -> bool {
    node.get("case_sensitive").and_then(Node::flag) == Some(false)
}

/// A header that a route asks for.
fn header_of(node: &Node, which: &mut EnvoyMatch) -> Option<()> {
    let name = node.word("name")?.to_ascii_lowercase();
    let known = ["name", "exact_match", "string_match", "present_match"];
    if node.entries().iter().any(|(key, value)| {
        let is_off = value.flag() == Some(false);
        !known.contains(&key.as_str()) && !is_off
    }) {
        return None;
    }
    let matched = node.get("string_match");
    let is_plain = matched.is_none_or(|matched| matched.entries().len() == 1);
    let exact = node.word("exact_match").or_else(|| matched?.word("exact"));
    match (name.as_str(), exact) {
        (":method", Some(method)) => which.methods.push(method.to_owned()),
        (":method", None) => {
            let expression = matched?.at(&["safe_regex", "regex"])?.text()?;
            let methods = expression.trim_start_matches(['^', '(']).trim_end_matches(['$', ')']).split('|');
            let methods: Vec<&str> = methods.collect();
            let is_method =
                |method: &&str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
            methods.iter().all(is_method).then_some(())?;
            which.methods.extend(methods.into_iter().map(str::to_owned));
        }
        (name, _) if name.starts_with(':') => return None,
        (_, Some(value)) if is_plain => which.headers.push((name, Some(value.to_owned()))),
        (_, None) if node.is("present_match") => which.headers.push((name, None)),
        _ => return None,
    }
    Some(())
}

/// A template of a path: `{id}` and `*` are segments, `**` is the rest.
fn of_template(template: &str) -> Option<String> {
    let mut pattern = String::new();
    for (index, segment) in template.strip_prefix('/')?.split('/').enumerate() {
        let (name, inside) = match segment.strip_prefix('{').and_then(|inside| inside.strip_suffix('}')) {
            Some(variable) => variable.split_once('=').unwrap_or((variable, "*")),
            None => ("", segment),
        };
        let name = if name.is_empty() { format!("p{}", index + 1) } else { name.to_owned() };
        match inside {
            "*" => pattern.push_str(&format!("/{{{name}}}")),
            "**" => pattern.push_str("/{*rest}"),
            literal => pattern.push_str(&literal_path(&format!("/{literal}"), false)?),
        }
    }
    Some(pattern)
}
