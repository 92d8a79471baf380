//! `sluicegate hash-key`: prints the entry of an API key or a password for the file of keys or users.
//!
//! The secret is read from standard input, never from the arguments, because every process of the machine can see
//! those.

use std::io::{Read, Write};

use anyhow::{Context, anyhow, bail};
use clap::builder::NonEmptyStringValueParser;
use toml::value::Datetime;

use auth::{basic, entries, keys};
use base::clock;

/// The entry to print. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Make a new random secret instead of reading one; it is shown once, on standard error
    #[arg(long)]
    new: bool,
    /// Hash the password of a user instead of an API key
    #[arg(long)]
    basic: bool,
    /// The consumer that the secret identifies
    #[arg(long, default_value = "NAME", value_parser = NonEmptyStringValueParser::new())]
    consumer: String,
    /// The consumer's tenant
    #[arg(long)]
    tenant: Option<String>,
    /// The consumer's tier
    #[arg(long)]
    tier: Option<String>,
    /// A claim, as "name=value"; can be repeated, also with the same name
    #[arg(long = "claim", value_parser = claim)]
    claims: Vec<(String, String)>,
    /// When the secret expires: a date, or date and time with Z, as in 2027-01-01T00:00:00Z
    #[arg(long, value_parser = expires)]
    expires: Option<Datetime>,
}

pub(super) fn claim(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write it as \"name=value\"")?;
    if name.is_empty() { Err("the name is empty") } else { Ok((name.to_owned(), value.to_owned())) }
}

fn expires(text: &str) -> Result<Datetime, &'static str> {
    let read = text.parse().ok().and_then(|datetime| Some((entries::unix_seconds(&datetime)?, datetime)));
    let (seconds, datetime) = read.ok_or("write a date, or date and time with Z: 2027-01-01T00:00:00Z")?;
    let is_ahead = u64::try_from(seconds).is_ok_and(|seconds| seconds > clock::unix().as_secs());
    if is_ahead { Ok(datetime) } else { Err("this time has passed") }
}

/// Prints the entry on `out`. A new secret goes to `errors`, so that `out` can be appended to the file.
///
/// # Errors
/// If the input is not a usable secret, or nothing can be written.
pub fn run(
    arguments: &Arguments,
    input: &mut dyn Read,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    if arguments.basic && arguments.consumer.contains(':') {
        bail!("the name of a user must not have a colon: it ends the name in the `Authorization` header");
    }
    let secret = if arguments.new {
        let key = keys::random().context("the system has no random numbers")?;
        writeln!(errors, "the secret, which is not shown again: {key}")?;
        key
    } else {
        line(input)?
    };
    let consumer = toml::Value::String(arguments.consumer.clone());
    if arguments.basic {
        let hash = basic::hash_text(secret.as_bytes()).map_err(|error| anyhow!("{error}"))?;
        writeln!(out, "[[user]]\nname = {consumer}\nhash = \"{hash}\"")?;
    } else {
        let digest = keys::written(secret.as_bytes());
        writeln!(out, "[[key]]\ndigest = \"{digest}\"\nconsumer = {consumer}")?;
    }
    out.write_all(optional_fields(arguments).as_bytes())?;
    Ok(0)
}

fn optional_fields(arguments: &Arguments) -> String {
    let text = |text: &String| toml::Value::String(text.clone());
    let mut entry = toml::Table::new();
    let texts = [("tenant", &arguments.tenant), ("tier", &arguments.tier)];
    for (key, value) in texts {
        entry.extend(value.as_ref().map(|value| (key.to_owned(), text(value))));
    }
    entry.extend(arguments.expires.map(|expires| ("expires".to_owned(), toml::Value::Datetime(expires))));
    let claims = by_name(&arguments.claims);
    if !claims.is_empty() {
        entry.insert("claims".to_owned(), toml::Value::Table(claims));
    }
    // Claims are an inline table, because after a `[key.claims]` header, fields that an operator adds below would be
    // claims.
    entry.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// Claims by their names; several of one name are an array.
pub(super) fn by_name(given: &[(String, String)]) -> toml::Table {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut claims = toml::Table::new();
    for (name, value) in given {
        match claims.get_mut(name) {
            None => drop(claims.insert(name.clone(), text(value))),
            Some(toml::Value::Array(values)) => values.push(text(value)),
            Some(one) => *one = toml::Value::Array(vec![one.clone(), text(value)]),
        }
    }
    claims
}

/// The only line of the input, without its line end.
fn line(input: &mut dyn Read) -> anyhow::Result<String> {
    let mut text = String::new();
    // Two bytes more, so that a line end fits.
    input.take(SECRET_BYTES_MAX + 2).read_to_string(&mut text).context("standard input is not text")?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() {
        bail!("standard input is empty: write the secret on one line");
    }
    if secret.len() as u64 > SECRET_BYTES_MAX || secret.contains('\n') || secret.trim() != secret {
        bail!("a secret is one line of at most {SECRET_BYTES_MAX} bytes without spaces around it");
    }
    Ok(secret.to_owned())
}

const SECRET_BYTES_MAX: u64 = 1024;
