//! What is said of a key that a section does not have: which one is meant, where it belongs, or what the section takes. Of
//! tables of other programs also what is in them.

use toml::de::{DeTable, DeValue};

use super::{Table, Value};
use crate::keys::foreign;
use crate::keys::process::ROOT;
use crate::keys::{Kind, Section};
use crate::load::mask;
use crate::load::report::{Hint, quoted};
use crate::printer;
use base::units;
use base::words::{listed, nearest};

/// Reports a key that a section does not have, called `heading`, and returns the known one that is meant.
pub(super) fn report(
    value: &Value<'_>,
    section: &Section,
    known: &[&'static str],
    heading: &str,
) -> Option<&'static str> {
    let key = value.key.as_str();
    let message = format!("unknown key {} in {heading}", quoted(key));
    let foreign = foreign::meant(section, key, value.is_table());
    let lower = key.to_ascii_lowercase().replace('_', "-");
    let is_plural = |near: &str| near.trim_end_matches('s') == lower.trim_end_matches('s');
    let near = nearest(&lower, known).filter(|near| is_plural(near) || !foreign::is_word(key));
    let near = near.filter(|_| foreign.is_none());
    let foreign = foreign.or_else(|| foreign::anywhere(key).filter(|_| near.is_none()));
    let meant = near.or(foreign.as_ref().map(|(meant, _)| *meant));
    let elsewhere = || {
        let home = || foreign::home(section, key, &shown(value));
        as_header(value, section).or_else(|| home().or_else(|| fitting(value)).filter(|_| !value.is_added()))
    };
    let hint = match (near, foreign) {
        (Some(near), _) => Hint::from(format!("did you mean `{near}`?")),
        (None, Some((_, hint))) => {
            answer(value).or_else(|| kept(value, &hint)).map_or_else(|| Hint::plain(hint.into()), Hint::from)
        }
        (None, None) => elsewhere().unwrap_or_else(|| format!("it takes {}", listed(known))).into(),
    };
    value.wrong_key(message, hint);
    if let (Some(meant), Some(table)) =
        (near.filter(|_| section.heading == ROOT.heading), value.value.as_table())
    {
        let names = table.keys().map(|name| (meant, name.get_ref().to_string()));
        value.ctx.misspelt.borrow_mut().extend(names);
    }
    if let Some(row) = meant.and_then(|meant| ROOT.key(meant)) {
        let of_section = |one| report_within(value, one, FOREIGN_DEPTH_MAX);
        row.kind.sections().into_iter().take(1).for_each(of_section);
    }
    meant
}

/// What nginx's `return` and Caddy's `redir` say, as a route says it: `301 /new`, `403`, `200 ok`.
fn answer(value: &Value<'_>) -> Option<String> {
    let text = match value.value {
        DeValue::Integer(number) => number.as_str(),
        DeValue::String(text) if text.len() < SHOWN_BYTES_MAX && !text.contains('@') => text,
        _ => return None,
    };
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let status = first.parse::<u16>().ok().filter(|_| matches!(&*value.key, "return" | "redir"))?;
    let rest = rest.trim_matches([' ', '"', '\'', ';']);
    let is_https = rest.starts_with("https://$") && rest.ends_with("$request_uri");
    let to = if is_https { "https" } else { rest };
    let written = match status {
        _ if to.contains('$') => return None,
        _ if rest.is_empty() => format!("respond = {{ status = {status} }}"),
        300..400 => format!("redirect = {{ to = {}, status = {status} }}", printer::text(to)),
        _ => format!("respond = {{ status = {status}, body = {} }}", printer::text(rest)),
    };
    Some(format!("write `{written}` at the route"))
}

