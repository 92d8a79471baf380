//! The files of one certificate. All are written as [`whole_file`] does, because every one holds a key or sits beside
//! one.

use std::path::Path;
use std::{fs, io};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::schedule::Validity;
use base::whole_file;

/// A certificate that is on disk.
#[derive(Clone, Debug)]
pub(super) struct IssuedCertificate {
    pub(super) leaf: CertificateDer<'static>,
    pub(super) validity: Validity,
    names: Vec<String>,
}

impl IssuedCertificate {
    /// Reads it. `None` if there is none, or one that cannot be read: both are mended by ordering.
    pub(super) fn read(path: &Path) -> Option<IssuedCertificate> {
        IssuedCertificate::parse(&fs::read(path).ok()?)
    }

    /// The leaf of a PEM text.
    pub(super) fn parse(pem: &[u8]) -> Option<IssuedCertificate> {
        let leaf = CertificateDer::from_pem_slice(pem).ok()?;
        let (_, certificate) = X509Certificate::from_der(&leaf).ok()?;
        let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
        let validity = Validity {
            not_before: seconds(certificate.validity().not_before.timestamp()),
            not_after: seconds(certificate.validity().not_after.timestamp()),
        };
        let alternatives = certificate.subject_alternative_name().ok()??;
        let names = alternatives.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        let names = names.collect();
        Some(IssuedCertificate { leaf, validity, names })
    }

    /// Whether it is for all of these names.
    pub(super) fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

/// What is remembered of attempts that failed, so that a restart does not begin to count anew and run into the limits of
/// the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FailedAttempts {
    pub(super) failures: u32,
    /// No attempt before this time, Unix seconds.
    pub(super) not_before: u64,
}

impl FailedAttempts {
    /// Reads them; none if there is no file, or one that cannot be read.
    pub(super) fn read(path: &Path) -> FailedAttempts {
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(super) async fn write(&self, path: &Path) -> io::Result<()> {
        whole_file::write(path, serde_json::to_vec(self)?).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_file_is_replaced_whole_and_is_for_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("sluicegate-acme-state-{}", std::process::id()));
        let file = folder.join("a/b.json");
        let attempts = |failures| FailedAttempts { failures, not_before: 7 };
        assert_eq!(FailedAttempts::read(&file), FailedAttempts::default());
        for failures in [1, 2] {
            attempts(failures).write(&file).await.expect("the temporary directory is writable");
            assert_eq!(FailedAttempts::read(&file), attempts(failures));
        }
        assert_eq!(fs::metadata(&file).expect("written").permissions().mode() & 0o777, 0o600);
        // A folder in the way of the fresh file: the old content stays.
        fs::create_dir(folder.join("a/b.json.new")).expect("made");
        attempts(3).write(&file).await.expect_err("the fresh file cannot be made");
        assert_eq!(FailedAttempts::read(&file), attempts(2));
        fs::remove_dir_all(&folder).expect("cleaned");
    }

    #[test]
    fn what_cannot_be_read_is_as_if_it_were_not_there() {
        assert!(IssuedCertificate::parse(b"").is_none());
        assert!(
            IssuedCertificate::parse(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
                .is_none()
        );
        let made = rcgen::generate_simple_self_signed(vec!["A.example".to_owned()]).expect("a name");
        let issued = IssuedCertificate::parse(made.cert.pem().as_bytes()).expect("a certificate");
        assert!(issued.covers(&["a.example".to_owned()]));
        assert!(!issued.covers(&["a.example".to_owned(), "b.example".to_owned()]));
    }
}
