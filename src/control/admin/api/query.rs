//! Reads the parameters of a query one by one, each at most once, and collects what is wrong with them.
//!
//! As with [`super::fields`], whatever was not asked for is unknown. A misspelt `dry-run` must not become a change.

use std::ops::RangeInclusive;

use super::fields::{At, Flaw, text_flaw};
use base::words::{did_you_mean, listed};
use policy::percent::{self, Plus};

/// The parameters that a request has, and the names that were asked for.
#[derive(Debug)]
pub(in crate::admin) struct Query {
    pairs: Vec<(String, String)>,
    asked: Vec<&'static str>,
    flaws: Vec<Flaw>,
}

impl Query {
    /// Splits and decodes a query; `+` is a space, as forms and `curl --data-urlencode` write it.
    pub(in crate::admin) fn parse(query: &str) -> Query {
        let mut parsed = Query { pairs: Vec::new(), asked: Vec::new(), flaws: Vec::new() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name).unwrap_or_default();
            let Some(value) = decoded(value) else {
                parsed.wrong(&name, "is not percent-encoded UTF-8");
                continue;
            };
            if parsed.pairs.iter().any(|(other, _)| *other == name) {
                parsed.wrong(&name, "is given twice");
                continue;
            }
            parsed.pairs.push((name, value));
        }
        parsed
    }

    /// A text of 1 to `chars_max` characters.
    pub(in crate::admin) fn text(&mut self, name: &'static str, chars_max: usize) -> Option<String> {
        let text = self.value(name)?;
        match text_flaw(&text, chars_max) {
            None => Some(text),
            Some(flaw) => {
                self.wrong(name, &flaw);
                None
            }
        }
    }

    /// A whole number in a range.
    pub(in crate::admin) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let text = self.value(name)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_plain && range.contains(number));
        if number.is_none() {
            let (first, last) = range.into_inner();
            self.wrong(name, &format!("must be a whole number from {first} to {last}"));
        }
        number
    }

    /// `true` or `false`; `false` if it is not there.
    pub(in crate::admin) fn boolean(&mut self, name: &'static str) -> bool {
        match self.value(name).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                self.wrong(name, "must be `true` or `false`");
                false
            }
        }
    }

    /// What `read` makes of the text; its error says what to write instead.
    pub(in crate::admin) fn parsed<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.value(name)?;
        read(&text).map_err(|hint| self.wrong(name, &hint)).ok()
    }

    /// Reports every parameter that was not asked for. `Err` has all that was found wrong.
    pub(in crate::admin) fn finish(mut self) -> Result<(), Vec<Flaw>> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            let hint = did_you_mean(&name, &self.asked);
            let hint = hint.unwrap_or_else(|| match self.asked.as_slice() {
                [] => "this endpoint takes no parameters".to_owned(),
                asked => format!("it takes {}", listed(asked)),
            });
            self.wrong(&name, &format!("is unknown: {hint}"));
        }
        if self.flaws.is_empty() { Ok(()) } else { Err(self.flaws) }
    }

    fn value(&mut self, name: &'static str) -> Option<String> {
        self.asked.push(name);
        let at = self.pairs.iter().position(|(other, _)| other == name)?;
        Some(self.pairs.swap_remove(at).1)
    }

    fn wrong(&mut self, name: &str, detail: &str) {
        self.flaws.push(Flaw { at: At::Parameter(name.to_owned()), detail: format!("`{name}` {detail}") });
    }
}

/// A percent-encoded text of a query; `None` if it is broken, because something else was meant.
fn decoded(text: &str) -> Option<String> {
    let bytes = percent::is_well_formed(text).then(|| percent::decode(text, Plus::Space).collect())?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_once_and_unknown_ones_refused() {
        let mut query = Query::parse("who=a%20b+c&limit=10&dry-run=true");
        assert_eq!(query.text("who", 9).as_deref(), Some("a b c"));
        assert_eq!((query.integer("limit", 1..=10), query.boolean("dry-run")), (Some(10), true));
        assert_eq!((query.text("what", 9), query.boolean("other")), (None, false));
        assert_eq!(query.finish(), Ok(()));
        assert_eq!(Query::parse("").finish(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_parameter() {
        for (text, said) in [
            ("limit=0", "`limit` must be a whole number from 1 to 10"),
            ("limit=+5", "`limit` must be a whole number from 1 to 10"),
            ("limit=", "`limit` must be a whole number from 1 to 10"),
            ("limit=1&limit=1", "`limit` is given twice"),
            ("limti=1", "`limti` is unknown: did you mean `limit`?"),
            ("dry_run", "`dry_run` is unknown: did you mean `dry-run`?"),
            ("dry-run", "`dry-run` must be `true` or `false`"),
            ("dry-run=%zz", "`dry-run` is not percent-encoded UTF-8"),
            ("other=1", "`other` is unknown: it takes `limit` or `dry-run`"),
        ] {
            let mut query = Query::parse(text);
            query.integer("limit", 1..=10);
            query.boolean("dry-run");
            let flaws = query.finish().expect_err(text);
            assert_eq!(flaws.iter().map(|flaw| flaw.detail.as_str()).collect::<Vec<_>>(), [said], "{text}");
        }
    }
}
