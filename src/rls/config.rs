//! The configuration of the gRPC listener.

use auth::mtls::{CertificateName, ClientCertificate};
use net::listening::Bind;
use net::tls;

/// The listener that `grpc` of `[admin]` opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub bind: Bind,
    /// TLS; `None`: it speaks in the clear.
    pub tls: Option<tls::TlsFiles>,
    /// Who may ask. Empty: whoever can connect.
    pub clients: Vec<GrpcClient>,
}

/// A client that may ask: who shows a certificate with this name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcClient {
    pub place: CertificateName,
    pub text: String,
}

impl Config {
    /// Whether who has shown this certificate may ask.
    pub fn admits(clients: &[GrpcClient], shown: Option<&ClientCertificate>) -> bool {
        let is_it = |client: &GrpcClient| shown.is_some_and(|shown| shown.has(client.place, &client.text));
        clients.is_empty() || clients.iter().any(is_it)
    }
}
