//! YAML, and JSON, which is a part of it, as a tree whose values know their line and whether somebody has read them.
//!
//! What nobody reads is listed as left out, so that no key can be dropped in silence. The tree is bounded: values that
//! are repeated by an alias count as often as they stand there, so that a few lines cannot become a billion.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle};

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// From 1.
    pub(super) line: usize,
    kind: Kind,
    /// Of a scalar, and of an empty list or table: whether somebody has read it.
    is_read: Cell<bool>,
}

#[derive(Clone, Debug)]
enum Kind {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

/// Text that is no YAML, or more of it than is read.
#[derive(Debug)]
pub(super) struct Fault {
    /// From 1.
    pub(super) line: usize,
    pub(super) message: String,
}

/// A value that nobody has read.
pub(super) struct UnreadValue {
    pub(super) line: usize,
    pub(super) key: String,
    /// Its path's end and its value.
    pub(super) shown: String,
    /// The text of a scalar, if it is no secret.
    pub(super) text: Option<String>,
}

pub(super) fn number(text: &str) -> Option<u64> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

pub(super) fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "yes" | "on" => Some(true),
        "false" | "False" | "no" | "off" => Some(false),
        _ => None,
    }
}

impl Node {
    fn new(line: usize, kind: Kind) -> Node {
        Node { line, kind, is_read: Cell::new(false) }
    }

