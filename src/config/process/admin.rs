//! Reads `[admin]`, the listener for operators.

use toml::value::Datetime;

use auth::mtls::CertificateName;
use auth::{entries, keys};
use control::admin::{self, AdminRole, BearerToken, Config, NamedCertificate, OWN_TOKEN_NAME, digest_of};
use net::listening::Bind;
use net::tls::Demand;

use crate::features::RLS;
use crate::keys::admin::ROLES;
use crate::load::report::quoted;
use crate::load::sections;
use crate::load::text::Text;
use crate::process::grpc;
use crate::process::listener;
use crate::reader::{Table, Value};
use base::clock;
use base::words::NAME_BYTES_MAX;

/// Reads `[admin]`, or `admin = false`, which turns it off; and the listener for gRPC, if it has one.
pub(crate) fn read(documents: &[Table<'_>]) -> (Option<Config>, Option<rls::Config>) {
    let mut config = default_admin();
    let Some(value) = sections::single(documents, "admin") else { return (Some(config), None) };
    if value.as_boolean() == Some(false) {
        return (None, None);
    }
    if value.as_boolean() == Some(true) {
        value.wrong(
            "`admin = true` has no effect: the admin listener is on by default",
            "leave it out, or write `admin = false` or a table",
        );
        return (Some(config), None);
    }
    let Some(table) = value.table() else { return (Some(config), None) };
    let bind = table.value("bind").and_then(|value| value.text());
    if let Some(bind) = bind.as_ref().and_then(|bind| listener::bind(bind, SOCKET)) {
        config.bind = bind;
    }
    config.token = table.value("token").and_then(|value| Some(value.text()?.secret()));
    if let Some(value) = table.value("tokens") {
        config.tokens = tokens(&value, config.token.as_ref());
    }
    config.tls = listener::files(&table, Some(&config.bind), Demand::Ask);
    if let Some(value) = table.value("certificates") {
        config.certificates = certificates(&value, &config);
    }
    if let Some(value) = table.value("hosts") {
        config.hosts = value.texts().iter().filter_map(admin_host).collect();
    }
    if let (Bind::Tcp(address), Some(bind)) = (&config.bind, &bind)
        && !address.ip().is_loopback()
        && !config.asks_for_credentials()
    {
        let message = "the admin listener is open to other machines and asks for no token and no certificate";
        bind.warn(message, "add `token = \"${file:/path}\"`, or bind 127.0.0.1");
    }
    let written = table.value("grpc");
    written.iter().for_each(|written| RLS.check(written, "`grpc`"));
    let grpc = written.as_ref().and_then(grpc::read);
    if let Some((value, grpc)) = written.as_ref().zip(grpc.as_ref())
        && listener::meet_alone(&grpc.bind, &config.bind)
    {
        let message = format!("`grpc` cannot listen on {}, the address of the admin listener", grpc.bind);
        value.wrong(message, "choose another port: gRPC has a listener of its own");
    }
    (Some(config), grpc)
}

/// The tokens of others than the admin. One that is wrong is reported and left out.
fn tokens(value: &Value<'_>, own: Option<&String>) -> Vec<BearerToken> {
    let mut found: Vec<BearerToken> = Vec::new();
    let own = own.map(|text| digest_of(text));
    for value in &bounded(value, "tokens") {
        let Some((token, name)) = named_token(value) else { continue };
        // An error, because the audit tells tokens apart by their names.
        if token.name == OWN_TOKEN_NAME || found.iter().any(|other| other.name == token.name) {
            let message = format!("{} is the name of another token", name.shown());
            name.wrong(message, "write another: the audit identifies operators by name");
        }
        if found.iter().map(|other| other.digest).chain(own).any(|other| other == token.digest) {
            value.wrong("another token has the same secret", "write another: the audit names operators");
        }
        found.push(token);
    }
    found
}

/// The tables of a list, as many as are compared.
fn bounded<'c>(value: &Value<'c>, what: &str) -> Vec<Value<'c>> {
    let mut written = value.array().unwrap_or_default();
    if written.len() > TOKENS_MAX {
        value.wrong(format!("there are more than {TOKENS_MAX} {what}"), "remove some");
    }
    // Cut, so that no more are compared than may be written.
    written.truncate(TOKENS_MAX);
    written
}

fn named_token<'c>(value: &Value<'c>) -> Option<(BearerToken, Text<'c>)> {
    let table = value.table()?;
    let name = audit_name(&table);
    let (plain, hashed) = (table.value("token"), table.value("digest"));
    let known = match (&plain, &hashed) {
        (Some(plain), None) => {
            plain.text().map(|text| text.secret()).map(|text| (digest_of(&text), Some(text)))
        }
        (None, Some(hashed)) => hashed.text().and_then(|text| digest(&text)).map(|digest| (digest, None)),
        (Some(_), Some(hashed)) => {
            hashed.wrong_key("a token has `token` or `digest`, not both", "remove one");
            None
        }
        (None, None) => {
            value.wrong("a token needs `token` or `digest`", "write `token = \"${file:/path}\"`");
            None
        }
    };
    // Every key is read before one that is missing ends this, so that all errors are reported.
    let role = role(&table);
    let expires = table.value("expires").map(|value| expires(&value));
    let name = name?;
    let expires = match expires {
        None => None,
        Some(read) => Some(read?),
    };
    let (digest, text) = known?;
    Some((BearerToken { name: name.text.clone(), digest, text, role: role?, expires }, name))
}

