//! Certificates and the TLS side of a listener: which certificate a server name gets, which HTTP version is negotiated, and
//! how clients' certificates are verified. Connections that the gateway makes are in `client`.
//!
//! It reads files when told to, and never watches them: `app/publisher/watch.rs` does.

mod by_sni;
mod client;
mod error;
mod files;
mod protocol;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use by_sni::BySni;
pub use client::{client_config, connect};
pub use error::{Error, TlsFile};
pub use files::leaf;
pub use protocol::{Suite, TlsPolicy};

/// One certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePair {
    /// The PEM file of the chain, the leaf first.
    pub cert: PathBuf,
    /// The PEM file of the leaf's private key.
    pub key: PathBuf,
    /// What happens if there are no such files.
    pub absent: AbsentPair,
}

/// What happens if the files of a pair do not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbsentPair {
    Refuse,
    /// A self-signed pair for localhost is made and written there.
    MakeSelfSigned,
    /// The files are on their way: until they can be read, a self-signed certificate for these names is presented, which
    /// is written nowhere.
    StandIn(Vec<String>),
}

impl CertificatePair {
    /// Whether the pair still has to be made, or is on its way.
    pub fn is_to_be_made(&self) -> bool {
        match self.absent {
            AbsentPair::Refuse => false,
            AbsentPair::MakeSelfSigned => !self.cert.exists() && !self.key.exists(),
            AbsentPair::StandIn(_) => true,
        }
    }
}

/// The files behind the TLS side of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certs: Vec<CertificatePair>,
    /// How clients' certificates are verified; `None`: none is asked for.
    pub client_auth: Option<ClientAuth>,
}

/// How a listener verifies clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// PEM, the authorities that issue them.
    pub ca: PathBuf,
    /// What happens to clients without one.
    pub demand: Demand,
    /// PEM, lists of certificates that are revoked.
    pub crl: Option<PathBuf>,
}

impl ClientAuth {
    /// Its file of revocation lists, and when the first of them is over, Unix seconds. `None` if it has no file, or one that
    /// cannot be used.
    pub fn lists_end(&self) -> Option<(&Path, i64)> {
        let crl = self.crl.as_deref()?;
        Some((crl, files::next_update(&files::revocations(crl).ok()?)?))
    }
}

/// Whether clients need a certificate. One that is sent must be valid in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    Ask,
    Require,
}

/// A certificate and its key as read, with what metrics show of it.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    pub key: Arc<CertifiedKey>,
    /// DNS names it is for, lower case.
    pub names: Vec<String>,
    /// From when it is valid, Unix seconds.
    pub not_before: i64,
    /// Until when it is valid, Unix seconds.
    pub not_after: i64,
    /// Whether it has the extension `subjectAltName`, without which clients find no name in it (RFC 9525 section 2).
    pub has_alternatives: bool,
    pub path: PathBuf,
    /// It stands in for a certificate that is not there yet.
    pub is_stand_in: bool,
}

impl ServerCertificate {
    /// Reads a pair. Makes it first if it is self-signed and does not exist.
    pub fn read(pair: &CertificatePair) -> Result<ServerCertificate, Error> {
        if let AbsentPair::StandIn(names) = &pair.absent {
            return ServerCertificate::of_files(pair).or_else(|_| ServerCertificate::stand_in(pair, names));
        }
        if pair.is_to_be_made() {
            make_self_signed(pair)?;
        }
        ServerCertificate::of_files(pair)
    }

    fn of_files(pair: &CertificatePair) -> Result<ServerCertificate, Error> {
        ServerCertificate::of(files::certified_key(&pair.cert, &pair.key)?, pair, false)
    }

    fn of(key: CertifiedKey, pair: &CertificatePair, is_stand_in: bool) -> Result<ServerCertificate, Error> {
        let Leaf { names, validity: [not_before, not_after], has_alternatives } =
            describe(&key.cert[0], &pair.cert)?;
        let (key, path) = (Arc::new(key), pair.cert.clone());
        Ok(ServerCertificate { key, names, not_before, not_after, has_alternatives, path, is_stand_in })
    }

