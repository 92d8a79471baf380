//! Reads TOML files of API keys and users. A file with any error is refused as a whole. An error names its line and never
//! quotes a value, which may be a secret in the wrong place.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use time::{Date, Month, OffsetDateTime};
use toml::value::{Datetime, Offset};

use base::identity::{Claim, Claims, Identity};
use base::{whole_file, words};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// It is longer than any such file should be.
    #[error("{}: longer than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{} is not a TOML file of keys or users", path.display())]
    Foreign { path: PathBuf },
    #[error("{}:{line}: {reason}", path.display())]
    Wrong {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        reason: String,
    },
}

/// The identity that an entry gives to its client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialEntry {
    pub(super) digest: Option<toml::Spanned<String>>,
    /// The same without its scheme, as files from before `digest` have it.
    pub(super) sha256: Option<toml::Spanned<String>>,
    pub(super) name: Option<toml::Spanned<String>>,
    pub(super) hash: Option<toml::Spanned<String>>,
    consumer: Option<String>,
    tenant: Option<String>,
    tier: Option<toml::Spanned<String>>,
    expires: Option<toml::Spanned<Datetime>>,
    #[serde(default)]
    claims: toml::Table,
}

/// What a file holds beside credentials, so that the rest of the configuration can be compared with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    pub path: PathBuf,
    /// Entries for clients, whether they have expired or not.
    pub entries: usize,
    /// Tiers that entries name, the first [`TIERS_NOTED_MAX`], each with the line of the first entry that names it.
    pub tiers: Vec<(String, usize)>,
}

/// The text of a file and what it is parsed into.
pub(super) struct ParsedFile<T> {
    path: PathBuf,
    text: String,
    pub(super) content: T,
}

impl<T: DeserializeOwned> ParsedFile<T> {
    pub(super) fn read(path: &Path) -> Result<ParsedFile<T>, Error> {
        ParsedFile::parse(path, text(path)?)
    }

    fn parse(path: &Path, text: String) -> Result<ParsedFile<T>, Error> {
        match toml::from_str(&text) {
            Ok(content) => Ok(ParsedFile { path: path.to_owned(), text, content }),
            Err(_) if !text.contains("[[") && text.parse::<toml::Table>().is_err() => {
                Err(Error::Foreign { path: path.to_owned() })
            }
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                // Messages about types quote the value: texts between quotes, numbers without.
                let quotes = |message: &str| {
                    message.contains('"')
                        || message.starts_with("invalid type: ")
                        || message.starts_with("invalid value: ")
                };
                let reason = match error.message() {
                    message if message.starts_with("unknown field `key`, expected one of `digest`") => {
                        "write the key's `digest`, which `sluicegate hash-key` prints, not the key".to_owned()
                    }
                    message if quotes(message) => "this value has the wrong type".to_owned(),
                    message if message.starts_with("unknown field `") => unknown_key(message),
                    message => message.replace('\n', " "),
                };
                Err(wrong(path, &text, at, reason))
            }
        }
    }
}

impl<T> ParsedFile<T> {
    /// Something that is wrong at a byte of the file.
    pub(super) fn wrong(&self, at: usize, reason: impl Into<String>) -> Error {
        wrong(&self.path, &self.text, at, reason.into())
    }

    /// What the file holds, if these are its entries.
    pub(super) fn summary(&self, entries: &[CredentialEntry]) -> FileSummary {
        let mut tiers: Vec<(String, usize)> = Vec::new();
        for tier in entries.iter().filter_map(|entry| entry.tier.as_ref()) {
            let is_known = tiers.iter().any(|(known, _)| known == tier.get_ref());
            if !is_known && tiers.len() < TIERS_NOTED_MAX {
                tiers.push((tier.get_ref().clone(), line(&self.text, tier.span().start)));
            }
        }
        FileSummary { path: self.path.clone(), entries: entries.len(), tiers }
    }

    /// When an entry expires, Unix seconds; a date without a time means its beginning in UTC.
    pub(super) fn expires(&self, entry: &CredentialEntry) -> Result<Option<i64>, Error> {
        let Some(expires) = &entry.expires else { return Ok(None) };
        let seconds = unix_seconds(expires.get_ref()).ok_or_else(|| {
            self.wrong(expires.span().start, "write a date, or date and time with `Z`: 2027-01-01T00:00:00Z")
        })?;
        Ok(Some(seconds))
    }
}

impl CredentialEntry {
    /// The identity of an entry; `consumer` if it names none.
    pub(super) fn identity(&self, consumer: Option<&str>) -> Identity {
        let mut claims = Vec::new();
        for (name, value) in &self.claims {
            push_claim(name.clone(), value, &mut claims);
        }
        Identity {
            consumer: self.consumer.as_deref().or(consumer).map(Into::into),
            tenant: self.tenant.as_deref().map(Into::into),
            tier: self.tier.as_ref().map(|tier| tier.get_ref().as_str().into()),
            claims: claims.into_iter().collect::<Claims>(),
        }
    }

    pub(super) fn has_consumer(&self) -> bool {
        self.consumer.as_ref().is_some_and(|consumer| !consumer.is_empty())
    }
}

