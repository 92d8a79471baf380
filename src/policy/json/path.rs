//! Where a value stands in JSON: the names of objects' members from the outermost, with dots between them.

use std::fmt;

/// A path as in `usage.total_tokens`: the names of objects. It has at least one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonPath(Box<[Box<str>]>);

/// Why a text is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing stands before, between or behind its dots.
    #[error("a name is empty")]
    Empty,
    /// It is deeper than [`NAMES_MAX`].
    #[error("a path has at most {NAMES_MAX} names")]
    Deep,
    /// A name is longer than [`NAME_BYTES_MAX`].
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    Long,
}

impl JsonPath {
    /// Reads a path as operators write it.
    ///
    /// # Errors
    /// If a name is empty or too long, or there are too many.
    pub fn parse(text: &str) -> Result<JsonPath, PathError> {
        let names: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        if names.iter().any(|name| name.is_empty()) {
            return Err(PathError::Empty);
        }
        if names.len() > NAMES_MAX {
            return Err(PathError::Deep);
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(PathError::Long);
        }
        Ok(JsonPath(names))
    }

    pub fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str(".")?;
            }
            formatter.write_str(name)?;
        }
        Ok(())
    }
}

/// The most names of a path.
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
        assert_eq!(JsonPath::parse(&["a"; 17].join(".")), Err(PathError::Deep));
        assert_eq!(JsonPath::parse(&"a".repeat(129)), Err(PathError::Long));
    }
}
