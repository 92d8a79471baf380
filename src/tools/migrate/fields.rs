//! Fields that are removed, set and added on the way to an upstream or to a client.

use config::printer::{array, key, table, text};

use super::draft::texts;

/// Changes of fields in one direction. Values are templates of ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) remove: Vec<String>,
    pub(super) set: Vec<(String, String)>,
    pub(super) add: Vec<(String, Vec<String>)>,
}

impl Fields {
    /// Takes a field away, whatever was done with it before.
    pub(super) fn take_away(&mut self, name: String) {
        self.forget(&name);
        if !self.remove.contains(&name) {
            self.remove.push(name);
        }
    }

    /// Takes a field of requests away whose value cannot be said, because servers would take the client's own for it.
    /// Returns what is listed.
    pub(super) fn take_unknown(&mut self, name: String) -> &'static str {
        if TO_SERVERS.contains(&name.as_str()) || FRAMING.contains(&name.as_str()) {
            return "its value has no counterpart: the server gets what the gateway sends";
        }
        self.take_away(name);
        "its value has no counterpart: the header is removed, so that no client can choose it"
    }

    /// Gives a field this value alone.
    pub(super) fn replace(&mut self, name: String, value: String) {
        self.forget(&name);
        self.set.push((name, value));
    }

    fn forget(&mut self, name: &str) {
        self.set.retain(|(known, _)| known != name);
        self.add.retain(|(known, _)| known != name);
    }

    /// These changes, and then `later` ones.
    pub(super) fn then(mut self, later: Fields) -> Fields {
        later.remove.into_iter().for_each(|name| self.take_away(name));
        later.set.into_iter().for_each(|(name, value)| self.replace(name, value));
        for (name, values) in later.add {
            values.into_iter().for_each(|value| self.append(name.clone(), value));
        }
        self
    }

    pub(super) fn append(&mut self, name: String, value: String) {
        match self.add.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.add.push((name, vec![value])),
        }
    }

    /// The first value that is added to a field which the gateway writes takes the place of its own.
    fn once(&self, own: &[&str]) -> Fields {
        let mut changes = Fields { add: Vec::new(), ..self.clone() };
        for (name, values) in &self.add {
            let is_own = own.contains(&name.as_str()) && !self.set.iter().any(|(known, _)| known == name);
            let (first, more) = values.split_at(usize::from(is_own).min(values.len()));
            changes.set.extend(first.iter().map(|value| (name.clone(), value.clone())));
            changes.add.extend(Some((name.clone(), more.to_vec())).filter(|_| !more.is_empty()));
        }
        changes
    }

    /// As `headers` and `response-headers` have them; `None` if nothing is changed. `own` are the fields that the gateway
    /// writes itself.
    pub(super) fn shown(&self, own: &[&str]) -> Option<String> {
        let parts = self.once(own).parts();
        (!parts.is_empty()).then(|| table(parts))
    }

    fn parts(&self) -> Vec<(&'static str, String)> {
        let mut parts = Vec::new();
        if !self.remove.is_empty() {
            parts.push(("remove", texts(&self.remove)));
        }
        if !self.set.is_empty() {
            // The last one alone, because of two of one name that one is sent.
            let last = |(at, (name, _)): &(usize, &(String, String))| {
                !self.set[at + 1..].iter().any(|(other, _)| other == name)
            };
            let kept = self.set.iter().enumerate().filter(last);
            parts.push(("set", table(kept.map(|(_, (name, value))| (key(name), text(value))))));
        }
        if !self.add.is_empty() {
            let values = |values: &[String]| match values {
                [only] => text(only),
                _ => array(values.iter().map(|value| text(value))),
            };
            parts.push(("add", table(self.add.iter().map(|(name, it)| (key(name), values(it))))));
        }
        parts
    }
}

/// Fields of requests that the gateway writes itself, so that one more value would be a second one.
pub(super) const TO_SERVERS: &[&str] = &[
    "forwarded",
    "host",
    "traceparent",
    "tracestate",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];
/// Fields of a connection, which no route removes.
const FRAMING: &[&str] =
    &["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];
/// Those of answers.
pub(super) const TO_CLIENTS: &[&str] = &["x-request-id"];