/// Tables are flattened: `a = { b = 1 }` is the claim `a.b`.
fn push_claim(name: String, value: &toml::Value, out: &mut Vec<(Box<str>, Claim)>) {
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => Some(Box::from(text.as_str())),
        toml::Value::Array(_) | toml::Value::Table(_) => None,
        other => Some(other.to_string().into()),
    };
    match value {
        toml::Value::Table(inner) => {
            inner.iter().for_each(|(key, value)| push_claim(format!("{name}.{key}"), value, out));
        }
        toml::Value::Array(values) => {
            out.push((name.into(), Claim::Many(values.iter().filter_map(text).collect())));
        }
        scalar => out.extend(text(scalar).map(|text| (name.into(), Claim::One(text)))),
    }
}

/// The text of a file of bounded length.
pub(super) fn text(path: &Path) -> Result<String, Error> {
    let bytes = whole_file::read(path, FILE_BYTES_MAX).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => Error::TooLong { path: path.to_owned() },
        _ => Error::Unreadable { path: path.to_owned(), source },
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let source = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        Error::Unreadable { path: path.to_owned(), source }
    })
}

/// What the parser says of an unknown key, in the words of gateway.toml.
fn unknown_key(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let (key, known): (&str, Vec<&str>) = (names.next().unwrap_or_default(), names.collect());
    let hint = words::did_you_mean(key, &known);
    let hint = hint.unwrap_or_else(|| format!("it takes {}", words::listed(&known)));
    format!("unknown key `{}`: {hint}", words::plain(key))
}

fn wrong(path: &Path, text: &str, at: usize, reason: String) -> Error {
    Error::Wrong { path: path.to_owned(), line: line(text, at), reason }
}

/// The line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Unix seconds of a date, or of a date and time with an offset; `None` for a local time, which names no instant.
pub fn unix_seconds(datetime: &Datetime) -> Option<i64> {
    let date = datetime.date?;
    let month = Month::try_from(date.month).ok()?;
    let midnight = Date::from_calendar_date(date.year.into(), month, date.day).ok()?.midnight();
    let midnight = midnight.assume_utc().unix_timestamp();
    let Some(time) = datetime.time else { return Some(midnight) };
    let offset_minutes = match datetime.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let second = i64::from(time.second.unwrap_or(0));
    Some(midnight + i64::from(time.hour) * 3_600 + (i64::from(time.minute) - offset_minutes) * 60 + second)
}

/// The date and time that [`unix_seconds`] reads as this second; `None` for a year that has no four digits.
pub fn datetime(unix_seconds: i64) -> Option<Datetime> {
    let at = OffsetDateTime::from_unix_timestamp(unix_seconds).ok()?;
    let date =
        toml::value::Date { year: u16::try_from(at.year()).ok()?, month: at.month().into(), day: at.day() };
    let time = toml::value::Time {
        hour: at.hour(),
        minute: at.minute(),
        second: Some(at.second()),
        nanosecond: None,
    };
    Some(Datetime { date: Some(date), time: Some(time), offset: Some(Offset::Z) })
}

/// Tiers of one file that are noted, because the search for one takes time in their number.
pub const TIERS_NOTED_MAX: usize = 100;
/// Longest file of keys or users.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_quoted() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "it is parsed for its errors")]
        struct SampleFile {
            key: Vec<CredentialEntry>,
        }
        let text = "[[key]]\nconsumer = \"ann\"\nkey = \"73577357\"\n".to_owned();
        let parsed = ParsedFile::<SampleFile>::parse(Path::new("keys.toml"), text);
        let said = parsed.err().map(|error| error.to_string());
        let digest = "keys.toml:3: write the key's `digest`, which `sluicegate hash-key` prints, not the key";
        assert_eq!(said.as_deref(), Some(digest));
        for (text, said) in [
            ("[[kye]]\n", "keys.toml:1: unknown key `kye`: did you mean `key`?"),
            ("[[key]]\nconsumr = 1\n", "keys.toml:2: unknown key `consumr`: did you mean `consumer`?"),
            ("[[user]]\n", "keys.toml:1: unknown key `user`: it takes `key`"),
        ] {
            let parsed = ParsedFile::<SampleFile>::parse(Path::new("keys.toml"), text.to_owned());
            assert_eq!(parsed.err().map(|error| error.to_string()).as_deref(), Some(said));
        }
        for value in ["73577357", "-73577357", "73577357.5", "\"73577357\"", "[73577357]"] {
            for field in ["digest", "sha256", "consumer", "expires", "claims"] {
                let text = format!("[[key]]\n{field} = {value}\n");
                let Err(error) = ParsedFile::<SampleFile>::parse(Path::new("keys.toml"), text) else {
                    continue;
                };
                let said = "keys.toml:2: this value has the wrong type";
                assert_eq!(error.to_string(), said, "{field} = {value}");
            }
        }
    }

    #[test]
    fn dates_become_seconds() {
        let seconds = |text: &str| unix_seconds(&text.parse().expect("a date"));
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2027-01-01T00:00:00Z"), Some(1_798_761_600));
        assert_eq!(seconds("2027-01-01T02:00:00+02:00"), Some(1_798_761_600));
        assert_eq!(seconds("2024-02-29"), Some(1_709_164_800));
        assert_eq!(seconds("2027-01-01T00:00:00"), None, "whose midnight?");
        assert_eq!(seconds("12:00:00"), None);
        let shown = datetime(1_798_761_600).expect("it has a date").to_string();
        assert_eq!(shown, "2027-01-01T00:00:00Z");
    }
}
