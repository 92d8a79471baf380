//! Reads `certs` of a listener: pairs of files, and certificates that are ordered by ACME. No authority is
//! asked and no file is read.

use std::path::PathBuf;

use acme::config::{Config, NAMES_MAX, STATE_UNWRITTEN};
use base::secret::Secret;
use net::tls;
use net::trust::Trust;

use crate::features::ACME;
use crate::keys::listener::CHALLENGES;
use crate::load::context::Context;
use crate::load::report::{DefinitionSpans, SourceSpan};
use crate::load::text::Text;
use crate::printer::{array, text};
use crate::process::listener;
use crate::reader::scalar::CERTS;
use crate::reader::{Table, Value};
use crate::settings;
use crate::upstream::sticky;

/// The certificates of a listener in the order they are written, and those of them that are ordered.
pub(crate) fn certs(value: &Value<'_>) -> (Vec<tls::CertificatePair>, Vec<Config>) {
    // One certificate that is ordered needs no list around it.
    if value.is_table() {
        let read = value.table().and_then(certificate);
        return read
            .map_or_else(Default::default, |(pair, ordered)| (vec![pair], ordered.into_iter().collect()));
    }
    if !value.is_array() {
        value.wrong_type("a table or an array of tables");
        return Default::default();
    }
    let items = value.array().unwrap_or_default();
    if items.is_empty() {
        value.wrong("`certs` is empty", format!("write `certs = {CERTS}`, or leave it out for plain HTTP"));
    }
    // Once, because a list of paths is one mistake.
    if let Some(item) = items.iter().find(|item| !item.is_table()) {
        item.wrong("`certs` must hold tables of two files each", format!("write `certs = {CERTS}`"));
        return Default::default();
    }
    let read = items.iter().filter_map(|item| certificate(item.table()?));
    let (pairs, ordered): (Vec<_>, Vec<_>) = read.unzip();
    (pairs, ordered.into_iter().flatten().collect())
}

fn certificate(table: Table<'_>) -> Option<(tls::CertificatePair, Option<Config>)> {
    let Some(acme) = table.value("acme") else { return Some((listener::pair(table)?, None)) };
    ACME.check(&acme, "`acme`");
    let config = ordered(table)?;
    let absent = tls::AbsentPair::StandIn(config.names.clone());
    Some((tls::CertificatePair { cert: config.file(), key: config.file(), absent }, Some(config)))
}

/// `{ acme, names, email, agree, ca, challenge, state, secret }`.
fn ordered(table: Table<'_>) -> Option<Config> {
    let directory = table.value("acme").and_then(|value| value.text()).and_then(|text| {
        text.private_url(
            "write it like `https://acme-v02.api.letsencrypt.org/directory`",
            "the URL of a directory cannot hold a user name or a password",
            "over plain http anyone on the network path could pose as the authority",
        )?;
        Some(text.text)
    });
    let names = names(&table);
    let email = table.value("email").and_then(|value| email(&value.text()?));
    if !table.value("agree").and_then(|value| value.boolean()).unwrap_or_default() {
        let hint = "read the terms of service (the directory's URL links to them), then write `agree = true`";
        table.wrong("a CA issues certificates only if you agree to its terms of service", hint);
    }
    let challenge = table.value("challenge").and_then(|value| value.text()).and_then(|text| {
        if text.text != "dns-01" {
            return text.choice(&CHALLENGES);
        }
        let message = format!("{} is reserved: this version does not support it", text.shown());
        text.wrong(message, "write `http-01` or `tls-alpn-01`");
        None
    });
    let mut trust = Trust::default();
    table.path_if("ca", &mut trust.ca);
    let state = table.value("state").and_then(|value| value.path());
    let state = state.unwrap_or_else(|| PathBuf::from(STATE_UNWRITTEN));
    let secret = table.value("secret").and_then(|value| value.text());
    let secret = secret.map(|text| Secret(sticky::secret(&text)));
    Some(Config { directory: directory?, names: names?, email, trust, challenge, state, secret })
}

fn names(table: &Table<'_>) -> Option<Vec<String>> {
    let hint = "write the names that clients use, for example `names = [\"api.example.com\"]`";
    let value = table.value("names")?;
    let texts = value.some_texts(hint);
    if texts.len() > NAMES_MAX {
        value.wrong(
            format!("{} names are more than the {NAMES_MAX} of one certificate", texts.len()),
            "write several certificates",
        );
    }
    let mut names: Vec<String> = Vec::with_capacity(texts.len());
    for name in texts.iter().filter_map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    value.spell(array(names.iter().map(|name| text(name))));
    (!names.is_empty()).then_some(names)
}

/// A DNS name in lower case.
fn name(text: &Text<'_>) -> Option<String> {
    let name = text.text.trim_end_matches('.').to_ascii_lowercase();
    if name.starts_with("*.") {
        let hint = "write each name; a wildcard needs the challenge dns-01, which is not supported";
        text.wrong(format!("{} cannot be proved by http-01 or tls-alpn-01", text.shown()), hint);
        return None;
    }
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if is_address || name.len() > 253 || !name.split('.').all(label) {
        let hint = "write a DNS name, for example `api.example.com`; one beyond ASCII in its `xn--` form";
        text.wrong(format!("{} is not a DNS name", text.shown()), hint);
        return None;
    }
    Some(name)
}

fn email(text: &Text<'_>) -> Option<String> {
    let is_address =
        text.text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    let is_plain = text.text.chars().all(|byte| byte.is_ascii_graphic() && !",?<>".contains(byte));
    if !is_address || !is_plain {
        text.wrong(format!("{} is not an e-mail address", text.shown()), "write it like `ops@example.com`");
        return None;
    }
    Some(text.text.clone())
}

/// Reports certificates that no listener can prove, and two that would be kept in one file.
pub(crate) fn check(ctx: &Context<'_>, config: &settings::Config, places: &DefinitionSpans) {
    let mut seen: Vec<&Config> = Vec::new();
    for (listener, fields) in config.listeners.iter().zip(&places.listeners) {
        let Some(place) = fields.place("certs") else { continue };
        for ordered in &listener.acme {
            check_sharing(ctx, ordered, config.redis.is_some(), place);
            if listener.ways(ordered, &config.listeners).is_empty() {
                let hint = "add a listener without `certs` that the authority reaches on port 80, and leave `challenge` out";
                ctx.wrong(place, format!("no listener can prove `{}` to the CA", ordered.first_name()), hint);
            }
            // An error, because both would be kept in one file.
            if seen.iter().any(|other| other.file() == ordered.file() && *other != ordered) {
                let name = ordered.first_name();
                let hint = "write the same table at both, or begin their `names` with different names";
                ctx.wrong(place, format!("two certificates for `{name}` would share a file"), hint);
            }
            seen.push(ordered);
        }
    }
}

/// Reports a certificate that is shared through nothing, or that every node of a fleet orders for itself.
fn check_sharing(ctx: &Context<'_>, ordered: &Config, has_redis: bool, place: SourceSpan) {
    let name = ordered.first_name();
    match (&ordered.secret, has_redis) {
        (Some(_), false) => ctx.wrong(
            place,
            format!("`secret` shares the certificate of `{name}` through Redis, but there is no [redis]"),
            "add [redis], or leave `secret` out",
        ),
        (None, true) => ctx.warn(
            place,
            format!("each node orders its own certificate for `{name}`"),
            "add `secret = \"${NAME}\"`, the same on all nodes: then one node orders it, and all use it",
        ),
        (Some(_), true) | (None, false) => {}
    }
}
