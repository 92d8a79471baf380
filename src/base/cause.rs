//! Why a credential, a certificate or a connection was refused: a closed list of words for the access log, the metrics and
//! `explain`. No answer contains them, because they would help a client that guesses.
//!
//! Nothing is decided here. The code that refuses names the cause, and `service::problem` picks the status.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustls::{AlertDescription, CertificateError};

/// Declares the causes once: a variant, its word, and its sentence for operators.
macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident: $word:literal, $sentence:literal;)*) => {
        /// Why a credential, a certificate or a connection was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $($(#[$doc])* $name,)*
        }

        impl Cause {
            /// Every cause, in the order of their numbers.
            pub const ALL: &[Cause] = &[$(Cause::$name,)*];

            /// As logs and metrics have it.
            pub fn word(self) -> &'static str {
                match self {
                    $(Cause::$name => $word,)*
                }
            }

            pub fn sentence(self) -> &'static str {
                match self {
                    $(Cause::$name => $sentence,)*
                }
            }
        }
    };
}

causes! {
    /// The request shows no credential of any kind the route asks for.
    CredentialMissing: "credential-missing", "the request has no credential";
    /// Two credentials prove nothing: the upstream may read the other one.
    CredentialTwice: "credential-twice", "the request has more than one credential";
    /// `Authorization: Basic` that holds no name and password.
    CredentialMalformed: "credential-malformed", "the credential is malformed";
    /// The file of API keys does not have it.
    ApiKeyUnknown: "api-key-unknown", "the API key is unknown";
    /// It has, and its time is over.
    ApiKeyExpired: "api-key-expired", "the API key has expired";
    ApiKeyDisabled: "api-key-disabled", "the API key has been disabled";
    /// The database has not been read yet, and there is no copy of it.
    ApiKeysUnread: "api-keys-unread", "the API keys of the database have not been read yet";
    /// The file of users does not have the name.
    UserUnknown: "user-unknown", "the user is unknown";
    PasswordWrong: "password-wrong", "the password is wrong";
    UserExpired: "user-expired", "the user has expired";
    /// Not a signed token in its compact form, too long, or with a header nobody here knows.
    TokenMalformed: "token-malformed", "the token is malformed";
    /// Signed in a way that is not among `algorithms`.
    TokenAlgorithm: "token-algorithm", "the token's signature algorithm is not among `algorithms`";
    /// No key is called so, or none fits.
    TokenKeyUnknown: "token-key-unknown", "the key that the token names is unknown";
    TokenKeysUnread: "token-keys-unread", "no keys of `jwks` have been fetched yet";
    /// The signature is none of the key's.
    TokenSignature: "token-signature", "the token's signature is wrong";
    TokenType: "token-type", "the token has another `typ`";
    /// A claim of `required` is missing, a date is none, or the claims are no object.
    TokenClaims: "token-claims", "a claim of `required` is missing, or `exp`, `nbf` or `iat` is not a number";
    TokenIssuer: "token-issuer", "the token is from another `iss`";
    /// Its `aud` holds none of ours.
    TokenAudience: "token-audience", "the token is for another `aud`";
    /// `nbf` or `iat` lies in the future.
    TokenEarly: "token-not-yet-valid", "the token is not valid yet";
    TokenExpired: "token-expired", "the token has expired";
    /// The claim that names the consumer names nobody.
    TokenConsumer: "token-without-consumer", "the token does not name a consumer";
    /// What a credential says of its owner is the value of a field that a route sends, and none can have it.
    IdentityUnfit: "identity-unfit", "a claim or a name in the credential cannot be sent in a header";
    /// A resumed session outlived its certificate.
    CertificateExpired: "certificate-expired", "the client's certificate has expired";
    /// The certificate has no name of the kind asked for.
    CertificateConsumer: "certificate-without-consumer", "the certificate does not name a consumer";
    ConsumerNotAllowed: "consumer-not-allowed", "the route is for other consumers";
    TenantNotAllowed: "tenant-not-allowed", "the route is for other tenants";
    TierNotAllowed: "tier-not-allowed", "the route is for other tiers";
    /// `require` asks for a claim that is not there or says something else.
    ClaimNotAllowed: "claim-not-allowed", "a claim of `require` is missing or has another value";
    /// The other end's certificate comes from an authority that is not trusted here.
    TlsUnknownIssuer: "tls-unknown-issuer", "its certificate is from an authority that is not trusted here";
    /// The other end's certificate is over.
    TlsExpired: "tls-certificate-expired", "its certificate has expired";
    /// The other end's certificate has not begun.
    TlsEarly: "tls-certificate-not-yet-valid", "its certificate is not valid yet";
    /// A list says that the other end's certificate is revoked.
    TlsRevoked: "tls-certificate-revoked", "its certificate has been revoked";
    /// No list says whether it is, or the list is over.
    TlsRevocation: "tls-revocation-unknown", "no revocation list covers its certificate";
    /// The certificate is for other names.
    TlsName: "tls-certificate-name", "its certificate is for another name";
    /// The certificate is wrong in some other way.
    TlsCertificate: "tls-certificate-invalid", "its certificate is not valid";
    TlsAuthority: "tls-certificate-of-ca", "its certificate is a CA's (basicConstraints CA:TRUE): issue one with CA:FALSE";
    /// The other end showed no certificate where one is asked for.
    TlsNoCertificate: "tls-certificate-missing", "it sent no certificate";
    /// The other end refused the certificate that it was shown, or asks for one.
    TlsRefused: "tls-certificate-refused", "it refused the gateway's certificate, or requires one";
    /// No version, cipher or protocol in common.
    TlsIncompatible: "tls-nothing-in-common", "it shares no TLS version, cipher or protocol with the gateway";
    /// What was said is not TLS, or breaks its rules.
    TlsProtocol: "tls-protocol", "it violates the TLS protocol";
    NotTls: "not-tls", "the server does not speak TLS: write its URL with http://";
    SpeaksTls: "speaks-tls", "the server speaks TLS: write its URL with https://";
    /// It took the connection, and said nothing of TLS on it.
    TlsTimeout: "tls-timeout", "it did not answer the TLS handshake: if it does not speak TLS, write http://";
    ConnectNoSocket: "connect-no-socket", "its Unix socket does not exist";
    ConnectRefused: "connect-refused", "the connection was refused: nothing listens there";
    ConnectUnreachable: "connect-unreachable", "its network or host is unreachable";
    /// The other end closed the connection before anything was sent.
    ConnectReset: "connect-reset", "it reset the connection";
    /// The connection could not be made within its deadline.
    ConnectTimeout: "connect-timeout", "connecting timed out";
    /// It could not be made for another reason.
    ConnectFailed: "connect-failed", "connecting failed";
    NotHttp2: "not-http2", "it does not speak HTTP/2: write http = \"h1\"";
    HeadTooLong: "response-head-too-long", "the headers of its response are too long";
    /// It is there, and its SETTINGS of HTTP/2 allow no request.
    NoStreams: "no-streams", "it takes no requests: its SETTINGS_MAX_CONCURRENT_STREAMS is 0";
}