    /// The value of a key. Envoy takes `lowerCamelCase` for each of its keys, too.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Kind::Table(entries) = &self.kind else { return None };
        let found = entries.iter().find(|(known, _)| known == key || is_camel_case(known, key));
        found.map(|(_, value)| value).filter(|value| !matches!(value.kind, Kind::Null))
    }

    /// The value behind several keys, one in the other.
    pub(super) fn at(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text of a scalar, which is read with this.
    pub(super) fn text(&self) -> Option<&str> {
        let Kind::Scalar(text) = &self.kind else { return None };
        self.is_read.set(true);
        Some(text)
    }

    /// The text under a key.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// What a scalar says, if it says something of this kind. Only then it is read.
    pub(super) fn parsed<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let Kind::Scalar(text) = &self.kind else { return None };
        let parsed = parse(text)?;
        self.is_read.set(true);
        Some(parsed)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.parsed(number)
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.parsed(flag)
    }

    /// The number under a key.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        self.get(key)?.number()
    }

    /// Whether a flag under a key is set.
    pub(super) fn is(&self, key: &str) -> bool {
        self.get(key).and_then(Node::flag).unwrap_or(false)
    }

    /// The values of a list; none of anything else.
    pub(super) fn items(&self) -> &[Node] {
        let Kind::List(items) = &self.kind else { return &[] };
        self.is_read.set(true);
        items
    }

    /// The values of the list under a key.
    pub(super) fn list(&self, key: &str) -> &[Node] {
        self.get(key).map(Node::items).unwrap_or_default()
    }

    /// The texts of a list, or of one alone.
    pub(super) fn texts(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Scalar(_) => self.text().into_iter().collect(),
            _ => self.items().iter().filter_map(Node::text).collect(),
        }
    }

    /// The texts of the list under a key.
    pub(super) fn words(&self, key: &str) -> Vec<&str> {
        self.get(key).map(Node::texts).unwrap_or_default()
    }

    /// The keys and values of a table; none of anything else.
    pub(super) fn entries(&self) -> &[(String, Node)] {
        let Kind::Table(entries) = &self.kind else { return &[] };
        self.is_read.set(true);
        entries
    }

    /// Whether there is something under a key, be it an empty table, which is read with this.
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).inspect(|value| value.is_read.set(true)).is_some()
    }

    /// Whether two values are the same, but for what stands under these keys. Nothing is read with this.
    pub(super) fn is_like(&self, other: &Node, but: &[&str]) -> bool {
        let counts =
            |(known, _): &&(String, Node)| !but.iter().any(|key| known == key || is_camel_case(known, key));
        match (&self.kind, &other.kind) {
            (Kind::Null, Kind::Null) => true,
            (Kind::Scalar(one), Kind::Scalar(other)) => one == other,
            (Kind::List(one), Kind::List(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_like(other, but))
            }
            (Kind::Table(one), Kind::Table(other)) => {
                let (one, other) = (one.iter().filter(counts), other.iter().filter(counts));
                let (one, other): (Vec<_>, Vec<_>) = (one.collect(), other.collect());
                let is_same = |(one, other): (&&(String, Node), &&(String, Node))| {
                    one.0 == other.0 && one.1.is_like(&other.1, but)
                };
                one.len() == other.len() && one.iter().zip(&other).all(is_same)
            }
            _ => false,
        }
    }

    /// Marks it and everything in it as read: something has been said of it.
    pub(super) fn dismiss(&self) {
        self.is_read.set(true);
        match &self.kind {
            Kind::Null | Kind::Scalar(_) => {}
            Kind::List(items) => items.iter().for_each(Node::dismiss),
            Kind::Table(entries) => entries.iter().for_each(|(_, value)| value.dismiss()),
        }
    }

    /// Marks what is under a key as read.
    pub(super) fn skip(&self, keys: &[&str]) {
        keys.iter().filter_map(|key| self.get(key)).for_each(Node::dismiss);
    }

    /// Everything in it that nobody has read. What was not touched at all is one entry.
    pub(super) fn unread(&self) -> Vec<UnreadValue> {
        let mut found = Vec::new();
        self.collect_unread("", "", &mut found);
        found
    }

    fn collect_unread(&self, above: &str, key: &str, found: &mut Vec<UnreadValue>) {
        let path = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
        let is_touched = self.is_touched();
        match &self.kind {
            Kind::List(items) if is_touched && !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    let name = item.get("name").and_then(Node::peek).map_or(index.to_string(), str::to_owned);
                    item.collect_unread("", &format!("{key}[{name}]"), found);
                }
            }
            Kind::Table(entries) if is_touched && !entries.is_empty() => {
                entries.iter().for_each(|(inner, value)| value.collect_unread(key, inner, found));
            }
            Kind::Null => {}
            _ if self.is_read.get() => {}
            Kind::Scalar(text) if !is_secret(key) => {
                let key = key.to_owned();
                let shown = format!("{path}: {text}");
                found.push(UnreadValue { line: self.line, key, shown, text: Some(text.clone()) });
            }
            _ => found.push(UnreadValue { line: self.line, key: key.to_owned(), shown: path, text: None }),
        }
    }

    /// A scalar's text, without reading it.
    pub(super) fn peek(&self) -> Option<&str> {
        let Kind::Scalar(text) = &self.kind else { return None };
        Some(text)
    }

    /// Whether somebody has read anything in it.
    fn is_touched(&self) -> bool {
        self.is_read.get()
            || match &self.kind {
                Kind::Null | Kind::Scalar(_) => false,
                Kind::List(items) => items.iter().any(Node::is_touched),
                Kind::Table(entries) => entries.iter().any(|(_, value)| value.is_touched()),
            }
    }

    /// How many values it holds, itself among them, and how deep they lie.
    fn measure(&self) -> (usize, usize) {
        let inner: Vec<(usize, usize)> = match &self.kind {
            Kind::Null | Kind::Scalar(_) => Vec::new(),
            Kind::List(items) => items.iter().map(Node::measure).collect(),
            Kind::Table(entries) => entries.iter().map(|(_, value)| value.measure()).collect(),
        };
        let count = inner.iter().map(|(count, _)| count).sum::<usize>();
        let depth = inner.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
        (count + 1, depth + 1)
    }
}

/// The value of the only document of a text.
pub(super) fn read(text: &str) -> Result<Node, Fault> {
    let mut builder = Builder::default();
    let mut root = None;
    let mut line = 1;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Fault {
            line: error.marker().line(),
            message: format!("it is not valid YAML: {}", error.info()),
        })?;
        line = span.start.line();
        if matches!(event, Event::DocumentStart(_)) && root.is_some() {
            return Err(Fault {
                line,
                message: "a second document begins here: a file can have only one".to_owned(),
            });
        }
        if let Some(whole) = builder.take(event, line)? {
            root = Some(whole);
        }
    }
    root.ok_or_else(|| Fault { line, message: "it is empty".to_owned() })
}

/// The lists and tables that are open, and what aliases may stand for.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    /// Values so far, repeated ones as often as they stand there.
    count: usize,
}

/// A list or a table whose end has not come.
struct Open {
    line: usize,
    anchor: usize,
    inside: YamlContext,
}

