//! Roles of the admin listener's clients, and how a request proves its role.
//!
//! It knows no paths. Which role an operation needs stands in the table of `routes.rs`.

use aws_lc_rs::constant_time;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::config::NamedCertificate;
use super::refusal::AdminRefusal;
use auth::mtls::ClientCertificate;

/// What a client may do. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// May read `/healthz` and `/readyz`. That needs no credentials, because orchestrators and load balancers must
    /// always get those, and seldom have a token.
    #[default]
    Probe,
    /// May read every page, and change nothing.
    Read,
    /// May also change what single consumers and tenants get: overrides, tiers.
    Operate,
    /// May also change everything else: policies and API keys.
    Admin,
}

impl AdminRole {
    /// The word for it in gateway.toml and in messages.
    pub fn word(self) -> &'static str {
        match self {
            AdminRole::Probe => "probe",
            AdminRole::Read => "read",
            AdminRole::Operate => "operate",
            AdminRole::Admin => "admin",
        }
    }
}

/// The rules for clients of the admin listener.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    /// The bearer tokens. If there is any, a client without one is a [`AdminRole::Probe`].
    pub tokens: Vec<BearerToken>,
    /// The certificates of clients. If there is any, a client without one and without a token is a [`AdminRole::Probe`].
    pub certificates: Vec<NamedCertificate>,
    /// The role of every client if there are neither.
    pub without_token: AdminRole,
    /// Hosts that requests may name beside loopback's. `None`: any.
    pub hosts: Option<Vec<String>>,
}

/// A bearer token, and what it proves.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("BearerToken({name}, {role:?}, {expires:?})")]
pub struct BearerToken {
    /// The name of its bearer, for the audit.
    pub name: String,
    /// Its SHA-256.
    pub digest: [u8; SHA256_OUTPUT_LEN],
    /// The token itself, if the configuration has it.
    pub text: Option<String>,
    pub role: AdminRole,
    pub expires: Option<i64>,
}

/// Whom the certificate of a connection stands for. The handshake has verified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateHolder {
    who: String,
    role: AdminRole,
    /// The certificate's end, Unix seconds. It is asked for, because a connection may outlive it.
    not_after: i64,
}

/// Who a request comes from, as its credentials prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProvenClient {
    /// The name of a token or a certificate, or [`NOBODY`].
    pub who: String,
    pub role: AdminRole,
    /// When that ends, Unix seconds. It is kept, because an answer may last longer.
    pub expires: Option<i64>,
}

impl AccessRules {
    /// Who sent a request with these fields; refuses one whose credentials do not give it the role it needs.
    pub(super) fn check(
        &self,
        needed: AdminRole,
        headers: &HeaderMap,
        vouched: Option<&CertificateHolder>,
        unix_seconds: i64,
    ) -> Result<ProvenClient, AdminRefusal> {
        let nobody = |role| ProvenClient { who: NOBODY.to_owned(), role, expires: None };
        if needed == AdminRole::Probe {
            return Ok(nobody(AdminRole::Probe));
        }
        if !self.asks_for_credentials() {
            let proven = nobody(self.without_token);
            return if proven.role >= needed { Ok(proven) } else { Err(AdminRefusal::ReadOnly) };
        }
        let proven = match (bearer(headers), vouched) {
            (Some(given), _) => self.by_token(given, unix_seconds)?,
            // Not with something else than a bearer token, because who sends that means to be somebody else than the
            // certificate's bearer.
            (None, Some(vouched)) if !headers.contains_key(AUTHORIZATION) => vouched.proven(unix_seconds)?,
            (None, _) => return Err(AdminRefusal::NoToken),
        };
        if proven.role < needed {
            return Err(AdminRefusal::RoleTooLow { has: proven.role, needs: needed });
        }
        Ok(proven)
    }

    pub(super) fn asks_for_credentials(&self) -> bool {
        !self.tokens.is_empty() || !self.certificates.is_empty()
    }

    fn by_token(&self, given: &[u8], unix_seconds: i64) -> Result<ProvenClient, AdminRefusal> {
        let token = self.find(given).ok_or(AdminRefusal::WrongToken)?;
        if token.expires.is_some_and(|expires| expires <= unix_seconds) {
            return Err(AdminRefusal::TokenExpired);
        }
        Ok(ProvenClient { who: token.name.clone(), role: token.role, expires: token.expires })
    }

