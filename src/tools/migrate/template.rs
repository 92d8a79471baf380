//! Values of other gateways, as templates of ours.

/// A literal text in a template: its braces are doubled.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// A text with `$name` and `${name}`, as nginx writes them. `value` says what a name stands for; `None` if it stands for
/// something that no template has.
pub(super) fn of_dollars(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> Option<String> {
    let mut pieces = text.split('$');
    let mut template = literal(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (name, rest) = match piece.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None => {
                let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
                piece.split_at(piece.find(|sign| !is_name(sign)).unwrap_or(piece.len()))
            }
        };
        template.push_str(&value(name)?);
        template.push_str(&literal(rest));
    }
    Some(template)
}

/// The names that a text has so.
pub(super) fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    of_dollars(text, |name| {
        names.push(name.to_owned());
        Some(String::new())
    });
    names
}

/// A literal text as the body of an answer, where a brace means something only in front of a name.
pub(super) fn body(text: &str) -> String {
    let mut body = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        body.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let name = behind.split_once('}').map(|(name, _)| name);
        let is_name =
            |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | ':' | '-' | '.' | '*');
        match name.filter(|name| !name.is_empty() && name.chars().all(is_name)) {
            Some(name) => {
                body.push_str(&format!("{{{{{name}}}}}"));
                rest = &behind[name.len() + 1..];
            }
            None => {
                body.push('{');
                rest = behind;
            }
        }
    }
    body.push_str(rest);
    body
}