/// What to write with the number, the duration or the size that is written, in the place of the one of its kind.
fn kept(value: &Value<'_>, hint: &str) -> Option<String> {
    let text = value.value.as_str().unwrap_or_default();
    let quoted = |text: String| format!("\"{text}\"");
    let unquoted = |word: &str| word.strip_prefix('"')?.strip_suffix('"').map(str::to_owned);
    let words = hint.split(' ').map(|word| word.trim_matches(['`', ',']));
    let numbers: Vec<_> = words.clone().filter(|word| word.parse::<u64>().is_ok()).collect();
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<&str> {
        words.clone().filter(|word| unquoted(word).is_some_and(|text| is(&text))).collect()
    };
    let (times, sizes) = (of(&|text| units::duration(text).is_ok()), of(&|text| units::size(text).is_ok()));
    let own = |is: bool| is.then(|| text.to_owned());
    let time = own(units::duration(text).is_ok()).or_else(|| units::duration_meant(text));
    let size = own(units::size(text).is_ok()).or_else(|| units::size_meant(text));
    let number = value.value.as_integer().map(|number| number.as_str().to_owned());
    let kinds = [(number, numbers), (time.map(quoted), times), (size.map(quoted), sizes)];
    // But not of tries, because there is only one.
    let is_kept = hint.starts_with("write") && !hint.contains("times = ");
    kinds.into_iter().filter(|_| is_kept).find_map(|(written, shown)| match &*shown {
        [one, others @ ..] if others.iter().all(|other| other == one) => {
            Some(hint.replace(&format!("= {one}"), &format!("= {}", written?)))
        }
        _ => None,
    })
}

/// Where a header belongs in a section that has tables of them, if its key reads like the name of one.
fn as_header(value: &Value<'_>, section: &Section) -> Option<String> {
    let is_header =
        value.key.contains('-') || value.key.starts_with(|first: char| first.is_ascii_uppercase());
    let is_of_headers = |kind: &Kind| match kind {
        Kind::Map(of) => of.each().iter().any(|one| matches!(one, Kind::Field(_))),
        _ => false,
    };
    let row = section.keys().find(|row| is_header && is_of_headers(&row.kind))?;
    Some(format!("write `{} = {{ {} = {} }}`", row.name, printer::key(&value.key), shown(value)))
}

/// The value as a hint may repeat it.
fn shown(value: &Value<'_>) -> String {
    let is_shown = |text: &str| text.len() < SHOWN_BYTES_MAX && !text.contains(['@', '$']);
    match value.value {
        DeValue::String(text) if is_shown(text) && !mask::is_secret_name(&value.key) => printer::text(text),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Boolean(is_on) => is_on.to_string(),
        _ => "…".to_owned(),
    }
}

/// The tables that it is, or that it is an array of.
fn tables<'c>(value: &Value<'c>) -> Vec<&'c DeTable<'c>> {
    match value.value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(array) => array.iter().filter_map(|one| one.get_ref().as_table()).collect(),
        _ => Vec::new(),
    }
}

/// The section of the file whose keys its tables have, or those below them.
fn fitting(value: &Value<'_>) -> Option<String> {
    let tables = tables(value);
    let below = tables.iter().flat_map(|table| table.values()).filter_map(|value| value.get_ref().as_table());
    let below: Vec<_> = below.collect();
    [tables, below].into_iter().find_map(|tables| {
        let keys = tables.into_iter().flat_map(DeTable::keys).map(|key| &**key.get_ref());
        foreign::fitting(&keys.collect::<Vec<_>>())
    })
}

/// Reports the keys of other programs in a table that stands for a section of ours.
fn report_within(value: &Value<'_>, section: &'static Section, depth: usize) {
    for table in tables(value).into_iter().filter(|_| depth > 0) {
        for entry in Table::new(value.ctx, value.key_place, table, None).entries() {
            let is_foreign = foreign::meant(section, &entry.key, entry.is_table())
                .or_else(|| foreign::anywhere(&entry.key))
                .is_some();
            match is_foreign && section.key(&entry.key).is_none() {
                true => drop(report(&entry, section, &[], &quoted(&value.key))),
                false => report_within(&entry, section, depth - 1),
            }
        }
    }
}

/// Whether a value is a table of nothing but tables.
pub(crate) fn holds_tables(value: &Value<'_>) -> bool {
    value.value.as_table().is_some_and(|table| table.values().all(|value| value.get_ref().is_table()))
}

/// Names and numbers, if a value is a table of nothing but them.
pub(crate) fn numbers<'c>(value: &Value<'c>) -> Option<Vec<(&'c str, &'c str)>> {
    let table = value.value.as_table()?;
    table
        .iter()
        .map(|(key, value)| Some((&**key.get_ref(), value.get_ref().as_integer()?.as_str())))
        .collect()
}

/// A longer text is not repeated, because its line is shown above the hint.
const SHOWN_BYTES_MAX: usize = 100;

/// How deep tables of other programs are looked into: so deep, because Traefik has names within names.
const FOREIGN_DEPTH_MAX: usize = 4;
