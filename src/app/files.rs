//! Files of certificates that a configuration names, read before anything is put into force, so that what is wrong
//! with one points at the key that names it.

use crate::auth::{self, Kind, jwt};
use crate::config::{Config, Definition, Errors, Loaded};
use crate::proxy::config::Listener;
use crate::tls::{self, Certificate, ClientAuth, Part};

/// Reads every certificate, key, authority and list, but pairs that the first start makes.
///
/// # Errors
/// Everything that is wrong with them, each at its key.
pub fn check_certificates(mut loaded: Loaded) -> Result<Loaded, Errors> {
    note_certificates(&mut loaded);
    if loaded.report.has_errors() { Err(loaded.report.into_errors()) } else { Ok(loaded) }
}

/// The same, for whoever has more to look at before saying what is wrong.
pub fn note_certificates(loaded: &mut Loaded) {
    for (definition, field, error) in wrong(&loaded.config) {
        loaded.report.reject(definition, &field, &error.to_string(), error.hint());
    }
}

fn wrong(config: &Config) -> Vec<(Definition, String, tls::Error)> {
    let mut wrong = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let found = wrong_with_listener(listener);
        wrong.extend(found.into_iter().map(|(field, error)| (Definition::Listener(index), field, error)));
    }
    for (index, upstream) in config.upstreams.iter().enumerate() {
        if upstream.servers.iter().any(|server| server.tls)
            && let Err(error) = tls::client_config(false, &upstream.tls)
        {
            wrong.push((Definition::Upstream(index), trust_field(&error, "servers"), error));
        }
    }
    for (index, way) in config.auth.iter().enumerate() {
        if let Some(remote) = remote(way)
            && let Err(error) = tls::client_config(false, &remote.trust)
        {
            wrong.push((Definition::Auth(index), trust_field(&error, "jwks"), error));
        }
    }
    wrong
}

/// The issuer that is asked over TLS.
fn remote(way: &auth::Config) -> Option<&jwt::remote::Config> {
    match &way.kind {
        Kind::Jwt(tokens) => match &tokens.source {
            jwt::Source::Url(remote) if remote.tls => Some(remote),
            jwt::Source::Url(_) | jwt::Source::Secret(_) | jwt::Source::File(_) => None,
        },
        Kind::Anonymous(_) | Kind::ApiKey(_) | Kind::Mtls(_) | Kind::Basic(_) => None,
    }
}

fn wrong_with_listener(listener: &Listener) -> Vec<(String, tls::Error)> {
    let pairs = listener.certs.iter().enumerate().filter(|(_, pair)| !pair.is_to_be_made());
    let pairs = pairs.filter_map(|(index, pair)| {
        let error = Certificate::read(pair).err()?;
        let key = if error.part() == Some(Part::Key) { "key" } else { "cert" };
        Some((format!("certs[{index}].{key}"), error))
    });
    pairs.chain(listener.client_auth.as_ref().and_then(wrong_with_clients)).collect()
}

/// What is wrong with the files that clients' certificates are checked by, and which key names it.
fn wrong_with_clients(clients: &ClientAuth) -> Option<(String, tls::Error)> {
    let error = tls::check_clients(clients).err()?;
    let field = if error.part() == Some(Part::Revocations) { "client-crl" } else { "client-ca" };
    Some((field.to_owned(), error))
}

/// The key of `tls` that an error is about; where there are no authorities at all, what wants them.
fn trust_field(error: &tls::Error, wants: &str) -> String {
    match error.part() {
        Some(Part::Authorities | Part::Revocations) => "tls.ca".to_owned(),
        Some(Part::Certificate) => "tls.cert".to_owned(),
        Some(Part::Key) => "tls.key".to_owned(),
        None => wants.to_owned(),
    }
}
