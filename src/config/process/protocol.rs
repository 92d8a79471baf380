//! Reads `min-version` and `ciphers` of a listener.

use net::tls::{Suite, TlsPolicy};
use net::trust::TlsVersion;

use crate::keys::listener::TLS_VERSIONS;
use crate::load::report::quoted;
use crate::reader::{Table, Value};
use base::words;

pub(crate) fn read(table: &Table<'_>, has_certs: bool) -> TlsPolicy {
    let (min, ciphers) = (table.value("min-version"), table.value("ciphers"));
    for value in [&min, &ciphers].into_iter().flatten().filter(|_| !has_certs) {
        value.wrong_key(
            format!("`{}` needs `certs`", value.key),
            "add `certs`, without which there is no TLS, or leave it out",
        );
    }
    let min_version = min.and_then(|value| value.choice(&TLS_VERSIONS)).unwrap_or_default();
    let suites = ciphers.as_ref().map(suites).unwrap_or_default();
    let protocol = TlsPolicy { min_version, suites };
    if let Some(value) = ciphers.filter(|_| !protocol.suites.is_empty()) {
        if protocol.versions().next().is_none() {
            let hint = "add one, such as `TLS_AES_256_GCM_SHA384`, or lower `min-version`";
            value.wrong("no suite of `ciphers` works with `min-version` or a later version", hint);
        } else if !protocol.versions().any(|version| version == TlsVersion::Tls13) {
            value.warn(
                "`ciphers` has no suite for TLS 1.3, so the listener speaks only TLS 1.2",
                "add `TLS_AES_256_GCM_SHA384`",
            );
        }
    }
    protocol
}

fn suites(value: &Value<'_>) -> Vec<Suite> {
    let texts = value.some_texts("leave it out for the default suites");
    let names: Vec<String> = Suite::all().map(Suite::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut suites = Vec::new();
    for text in texts {
        match Suite::named(&text.text) {
            Some(suite) if suites.contains(&suite) => {
                text.wrong(format!("{} is named twice", quoted(&text.text)), "name it once");
            }
            Some(suite) => suites.push(suite),
            None => {
                let hint = words::did_you_mean(&text.text, &names);
                let hint =
                    hint.unwrap_or_else(|| format!("write IANA names of suites: {}", words::listed(&names)));
                text.wrong(format!("{} is not a cipher suite of this gateway", text.shown()), hint);
            }
        }
    }
    suites
}