/// The certificates of clients. One that is wrong is reported and left out.
fn certificates(value: &Value<'_>, config: &Config) -> Vec<NamedCertificate> {
    if config.tls.as_ref().is_none_or(|tls| tls.client_auth.is_none()) {
        value.wrong_key(
            "`certificates` needs `client-ca`",
            "add `client-ca = \"ca.pem\"` with the authorities that issue the certificates",
        );
    }
    let mut found: Vec<NamedCertificate> = Vec::new();
    for value in &bounded(value, "certificates") {
        let Some((certificate, name)) = named_certificate(value) else { continue };
        let names = config.tokens.iter().map(|token| &token.name);
        let mut names = names.chain(found.iter().map(|other| &other.name));
        if certificate.name == OWN_TOKEN_NAME || names.any(|other| *other == certificate.name) {
            let message = format!("{} is also the name of another token or certificate", name.shown());
            name.wrong(message, "write another: the audit identifies operators by name");
        }
        if found.iter().any(|other| (other.place, &other.text) == (certificate.place, &certificate.text)) {
            value.wrong("this certificate is listed twice", "remove one");
        }
        found.push(certificate);
    }
    found
}

fn named_certificate<'c>(value: &Value<'c>) -> Option<(NamedCertificate, Text<'c>)> {
    let table = value.table()?;
    let name = audit_name(&table);
    let shows = table.value("shows").and_then(|value| value.text()).and_then(|text| {
        let found = CertificateName::written(&text.text).map(|(place, name)| (place, name.to_owned()));
        if found.is_none() {
            text.wrong("`shows` does not name a part of a certificate", SHOWS);
        }
        found.iter().for_each(|(place, name)| text.spell(format!("{place}={name}")));
        found
    });
    let role = role(&table);
    let (name, (place, text)) = (name?, shows?);
    Some((NamedCertificate { name: name.text.clone(), place, text, role: role? }, name))
}

/// `name`, which the audit shows.
fn audit_name<'c>(table: &Table<'c>) -> Option<Text<'c>> {
    let name = table.value("name").and_then(|value| value.text());
    if let Some(name) = &name
        && (name.text.is_empty() || name.text.len() > NAME_BYTES_MAX || name.text.contains(char::is_control))
    {
        let hint = format!("write 1 to {NAME_BYTES_MAX} bytes without control characters");
        name.wrong("`name` is empty, too long, or has control characters", hint);
    }
    name
}

fn role(table: &Table<'_>) -> Option<AdminRole> {
    table.value("role").and_then(|value| value.choice(&ROLES))
}

/// `sha256:` and the digest as `hash-key` prints it.
fn digest(text: &Text<'_>) -> Option<[u8; 32]> {
    let digest = keys::read(&text.text);
    if digest.is_none() {
        let hint = "write `sha256:` and 64 hex digits; `sluicegate hash-key` prints them";
        text.wrong(format!("the value of {} is not a digest", quoted(&text.key)), hint);
    }
    digest
}

/// Unix seconds of a date, or of a date and time with its offset.
fn expires(value: &Value<'_>) -> Option<i64> {
    let text = value.text()?;
    let seconds = text.text.parse::<Datetime>().ok().and_then(|datetime| entries::unix_seconds(&datetime));
    seconds.and_then(entries::datetime).iter().for_each(|at| text.spell(at));
    if seconds.is_some_and(|at| at <= clock::unix_s()) {
        text.warn("this token has expired: it is refused", "write a later date, or delete the token");
    }
    if seconds.is_none() {
        let hint = "write a date, or date and time with `Z`: `\"2027-01-01T00:00:00Z\"`";
        text.wrong(format!("{} is not a date", text.shown()), hint);
    }
    seconds
}

/// A name or an address without a port, because the check of `Host` ignores ports.
fn admin_host(text: &Text<'_>) -> Option<String> {
    let bare = text.text.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    let is_name = || {
        let authority = text.text.parse::<http::uri::Authority>();
        authority.is_ok_and(|authority| authority.host() == text.text && !text.text.contains(['@', '*']))
    };
    if is_address || is_name() {
        let host = admin::canonical_host(&text.text);
        text.spell(&host);
        return Some(host);
    }
    let hint = "write a name or an address without a port, for example `metrics.internal` or `10.0.0.1`";
    text.wrong(format!("{} is not a host", text.shown()), hint);
    None
}

/// The admin listener if the file does not mention it.
fn default_admin() -> Config {
    Config {
        bind: Bind::Tcp(([127, 0, 0, 1], 9900).into()),
        token: None,
        tokens: Vec::new(),
        hosts: Vec::new(),
        tls: None,
        certificates: Vec::new(),
    }
}

const SHOWS: &str = "write the kind of name and the name, for example `shows = \"san:email=alice@example.com\"` or \
    `\"subject:cn=alice\"`";

/// How a Unix socket is written.
pub(crate) const SOCKET: &str = "unix:/run/sluicegate/admin.sock";

/// Tokens of one listener: bounded, because a request is compared with each.
const TOKENS_MAX: usize = 256;
