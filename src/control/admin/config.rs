//! The configuration of the admin listener, and the rules for clients that follow from it.

use super::access::{AccessRules, AdminRole, BearerToken};
use super::host::canonical as canonical_host;
use auth::mtls::CertificateName;
use net::listening::Bind;
use net::tls;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub bind: Bind,
    /// The bearer token of the admin, who is named `token`. Never logged.
    pub token: Option<String>,
    pub tokens: Vec<BearerToken>,
    /// Hosts that requests may name beside loopback's if there is no token, in the form of
    /// [`canonical_host`](super::canonical_host).
    pub hosts: Vec<String>,
    /// TLS; `None`: it speaks in the clear.
    pub tls: Option<tls::TlsFiles>,
    pub certificates: Vec<NamedCertificate>,
}

/// One of `certificates`: a client that shows a certificate with this name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The name of its bearer, for the audit.
    pub name: String,
    pub place: CertificateName,
    pub text: String,
    pub role: AdminRole,
}

impl Config {
    /// Whether clients need a token or a certificate for every page but the probes'.
    pub fn asks_for_credentials(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty() || !self.certificates.is_empty()
    }

    /// A token that this program can send to read from its own listener, if it knows any.
    pub fn own_token(&self) -> Option<&str> {
        let named = self.tokens.iter().find_map(|token| token.text.as_deref());
        self.token.as_deref().or(named)
    }

    pub fn access(&self) -> AccessRules {
        // DNS rebinding is a threat only to TCP without a token, because a browser cannot reach a Unix socket, and a
        // hostile page does not have the token.
        let hosts = match &self.bind {
            Bind::Tcp(address) if !self.asks_for_credentials() => {
                // Clients may name this address, because the operator has written it.
                let bound = Some(address.ip()).filter(|ip| !ip.is_unspecified());
                let bound = bound.map(|ip| canonical_host(&ip.to_string()));
                Some(self.hosts.iter().cloned().chain(bound).collect())
            }
            Bind::Tcp(_) | Bind::Unix(_) => None,
        };
        // Who comes over a Unix socket is the admin, because only its owner can connect to it. Every process of this
        // machine can connect to loopback, and so can a web page in a browser. The page cannot read the answer, but
        // that would not stop it from changing something.
        let without_token = match &self.bind {
            Bind::Unix(_) => AdminRole::Admin,
            Bind::Tcp(_) => AdminRole::Read,
        };
        let own =
            self.token.iter().map(|text| BearerToken::of_text(OWN_TOKEN_NAME, text, AdminRole::Admin, None));
        // Without its text, which nobody needs to recognise it.
        let tokens = own.chain(self.tokens.iter().cloned());
        let tokens = tokens.map(|token| BearerToken { text: None, ..token }).collect();
        AccessRules { tokens, certificates: self.certificates.clone(), without_token, hosts }
    }
}

/// The name of the bearer of `token`; none of `tokens` has it.
pub const OWN_TOKEN_NAME: &str = "token";