impl Cause {
    /// How far a method got before it refused. Of several causes the deepest tells most: a method for API keys refuses every
    /// token as an unknown key, and that would hide what is wrong with the token.
    pub fn depth(self) -> u8 {
        match self {
            Cause::CredentialMissing => 0,
            Cause::TokenMalformed | Cause::CredentialMalformed => 1,
            Cause::ApiKeyUnknown => 2,
            _ => 3,
        }
    }

    /// What TLS says of the other end.
    pub fn of_tls(error: &rustls::Error) -> Cause {
        use rustls::Error as Tls;
        match error {
            Tls::InvalidCertificate(error) => Cause::of_certificate(error),
            Tls::NoCertificatesPresented => Cause::TlsNoCertificate,
            Tls::PeerIncompatible(_) | Tls::NoApplicationProtocol => Cause::TlsIncompatible,
            Tls::AlertReceived(alert) => Cause::of_alert(*alert),
            _ => Cause::TlsProtocol,
        }
    }

    fn of_certificate(error: &CertificateError) -> Cause {
        use CertificateError as Wrong;
        match error {
            // A wrong signature means the same, because another authority may have the name, or the authority a new
            // key.
            Wrong::UnknownIssuer | Wrong::BadSignature => Cause::TlsUnknownIssuer,
            Wrong::Expired | Wrong::ExpiredContext { .. } => Cause::TlsExpired,
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => Cause::TlsEarly,
            Wrong::Revoked => Cause::TlsRevoked,
            Wrong::UnknownRevocationStatus
            | Wrong::ExpiredRevocationList
            | Wrong::ExpiredRevocationListContext { .. } => Cause::TlsRevocation,
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => Cause::TlsName,
            // By its text, because the error of the library that verifies is wrapped unnamed.
            Wrong::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => Cause::TlsAuthority,
            _ => Cause::TlsCertificate,
        }
    }

