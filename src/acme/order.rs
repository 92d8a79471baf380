//! One order, from the account to the chain (RFC 8555 section 7.4). It decides nothing about when, and writes no
//! certificate.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::challenges::{self, Challenges, Proof};
use super::client::{AcmeAnswer, AcmeClient};
use super::config::{Challenge, Config};
use super::fleet::CertificateFleet;
use super::state::IssuedCertificate;
use base::whole_file;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The authority refuses, cannot be reached, or does not keep to the protocol.
    #[error(transparent)]
    Authority(#[from] instant_acme::Error),
    #[error(transparent)]
    Challenge(#[from] challenges::Error),
    /// The authority offers no way that the listeners allow.
    #[error("the authority does not offer the challenge {wanted} for {name}")]
    NotOffered { name: String, wanted: &'static str },
    /// The authority did not find what it looked for.
    #[error("the authority could not validate {name} by {by}: {reason}")]
    NotProved { name: String, by: &'static str, reason: String },
    /// The key or the request for the certificate cannot be made.
    #[error(transparent)]
    Request(#[from] rcgen::Error),
    /// The account cannot be read or written.
    #[error("{0}")]
    State(#[from] io::Error),
    /// What it issued would replace a good certificate by a bad one.
    #[error("the authority's certificate cannot be used: {0}")]
    Unusable(&'static str),
    /// The authority takes longer than any order may.
    #[error("the order was not finished in time")]
    Timeout,
}

impl Error {
    /// Whether the account on disk is unknown to the authority, which then is to be forgotten.
    pub(super) fn is_of_account(&self) -> bool {
        let Error::Authority(instant_acme::Error::Api(problem)) = self else { return false };
        let kind = problem.r#type.as_deref().unwrap_or_default();
        kind.strip_prefix("urn:ietf:params:acme:error:") == Some("accountDoesNotExist")
    }
}

/// The account on disk; `None` if there is none that can be read.
pub(super) async fn known_account(config: &Config, client: &AcmeClient) -> Option<Result<Account, Error>> {
    let credentials: AccountCredentials =
        std::fs::read(config.account()).ok().and_then(|text| serde_json::from_slice(&text).ok())?;
    let builder = Account::builder_with_http(Box::new(client.clone()));
    Some(builder.from_credentials(credentials).await.map_err(Error::from))
}

/// The account on disk, or a new one, which is written before it is used.
pub(super) async fn account(config: &Config, client: &AcmeClient) -> Result<Account, Error> {
    if let Some(known) = known_account(config, client).await {
        return known;
    }
    let contact = config.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let wanted = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let (account, credentials) = builder.create(&wanted, config.directory.clone(), None).await?;
    let text = serde_json::to_vec(&credentials).map_err(io::Error::from)?;
    let file = config.account();
    let written = whole_file::write(&file, text).await;
    written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    Ok(account)
}

/// Who shows an authority what proves a name.
#[derive(Clone, Copy)]
pub(super) struct Provers<'a> {
    pub(super) challenges: &'a Arc<Challenges>,
    /// The other nodes, if this one is in a fleet.
    pub(super) fleet: Option<&'a CertificateFleet>,
}

/// Orders a certificate and returns its key and its chain in PEM.
pub(super) async fn certificate(
    account: &Account,
    config: &Config,
    by: Challenge,
    provers: Provers<'_>,
    replaces: Option<CertificateIdentifier<'_>>,
) -> Result<String, Error> {
    let identifiers: Vec<Identifier> = config.names.iter().cloned().map(Identifier::Dns).collect();
    let mut wanted = NewOrder::new(&identifiers);
    if let Some(replaces) = replaces {
        wanted = wanted.replaces(replaces);
    }
    let mut order = account.new_order(&wanted).await?;
    let proved = prove(&mut order, by, provers).await;
    if let Some(fleet) = provers.fleet {
        fleet.hide().await;
    }
    proved?;
    let key = rcgen::KeyPair::generate()?;
    let request = rcgen::CertificateParams::new(config.names.clone())?.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLLING).await?;
    let pem = format!("{}{chain}", key.serialize_pem());
    check(&pem, &key, &config.names)?;
    Ok(pem)
}

/// Looks at a certificate before it replaces one: it must be for the key and the names that were asked for.
fn check(pem: &str, key: &rcgen::KeyPair, names: &[String]) -> Result<(), Error> {
    let issued = IssuedCertificate::parse(pem.as_bytes()).ok_or(Error::Unusable("it cannot be read"))?;
    if !issued.covers(names) {
        return Err(Error::Unusable("it is for other names"));
    }
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let belongs = rustls::sign::CertifiedKey::from_der(vec![issued.leaf], private, &provider);
    belongs.map(drop).map_err(|_| Error::Unusable("it is for another key"))
}

/// Shows what proves each name, tells the authority to look, and waits until it has found all of it.
async fn prove(order: &mut Order, by: Challenge, provers: Provers<'_>) -> Result<(), Error> {
    let proofs = proofs(order, by).await?;
    let mut showing = provers.challenges.show();
    for proof in &proofs {
        showing.add(proof)?;
    }
    if let (Some(fleet), false) = (provers.fleet, proofs.is_empty())
        && let Err(error) = fleet.show(&proofs).await
    {
        // The authority may still ask this node.
        tracing::warn!(%error, "ACME challenge cannot be shared with the other nodes");
    }
    say_ready(order, by).await?;
    match order.poll_ready(&POLLING).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(why_not_proved(order, by).await),
        // The order's own error says less than the one of the challenge.
        Err(instant_acme::Error::Api(problem)) => {
            let error = why_not_proved(order, by).await;
            let is_known = matches!(&error, Error::NotProved { reason, .. } if !reason.is_empty());
            Err(if is_known { error } else { instant_acme::Error::Api(problem).into() })
        }
        Err(error) => Err(error.into()),
    }
}

/// What proves each name. Names that were proved lately need no proof.
async fn proofs(order: &mut Order, by: Challenge) -> Result<Vec<Proof>, Error> {
    let mut proofs = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(challenge) = authorization.challenge(by.kind()) else {
            return Err(Error::NotOffered { name, wanted: by.word() });
        };
        let authorization = challenge.key_authorization();
        proofs.push(match by {
            Challenge::Http01 => Proof::http(&name, &challenge.token, &authorization),
            Challenge::TlsAlpn01 => Proof::tls(&name, &authorization),
        });
    }
    Ok(proofs)
}

/// Tells the authority to look, once all that it may look for is shown.
async fn say_ready(order: &mut Order, by: Challenge) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        if let Some(mut challenge) = authorization.challenge(by.kind()) {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

/// What the authority says of the first name that it does not take for proved.
async fn why_not_proved(order: &mut Order, by: Challenge) -> Error {
    let mut found = Error::NotProved { name: String::new(), by: by.word(), reason: String::new() };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let Ok(mut authorization) = authorization else { continue };
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else { continue };
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            let reason = problem.detail.clone().or_else(|| problem.r#type.clone()).unwrap_or_default();
            found = Error::NotProved { name, by: by.word(), reason };
            break;
        }
    }
    found
}

impl Challenge {
    fn kind(self) -> ChallengeType {
        match self {
            Challenge::Http01 => ChallengeType::Http01,
            Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }

    /// As RFC 8555 and RFC 8737 call it, and as the configuration writes it.
    pub fn word(self) -> &'static str {
        match self {
            Challenge::Http01 => "http-01",
            Challenge::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// An error and its causes, which libraries of HTTP and TLS keep apart, after what was asked, which that of the protocol
/// does not say. `last`: what the authority has answered.
pub(super) fn chain(error: &Error, last: Option<AcmeAnswer>) -> String {
    let is_about = |last: &AcmeAnswer| match error {
        // What is wrong with an order may stand in an answer that is good.
        Error::Authority(instant_acme::Error::Api(_)) => !last.status.is_success(),
        // The client's own errors say it.
        Error::Authority(instant_acme::Error::Other(_) | instant_acme::Error::Timeout(_)) => false,
        Error::Authority(_) => true,
        _ => false,
    };
    let asked = last.filter(is_about).map(|last| format!("{last}: ")).unwrap_or_default();
    let mut text = format!("{asked}{error}");
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = next.source();
    }
    // Cut, because an authority may say as much as it likes.
    if let Some((end, _)) = text.char_indices().nth(SAID_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

/// What the log has of an error.
const SAID_CHARS_MAX: usize = 1_000;
/// How often an order is looked at, and for how long.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(200))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));
