//! Checks the files that a configuration names, before anything is in force, so that an error in one is reported at the
//! key that names it, together with all other errors.
//!
//! Files of upstreams and of authentication methods are checked where those are built: [`super::publisher::prepare`].

use std::borrow::Cow;

use auth::entries::FileSummary;
use auth::{self, MethodKind, jwt};
use base::clock;
use config::{Config, Definition, Subject};
use gateway::service::config::ListenerConfig;
use limiter::global::Global;
use net::tls::{self, AbsentPair, CertificatePair, ClientAuth, ServerCertificate, TlsFile};
use net::trust::{ClientPair, Trust};
use net::unix_socket::{self, Rights};

/// Something wrong with a file: the part and the key that name it, the message, and what to do about it.
pub(super) struct FileProblem {
    pub(super) subject: Subject,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) hint: Cow<'static, str>,
    /// The configuration works all the same.
    pub(super) is_warning: bool,
}

impl FileProblem {
    pub(super) fn error(
        subject: Subject,
        field: impl Into<String>,
        message: &impl ToString,
        hint: impl Into<Cow<'static, str>>,
    ) -> FileProblem {
        let (field, message) = (field.into(), message.to_string());
        FileProblem { subject, field, message, hint: hint.into(), is_warning: false }
    }

    fn warning(subject: Subject, field: &str, message: String, hint: Cow<'static, str>) -> FileProblem {
        FileProblem { subject, field: field.to_owned(), message, hint, is_warning: true }
    }

    pub(super) fn tls(subject: Subject, field: String, error: &tls::Error) -> FileProblem {
        FileProblem::error(subject, field, error, error.hint())
    }

    pub(super) fn report(self, definition: &mut Definition) {
        let FileProblem { subject, field, message, hint, is_warning } = self;
        match is_warning {
            false => definition.reject(subject, &field, &message, &hint),
            true => definition.warn(subject, &field, &message, &hint),
        }
    }
}

/// Reads the certificates of listeners (but pairs that the first start makes), the users and groups of Unix sockets, and the
/// certificate authorities of token issuers, of Redis and of the collector of spans.
pub(super) fn check(config: &Config) -> Vec<FileProblem> {
    let mut wrong = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let client_auth = listener.client_auth.as_ref();
        wrong.extend(wrong_with_tls(Subject::Listener(index), &listener.certs, client_auth));
        let hint = "write the name of an existing user or group, or a number";
        let wrong_rights = wrong_with_rights(&listener.rights);
        let wrong_rights = wrong_rights
            .map(|(field, error)| FileProblem::error(Subject::Listener(index), field, &error, hint));
        wrong.extend(wrong_rights);
    }
    if let Some(tls) = config.admin.as_ref().and_then(|admin| admin.tls.as_ref()) {
        wrong.extend(wrong_with_tls(Subject::Section("admin"), &tls.certs, tls.client_auth.as_ref()));
    }
    if let Some(tls) = config.grpc.as_ref().and_then(|grpc| grpc.tls.as_ref()) {
        let found = wrong_with_tls(Subject::Section("admin"), &tls.certs, tls.client_auth.as_ref());
        wrong.extend(found.into_iter().map(|it| FileProblem { field: format!("grpc.{}", it.field), ..it }));
    }
    for (index, upstream) in config.upstreams.iter().enumerate() {
        wrong.extend(untimely_shown(Subject::Upstream(index), &upstream.tls));
    }
    for (index, method) in config.auth.iter().enumerate() {
        let Some(remote) = issuer_over_tls(method) else { continue };
        if let Err(error) = tls::client_config(false, &remote.trust) {
            wrong.push(FileProblem::tls(Subject::Auth(index), trust_field(&error, "jwks"), &error));
        }
        wrong.extend(untimely_shown(Subject::Auth(index), &remote.trust));
    }
    if let Some(trace) = config.trace.as_ref().filter(|trace| trace.is_tls())
        && let Err(error) = tls::client_config(false, &trace.trust)
    {
        wrong.push(FileProblem::tls(Subject::Section("trace"), trust_field(&error, "otlp"), &error));
    }
    if let Some(redis) = &config.redis
        && let Err(error) = Global::check(redis)
    {
        wrong.push(FileProblem::error(Subject::Section("redis"), "ca", &error, ""));
    }
    wrong
}

/// What a method's file of keys or users has that cannot be meant: no entry at all, or a tier that is none of these.
pub(super) fn doubtful_credentials(index: usize, method: &auth::Method, tiers: &[&str]) -> Vec<FileProblem> {
    let Some(FileSummary { path, entries, tiers: named }) = method.summary() else { return Vec::new() };
    let (kind, path) = (&method.config.kind, path.display());
    let has_others = matches!(kind, MethodKind::ApiKey(keys) if keys.source.has_database());
    let warning =
        |message, hint| FileProblem::warning(Subject::Auth(index), credentials_key(kind), message, hint);
    let empty = (*entries == 0 && !has_others)
        .then(|| warning(format!("{path} is empty: every client is refused"), kind.hint_to_fill().into()));
    let unknown = named.iter().filter_map(|(tier, line)| {
        let hint = config::instead_of_tier(tier, tiers)?;
        // The tier is not quoted, because it may be a secret in the wrong place.
        Some(warning(format!("{path}:{line}: {}", config::NO_SUCH_TIER), hint.into()))
    });
    empty.into_iter().chain(unknown).collect()
}

