//! Values of other gateways, as templates of ours.

/// A literal text in a template: its braces are doubled.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// A text with `$name` and `${name}`, as nginx writes them. `value` says what a name stands for; `None` if it stands for
/// something that no template has.
pub(super) fn of_dollars(text: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
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
