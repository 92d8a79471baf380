//! The versions of TLS and the cipher suites that a listener agrees to.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::trust::TlsVersion;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsPolicy {
    pub min_version: TlsVersion,
    /// The suites, the preferred first. Empty: all that are in [`Suite::all`].
    pub suites: Vec<Suite>,
}

/// A cipher suite: each has a fresh key for every connection and an authenticated cipher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suite(SupportedCipherSuite);

impl Suite {
    /// Every suite there is, in the order of the default.
    pub fn all() -> impl Iterator<Item = Suite> {
        aws_lc_rs::DEFAULT_CIPHER_SUITES.iter().copied().map(Suite)
    }

    /// The suite that IANA registered under this name.
    pub fn named(name: &str) -> Option<Suite> {
        Suite::all().find(|suite| suite.name() == name)
    }

    /// The name that IANA registered.
    pub fn name(self) -> String {
        // Replaced, because rustls marks those of TLS 1.3 by their version.
        self.0.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
    }

    /// The only version that it is for.
    pub fn version(self) -> TlsVersion {
        if self.0.tls13().is_some() { TlsVersion::Tls13 } else { TlsVersion::Tls12 }
    }
}

impl TlsPolicy {
    /// The versions that it leaves: new enough, and with a suite.
    pub fn versions(&self) -> impl Iterator<Item = TlsVersion> {
        let has_suite = |wanted: TlsVersion| {
            self.suites.is_empty() || self.suites.iter().any(|suite| suite.version() == wanted)
        };
        [TlsVersion::Tls13, TlsVersion::Tls12]
            .into_iter()
            .filter(move |version| *version >= self.min_version && has_suite(*version))
    }

    pub(super) fn supported(&self) -> Vec<&'static SupportedProtocolVersion> {
        let of = |version| match version {
            TlsVersion::Tls12 => &version::TLS12,
            TlsVersion::Tls13 => &version::TLS13,
        };
        self.versions().map(of).collect()
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites = self.suites.iter().map(|suite| suite.0).collect();
        }
        Arc::new(provider)
    }
}
