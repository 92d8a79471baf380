//! The configuration of one authentication method, and the challenge that follows from it.

use std::path::Path;

use http::HeaderValue;

use super::credential_source::CredentialSource;
use super::{basic, jwt, keys, mtls};
use base::identity::Identity;

/// One `[auth.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name; also the realm of its challenge.
    pub name: String,
    pub kind: MethodKind,
    /// Whether the upstream sees the credential.
    pub pass: bool,
}

impl Config {
    /// Query parameters in which it looks for a credential.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.places().iter().filter_map(|place| match place {
            CredentialSource::Query(name) => Some(name.as_str()),
            CredentialSource::Header(_) | CredentialSource::Bearer => None,
        })
    }

    /// The scheme it looks for in `Authorization`, where that is one of its places.
    pub fn scheme(&self) -> &'static str {
        match &self.kind {
            MethodKind::Basic(_) => "basic",
            MethodKind::Anonymous(_) | MethodKind::ApiKey(_) | MethodKind::Jwt(_) | MethodKind::Mtls(_) => {
                "bearer"
            }
        }
    }

    /// Where a request carries what it looks at.
    pub fn places(&self) -> &[CredentialSource] {
        match &self.kind {
            MethodKind::ApiKey(config) => &config.places,
            MethodKind::Jwt(config) => &config.places,
            // Basic has another scheme than Bearer, but the same field.
            MethodKind::Basic(_) => &[CredentialSource::Bearer],
            MethodKind::Anonymous(_) | MethodKind::Mtls(_) => &[],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// By nothing: any client that shows no credential of the methods before it.
    Anonymous(AnonymousIdentity),
    ApiKey(keys::Config),
    /// By a token its issuer has signed.
    Jwt(Box<jwt::Config>),
    /// By the certificate of its connection.
    Mtls(mtls::Config),
    /// By a name and a password.
    Basic(basic::Config),
}

impl MethodKind {
    /// How a credential is added to its file, which is made if it is not there.
    pub fn hint_to_fill(&self) -> String {
        let Some((command, file)) = self.command() else { return String::new() };
        format!("add one: `{command} >> {}`", file.display())
    }

    /// How a file of another program becomes one of credentials.
    pub(super) fn hint_to_make(&self) -> String {
        let command = self.command().map(|(command, _)| command).unwrap_or_default();
        format!("write an entry for each, as `{command}` prints it")
    }

    /// What prints a credential, and its file.
    fn command(&self) -> Option<(String, &Path)> {
        let (option, file) = match self {
            MethodKind::ApiKey(config) => ("--new", config.source.file()?),
            MethodKind::Basic(config) => ("--basic", config.file.as_path()),
            MethodKind::Anonymous(_) | MethodKind::Jwt(_) | MethodKind::Mtls(_) => return None,
        };
        Some((format!("sluicegate hash-key {option} --consumer NAME"), file))
    }
}

/// The identity of clients that show no credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonymousIdentity {
    pub consumer: Option<String>,
    pub tenant: Option<String>,
    pub tier: Option<String>,
}

impl AnonymousIdentity {
    pub(super) fn identity(&self) -> Identity {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Identity {
            consumer: text(&self.consumer),
            tenant: text(&self.tenant),
            tier: text(&self.tier),
            ..Identity::default()
        }
    }
}

/// How clients are asked for a credential (RFC 9110 section 11.6.1). A method's name needs no escapes between
/// quotation marks.
pub(super) fn challenge(config: &Config) -> Option<HeaderValue> {
    let realm = &config.name;
    let text = match &config.kind {
        MethodKind::Anonymous(_) => return None,
        MethodKind::Basic(_) => format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
        _ if config.places().contains(&CredentialSource::Bearer) => format!("Bearer realm=\"{realm}\""),
        // Our own scheme, because a 401 needs a challenge and IANA has none for certificates.
        MethodKind::Mtls(_) => format!("ClientCertificate realm=\"{realm}\""),
        // Nor for credentials in a header or a query.
        MethodKind::ApiKey(_) | MethodKind::Jwt(_) => {
            let scheme = if matches!(config.kind, MethodKind::Jwt(_)) { "Token" } else { "ApiKey" };
            let place = config.places().first().map(ToString::to_string).unwrap_or_default();
            format!("{scheme} realm=\"{realm}\", in=\"{place}\"")
        }
    };
    HeaderValue::from_str(&text).ok()
}