    /// What the other end says of us (RFC 8446 section 6.2).
    fn of_alert(alert: AlertDescription) -> Cause {
        use AlertDescription as Alert;
        match alert {
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
            | Alert::NoCertificate => Cause::TlsRefused,
            Alert::HandshakeFailure
            | Alert::ProtocolVersion
            | Alert::InsufficientSecurity
            | Alert::NoApplicationProtocol
            | Alert::UnrecognisedName => Cause::TlsIncompatible,
            _ => Cause::TlsProtocol,
        }
    }

    /// The TLS error behind an error, if there is one. Libraries wrap it several times.
    pub fn of_tls_behind(error: &(dyn Error + 'static)) -> Option<Cause> {
        let mut next = Some(error);
        for _ in 0..WRAPPED_MAX {
            let error = next?;
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(Cause::of_tls(tls));
            }
            // Looked into first, because an I/O error hides what it wraps from `source`.
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    /// What the operating system says of a connection that could not be made.
    pub fn of_connect(error: &io::Error) -> Cause {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::ConnectRefused,
            io::ErrorKind::NotFound => Cause::ConnectNoSocket,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Cause::ConnectUnreachable,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Cause::ConnectReset,
            io::ErrorKind::TimedOut => Cause::ConnectTimeout,
            _ => Cause::ConnectFailed,
        }
    }

    /// Whether it speaks of the other end's certificate, rather than of what is spoken.
    pub fn is_of_certificate(self) -> bool {
        matches!(
            self,
            Cause::TlsUnknownIssuer
                | Cause::TlsExpired
                | Cause::TlsEarly
                | Cause::TlsRevoked
                | Cause::TlsRevocation
                | Cause::TlsName
                | Cause::TlsCertificate
                | Cause::TlsAuthority
                | Cause::TlsNoCertificate
        )
    }
}

/// The last cause of something that several threads try: nothing while it works.
#[derive(Debug, Default)]
pub struct LastCause(AtomicU8);

impl LastCause {
    pub fn failed(&self, cause: Cause) {
        // One more than its number, so that 0 is left to say that it works.
        self.0.store(cause as u8 + 1, Ordering::Relaxed);
    }

    /// Notes that it works. Writes only after a failure, so that threads do not contend for the cache line.
    pub fn works(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Why it failed last; `None` if it works, or was never tried.
    pub fn cause(&self) -> Option<Cause> {
        let number = usize::from(self.0.load(Ordering::Relaxed)).checked_sub(1)?;
        Cause::ALL.get(number).copied()
    }
}

/// Errors looked at behind one another.
const WRAPPED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_a_word_of_its_own_and_a_number() {
        let mut words: Vec<_> = Cause::ALL.iter().map(|cause| cause.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Cause::ALL.len());
        let last = LastCause::default();
        assert_eq!(last.cause(), None);
        for cause in Cause::ALL {
            last.failed(*cause);
            assert_eq!(last.cause(), Some(*cause));
        }
        last.works();
        assert_eq!(last.cause(), None);
    }

    #[test]
    fn every_cause_is_on_the_page_of_the_access_log() {
        let page = include_str!("../../docs/reference/access-log.md");
        for cause in Cause::ALL {
            assert!(page.contains(&format!("`{}`", cause.word())), "{}", cause.word());
        }
    }

    #[test]
    fn a_fault_of_tls_is_found_however_it_is_wrapped() {
        let tls = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls()));
        assert_eq!(Cause::of_tls_behind(&tls()), Some(Cause::TlsUnknownIssuer));
        assert_eq!(Cause::of_tls_behind(&wrapped), Some(Cause::TlsUnknownIssuer));
        assert_eq!(Cause::of_tls_behind(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }
}
