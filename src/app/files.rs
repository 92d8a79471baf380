//! Checks the files that a configuration names, before anything is in force, so that an error in one is reported at the
//! key that names it, together with all other errors.
//!
//! Files of upstreams and of authentication methods are checked where those are built: [`super::publisher::prepare`].

use crate::auth::{self, Kind, jwt};
use crate::config::{Config, Definition, Subject};
use crate::global::Global;
use crate::service::config::Listener;
use crate::tls::{self, Certificate, ClientAuth, Part};
use crate::unix_socket::{self, Rights};

/// An error in a file: the part and the key that name it, the message, and what to do about it.
pub(super) struct Wrong {
    pub(super) subject: Subject,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) hint: &'static str,
}

impl Wrong {
    pub(super) fn tls(subject: Subject, field: String, error: &tls::Error) -> Wrong {
        Wrong { subject, field, message: error.to_string(), hint: error.hint() }
    }

    pub(super) fn reject(self, definition: &mut Definition) {
        definition.reject(self.subject, &self.field, &self.message, self.hint);
    }
}

/// Reads the certificates of listeners (but pairs that the first start makes), the users and groups of Unix sockets, and the
/// certificate authorities of token issuers and of Redis.
pub(super) fn check(config: &Config) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let found = wrong_with_listener(listener);
        wrong.extend(
            found.into_iter().map(|(field, error)| Wrong::tls(Subject::Listener(index), field, &error)),
        );
        let found = wrong_with_rights(&listener.rights);
        wrong.extend(found.map(|(field, error)| Wrong {
            subject: Subject::Listener(index),
            field: field.to_owned(),
            message: error.to_string(),
            hint: "write a name that is there, or a number",
        }));
    }
    for (index, method) in config.auth.iter().enumerate() {
        if let Some(remote) = issuer_over_tls(method)
            && let Err(error) = tls::client_config(false, &remote.trust)
        {
            wrong.push(Wrong::tls(Subject::Auth(index), trust_field(&error, "jwks"), &error));
        }
    }
    if let Some(redis) = &config.redis
        && let Err(error) = Global::check(redis)
    {
        let (field, message) = ("ca".to_owned(), error.to_string());
        wrong.push(Wrong { subject: Subject::Redis, field, message, hint: "" });
    }
    wrong
}

fn issuer_over_tls(method: &auth::Config) -> Option<&jwt::remote::Config> {
    match &method.kind {
        Kind::Jwt(tokens) => match &tokens.source {
            jwt::Source::Url(remote) if remote.is_tls() => Some(remote),
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

/// Users and groups that are not there. A socket's directory is not looked at: a service often brings it with it.
fn wrong_with_rights(rights: &Rights) -> impl Iterator<Item = (&'static str, unix_socket::Error)> {
    let found = [("owner", rights.owner_number().err()), ("group", rights.group_number().err())];
    found.into_iter().filter_map(|(field, error)| Some((field, error?)))
}

fn wrong_with_clients(clients: &ClientAuth) -> Option<(String, tls::Error)> {
    let error = tls::check_clients(clients).err()?;
    let field = if error.part() == Some(Part::Revocations) { "client-crl" } else { "client-ca" };
    Some((field.to_owned(), error))
}

/// The key of `tls` that an error is about. If the error is about no file (the system has no authorities at all), it is
/// the key `needs`, whose URL asks for TLS.
pub(super) fn trust_field(error: &tls::Error, needs: &str) -> String {
    match error.part() {
        Some(Part::Authorities | Part::Revocations) => "tls.ca".to_owned(),
        Some(Part::Certificate) => "tls.cert".to_owned(),
        Some(Part::Key) => "tls.key".to_owned(),
        None => needs.to_owned(),
    }
}
