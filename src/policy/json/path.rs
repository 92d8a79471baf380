//! Where a value stands in JSON: the names of objects' members from the outermost, with dots between them.

use std::fmt;

/// A path as in `usage.total_tokens`: the names of objects. It has at least one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonPath {
    names: Box<[Box<str>]>,
    /// The places of `*`, each by the names before it: the elements of a list there are added up.
    lists: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing stands before, between or behind its dots, or it has nothing but `*`.
    #[error("a name is empty")]
    Empty,
    /// It is written as for JSONPath, jq or a JSON Pointer.
    #[error("a path has no brackets, and does not begin with `$.` or `/`")]
    Foreign,
    #[error("a path has at most {NAMES_MAX} names")]
    Deep,
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    Long,
}

impl JsonPath {
    /// Reads a path as operators write it.
    ///
    /// # Errors
    /// If a name is empty or too long, or there are too many.
    pub fn parse(text: &str) -> Result<JsonPath, PathError> {
        check_syntax(text)?;
        JsonPath::of(text.split('.').map(Box::from).collect(), Box::default())
    }

    /// The same with `*` for the elements of a list, whose numbers are added up: `usage.*.tokens`.
    ///
    /// # Errors
    /// As [`JsonPath::parse`].
    pub fn parse_with_lists(text: &str) -> Result<JsonPath, PathError> {
        check_syntax(text)?;
        let (mut names, mut lists) = (Vec::new(), Vec::new());
        for part in text.split('.') {
            match part {
                "*" => lists.push(u8::try_from(names.len()).map_err(|_| PathError::Deep)?),
                name => names.push(Box::from(name)),
            }
        }
        JsonPath::of(names.into(), lists.into())
    }

    fn of(names: Box<[Box<str>]>, lists: Box<[u8]>) -> Result<JsonPath, PathError> {
        if names.is_empty() || names.iter().any(|name| name.is_empty()) {
            return Err(PathError::Empty);
        }
        if names.len() + lists.len() > NAMES_MAX {
            return Err(PathError::Deep);
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(PathError::Long);
        }
        Ok(JsonPath { names, lists })
    }

    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// How many names stand before its first `*`; `None` if it has none.
    pub fn adds_up_at(&self) -> Option<usize> {
        self.lists.first().map(|names| usize::from(*names))
    }
}

/// What is surely meant for another reader: `$.a`, `/a`, `a[0]`, `a["b"]`, `.a[]`.
fn check_syntax(text: &str) -> Result<(), PathError> {
    let is_pointer = text.starts_with('/');
    let is_rooted =
        text.strip_prefix('$').is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let has_brackets = text.contains('[') && text.contains(']');
    if is_pointer || is_rooted || has_brackets { Err(PathError::Foreign) } else { Ok(()) }
}

/// A path as it is written here, of one for JSONPath, jq or a JSON Pointer: each of its indices stands for a whole list.
pub fn translated(text: &str) -> String {
    let separators: &[char] = if text.starts_with('/') { &['/'] } else { &['.', '[', ']'] };
    let text = text.strip_prefix('$').unwrap_or(text).replace("[]", "[*]");
    let parts =
        text.split(separators).map(|part| part.trim_matches(['"', '\''])).filter(|part| !part.is_empty());
    let is_index = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.map(|part| if is_index(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
}

impl fmt::Display for JsonPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lists = self.lists.iter().peekable();
        let mut parts = Vec::new();
        for before in 0..=self.names.len() {
            while lists.next_if(|list| usize::from(**list) == before).is_some() {
                parts.push("*");
            }
            parts.extend(self.names.get(before).map(|name| &**name));
        }
        formatter.write_str(&parts.join("."))
    }
}

pub const NAMES_MAX: usize = 16;
/// The longest name, bytes.
pub const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_names_with_dots_between() {
        let path = JsonPath::parse("usage.total_tokens").expect("a path");
        assert_eq!(path.names(), [Box::from("usage"), Box::from("total_tokens")]);
        assert_eq!(path.to_string(), "usage.total_tokens");
        for empty in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(JsonPath::parse(empty), Err(PathError::Empty), "{empty:?}");
        }
        for text in ["usage.*.tokens", "*.usage.tokens", "usage.*", "a.*.*.b"] {
            let path = JsonPath::parse_with_lists(text).expect("a path");
            assert_eq!((path.to_string().as_str(), path.adds_up_at().is_some()), (text, true));
        }
        assert_eq!(JsonPath::parse_with_lists("*.a.*").map(|path| path.adds_up_at()), Ok(Some(0)));
        assert_eq!(JsonPath::parse("a.*").map(|path| path.adds_up_at()), Ok(None), "a name");
        for (foreign, here) in [
            ("$.usage.total_tokens", "usage.total_tokens"),
            ("$", ""),
            ("$['usage']['total']", "usage.total"),
            ("/usage/0/total", "usage.*.total"),
            ("a[0]", "a.*"),
            ("a[*].b", "a.*.b"),
            ("$[*].b", "*.b"),
            (".a[].b", "a.*.b"),
            ("a[\"b\"].c", "a.b.c"),
        ] {
            let parsed = [JsonPath::parse(foreign), JsonPath::parse_with_lists(foreign)];
            assert_eq!(parsed, [const { Err(PathError::Foreign) }; 2], "{foreign}");
            assert_eq!(translated(foreign), here);
        }
        for name in ["$ref", "a/b", "$ref.x", "a.$", "x]", "@type", "a-b"] {
            assert_eq!(JsonPath::parse(name).map(|path| path.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(
            ["*", "*.*", "a..*"].map(JsonPath::parse_with_lists),
            [const { Err(PathError::Empty) }; 3]
        );
        assert_eq!(JsonPath::parse(&["a"; 17].join(".")), Err(PathError::Deep));
        assert_eq!(JsonPath::parse(&"a".repeat(129)), Err(PathError::Long));
    }
}
