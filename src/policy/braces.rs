//! Splits a text with `{...}` into its literal parts and its names. `{{` and `}}` are literal braces. What a name means is
//! the caller's.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BracePiece<'t> {
    /// Text that stands for itself; never empty.
    Literal(String),
    Name {
        /// Where its brace stands, bytes into the text.
        offset: usize,
        name: &'t str,
    },
}

/// A brace without its other one. Offsets are bytes into the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `{` without `}`.
    #[error("`{{` is not closed; write `{{{{` for a brace itself")]
    Unclosed { offset: usize },
    /// `}` without `{`.
    #[error("`}}` has no `{{` before it; write `}}}}` for a brace itself")]
    LoneBrace { offset: usize },
}

/// Splits a text.
///
/// # Errors
/// The first brace without its other one.
pub fn split(text: &str) -> Result<Vec<BracePiece<'_>>, Error> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(found) = text[at..].find(['{', '}']) {
        literal.push_str(&text[at..at + found]);
        at += found;
        let rest = &text[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push_str(&rest[..1]);
            at += 2;
            continue;
        }
        if rest.starts_with('}') {
            return Err(Error::LoneBrace { offset: at });
        }
        let Some(end) = rest.find('}') else { return Err(Error::Unclosed { offset: at }) };
        if !literal.is_empty() {
            pieces.push(BracePiece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(BracePiece::Name { offset: at, name: &rest[1..end] });
        at += end + 1;
    }
    literal.push_str(&text[at..]);
    if !literal.is_empty() {
        pieces.push(BracePiece::Literal(literal));
    }
    Ok(pieces)
}
