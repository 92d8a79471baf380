//! The tree of descriptors: which paths of it are rules, and which are never reached.

use std::collections::HashSet;

use super::super::draft::Rule;
use super::super::notes::one_line;
use super::super::yaml::Node;
use super::Reading;
use super::limits::Limit;
use base::words;

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) key: String,
    /// As a rule writes it: exact, with a star at its end, or a star.
    pub(super) value: String,
    /// Whether all values that the star takes count together.
    pub(super) is_shared: bool,
}

/// The branches of one level so far.
#[derive(Default)]
struct Siblings {
    /// Keys and values as they are written.
    seen: HashSet<(String, String)>,
    /// Those whose value ends with a star: key, what stands before the star, and the line.
    stars: Vec<(String, String, usize)>,
}

impl Siblings {
    /// Adds a branch; `Err` with why if nothing is left for it.
    fn add(&mut self, key: &str, value: &str, line: usize) -> Result<(), String> {
        let prefix = value.strip_suffix('*');
        // The first one hides it, because of two stars that service takes the first, and not the longest.
        let first = prefix.and_then(|prefix| {
            self.stars.iter().find(|(known, first, _)| known == key && prefix.starts_with(first.as_str()))
        });
        if let Some((.., line)) = first {
            return Err(format!("it is never reached: line {line} takes these values before it"));
        }
        if !self.seen.insert((key.to_owned(), value.to_owned())) {
            return Err("it is written twice: the service refuses the file".to_owned());
        }
        self.stars.extend(prefix.map(|prefix| (key.to_owned(), prefix.to_owned(), line)));
        Ok(())
    }
}

impl Reading<'_> {
    /// Reads the descriptors below a node, to which these steps lead.
    pub(super) fn level(&mut self, node: &Node, above: &[Step]) {
        if above.len() >= DEPTH_MAX {
            if let Some(inner) = node.get("descriptors") {
                let why = "a rule has at most 32 entries";
                self.left_out(inner, "descriptors", why);
            }
            return;
        }
        let descriptors = node.list("descriptors");
        // Known before the rest, because a key with a star takes what a key without a value would, wherever it stands.
        let stars: HashSet<&str> =
            descriptors.iter().filter(|it| peek(it, "value") == "*").map(|it| peek(it, "key")).collect();
        let mut siblings = Siblings::default();
        for descriptor in descriptors {
            let Some(step) = self.step(descriptor, &stars, &mut siblings) else { continue };
            let path: Vec<Step> = above.iter().cloned().chain([step]).collect();
            self.descriptor(descriptor, &path);
        }
    }

    /// The entry that a descriptor takes. `None` if there is none, or if it takes nothing that is left.
    fn step(&mut self, descriptor: &Node, stars: &HashSet<&str>, siblings: &mut Siblings) -> Option<Step> {
        let key = descriptor.word("key").unwrap_or_default().to_owned();
        let value = descriptor.word("value").unwrap_or_default().to_owned();
        let what = shown(&key, &value);
        if key.is_empty() {
            self.left_out(descriptor, "descriptor", "it has no key: the service refuses the file");
            return None;
        }
        if value.is_empty() && key.ends_with('*') {
            let why =
                "in the service a key that ends with `*` matches other keys; here a key must match exactly";
            self.left_out(descriptor, &what, why);
            return None;
        }
        if value.is_empty() && stars.contains(key.as_str()) {
            let why = "it is never reached: the same key with `*` takes every value before it";
            self.left_out(descriptor, &what, why);
            return None;
        }
        if let Err(why) = siblings.add(&key, &value, descriptor.line) {
            self.left_out(descriptor, &what, &why);
            return None;
        }
        let is_shared = descriptor.is("share_threshold") && value.ends_with('*');
        let value = if value.is_empty() { "*".to_owned() } else { value };
        Some(Step { key, value, is_shared })
    }

    /// The rule of a descriptor, and those below it.
    fn descriptor(&mut self, descriptor: &Node, path: &[Step]) {
        let has_more = !descriptor.list("descriptors").is_empty();
        let limit = match descriptor.get("rate_limit") {
            Some(written) => self.limit(descriptor, written, path),
            // Refused, because a limit under a misspelt key would be none.
            None if let Some((key, value)) = descriptor.entries().iter().find(|(key, _)| !is_known(key)) => {
                let hint =
                    words::did_you_mean(key, KEYS).map(|hint| format!(" ({hint})")).unwrap_or_default();
                let message = format!("`{}` is not a key of a descriptor{hint}", one_line(key));
                self.refuse(value.line, message);
                return;
            }
            // No rule, because nothing is written: nothing is limited, but what is below may be.
            None if has_more => None,
            None => Some(Limit::unlimited()),
        };
        if descriptor.get("rate_limit").is_none() {
            descriptor.skip(&["shadow_mode", "quota_mode"]);
        }
        if let Some(limit) = limit {
            let last = path.last().map(|step| shown(&step.key, &step.value)).unwrap_or_default();
            self.domain.rules.push(Rule {
                place: self.place(descriptor),
                what: last,
                entries: path.iter().map(|step| (step.key.clone(), step.value.clone())).collect(),
                name: limit.name,
                instead_of: limit.instead_of,
                verdict: limit.verdict,
            });
        }
        self.level(descriptor, path);
    }
}

fn peek<'n>(node: &'n Node, key: &str) -> &'n str {
    node.get(key).and_then(Node::peek).unwrap_or_default()
}

fn shown(key: &str, value: &str) -> String {
    if value.is_empty() { format!("key: {key}") } else { format!("key: {key}, value: {value}") }
}

fn is_known(key: &str) -> bool {
    KEYS.contains(&key)
}

/// The keys that a descriptor may have.
const KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "share_threshold",
    "detailed_metric",
    "value_to_metric",
    "metadata",
    "rate_limit_metadata",
];
/// Entries that a rule may have: `policy::compile` says so.
const DEPTH_MAX: usize = 32;