enum YamlContext {
    List(Vec<Node>),
    Table {
        entries: Vec<(String, Node)>,
        keys: BTreeSet<String>,
        /// The key whose value comes next.
        key: Option<String>,
        /// Values of `<<`, whose entries are taken over.
        merged: Vec<Node>,
    },
}

impl Builder {
    /// Takes an event; returns the document's value once it is whole.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<Option<Node>, Fault> {
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = if is_null { Kind::Null } else { Kind::Scalar(text.into_owned()) };
                (Node::new(line, kind), anchor)
            }
            Event::SequenceStart(anchor, _) => {
                return self.begin(line, anchor, YamlContext::List(Vec::new()));
            }
            Event::MappingStart(anchor, _) => {
                let (entries, keys) = (Vec::new(), BTreeSet::new());
                return self.begin(
                    line,
                    anchor,
                    YamlContext::Table { entries, keys, key: None, merged: Vec::new() },
                );
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => (Node::new(open.line, self.closed(open.inside)?), open.anchor),
                None => return Ok(None),
            },
            Event::Alias(anchor) => {
                let Some(repeated) = self.anchors.get(&anchor) else {
                    let message = "an alias refers to a value that contains it".to_owned();
                    return Err(Fault { line, message });
                };
                (self.copied(repeated.clone(), line)?, 0)
            }
            _ => return Ok(None),
        };
        self.counted(1, line)?;
        if anchor > 0 {
            let kept = self.copied(node.clone(), line)?;
            self.anchors.insert(anchor, kept);
        }
        self.place(node)
    }

    fn begin(&mut self, line: usize, anchor: usize, inside: YamlContext) -> Result<Option<Node>, Fault> {
        if self.open.len() >= DEPTH_MAX {
            return Err(Fault { line, message: format!("it is nested deeper than {DEPTH_MAX} times") });
        }
        self.open.push(Open { line, anchor, inside });
        Ok(None)
    }

    /// Counts values, up to the most that are read.
    fn counted(&mut self, more: usize, line: usize) -> Result<(), Fault> {
        self.count += more;
        match self.count > VALUES_MAX {
            true => Err(Fault { line, message: format!("it has more than {VALUES_MAX} values") }),
            false => Ok(()),
        }
    }

    /// A value that stands once more, counted.
    fn copied(&mut self, node: Node, line: usize) -> Result<Node, Fault> {
        let (count, depth) = node.measure();
        self.counted(count, line)?;
        if self.open.len() + depth > DEPTH_MAX {
            return Err(Fault { line, message: format!("it is nested deeper than {DEPTH_MAX} times") });
        }
        Ok(node)
    }

    /// Puts a value where it belongs; returns it if that is nowhere, because it is the whole document.
    fn place(&mut self, node: Node) -> Result<Option<Node>, Fault> {
        let line = node.line;
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => return Ok(Some(node)),
            Some(YamlContext::List(items)) => items.push(node),
            Some(YamlContext::Table { entries, keys, key, merged }) => match (key.take(), node.kind) {
                (None, Kind::Scalar(text)) => {
                    if text != MERGE && !keys.insert(text.clone()) {
                        return Err(Fault { line, message: format!("the key `{}` is written twice", text) });
                    }
                    *key = Some(text);
                }
                (None, _) => return Err(Fault { line, message: "a key must be a string".to_owned() }),
                (Some(key), kind) if key == MERGE => merged.push(Node::new(line, kind)),
                (Some(key), kind) => entries.push((key, Node::new(line, kind))),
            },
        }
        Ok(None)
    }

    /// A list or table that is whole. A table gets the entries of what is merged into it, unless it has its own.
    fn closed(&mut self, inside: YamlContext) -> Result<Kind, Fault> {
        let (mut entries, mut keys, merged) = match inside {
            YamlContext::List(items) => return Ok(Kind::List(items)),
            YamlContext::Table { entries, keys, merged, .. } => (entries, keys, merged),
        };
        for node in merged {
            let line = node.line;
            let tables = match node.kind {
                Kind::List(tables) => tables,
                kind => vec![Node::new(line, kind)],
            };
            for table in tables {
                let Kind::Table(more) = table.kind else {
                    return Err(Fault { line, message: "`<<` can only merge tables".to_owned() });
                };
                let more = more.into_iter().filter(|(key, _)| keys.insert(key.clone()));
                entries.extend(more.collect::<Vec<_>>());
            }
        }
        Ok(Kind::Table(entries))
    }
}

