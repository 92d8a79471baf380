//! Writes a draft as gateway.toml: first what was left out, then the sections in the order in which they are explained.

use std::fmt::Write;
use std::path::Path;

use config::printer::{self, Page, array, key, table};

use super::draft::{Domain, Draft, DraftItem, Route, Rule, Section, Verdict, texts};
use super::notes::{Note, Notes, one_line};

/// A draft as text, and where its parts stand.
pub(super) struct PrintedConfig {
    pub(super) text: String,
    /// The byte at which each part begins, in their order. `None`: what begins there belongs to no part.
    parts: Vec<(usize, Option<DraftItem>)>,
}

impl PrintedConfig {
    /// The part that a line, from 1, belongs to.
    pub(super) fn part(&self, line: usize) -> Option<DraftItem> {
        let start: usize = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let after = self.parts.partition_point(|(begin, _)| *begin <= start);
        self.parts[..after].last()?.1
    }
}

struct Printer {
    page: Page,
    parts: Vec<(usize, Option<DraftItem>)>,
}

impl Printer {
    /// What follows belongs to this part.
    fn begin(&mut self, part: Option<DraftItem>) {
        self.parts.push((self.page.0.len(), part));
    }

    fn sections(&mut self, kind: &str, sections: &[Section], part: impl Fn(usize) -> DraftItem) {
        for (index, section) in sections.iter().enumerate() {
            self.begin(Some(part(index)));
            self.page.heading(&format!("[{kind}.{}]", key(&section.name)));
            section.keys.iter().for_each(|(key, value)| self.page.key(key, value));
        }
    }
}

pub(super) fn text(draft: &Draft, from: &str, everywhere: &[&str], path: &Path) -> PrintedConfig {
    let mut out = Printer { page: Page(String::new()), parts: Vec::new() };
    head(&mut out.page.0, &draft.notes, from, everywhere, path);
    let comments = out.page.0.len();
    if let Some(workers) = draft.workers {
        out.page.0.push('\n');
        out.page.key("workers", workers);
    }
    out.sections("listener", &draft.listeners, DraftItem::Listener);
    out.begin(None);
    if !draft.trust.is_empty() {
        out.page.heading("[client-ip]");
        out.page.key("trust", texts(&draft.trust));
    }
    out.sections("auth", &draft.auth, DraftItem::Auth);
    out.sections("upstream", &draft.upstreams, DraftItem::Upstream);
    out.sections("policy", &draft.policies, DraftItem::Policy);
    for (index, it) in draft.routes.iter().enumerate() {
        out.begin(Some(DraftItem::Route(index)));
        route(&mut out.page, it);
    }
    draft.domains.iter().enumerate().for_each(|(index, it)| domain(&mut out, index, it));
    out.begin(None);
    if let Some(url) = &draft.redis {
        out.page.heading("[redis]");
        out.page.key("url", text_of(url));
    }
    if out.page.0.len() == comments {
        // An empty list of routes, because a file of comments alone is refused, as one that was emptied by accident.
        out.page.0.push('\n');
        out.page.key("route", "[]");
    }
    PrintedConfig { text: out.page.0, parts: out.parts }
}

/// The file of keys: hashes, never the keys.
pub(super) fn keys(draft: &Draft) -> String {
    let mut page = Page(String::new());
    for entry in &draft.keys {
        page.heading("[[key]]");
        page.key("digest", text_of(&entry.digest));
        page.key("consumer", text_of(&entry.consumer));
        if !entry.groups.is_empty() {
            let groups = printer::array(entry.groups.iter().map(|group| text_of(group)));
            page.key("claims", table([("groups", groups)]));
        }
    }
    page.0.trim_start().to_owned()
}

fn text_of(value: &str) -> String {
    printer::text(value)
}

/// The comments at the top.
fn head(out: &mut String, notes: &Notes, from: &str, everywhere: &[&str], path: &Path) {
    let name = one_line(&path.display().to_string());
    line(out, &format!("Made by `sluicegate migrate {} {name}`.", from));
    list(
        out,
        "Left out: the new file has no replacement for these lines. A closed route answers 501 until you rewrite it.",
        &notes.left_out,
    );
    list(out, "Taken over, but not exactly:", &notes.differing);
    if !notes.needless.is_empty() {
        line(out, "");
        line(out, "Not needed, and without effect on any response:");
        for (word, place) in &notes.needless {
            line(out, &format!("  {}:{}: `{word}`", one_line(&place.file), place.line));
        }
    }
    line(out, "");
    line(out, &format!("General differences from {}; see docs/migration.md:", from));
    everywhere.iter().for_each(|difference| line(out, &format!("  {difference}")));
}

fn list(out: &mut String, heading: &str, notes: &[Note]) {
    if notes.is_empty() {
        return;
    }
    line(out, "");
    line(out, heading);
    let mut notes: Vec<&Note> = notes.iter().collect();
    notes.sort();
    for Note { place, what, why } in notes {
        // Without a line, because what came of several lines together has no place.
        match place.line {
            0 => line(out, &format!("  `{what}`: {why}")),
            number => line(out, &format!("  {}:{number}: `{what}`: {why}", one_line(&place.file))),
        }
    }
}

fn line(out: &mut String, text: &str) {
    // Filtered, because a line break in a name must not begin a line that is no comment.
    let text: String = text.chars().filter(|sign| !base::words::steers(*sign)).collect();
    let comment = if text.is_empty() { "#".to_owned() } else { format!("# {text}") };
    writeln!(out, "{comment}").expect("writing to a string cannot fail");
}

fn route(page: &mut Page, route: &Route) {
    page.heading("[[route]]");
    page.key("name", text_of(&route.name));
    if !route.hosts.is_empty() {
        page.key("host", texts(&route.hosts));
    }
    page.key("path", text_of(&route.path));
    if !route.methods.is_empty() {
        page.key("methods", texts(&route.methods));
    }
    if !route.headers.is_empty() {
        let value = |value: &Option<String>| value.as_deref().map_or("true".to_owned(), text_of);
        let headers = table(route.headers.iter().map(|(name, it)| (key(name), value(it))));
        page.key("match", table([("header", headers)]));
    }
    if !route.limits.is_empty() {
        page.key("limit", texts(&route.limits));
    }
    route.keys.iter().for_each(|(key, value)| page.key(key, value));
}

/// A rule stands on one line, so that an error about it is traced to it.
fn domain(out: &mut Printer, index: usize, domain: &Domain) {
    out.begin(None);
    out.page.heading(&format!("[rls.{}]", key(&domain.name)));
    out.page.0.push_str("descriptors = [\n");
    for (number, it) in domain.rules.iter().enumerate() {
        out.begin(Some(DraftItem::Rule { domain: index, rule: number }));
        out.page.0.push_str(&format!("  {},\n", rule(it)));
    }
    out.begin(None);
    out.page.0.push_str("]\n");
}

fn rule(rule: &Rule) -> String {
    let entry = |(name, value): &(String, String)| table([(key(name), text_of(value))]);
    let entries = match rule.entries.as_slice() {
        [only] => entry(only),
        entries => array(entries.iter().map(entry)),
    };
    let mut keys = vec![("entries", entries)];
    keys.extend(rule.name.iter().map(|name| ("name", text_of(name))));
    if !rule.instead_of.is_empty() {
        keys.push(("instead-of", texts(&rule.instead_of)));
    }
    keys.push(match &rule.verdict {
        Verdict::Limited(policy) => ("limit", text_of(policy)),
        Verdict::Unlimited => ("unlimited", "true".to_owned()),
        Verdict::Denied => ("deny", "true".to_owned()),
    });
    table(keys)
}
