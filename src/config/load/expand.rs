//! `${VAR}`, `${VAR:-default}`, `${secret:VAR}` and `${file:/path}` in a string value, replaced; `$${` is a plain `${`.
//!
//! It works on parsed values, so that an inserted text is never read as TOML, and it does not expand an inserted text
//! again, because a secret may contain `${`.

use std::io;
use std::path::Path;

use base::whole_file;
use policy::secret::is_secret_name;

pub(crate) type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExpandedText {
    pub(crate) text: String,
    /// Whether any of it came from outside the file. Messages do not quote it, because it may be a secret.
    pub(crate) has_reference: bool,
    /// What of it is a secret: the text of files, and of variables that are called like secrets or marked `secret:`.
    pub(crate) secrets: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReferenceError {
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// Replaces every reference in `text`; paths start from `directory`.
pub(crate) fn expand(
    text: &str,
    directory: &Path,
    variables: Variables<'_>,
) -> Result<ExpandedText, ReferenceError> {
    let mut expanded =
        ExpandedText { text: String::with_capacity(text.len()), has_reference: false, secrets: Vec::new() };
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            expanded.text.push_str(&rest[..at]);
            expanded.text.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        expanded.text.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else {
            return Err(unresolved(
                "`${` is never closed",
                "close it with `}`, or write `$${` for a plain `${`",
            ));
        };
        let value = resolve(&inner[..end], directory, variables)?;
        expanded.text.push_str(&value);
        if is_secret(&inner[..end]) {
            expanded.secrets.push(value);
        }
        expanded.has_reference = true;
        rest = &inner[end + 1..];
    }
    expanded.text.push_str(rest);
    Ok(expanded)
}

fn is_secret(reference: &str) -> bool {
    let name = reference.split(":-").next().unwrap_or_default();
    reference.starts_with("file:") || reference.starts_with(SECRET) || is_secret_name(name)
}

fn resolve(reference: &str, directory: &Path, variables: Variables<'_>) -> Result<String, ReferenceError> {
    if let Some(path) = reference.strip_prefix("file:") {
        return read(&directory.join(path));
    }
    let reference = reference.strip_prefix(SECRET).unwrap_or(reference);
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.chars().all(is_name)
    {
        return Err(unresolved(
            "`${...}` must name a variable or a file",
            "write `${NAME}`, `${NAME:-default}`, `${secret:NAME}` or `${file:/path}`; `$${` is a plain `${`",
        ));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(unresolved(
            "the default in `${...}` cannot contain another `${...}`",
            "write a plain default, or none",
        ));
    }
    // An empty variable takes the default, too, because `:-` means that in a shell.
    match (variables(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(ReferenceError {
            message: format!("the environment variable `{name}` is not set"),
            hint: format!("set it, or write `${{{name}:-default}}`"),
        }),
    }
}

/// A file's text without its final line break, because editors and `echo` add one.
fn read(path: &Path) -> Result<String, ReferenceError> {
    let shown = path.display();
    let wrong = |reason: String| ReferenceError {
        message: format!("cannot read {shown}: {reason}"),
        hint: "create it, or make it readable".to_owned(),
    };
    let bytes = whole_file::read(path, VALUE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => wrong(format!("it is longer than {VALUE_BYTES_MAX} bytes")),
        _ => wrong(error.to_string()),
    })?;
    let text =
        String::from_utf8(bytes).map_err(|_| wrong("stream did not contain valid UTF-8".to_owned()))?;
    let trimmed = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(trimmed.unwrap_or(&text).to_owned())
}

fn unresolved(message: &str, hint: &str) -> ReferenceError {
    ReferenceError { message: message.to_owned(), hint: hint.to_owned() }
}

/// Marks a variable as a secret, whatever it is called.
const SECRET: &str = "secret:";

/// The longest file behind a `${file:...}`. It is meant for secrets, not for documents.
const VALUE_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let variables = |name: &str| match name {
            "PORT" => Some("8080".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${PORT}".to_owned()),
            _ => None,
        };
        let directory = Path::new("/nonexistent");
        expand(text, directory, &variables).map(|it| it.text).map_err(|it| it.message)
    }

    #[test]
    fn references_are_replaced_once() {
        for (text, value) in [
            ("127.0.0.1:${PORT}", "127.0.0.1:8080"),
            ("${PORT}${PORT}", "80808080"),
            ("${OTHER:-a:-b}", "a:-b"),
            ("${secret:PORT}", "8080"),
            ("${secret:OTHER:-a}", "a"),
            ("${OTHER:-}", ""),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY}", ""),
            ("${NESTED}", "${PORT}"),
            ("$${PORT}", "${PORT}"),
            ("$$${PORT}", "$${PORT}"),
            ("$PORT {PORT} $", "$PORT {PORT} $"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_says_why() {
        for (text, message) in [
            ("${OTHER}", "the environment variable `OTHER` is not set"),
            ("${PORT", "`${` is never closed"),
            ("${}", "`${...}` must name a variable or a file"),
            ("${1A}", "`${...}` must name a variable or a file"),
            ("${a-b}", "`${...}` must name a variable or a file"),
            ("${file:x}", "cannot read /nonexistent/x: No such file or directory (os error 2)"),
            ("${file:/dev/null}", "cannot read /dev/null: not a regular file"),
        ] {
            assert_eq!(expanded(text), Err(message.to_owned()), "{text}");
        }
    }
}
