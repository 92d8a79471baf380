//! Texts that a rule makes of a descriptor's entries: `{user_id}`, `shop-{shop}`.

use super::definition::DescriptorEntry;
use crate::keys::subject::Encoded;

/// A text with the values of entries in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorTemplate {
    parts: Box<[DescriptorPiece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DescriptorPiece {
    Text(Box<str>),
    /// The value of the entry of this key.
    Entry(Box<str>),
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a brace has no counterpart; write the key of an entry in braces, for example `{{user_id}}`")]
    Brace,
    #[error("`{{}}` names no entry; write its key, for example `{{user_id}}`")]
    Nameless,
}

impl DescriptorTemplate {
    pub fn parse(text: &str) -> Result<DescriptorTemplate, Error> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let (key, behind) =
                from.strip_prefix('{').and_then(|from| from.split_once('}')).ok_or(Error::Brace)?;
            if key.contains('{') {
                return Err(Error::Brace);
            }
            if key.is_empty() {
                return Err(Error::Nameless);
            }
            if !before.is_empty() {
                parts.push(DescriptorPiece::Text(before.into()));
            }
            parts.push(DescriptorPiece::Entry(key.into()));
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(DescriptorPiece::Text(rest.into()));
        }
        Ok(DescriptorTemplate { parts: parts.into() })
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            DescriptorPiece::Text(_) => None,
            DescriptorPiece::Entry(key) => Some(&**key),
        })
    }

    /// The text for a descriptor. Nothing at all if one of its entries is empty, because half a value would be
    /// another's.
    pub fn text(&self, entries: &[DescriptorEntry<'_>]) -> String {
        let mut out = Encoded::new();
        self.write(entries, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// The same, appended.
    pub fn write(&self, entries: &[DescriptorEntry<'_>], out: &mut Encoded) {
        let start = out.len();
        for part in &self.parts {
            match part {
                DescriptorPiece::Text(text) => out.extend_from_slice(text.as_bytes()),
                DescriptorPiece::Entry(key) => {
                    let before = out.len();
                    write_values(key, entries, out);
                    if out.len() == before {
                        return out.truncate(start);
                    }
                }
            }
        }
    }
}

/// Appends the value of the entry of a key. If several have it, all their values in their order, with commas between
/// them, because each of them is a part of who is counted. A comma of a value is escaped then, so that two lists
/// differ as their values do.
pub(super) fn write_values(key: &str, entries: &[DescriptorEntry<'_>], out: &mut Encoded) {
    let mut values = entries.iter().filter(|entry| entry.key == key).map(|entry| entry.value);
    let Some(first) = values.next() else { return };
    let Some(second) = values.next() else { return out.extend_from_slice(first.as_bytes()) };
    for (number, value) in [first, second].into_iter().chain(values).enumerate() {
        if number > 0 {
            out.push(b',');
        }
        for byte in value.bytes() {
            if matches!(byte, b',' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<DescriptorEntry<'a>> {
        pairs.iter().map(|&(key, value)| DescriptorEntry { key, value }).collect()
    }

    #[test]
    fn entries_stand_in_braces() {
        let descriptor = entries(&[("shop", "s1"), ("user", "ann"), ("none", "")]);
        let text =
            |template: &str| DescriptorTemplate::parse(template).map(|template| template.text(&descriptor));
        for (template, expected) in [
            ("{user}", "ann"),
            ("{shop}/{user}", "s1/ann"),
            ("a-{user}-b", "a-ann-b"),
            ("orders", "orders"),
            ("", ""),
            ("{shop}{none}", ""),
            ("{other}", ""),
        ] {
            assert_eq!(text(template).as_deref(), Ok(expected), "{template}");
        }
        for (template, error) in [
            ("{user", Error::Brace),
            ("user}", Error::Brace),
            ("{a{b}}", Error::Brace),
            ("{}", Error::Nameless),
        ] {
            assert_eq!(text(template), Err(error), "{template}");
        }
    }

    #[test]
    fn entries_of_one_key_count_by_all_their_values() {
        let written = |pairs: &[(&str, &str)]| {
            let mut out = Encoded::new();
            write_values("k", &entries(pairs), &mut out);
            String::from_utf8(out.to_vec()).expect("text")
        };
        assert_eq!(written(&[("k", "a,b")]), "a,b");
        assert_eq!(written(&[("k", "a"), ("x", "y"), ("k", "b")]), "a,b");
        assert_eq!(written(&[("k", "a,b"), ("k", "c")]), "a\\,b,c");
        assert_eq!(written(&[("k", "a"), ("k", "b,c")]), "a,b\\,c");
        assert_eq!(written(&[("k", "a\\"), ("k", "c")]), "a\\\\,c");
        assert_eq!(written(&[("x", "y")]), "");
    }
}