/// Whether a key is another one in lowerCamelCase.
fn is_camel_case(camel: &str, snake: &str) -> bool {
    let mut camel = camel.bytes().peekable();
    for byte in snake.bytes() {
        let fits = match byte {
            // The next letter is a capital.
            b'_' => camel.peek().is_some_and(u8::is_ascii_uppercase),
            byte => camel.next().is_some_and(|found| found.eq_ignore_ascii_case(&byte)),
        };
        if !fits {
            return false;
        }
    }
    camel.next().is_none()
}

/// Whether the values of a key may be secrets, which no list of what was left out shows.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["key", "secret", "password", "token", "credential", "cert", "inline"]
        .iter()
        .any(|word| key.contains(word))
}

/// The key of YAML 1.1 whose value's entries are taken over.
const MERGE: &str = "<<";
const DEPTH_MAX: usize = 64;
const VALUES_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        read(text).map(|_| String::new()).unwrap_or_else(|fault| format!("{}: {}", fault.line, fault.message))
    }

    #[test]
    fn a_billion_laughs_are_not_read() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let above = level - 1;
            let list = vec![format!("*a{above}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        assert!(fault(&text).contains("more than 200000 values"), "{}", fault(&text));
    }

    #[test]
    fn depth_is_bounded_also_behind_aliases() {
        assert!(fault(&"[".repeat(100)).contains("nested deeper than 64"));
        let mut text = format!("a0: &a0 {}{}\n", "[".repeat(30), "]".repeat(30));
        for level in 1..4 {
            let above = level - 1;
            text.push_str(&format!("a{level}: &a{level} {}*a{above}{}\n", "[".repeat(30), "]".repeat(30)));
        }
        assert!(fault(&text).contains("nested deeper than 64"), "{}", fault(&text));
        assert!(fault("a: &a [*a]\n").contains("that contains it"), "{}", fault("a: &a [*a]\n"));
    }

    #[test]
    fn faults_have_their_line() {
        assert_eq!(fault("a: 1\nb: 2\na: 3\n"), "3: the key `a` is written twice");
        assert!(
            fault("a: [1,\n").starts_with("2: it is not valid YAML")
                || fault("a: [1,\n").contains("not valid YAML")
        );
        assert!(fault("a: 1\n---\nb: 2\n").contains("second document"));
        assert!(fault("").contains("empty"));
        assert!(fault("<<: 1\n").contains("merge tables"));
        assert!(fault("? [a]\n: b\n").contains("a key must be a string"));
    }

    #[test]
    fn what_nobody_reads_is_listed_with_its_place() {
        let root =
            read("a:\n  b: 1\n  c: {d: 2, secret-x: s}\nl:\n- name: n\n  x: 1\n  y: 2\nnothing: ~\n").ok();
        let root = root.expect("it is YAML");
        assert_eq!(root.at(&["a", "b"]).and_then(Node::number), Some(1));
        assert_eq!(root.at(&["a", "c", "d"]).and_then(Node::number), Some(2));
        assert_eq!(root.list("l")[0].count("x"), Some(1));
        let unread = root.unread();
        let shown: Vec<_> = unread.iter().map(|unread| format!("{} {}", unread.line, unread.shown)).collect();
        assert_eq!(shown, ["3 c.secret-x", "5 l[n].name: n", "7 l[n].y: 2"]);
    }

    #[test]
    fn merged_keys_and_aliases_are_the_values_they_stand_for() {
        let root = read("base: &base {a: 1, b: 2}\nthis:\n  <<: *base\n  b: 3\n\"k\": \"\\u00e9\"\n").ok();
        let root = root.expect("it is YAML");
        let this = root.get("this").expect("it is there");
        assert_eq!((this.count("a"), this.count("b")), (Some(1), Some(3)));
        assert_eq!(root.word("k"), Some("é"));
    }

    #[test]
    fn keys_of_envoy_may_be_in_camel_case() {
        let root = read("{\"virtualHosts\": 1,\n\t\"route_config\": 2}").ok();
        let root = root.expect("JSON is YAML");
        assert_eq!((root.count("virtual_hosts"), root.count("route_config")), (Some(1), Some(2)));
        assert!(
            !is_camel_case("virtualhosts", "virtual_hosts") && !is_camel_case("virtualHost", "virtual_hosts")
        );
    }
}