    /// Whom a certificate stands for: the first that is listed.
    pub(super) fn vouched(&self, certificate: &ClientCertificate) -> Option<CertificateHolder> {
        let is_it = |known: &&NamedCertificate| certificate.has(known.place, &known.text);
        let known = self.certificates.iter().find(is_it)?;
        Some(CertificateHolder {
            who: known.name.clone(),
            role: known.role,
            not_after: certificate.not_after,
        })
    }

    /// The token that was sent. Digests are compared, all of them and in constant time, so that how long it takes says
    /// nothing about any token.
    fn find(&self, given: &[u8]) -> Option<&BearerToken> {
        let given = digest(&SHA256, given);
        let is_same = |token: &BearerToken| {
            constant_time::verify_slices_are_equal(&token.digest, given.as_ref()).is_ok()
        };
        self.tokens.iter().fold(None, |found, token| if is_same(token) { Some(token) } else { found })
    }
}

impl CertificateHolder {
    fn proven(&self, unix_seconds: i64) -> Result<ProvenClient, AdminRefusal> {
        if unix_seconds > self.not_after {
            return Err(AdminRefusal::CertificateExpired);
        }
        Ok(ProvenClient {
            who: self.who.clone(),
            role: self.role,
            // A second more, because a certificate is good in its last second, and `expires` is the first without.
            expires: Some(self.not_after.saturating_add(1)),
        })
    }
}

impl BearerToken {
    pub fn of_text(name: &str, text: &str, role: AdminRole, expires: Option<i64>) -> BearerToken {
        let (name, digest) = (name.to_owned(), digest_of(text));
        BearerToken { name, digest, text: Some(text.to_owned()), role, expires }
    }
}

/// The SHA-256 by which a token is known.
pub fn digest_of(text: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut sha256 = [0; SHA256_OUTPUT_LEN];
    sha256.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    sha256
}

/// The token of `Authorization: Bearer …` (RFC 6750); the scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token)
}

const BEARER: &[u8] = b"Bearer ";

