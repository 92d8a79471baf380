//! What a value is read as: a text, a number, a size, a duration, a share. Ranges are those of its row.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::Value;
use crate::keys::foreign::{foreign_key, foreign_key_of};
use crate::keys::policy::TIER_PART;
use crate::keys::{Key, KeyDefault, Kind, Section};
use crate::load::expand;
use crate::load::mask;
use crate::load::mask::{MASKED, WRITE_SECRET};
use crate::load::report::{Hint, Source, SourceKind, quoted};
use crate::load::text;
use crate::load::text::Text;
use crate::printer::{self, OFF};
use base::{units, words};
use upstream::deadline::FAR;

impl<'c> Value<'c> {
    pub(crate) fn wrong_type(&self, expected: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let (mut hint, mut each) = (self.of_type(expected), "");
        if self.key_place == self.place {
            // An element of an array, which has no key of its own.
            let key = self.key.rsplit('.').next().unwrap_or_default();
            (hint, each) = (hint.replace(&format!("`{key} = "), "`"), "each of ");
        }
        let message = format!("{each}{} must be {expected}, not {found}", quoted(&self.key));
        self.wrong(message, Hint::plain(hint));
    }

    /// How a value of the expected type is written instead of this one.
    fn of_type(&self, expected: &str) -> String {
        let key = &*mask::value(self.key.rsplit('.').next().unwrap_or_default());
        let unquoted = || "write it without quotes".to_owned();
        let number = match self.value {
            DeValue::Integer(number) => Some(number.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            _ => None,
        };
        if let Some(value) = self.example(key, number) {
            return value;
        }
        match (expected, self.value) {
            (_, DeValue::Integer(_) | DeValue::Float(_)) if is_limit(self, key) => {
                let number = self.value.as_integer();
                let number = number.and_then(|it| u64::from_str_radix(it.as_str(), it.radix()).ok());
                let number = number.filter(|number| *number > 0).unwrap_or(100);
                format!("write its period, for example `{key} = \"{number}/m\"`")
            }
            (_, _) if expected.contains("string") => self.as_text(key, number),
            (ON_OFF_OR_TABLE, _) => format!("write `{key} = true`, or `{{ … }}` {OTHER_KEYS}"),
            ("a table", _) => as_table(self, key),
            ("an array", _) => foreign_key("not an array", key)
                .map_or_else(|| format!("write `{key} = [ … ]`"), |(_, hint)| hint.to_owned()),
            ("true or false", DeValue::String(text)) if text.parse::<bool>().is_ok() => unquoted(),
            ("a whole number", DeValue::String(text)) if text.parse::<u64>().is_ok() => unquoted(),
            ("true or false", _) => "write `true` or `false`".to_owned(),
            ("a whole number", DeValue::String(_)) if self.kinds().any(|it| matches!(it, Kind::Open(..))) => {
                as_table(self, key)
            }
            ("a whole number", DeValue::String(_)) => "write a whole number".to_owned(),
            ("a whole number", DeValue::Float(_)) => "write it without a fraction".to_owned(),
            _ => String::new(),
        }
    }

    /// The text that is meant by another value, as its row takes it.
    fn as_text(&self, key: &str, number: Option<&str>) -> String {
        let words =
            self.kinds().find_map(|kind| if let Kind::Words(words) = kind { Some(words()) } else { None });
        if let Some(words) = words {
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            return format!("write {}", words::listed(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        for kind in self.kinds() {
            match (kind, number) {
                (Kind::Share, _) => {
                    let share = number.and_then(share);
                    let share = share.map(|share| format!("write `{key} = \"{share}\"`"));
                    return share.unwrap_or_else(|| format!("write a share, for example `{key} = \"20%\"`"));
                }
                (Kind::Time(_) | Kind::TimeOrOff(_) | Kind::TimeWithin(..), _) => {
                    return "write a whole number and its unit: `\"5s\"` or `\"250ms\"`".to_owned();
                }
                (Kind::Url, _) => return "write one URL in quotes, with commas between its hosts".to_owned(),
                (Kind::Field(_), Some(number)) => return format!("write `{key} = \"{number}\"`"),
                _ => {}
            }
        }
        match is_limit(self, key) {
            true => format!("write `{key} = \"100/m\"`"),
            false => {
                foreign_key("not a text", key).map_or("write a text in quotes", |(_, hint)| hint).to_owned()
            }
        }
    }

    /// What is written at a key whose texts have a form, for a number there, which is surely a port, or for anything else.
    fn example(&self, key: &str, number: Option<&str>) -> Option<String> {
        let port = |unsaid: u16| number.and_then(|it| it.parse().ok()).filter(|it| *it > 0).unwrap_or(unsaid);
        let is_list = self.kinds().any(|kind| matches!(kind, Kind::List(_)));
        let is_text = is_list || self.kinds().any(|kind| matches!(kind, Kind::Text | Kind::Texts));
        let value = match key {
            "certs" if is_list => CERTS.to_owned(),
            "servers" if self.value.is_table() || self.value.is_array() => {
                return Some(
                    "write `{ url = \"http://127.0.0.1:3000\", weight = 2 }` for each server".to_owned(),
                );
            }
            "servers" | "to" if is_list => format!("\"http://127.0.0.1:{}\"", port(3000)),
            "bind" if self.value.is_array() => {
                let hint = "write one address, and a `[listener.NAME]` for each other: `[::]:8080` stands for all of the machine";
                return Some(hint.to_owned());
            }
            "bind" | "grpc" if is_text && !self.value.is_bool() => {
                let port = port(8080);
                return Some(format!(
                    "write `{key} = \"127.0.0.1:{port}\"`, or `\"[::]:{port}\"` for every address"
                ));
            }
            "redirect" if is_text => "\"https\"".to_owned(),
            "path" if is_text && self.value.is_array() => {
                return Some("write one path, and a `[[route]]` for each other".to_owned());
            }
            "path" if is_text => "\"/api\"".to_owned(),
            "mode" if is_text => format!("\"0{}\"", number.filter(|it| it.len() == 3).unwrap_or("660")),
            _ => return None,
        };
        Some(format!("write `{key} = {value}`"))
    }

    /// A string with its references replaced.
    pub(crate) fn text(&self) -> Option<Text<'c>> {
        match self.value {
            DeValue::String(text) => self.expanded(text),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    fn expanded(&self, text: &str) -> Option<Text<'c>> {
        let Source { directory, kind, .. } = &self.ctx.sources[self.place.file];
        // Refused, because whoever may write policies may not read this machine's files and variables by them.
        if *kind != SourceKind::File && text.contains("${") {
            self.wrong(
                format!("{} cannot refer to a variable or a file", quoted(&self.key)),
                "write the value itself: only gateway.toml may use `${…}`",
            );
            return None;
        }
        // Only warned of, because a password may begin so.
        let is_variable = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if text.strip_prefix('$').is_some_and(|name| !name.is_empty() && is_variable(name)) {
            let message =
                format!("{} is no reference to a variable, but this text itself", quoted(&self.key));
            self.warn(message, "write `${NAME}` for the value of the variable `NAME`");
        }
        let expanded = expand::expand(text, directory, self.ctx.variables);
        if let Ok(expanded) = &expanded {
            self.ctx.secrets.borrow_mut().add(&expanded.secrets);
        }
        match expanded {
            // An error, because everybody knows the mask: a secret of it would protect nothing.
            Ok(expanded) if mask::is_secret_key(&self.key) && mask::is_mask(&expanded.text) => {
                self.wrong(format!("{} {MASKED}", quoted(&self.key)), WRITE_SECRET);
                None
            }
            Ok(expanded) => Some(Text {
                ctx: self.ctx,
                text: expanded.text,
                place: self.place,
                has_reference: expanded.has_reference,
                key: self.key.clone(),
            }),
            Err(unresolved) => {
                self.wrong(unresolved.message, unresolved.hint);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.text().map(|text| text::path(&text))
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        let boolean = self.as_boolean();
        if boolean.is_none() {
            self.wrong_type("true or false");
        }
        boolean
    }

    /// A whole number in a range. A string is accepted if it came out of a `${...}`, because that can only stand in a
    /// string.
    pub(crate) fn integer(&self) -> Option<u64> {
        let range = self.range();
        let number = match self.value {
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
            DeValue::String(text) if text.contains("${") => {
                let number = self.expanded(text)?.text.trim().parse::<i128>();
                if number.is_err() {
                    self.wrong(format!("the value of {} is not a whole number", quoted(&self.key)), "");
                    return None;
                }
                number.ok()
            }
            _ => {
                self.wrong_type("a whole number");
                return None;
            }
        };
        let within = number.and_then(|number| u64::try_from(number).ok()).filter(|it| range.contains(it));
        if within.is_none() {
            let hint = match *range.end() {
                u64::MAX => format!("write {} or more", range.start()),
                end => format!("write a whole number from {} to {end}", range.start()),
            };
            self.wrong(format!("{} is out of range", quoted(&self.key)), hint);
        }
        within
    }

    /// From where to where its row lets a number or a size go.
    fn range(&self) -> RangeInclusive<u64> {
        let bounds = |kind: &Kind| match kind {
            Kind::Number(min, max) | Kind::Size(min, max) => Some(*min..=*max),
            _ => None,
        };
        self.kinds().find_map(bounds).unwrap_or(0..=u64::MAX)
    }

    /// One string or an array of strings. Anything else is reported and left out.
    pub(crate) fn texts(&self) -> Vec<Text<'c>> {
        if self.is_array() {
            self.array().unwrap_or_default().iter().filter_map(Value::text).collect()
        } else if self.is_string() {
            self.text().into_iter().collect()
        } else {
            self.wrong_type("a string or an array of strings");
            Vec::new()
        }
    }

    /// The same, but for an empty array, which is reported with what to write instead.
    pub(crate) fn some_texts(&self, hint: &'static str) -> Vec<Text<'c>> {
        if self.is_empty_array() {
            self.wrong(format!("`{}` is empty", self.key), hint);
        }
        self.texts()
    }

    /// A duration as its row bounds it; `"off"` is one that never ends.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let bound = |kind: &Kind| match kind {
            Kind::Time(min) | Kind::TimeOrOff(min) => Some((*min, FAR, "")),
            Kind::TimeWithin(min, max, why) => Some((*min, *max, *why)),
            _ => None,
        };
        let (min, max, why) = self.kinds().find_map(bound).unwrap_or((Duration::ZERO, FAR, ""));
        if let DeValue::Integer(number) = self.value {
            let message = format!("{} needs a unit", quoted(&self.key));
            self.wrong(message, format!("write `\"{}s\"` or `\"{}ms\"`", number.as_str(), number.as_str()));
            return None;
        }
        let text = self.text()?;
        if text.text == OFF && self.kinds().any(|kind| matches!(kind, Kind::TimeOrOff(_))) {
            return Some(FAR);
        }
        match units::duration(&text.text) {
            Ok(duration) if (min..=max).contains(&duration) => Some(duration),
            Ok(duration) if duration > max => {
                let hint = format!("write `\"{}\"` or less{why}", units::show_duration(max));
                text.wrong(format!("{} is too long", quoted(&self.key)), hint);
                None
            }
            Ok(_) => {
                let hint = format!("write `\"{}\"` or more", units::show_duration(min));
                text.wrong(format!("{} is too short", quoted(&self.key)), hint);
                None
            }
            Err(hint) => {
                let is_off = self.kinds().any(|kind| matches!(kind, Kind::TimeOrOff(_)));
                let or_off = if is_off { ", or `\"off\"`" } else { "" };
                let hint = meant(&text, units::duration_meant, hint);
                text.wrong(format!("{} is not a duration", text.shown()), format!("write {hint}{or_off}"));
                None
            }
        }
    }

    /// A size in bytes, in a range: a string with a unit or a whole number.
    pub(crate) fn size(&self) -> Option<u64> {
        if !self.is_string() {
            return self.integer();
        }
        let range = self.range();
        let text = self.text()?;
        match units::size(&text.text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let (min, max) = (units::show_size(*range.start()), units::show_size(*range.end()));
                let message = format!("{} is out of range", quoted(&self.key));
                text.wrong(message, format!("write a size from `\"{min}\"` to `\"{max}\"`"));
                None
            }
            Err(hint) => {
                let hint = meant(&text, units::size_meant, hint);
                text.wrong(format!("{} is not a size", text.shown()), format!("write {hint}"));
                None
            }
        }
    }

    /// A share, parts per million.
    pub(crate) fn share_ppm(&self) -> Option<u32> {
        let text = self.text()?;
        units::share_ppm(&text.text)
            .map_err(|hint| text.wrong(format!("{} is not a share", text.shown()), format!("write {hint}")))
            .ok()
    }

    /// A share in whole percent.
    pub(crate) fn percent(&self) -> Option<u32> {
        // A float is told so at once, because no text of it would be whole either.
        let ppm = if matches!(self.value, DeValue::Float(_)) { 1 } else { self.share_ppm()? };
        if ppm % PPM_PER_PERCENT != 0 {
            let message = format!("{} must be a whole number of percent", quoted(&self.key));
            self.wrong(message, "write it like `\"20%\"`");
        }
        Some(ppm / PPM_PER_PERCENT)
    }

    pub(crate) fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.text()?.choice(choices)
    }
}

/// A value as it is meant, or the general hint if that is not clear.
fn meant(text: &Text<'_>, read: fn(&str) -> Option<String>, hint: &str) -> String {
    let meant = read(&text.text).filter(|_| !text.has_reference);
    meant.map_or_else(|| hint.to_owned(), |meant| format!("`\"{meant}\"`"))
}

/// Whether a value is a limit: under that key, or of a tier.
fn is_limit(value: &Value<'_>, key: &str) -> bool {
    let is_of_tier = |kind: &Kind| matches!(kind, Kind::Table(one) if one.heading == TIER_PART.heading);
    key == "limit" || value.kinds().any(is_of_tier)
}

/// The table that is meant by another value.
fn as_table(value: &Value<'_>, key: &str) -> String {
    let sections: Vec<&Section> = value.kinds().flat_map(Kind::sections).collect();
    let named = sections.first().and_then(|one| one.heading.strip_suffix(".<name>]"));
    if let Some(heading) = named {
        let is_key = |one: &&Section| one.key(key).is_some() || foreign_key(one.heading, key).is_some();
        return match sections.iter().any(is_key) {
            _ if heading[1..] == *key => format!("write `{heading}.NAME]`: every such section needs a name"),
            true => format!("write `{heading}.NAME]` above it: every such section needs a name"),
            false => format!("write `{heading}.{}]` with its keys below it", printer::key(key)),
        };
    }
    let section = sections.first();
    let heading = if section.is_some() { "not a table" } else { "not a map" };
    if let Some((_, hint)) = foreign_key(heading, key) {
        return hint.to_owned();
    }
    let first = section.and_then(|one| one.keys.first()).filter(|row| matches!(row.kind, Kind::Texts));
    match (value.value, first) {
        (DeValue::Array(all), _) if all.iter().any(|one| one.get_ref().is_table()) => {
            "write it once, as `{ … }` or under `[…]`, not `[[…]]`".to_owned()
        }
        (DeValue::Array(_), Some(row)) => format!("write `{key} = {{ {} = [ … ] }}`", row.name),
        _ => match section.map(|one| keys_meant(value, one)).unwrap_or_default().join(", ") {
            keys if keys.is_empty() => section
                .and_then(|one| foreign_key_of(one, "no key of a table", key))
                .map_or_else(|| format!("write `{key} = {{ … }}` {OTHER_KEYS}"), |(_, hint)| hint.to_owned()),
            keys => format!("write `{key} = {{ {keys} }}`"),
        },
    }
}

/// The keys of a table that another value stands for: the first that it fits, and those that cannot be left out.
fn keys_meant(value: &Value<'_>, section: &Section) -> Vec<String> {
    // A secret is not repeated. Its list has a plural.
    let is_secret = mask::is_secret_key(value.key.trim_end_matches('s'));
    let written = |row: &Key| match (value.value, &row.kind) {
        (DeValue::Integer(number), Kind::Number(min, max)) => {
            Some(number.as_str().parse::<u64>().ok()?.clamp(*min, *max).to_string())
        }
        // A URL is not repeated, because it may hold a password.
        (DeValue::String(_), Kind::Url) => Some("\"…\"".to_owned()),
        (DeValue::String(_), Kind::Secret) if is_secret => Some("\"${NAME}\"".to_owned()),
        (DeValue::String(_), _) if is_secret => None,
        (DeValue::String(text), kind) => {
            let text = text.strip_prefix(row.name).and_then(|rest| rest.strip_prefix(':')).unwrap_or(text);
            let is_text = matches!(kind, Kind::Text | Kind::Texts | Kind::Path);
            let fits = if units::duration(text).is_ok() { matches!(kind, Kind::Time(_)) } else { is_text };
            (fits && text.len() < 100 && !text.contains(['@', '$'])).then(|| printer::text(text))
        }
        _ => None,
    };
    // A number says too little to be that of any key but the first.
    let rows = || section.keys().take(if value.is_string() { usize::MAX } else { 1 });
    let fits = |row: &&Key| written(row).is_some();
    let meant = rows()
        .filter(fits)
        .find(|row| matches!(row.name, "response" | "header"))
        .or_else(|| rows().find(fits));
    let keys = section.keys().filter_map(|row| match row.unwritten {
        _ if meant.is_some_and(|meant| meant.name == row.name) => {
            Some(format!("{} = {}", row.name, written(row)?))
        }
        KeyDefault::Needs(_, hint) => Some(hint.split('`').nth(1)?.to_owned()),
        _ => None,
    });
    keys.collect()
}

/// The share that a number means: a decimal up to 1 is surely a part of one, and not of a percent.
fn share(number: &str) -> Option<String> {
    let ppm = units::share_ppm(&format!("{number}%")).ok()?;
    let is_part_of_one = number.contains('.') && ppm <= PPM_PER_PERCENT;
    Some(units::show_share(if is_part_of_one { ppm * 100 } else { ppm }))
}

/// What a value must be that turns something on, or says how.
pub(crate) const ON_OFF_OR_TABLE: &str = "true, false or a table";
const OTHER_KEYS: &str = "with the keys that differ from their defaults";
/// A pair of certificate and key, as messages show it.
pub(crate) const CERTS: &str = "[{ cert = \"certs/api.pem\", key = \"certs/api.key\" }]";
const PPM_PER_PERCENT: u32 = 10_000;
