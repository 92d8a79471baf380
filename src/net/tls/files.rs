//! Reads files of certificates, keys and revocation lists, and says in plain words what is wrong with one.

use std::path::Path;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{Error as Pem, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::error::{Error, TlsFile};
use base::whole_file;

/// Reads a chain and its private key, and checks that they belong together.
pub(super) fn certified_key(cert: &Path, key: &Path) -> Result<CertifiedKey, Error> {
    let chain = certificates(cert, TlsFile::Certificate)?;
    for certificate in &chain {
        if X509Certificate::from_der(certificate).is_err() {
            return Err(Error::file(TlsFile::Certificate, cert, "its content is not an X.509 certificate"));
        }
    }
    let private = private_key(key)?;
    CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let reason = format!(
                "it is not the private key of the certificate in {}: name the key that the certificate was made with",
                cert.display()
            );
            Error::file(TlsFile::Key, key, reason)
        }
        rustls::Error::InvalidCertificate(_) => {
            Error::file(TlsFile::Certificate, cert, "its certificate cannot be used: it is not X.509 version 3")
        }
        _ => Error::file(TlsFile::Key, key, UNKNOWN_KEY),
    })
}

/// The first certificate of a file: that which is shown, before its chain.
///
/// # Errors
/// If there is none that can be read.
pub fn leaf(path: &Path) -> Result<CertificateDer<'static>, Error> {
    Ok(certificates(path, TlsFile::Certificate)?.swap_remove(0))
}

/// The certificates of a PEM file, one at least.
fn certificates(path: &Path, part: TlsFile) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path, part)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| Error::file(part, path, broken(&error)))?;
    if found.is_empty() {
        let reason = if holds(&text, "PRIVATE KEY") {
            "no certificate in it, but a private key: name the certificate's file here"
        } else if text.first() == Some(&DER_SEQUENCE) {
            "no PEM certificate in it: `openssl x509 -inform DER` converts DER"
        } else {
            "no certificate in it: write PEM (`-----BEGIN CERTIFICATE-----`)"
        };
        return Err(Error::file(part, path, reason));
    }
    Ok(found)
}

/// The first private key of a PEM file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(path, TlsFile::Key)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let reason = if holds(&text, "ENCRYPTED") {
            "its private key is encrypted, and the gateway cannot ask for a password: \
             `openssl pkey -in OLD -out NEW` writes it in the clear"
                .to_owned()
        } else if !matches!(error, Pem::NoItemsFound) {
            broken(&error)
        } else if holds(&text, "CERTIFICATE") {
            "no private key in it, but a certificate: name the key's file here".to_owned()
        } else {
            "no private key in it: write PEM (`-----BEGIN PRIVATE KEY-----`)".to_owned()
        };
        Error::file(TlsFile::Key, path, reason)
    })
}

/// The authorities of a PEM file, one at least.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, TlsFile::Authorities)? {
        roots.add(certificate).map_err(|_| {
            Error::file(TlsFile::Authorities, path, "a certificate in it cannot be read as an authority's")
        })?;
    }
    Ok(roots)
}

/// Reads revocation lists. A file without one is an error, because it would revoke nothing.
pub(super) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let text = read(path, TlsFile::Revocations)?;
    let found = CertificateRevocationListDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| Error::file(TlsFile::Revocations, path, broken(&error)))?;
    if found.is_empty() {
        let reason = "no revocation list in it: write lists in PEM (`-----BEGIN X509 CRL-----`; \
                      `openssl crl -inform DER` converts DER), or leave `client-crl` out";
        return Err(Error::file(TlsFile::Revocations, path, reason));
    }
    Ok(found)
}

/// When the first of these lists is over, Unix seconds (`nextUpdate`, RFC 5280 section 5.1.2.5).
pub(super) fn next_update(lists: &[CertificateRevocationListDer<'_>]) -> Option<i64> {
    let next = |list| Some(CertificateRevocationList::from_der(list).ok()?.1.next_update()?.timestamp());
    lists.iter().filter_map(|list| next(list)).min()
}

fn read(path: &Path, part: TlsFile) -> Result<Vec<u8>, Error> {
    whole_file::read(path, FILE_BYTES_MAX)
        .map_err(|error| Error::file(part, path, format!("it cannot be read: {error}")))
}

fn broken(error: &Pem) -> String {
    match error {
        Pem::MissingSectionEnd { .. } => "a PEM block in it has no end: the file is truncated".to_owned(),
        Pem::Base64Decode(_) => "a PEM block in it is not base64".to_owned(),
        Pem::IllegalSectionStart { .. } => "the first line of a PEM block in it is invalid".to_owned(),
        other => other.to_string(),
    }
}

fn holds(text: &[u8], wanted: &str) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted.as_bytes())
}

const UNKNOWN_KEY: &str = "its private key is of an unsupported kind: use RSA from 2048 bits, \
                           ECDSA over P-256, P-384 or P-521, or Ed25519";
/// So much, because the revocation list of a large authority has some tens of megabytes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How every certificate in DER begins (X.690 section 8.9).
const DER_SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What is said of a pair of such contents, and of which file.
    fn said(name: &str, cert: &str, key: &str) -> (Option<TlsFile>, String) {
        let folder = std::env::temp_dir().join(format!("sluicegate-files-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary directory is writable");
        let (cert_file, key_file) = (folder.join("a.pem"), folder.join("a.key"));
        fs::write(&cert_file, cert).expect("written");
        fs::write(&key_file, key).expect("written");
        let error = certified_key(&cert_file, &key_file).expect_err("it cannot be used");
        fs::remove_dir_all(&folder).expect("cleaned");
        (error.part(), error.to_string())
    }

    #[test]
    fn what_is_wrong_with_a_pair_is_said_in_words() {
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a name");
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let ((cert, key), (_, other)) = (made("a"), made("b"));
        let half = |pem: &str| pem[..pem.len() - 40].to_owned();
        let no_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let sealed = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        for (number, (cert, key, part, expected)) in [
            (&*cert, &*other, TlsFile::Key, "it is not the private key of the certificate in "),
            (&cert, &cert, TlsFile::Key, "no private key in it, but a certificate"),
            (&key, &key, TlsFile::Certificate, "no certificate in it, but a private key"),
            (&cert, "", TlsFile::Key, "no private key in it: write PEM"),
            ("", &key, TlsFile::Certificate, "no certificate in it: write PEM"),
            ("\u{30}\u{3}DER", &key, TlsFile::Certificate, "converts DER"),
            (&half(&cert), &key, TlsFile::Certificate, "has no end"),
            (&cert, &half(&key), TlsFile::Key, "has no end"),
            (no_x509, &key, TlsFile::Certificate, "not an X.509 certificate"),
            (&cert, no_key, TlsFile::Key, "of an unsupported kind"),
            (&cert, sealed, TlsFile::Key, "is encrypted"),
        ]
        .into_iter()
        .enumerate()
        {
            let (found, said) = said(&number.to_string(), cert, key);
            assert_eq!(found, Some(part), "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }
}