    fn stand_in(pair: &CertificatePair, names: &[String]) -> Result<ServerCertificate, Error> {
        let (certificate, key) = self_signed(pair, names.to_vec())?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain = vec![certificate.der().clone()];
        ServerCertificate::of(CertifiedKey::from_der(chain, private, &provider())?, pair, true)
    }
}

/// Builds the TLS configuration of a listener from certificates that have been read. `http`: whether it speaks HTTP/1.1, and
/// HTTP/2.
pub fn server_config(
    certificates: &[ServerCertificate],
    protocol: &TlsPolicy,
    http: (bool, bool),
    client_auth: Option<&ClientAuth>,
    tickets: Arc<dyn ProducesTickets>,
    challenged: Option<AlpnChallenge>,
) -> Result<ServerConfig, Error> {
    // Each configuration has ticket keys of its own, because a resumed session sends no certificate: it must not
    // outlive the authorities that verified it, nor be resumed on another listener.
    let tickets = if client_auth.is_some() { self::tickets()? } else { tickets };
    let mut config = ServerConfig::builder_with_provider(protocol.provider())
        .with_protocol_versions(&protocol.supported())?
        .with_client_cert_verifier(client_verifier(client_auth)?)
        .with_cert_resolver(match &challenged {
            None => Arc::new(BySni::new(certificates)) as Arc<dyn ResolvesServerCert>,
            Some(challenged) => Arc::new(ChallengeResolver {
                usual: BySni::new(certificates),
                challenged: challenged.clone(),
            }),
        });
    if http.1 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    if http.0 {
        config.alpn_protocols.push(b"http/1.1".to_vec());
    }
    // The last, so that a client that offers a version of HTTP, too, gets HTTP.
    config.alpn_protocols.extend(challenged.map(|challenged| challenged.alpn.to_vec()));
    // The server's order, because TLS scanners recommend it; all offered suites are strong.
    config.ignore_client_order = true;
    config.ticketer = tickets;
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Checks the files of client authentication as a start would.
///
/// # Errors
/// If a file cannot be used.
pub fn check_clients(client_auth: &ClientAuth) -> Result<(), Error> {
    client_verifier(Some(client_auth)).map(drop)
}

/// The verifier of clients' certificates in the handshake.
fn client_verifier(client_auth: Option<&ClientAuth>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(ClientAuth { ca, demand, crl }) = client_auth else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = Arc::new(files::authorities(ca)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if let Some(crl) = crl {
        // A leaf whose issuer has no list in the file is refused. Intermediate authorities need no list. A list that is
        // over is refused, too, because it does not say who is good now.
        let lists = files::revocations(crl)?;
        builder = builder.with_crls(lists).only_check_end_entity_revocation().enforce_revocation_expiration();
    }
    if *demand == Demand::Ask {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| match (error, crl) {
        (VerifierBuilderError::InvalidCrl(_), Some(crl)) => {
            Error::file(TlsFile::Revocations, crl, "a revocation list in it cannot be read: it is not X.509")
        }
        (error, _) => Error::file(TlsFile::Authorities, ca, error.to_string()),
    })
}

/// Makes keys of session tickets. Keep them over reloads; otherwise no session resumes after one.
pub fn tickets() -> Result<Arc<dyn ProducesTickets>, Error> {
    Ok(aws_lc_rs::Ticketer::new()?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// How a listener proves to an authority that it controls a name (RFC 8737).
#[derive(Clone)]
pub struct AlpnChallenge {
    /// The protocol of such a handshake. It carries nothing after the handshake.
    pub alpn: &'static [u8],
    /// The certificate for a name that is being asked about.
    pub by_name: ChallengedByName,
}

/// Finds the certificate that proves control of a name.
pub type ChallengedByName = Arc<dyn Fn(&str) -> Option<Arc<CertifiedKey>> + Send + Sync>;

/// Picks by the name as usual, but in a handshake of an authority only what it asks about.
struct ChallengeResolver {
    usual: BySni,
    challenged: AlpnChallenge,
}

impl fmt::Debug for ChallengeResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proving({:?})", self.usual)
    }
}

impl ResolvesServerCert for ChallengeResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // An authority offers this one protocol and no other (RFC 8737 section 3); everybody else gets the usual.
        let mut offered = hello.alpn().into_iter().flatten();
        if offered.next() == Some(self.challenged.alpn) && offered.next().is_none() {
            return (self.challenged.by_name)(hello.server_name()?);
        }
        self.usual.resolve(hello)
    }
}

