//! TLS towards servers that the gateway connects to: upstreams, issuers of tokens, and certificate authorities.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::error::Error;
use super::protocol::TlsPolicy;
use super::{files, provider};
use crate::fetch::{Connect, Found};
use crate::trust::Trust;

/// Builds the TLS configuration of connections to a server. Reads the files that `trust` names, or the system's authorities.
/// All connections made with it share its sessions; another configuration, after a file has changed, begins without any,
/// so that nothing which the old files vouched for is resumed.
///
/// # Errors
/// If a file cannot be used, or the system has no authorities.
pub fn client_config(http2: bool, trust: &Trust) -> Result<ClientConfig, Error> {
    let versions = TlsPolicy { min_version: trust.min_version, suites: Vec::new() }.supported();
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&versions)?;
    let builder = if trust.verify {
        builder.with_root_certificates(match &trust.ca {
            Some(ca) => files::authorities(ca)?,
            None => system_authorities()?,
        })
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
    };
    let mut config = match &trust.shown {
        Some(shown) => {
            let key = files::certified_key(&shown.cert, &shown.key)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(config)
}

/// How [`crate::fetch`] connects: over HTTP/1.1, with files that are read at each connection, to what `names` finds.
pub fn connect(names: impl Fn(String) -> Found + Send + Sync + 'static) -> Connect {
    let tls = |trust: &Trust| client_config(false, trust).map_err(|error| error.to_string());
    Connect { tls: Arc::new(tls), names: Arc::new(names) }
}

fn system_authorities() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(Error::NoRoots(found.errors.iter().map(ToString::to_string).collect()));
    }
    Ok(roots)
}

/// Accepts any certificate, for `verify = false`. The signature of the handshake is still checked, so that the server
/// must at least have the key of the certificate that it sends.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