/// The key of the configuration that names a method's credentials.
pub(super) fn credentials_key(kind: &MethodKind) -> &'static str {
    match kind {
        MethodKind::Basic(_) => "users",
        MethodKind::Jwt(tokens) if matches!(tokens.source, jwt::KeySetSource::Secret(_)) => "secret",
        MethodKind::ApiKey(_) | MethodKind::Jwt(_) | MethodKind::Mtls(_) | MethodKind::Anonymous(_) => "keys",
    }
}

fn issuer_over_tls(method: &auth::Config) -> Option<&jwt::remote::Config> {
    match &method.kind {
        MethodKind::Jwt(tokens) => match &tokens.source {
            jwt::KeySetSource::Url(remote) if remote.is_tls() => Some(remote),
            jwt::KeySetSource::Url(_) | jwt::KeySetSource::Secret(_) | jwt::KeySetSource::File(_) => None,
        },
        MethodKind::Anonymous(_) | MethodKind::ApiKey(_) | MethodKind::Mtls(_) | MethodKind::Basic(_) => None,
    }
}

fn wrong_with_tls(
    subject: Subject,
    certs: &[CertificatePair],
    client_auth: Option<&ClientAuth>,
) -> Vec<FileProblem> {
    let pairs = certs.iter().enumerate().filter(|(_, pair)| !pair.is_to_be_made());
    let pairs = pairs.filter_map(|(index, pair)| match ServerCertificate::read(pair) {
        Ok(certificate) => {
            let message = refused(&certificate)?;
            Some(FileProblem::warning(subject, &format!("certs[{index}].cert"), message, RENEW.into()))
        }
        Err(error) => {
            let key = if error.part() == Some(TlsFile::Key) { "key" } else { "cert" };
            Some(FileProblem::tls(subject, format!("certs[{index}].{key}"), &error))
        }
    });
    let clients = client_auth.and_then(wrong_with_clients);
    let stale = client_auth.and_then(lists_over).map(|message| {
        FileProblem::warning(subject, "client-crl", message, "replace the file with newer lists".into())
    });
    pairs.chain(clients.map(|(field, error)| FileProblem::tls(subject, field, &error))).chain(stale).collect()
}

/// That clients are refused because a revocation list is over. It is no error, because newer lists may come at any time.
fn lists_over(clients: &ClientAuth) -> Option<String> {
    let (path, end) = clients.lists_end()?;
    let path = path.display();
    (clock::unix_s() > end)
        .then(|| format!("a revocation list in {path} has expired: clients of its authority are refused"))
}

/// What a listener's files say that is over: clients refuse it, or are refused.
pub(super) fn expired(listener: &ListenerConfig) -> Vec<String> {
    let certificates = listener.certs.iter().filter_map(|pair| ServerCertificate::read(pair).ok());
    let refused = certificates.filter_map(|it| refused(&it));
    refused.chain(listener.client_auth.as_ref().and_then(lists_over)).collect()
}

/// That clients refuse a certificate. It is no error, because it may be all there is, and clients that do not look are
/// served.
fn refused(certificate: &ServerCertificate) -> Option<String> {
    let why = untimely(certificate);
    let why = why.or_else(|| (!certificate.has_alternatives).then_some("has no subjectAltName"))?;
    Some(format!("the certificate in {} {why}: clients refuse it", certificate.path.display()))
}

/// Why a certificate is not valid now.
fn untimely(certificate: &ServerCertificate) -> Option<&'static str> {
    match clock::unix_s() {
        now if now > certificate.not_after => Some("has expired"),
        now if now < certificate.not_before => Some("is not valid yet"),
        _ => None,
    }
}

/// That servers refuse the certificate that the gateway shows them.
fn untimely_shown(subject: Subject, trust: &Trust) -> Option<FileProblem> {
    let ClientPair { cert, key } = trust.shown.clone()?;
    let pair = CertificatePair { cert, key, absent: AbsentPair::Refuse };
    // One that cannot be read is reported where it is to be used.
    let certificate = ServerCertificate::read(&pair).ok()?;
    let message = format!(
        "the certificate in {} {}: servers that verify it refuse the gateway",
        pair.cert.display(),
        untimely(&certificate)?
    );
    Some(FileProblem::warning(subject, "tls.cert", message, RENEW.into()))
}

const RENEW: &str = "replace the file with a renewed certificate";

/// Users and groups that are not there. A socket's directory is not looked at: a service often brings it with it.
fn wrong_with_rights(rights: &Rights) -> impl Iterator<Item = (&'static str, unix_socket::Error)> {
    let found = [("owner", rights.owner_number().err()), ("group", rights.group_number().err())];
    found.into_iter().filter_map(|(field, error)| Some((field, error?)))
}

fn wrong_with_clients(clients: &ClientAuth) -> Option<(String, tls::Error)> {
    let error = tls::check_clients(clients).err()?;
    let field = if error.part() == Some(TlsFile::Revocations) { "client-crl" } else { "client-ca" };
    Some((field.to_owned(), error))
}

/// The key of `tls` that an error is about. If the error is about no file (the system has no authorities at all), it is
/// the key `needs`, whose URL asks for TLS.
pub(super) fn trust_field(error: &tls::Error, needs: &str) -> String {
    match error.part() {
        Some(TlsFile::Authorities | TlsFile::Revocations) => "tls.ca".to_owned(),
        Some(TlsFile::Certificate) => "tls.cert".to_owned(),
        Some(TlsFile::Key) => "tls.key".to_owned(),
        None => needs.to_owned(),
    }
}