/// What a leaf certificate says of itself.
struct Leaf {
    /// DNS names; the common name where there are none.
    names: Vec<String>,
    /// From when till when, Unix seconds.
    validity: [i64; 2],
    has_alternatives: bool,
}

fn describe(leaf: &CertificateDer<'_>, path: &Path) -> Result<Leaf, Error> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let unreadable =
        |_| Error::file(TlsFile::Certificate, path, "the names in its first certificate cannot be read");
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|error| unreadable(error.into()))?;
    let alternatives = certificate.subject_alternative_name().map_err(unreadable)?;
    let mut names: Vec<String> = alternatives
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.extend(common.map(str::to_ascii_lowercase));
    }
    let validity = certificate.validity();
    let validity = [validity.not_before.timestamp(), validity.not_after.timestamp()];
    Ok(Leaf { names, validity, has_alternatives: alternatives.is_some() })
}

/// A pair for localhost, valid for a year: to try the gateway with, not to serve the world.
fn make_self_signed(pair: &CertificatePair) -> Result<(), Error> {
    let failed = |error: std::io::Error| not_made(pair, &error);
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let (certificate, key) = self_signed(pair, names)?;
    write_new(&pair.key, key.serialize_pem().as_bytes(), 0o600).map_err(failed)?;
    write_new(&pair.cert, certificate.pem().as_bytes(), 0o644).map_err(failed)
}

fn not_made(pair: &CertificatePair, reason: &dyn fmt::Display) -> Error {
    Error::file(TlsFile::Certificate, &pair.cert, format!("no self-signed pair can be made there: {reason}"))
}

fn self_signed(
    pair: &CertificatePair,
    names: Vec<String>,
) -> Result<(rcgen::Certificate, rcgen::KeyPair), Error> {
    let failed = |error: rcgen::Error| not_made(pair, &error);
    let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "sluicegate self-signed");
    let start = base::clock::unix().as_secs() as i64;
    let date = |seconds: i64| {
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        rcgen::date_time_ymd(year, month, day)
    };
    // One day back, for clients whose clock is behind; 365 days in all, because browsers complain about longer ones.
    params.not_before = date(start - 86_400);
    params.not_after = date(start + 364 * 86_400);
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate, key))
}

fn write_new(path: &Path, text: &[u8], mode: u32) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(text)
}

/// Year, month and day of a day since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: i64) -> (i32, u8, u8) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as i32, month as u8, day as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(folder: &Path, name: &str) -> CertificatePair {
        CertificatePair {
            cert: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            absent: AbsentPair::MakeSelfSigned,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sluicegate-tls-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_self_signed_pair_is_made_once_and_kept() {
        let folder = folder("made");
        let pair = pair(&folder, "localhost");
        let first = ServerCertificate::read(&pair).expect("made");
        assert_eq!(first.names, ["localhost"]);
        let again = ServerCertificate::read(&pair).expect("read");
        assert_eq!(first.key.cert, again.key.cert);
        let days = (first.not_after - base::clock::unix().as_secs() as i64) / 86_400;
        assert!((362..=364).contains(&days), "{days}");
        std::fs::remove_dir_all(folder).expect("cleaned");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let folder = folder("mismatch");
        let (one, two) = (pair(&folder, "one"), pair(&folder, "two"));
        ServerCertificate::read(&one).expect("made");
        ServerCertificate::read(&two).expect("made");
        let mixed = CertificatePair { cert: one.cert, key: two.key, absent: AbsentPair::Refuse };
        assert!(ServerCertificate::read(&mixed).is_err_and(|error| error.part() == Some(TlsFile::Key)));
        std::fs::remove_dir_all(folder).expect("cleaned");
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