/// Who a client is that has shown no token because none is asked for.
pub(super) const NOBODY: &str = "-";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use auth::mtls::CertificateName;

    fn with_tokens(tokens: Vec<BearerToken>) -> AccessRules {
        AccessRules { tokens, without_token: AdminRole::Admin, ..AccessRules::default() }
    }

    fn sent(field: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(field))])
    }

    #[test]
    fn a_token_gives_every_role_and_without_it_a_client_is_a_probe() {
        let access = with_tokens(vec![BearerToken::of_text("token", "secret", AdminRole::Admin, None)]);
        for (given, is_good) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secreT", false),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("Basic secret", false),
            ("", false),
        ] {
            let headers = sent(given);
            assert!(access.check(AdminRole::Probe, &headers, None, 0).is_ok(), "{given}");
            for role in [AdminRole::Read, AdminRole::Operate, AdminRole::Admin] {
                let proven = ProvenClient { who: "token".to_owned(), role: AdminRole::Admin, expires: None };
                let is_token = given.to_lowercase().starts_with("bearer ");
                let refusal = if is_token { AdminRefusal::WrongToken } else { AdminRefusal::NoToken };
                let expected = if is_good { Ok(proven) } else { Err(refusal) };
                assert_eq!(access.check(role, &headers, None, 0), expected, "{given} as {role:?}");
            }
        }
    }

    #[test]
    fn a_named_token_proves_its_name_and_role_until_it_expires() {
        let access = with_tokens(vec![
            BearerToken::of_text("alice", "a", AdminRole::Operate, None),
            BearerToken::of_text("bob", "b", AdminRole::Read, Some(1_000)),
        ]);
        let who = |field, needed, now| access.check(needed, &sent(field), None, now).map(|proven| proven.who);
        assert_eq!(who("Bearer a", AdminRole::Operate, 0), Ok("alice".to_owned()));
        let too_low = AdminRefusal::RoleTooLow { has: AdminRole::Operate, needs: AdminRole::Admin };
        assert_eq!(who("Bearer a", AdminRole::Admin, 0), Err(too_low));
        assert_eq!(who("Bearer b", AdminRole::Read, 999), Ok("bob".to_owned()));
        assert_eq!(who("Bearer b", AdminRole::Read, 1_000), Err(AdminRefusal::TokenExpired));
        assert_eq!(who("Bearer c", AdminRole::Read, 0), Err(AdminRefusal::WrongToken));
    }

    #[test]
    fn without_a_configured_token_every_client_has_the_listeners_role() {
        let access = |without_token| AccessRules { without_token, ..AccessRules::default() };
        for (is, needed, is_allowed) in [
            (AdminRole::Probe, AdminRole::Probe, true),
            (AdminRole::Probe, AdminRole::Read, false),
            (AdminRole::Read, AdminRole::Read, true),
            (AdminRole::Read, AdminRole::Operate, false),
            (AdminRole::Operate, AdminRole::Admin, false),
            (AdminRole::Admin, AdminRole::Admin, true),
        ] {
            let checked = access(is).check(needed, &HeaderMap::new(), None, 0);
            assert_eq!(checked.is_ok(), is_allowed, "{is:?} as {needed:?}");
            assert!(is_allowed || checked == Err(AdminRefusal::ReadOnly));
        }
    }

    #[test]
    fn a_token_does_not_show_its_digest() {
        let shown = format!("{:?}", BearerToken::of_text("alice", "secret", AdminRole::Read, None));
        assert!(shown.contains("alice") && !shown.contains("digest") && !shown.contains('['), "{shown}");
    }

    #[test]
    fn a_certificate_proves_the_first_name_that_is_listed_until_it_ends() {
        let named = |name: &str, place, text: &str, role| NamedCertificate {
            name: name.to_owned(),
            place,
            text: text.to_owned(),
            role,
        };
        let access = AccessRules {
            tokens: vec![BearerToken::of_text("bob", "b", AdminRole::Admin, None)],
            certificates: vec![
                named("alice", CertificateName::SanEmail, "alice@ops.test", AdminRole::Operate),
                named("ops", CertificateName::SubjectCn, "ops", AdminRole::Read),
            ],
            ..AccessRules::default()
        };
        let of = |emails: &[&str], common: &str| access.vouched(&certificate(emails, common));
        assert_eq!(of(&["bob@ops.test"], "alice@ops.test"), None, "the place counts, too");
        assert_eq!(of(&["ALICE@ops.test"], "o"), None);
        assert_eq!(of(&["x@ops.test"], "ops").map(|found| found.who), Some("ops".to_owned()));
        let alice = of(&["x@ops.test", "alice@ops.test"], "ops").expect("she is listed");
        let check = |needed, field: Option<&'static str>, now| {
            let headers = field.map_or_else(HeaderMap::new, sent);
            access.check(needed, &headers, Some(&alice), now).map(|proven| proven.who)
        };
        assert_eq!(check(AdminRole::Operate, None, 0), Ok("alice".to_owned()));
        let too_low = AdminRefusal::RoleTooLow { has: AdminRole::Operate, needs: AdminRole::Admin };
        assert_eq!(check(AdminRole::Admin, None, 0), Err(too_low));
        assert_eq!(
            check(AdminRole::Admin, Some("Bearer b"), 0),
            Ok("bob".to_owned()),
            "a token goes before it"
        );
        assert_eq!(check(AdminRole::Read, Some("Bearer c"), 0), Err(AdminRefusal::WrongToken));
        assert_eq!(check(AdminRole::Read, Some("Basic x"), 0), Err(AdminRefusal::NoToken));
        assert_eq!(check(AdminRole::Read, None, i64::MAX), Err(AdminRefusal::CertificateExpired));
        assert_eq!(access.check(AdminRole::Read, &HeaderMap::new(), None, 0), Err(AdminRefusal::NoToken));
    }

    fn certificate(emails: &[&str], common: &str) -> ClientCertificate {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
        let email = |email: &&str| rcgen::SanType::Rfc822Name((*email).try_into().expect("ASCII"));
        params.subject_alt_names = emails.iter().map(email).collect();
        let key = rcgen::KeyPair::generate().expect("a key");
        ClientCertificate::read(params.self_signed(&key).expect("signed").der()).expect("it can be read")
    }
}
