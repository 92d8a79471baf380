//! Writes lines, keys and values of TOML. Which keys a section has is up to its own file.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use base::units::{show_duration, show_size};
use base::words;
use upstream::deadline::FAR;

/// What a bound is called that never comes ([`FAR`]).
pub const OFF: &str = "off";

pub struct Page(pub String);

impl Page {
    /// The head of a table, after an empty line: `[limits]`.
    pub fn heading(&mut self, heading: &str) {
        self.line(format_args!("\n{heading}"));
    }

    /// A key of the table that the last heading began.
    pub fn key(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    pub fn keys(&mut self, keys: impl IntoIterator<Item = (&'static str, String)>) {
        keys.into_iter().for_each(|(key, value)| self.key(key, value));
    }

    /// Something that is no part of the configuration. It must fit on a line, because a comment of TOML ends with its
    /// line.
    pub fn comment(&mut self, comment: &str) {
        self.line(format_args!("# {comment}"));
    }

    /// A key that belongs to no table, before all others.
    pub fn at_the_top(&mut self, key: &str, value: impl Display) {
        self.0.insert_str(0, &format!("{key} = {value}\n"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}

/// A quoted string. A `${` in it is escaped, so that it is read back as a plain `${`.
pub fn text(value: &str) -> String {
    let mut quoted = String::from('"');
    for character in value.replace("${", "$${").chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if words::steers(character) => {
                let (mark, digits) = if character > '\u{ffff}' { ('U', 8) } else { ('u', 4) };
                write!(quoted, "\\{mark}{:0digits$X}", u32::from(character))
                    .expect("writing to a string cannot fail");
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A key, quoted if necessary. A `${` needs no escape, because keys are not expanded.
pub fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_bare) {
        return name.to_owned();
    }
    text(name).replace("$${", "${")
}

/// An array of values that are TOML already.
pub fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// An inline table of values that are TOML already.
pub fn table<K: Display>(entries: impl IntoIterator<Item = (K, String)>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
}

/// A duration with its unit: `"30s"`.
pub fn time(duration: Duration) -> String {
    if duration == FAR { text(OFF) } else { text(&show_duration(duration)) }
}

/// A size with its unit: `"16KiB"`.
pub fn size(bytes: u64) -> String {
    text(&show_size(bytes))
}

/// The word that a key's list of values has for `value`.
pub fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}
