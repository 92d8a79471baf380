//! Certificates for a test and a TLS client that shows what the server presented.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};

use super::{Directory, PATIENCE};

/// A TLS connection of a client.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A self-signed certificate as the two files of a pair: `NAME.pem` and `NAME.key`.
///
/// Returns the certificate as the handshake shows it.
pub fn certify(directory: &Directory, name: &str, hosts: &[&str]) -> Vec<u8> {
    let (cert, key, der) = pair(hosts);
    directory.write(&format!("{name}.pem"), cert);
    directory.write(&format!("{name}.key"), key);
    der
}

/// The same, with a key of this algorithm.
pub fn certify_by(
    directory: &Directory,
    name: &str,
    algorithm: &'static rcgen::SignatureAlgorithm,
    hosts: &[&str],
) -> Vec<u8> {
    let params = rcgen::CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>());
    let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
    let made = params.expect("these are names").self_signed(&key).expect("signed");
    directory.write(&format!("{name}.pem"), made.pem());
    directory.write(&format!("{name}.key"), key.serialize_pem());
    made.der().to_vec()
}

/// A self-signed certificate: PEM, the key's PEM, DER.
pub fn pair(hosts: &[&str]) -> (String, String, Vec<u8>) {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(hosts).expect("these are names");
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.der().to_vec())
}

/// An authority that vouches for clients.
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    /// Its certificate, PEM.
    pub pem: String,
}

/// A client's certificate and key.
pub struct Client {
    cert: CertificateDer<'static>,
    /// The certificate's PEM.
    pub pem: String,
    /// The key's PEM.
    pub key: String,
}

impl Authority {
    /// A new one of this name.
    pub fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().expect("a pair");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A client of these names, with this serial number; `until` is the year it ends in.
    /// What is self-signed as `openssl req -x509` does it, with its key: an authority that is its own server.
    pub fn own(name: &str) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("this is a name");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a pair");
        (params.self_signed(&key).expect("it signs").pem(), key.serialize_pem())
    }

    pub fn client(&self, email: &str, common_name: &str, serial: u64, until: i32) -> Client {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "acme");
        if !email.is_empty() {
            let email = email.try_into().expect("an address is ASCII");
            params.subject_alt_names = vec![rcgen::SanType::Rfc822Name(email)];
        }
        params.serial_number = Some(serial.into());
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a pair");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Client { cert: cert.der().clone(), pem: cert.pem(), key: key.serialize_pem() }
    }

    /// A server of these names: PEM of its certificate and of its key.
    pub fn server(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).expect("these are names");
        let key = rcgen::KeyPair::generate().expect("a pair");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    /// The list of what it has revoked, PEM.
    pub fn revoking(&self, serials: &[u64]) -> String {
        self.revoking_until(serials, 2090)
    }

    /// The same, over at the begin of that year.
    pub fn revoking_until(&self, serials: &[u64], year: i32) -> String {
        let revoked = |serial: &u64| rcgen::RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(year, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").pem().expect("a list")
    }
}

/// Connects, offers these protocols, and finishes the handshake.
pub fn connect(addr: SocketAddr, host: &str, alpn: &[&str]) -> io::Result<Stream> {
    resume(addr, host, &session(alpn, rustls::ALL_VERSIONS))
}

/// What a client remembers between connections, and what it offers.
pub fn session(alpn: &[&str], versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    session_of(alpn, versions, None)
}

/// The same of a client that has a certificate.
pub fn session_as(client: &Client, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    session_of(&[], versions, Some(client))
}

fn session_of(
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
    client: Option<&Client>,
) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("the provider speaks them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)));
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![client.cert.clone()], key).expect("they belong together")
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Connects with what a client remembers and finishes the handshake.
pub fn resume(addr: SocketAddr, host: &str, session: &Arc<ClientConfig>) -> io::Result<Stream> {
    let name = ServerName::try_from(host.to_owned()).expect("a host name");
    let session = ClientConnection::new(Arc::clone(session), name).expect("the configuration is whole");
    let socket = TcpStream::connect_timeout(&addr, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Connects and sends these bytes in the same packet as the last of the handshake.
pub fn hasten(addr: SocketAddr, host: &str, alpn: &[&str], bytes: &[u8]) -> io::Result<Stream> {
    let name = ServerName::try_from(host.to_owned()).expect("a host name");
    let session = session(alpn, &[&rustls::version::TLS13]);
    let mut session = ClientConnection::new(session, name).expect("the configuration is whole");
    let mut socket = TcpStream::connect_timeout(&addr, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    while session.is_handshaking() {
        while session.wants_write() {
            session.write_tls(&mut socket)?;
        }
        session.read_tls(&mut socket)?;
        session.process_new_packets().map_err(io::Error::other)?;
    }
    session.writer().write_all(bytes)?;
    let mut packet = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut packet)?;
    }
    socket.write_all(&packet)?;
    Ok(StreamOwned::new(session, socket))
}

/// The certificate a server presents for a host.
pub fn presented(addr: SocketAddr, host: &str) -> Vec<u8> {
    let stream = connect(addr, host, &[]).expect("the handshake succeeds");
    let chain = stream.conn.peer_certificates().expect("a server has a certificate");
    chain[0].to_vec()
}

/// Takes any certificate: the tests compare it themselves.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
