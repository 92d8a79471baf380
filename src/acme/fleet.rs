//! Certificates that the nodes of a fleet share: one node orders, all answer the authority, and the finished certificate
//! goes to each, sealed under the secret they have in common.
//!
//! Nodes share values ([`FleetValues`]; in a gateway that is Redis). Nobody waits for one: each node looks at them
//! now and then, so a request or a handshake finds in memory what it needs, or does not find it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::challenges::{ChallengeGuard, Challenges, Proof};
use super::config::Config;
use super::fleet_values::{FleetValues, ValuesUnavailable};
use super::seal::Seal;
use super::state::{FailedAttempts, IssuedCertificate};
use base::random::Random;

/// One certificate, as the nodes of a fleet share it.
pub(super) struct CertificateFleet {
    values: Arc<dyn FleetValues>,
    seal: Seal,
    /// Tells this process from the others.
    node: String,
    /// What every note of the certificate ends with: it says what the certificate is for and shows none of it.
    id: String,
}

impl fmt::Debug for CertificateFleet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fleet").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The proofs that one node shows an authority.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeProofs {
    node: String,
    proofs: Vec<Proof>,
}

impl CertificateFleet {
    /// That of this configuration; `None` if it has no secret to share it under.
    pub(super) fn of(config: &Config, values: Arc<dyn FleetValues>) -> Option<CertificateFleet> {
        let seal = Seal::new(config.secret.as_ref()?)?;
        let what = format!("{}\n{}", config.directory, config.names.join("\n"));
        let digest = digest::digest(&digest::SHA256, what.as_bytes());
        let id = BASE64.encode(&digest.as_ref()[..ID_BYTES]);
        Some(CertificateFleet { values, seal, node: format!("{:x}", Random::seeded().next()), id })
    }

    /// Takes the turn to order, or keeps it; `false` if another node has it.
    pub(super) async fn take_turn(&self) -> Result<bool, ValuesUnavailable> {
        self.values.take(&self.name(TURN), &self.node, TURN_LASTS).await
    }

    /// Keeps the turn for as long as it is polled. A turn that is lost is not noticed otherwise: the worst of it is a second
    /// order.
    pub(super) async fn keep_turn(&self) -> ! {
        loop {
            // Three times as often as needed, so that one renewal that fails does not lose the turn.
            tokio::time::sleep(TURN_LASTS / 3).await;
            if let Err(error) = self.take_turn().await {
                tracing::debug!(%error, "lock on the certificate order was not renewed");
            }
        }
    }

    /// Gives the turn back. An error is ignored, because a turn that nobody keeps ends on its own.
    pub(super) async fn end_turn(&self) {
        let _ = self.values.give_back(&self.name(TURN), &self.node).await;
    }

    /// The certificate that a node has left: its key and chain in PEM.
    pub(super) async fn certificate(&self) -> Result<Option<(String, IssuedCertificate)>, ValuesUnavailable> {
        let pem = self.get(CERTIFICATE).await?.and_then(|pem| String::from_utf8(pem).ok());
        Ok(pem.and_then(|pem| IssuedCertificate::parse(pem.as_bytes()).map(|issued| (pem, issued))))
    }

    /// Leaves a certificate for the others until it ends.
    pub(super) async fn leave_certificate(&self, pem: &str, left: Duration) -> Result<(), ValuesUnavailable> {
        self.put(CERTIFICATE, pem.as_bytes(), left).await
    }

    pub(super) async fn attempts(&self) -> Result<FailedAttempts, ValuesUnavailable> {
        Ok(self.get_json(ATTEMPTS).await?.unwrap_or_default())
    }

    /// Writes down what failed here; none: forgets what failed.
    pub(super) async fn note_attempts(
        &self,
        attempts: Option<&FailedAttempts>,
    ) -> Result<(), ValuesUnavailable> {
        match attempts {
            None => self.values.remove(&self.name(ATTEMPTS)).await,
            Some(attempts) => self.put_json(ATTEMPTS, attempts, ATTEMPTS_LAST).await,
        }
    }

    /// Has every node show these proofs, and gives them the time to notice.
    pub(super) async fn show(&self, proofs: &[Proof]) -> Result<(), ValuesUnavailable> {
        let shown = NodeProofs { node: self.node.clone(), proofs: proofs.to_vec() };
        self.put_json(SHOWN, &shown, SHOWN_LASTS).await?;
        tokio::time::sleep(NOTICED_WITHIN).await;
        Ok(())
    }

    /// Ends what [`CertificateFleet::show`] began. An error is ignored, because the note ends by itself, too.
    pub(super) async fn hide(&self) {
        let _ = self.values.remove(&self.name(SHOWN)).await;
    }

    /// Shows what other nodes have asked to be shown, for as long as it is polled.
    pub(super) async fn follow(&self, challenges: &Arc<Challenges>) -> ! {
        // What another node orders is shown until it says otherwise, or until nobody can be asked for too long.
        let mut showing: Option<(NodeProofs, ChallengeGuard)> = None;
        loop {
            let found: Result<Option<NodeProofs>, ValuesUnavailable> = self.get_json(SHOWN).await;
            if let Ok(found) = found {
                let wanted = found.filter(|shown| shown.node != self.node);
                if showing.as_ref().map(|(shown, _)| shown) != wanted.as_ref() {
                    showing = wanted.map(|wanted| {
                        let mut showing = challenges.show();
                        for proof in &wanted.proofs {
                            if let Err(error) = showing.add(proof) {
                                tracing::warn!(%error, "this node cannot answer the ACME challenge of another node");
                            }
                        }
                        (wanted, showing)
                    });
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("acme.{kind}.{}", self.id)
    }

    async fn get(&self, kind: &str) -> Result<Option<Vec<u8>>, ValuesUnavailable> {
        let name = self.name(kind);
        let sealed = self.values.get(&name).await?;
        // What does not open counts as nothing, because it is of nodes under another secret, or nobody's.
        Ok(sealed.and_then(|sealed| self.seal.open(&name, &sealed)))
    }

    async fn put(&self, kind: &str, value: &[u8], lasts: Duration) -> Result<(), ValuesUnavailable> {
        let name = self.name(kind);
        let sealed =
            self.seal.close(&name, value).ok_or_else(|| ValuesUnavailable("encryption failed".to_owned()))?;
        self.values.put(&name, &sealed, lasts).await
    }

    async fn get_json<T: DeserializeOwned>(&self, kind: &str) -> Result<Option<T>, ValuesUnavailable> {
        Ok(self.get(kind).await?.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    async fn put_json(
        &self,
        kind: &str,
        value: &impl Serialize,
        lasts: Duration,
    ) -> Result<(), ValuesUnavailable> {
        let text = serde_json::to_vec(value).map_err(|error| ValuesUnavailable(error.to_string()))?;
        self.put(kind, &text, lasts).await
    }
}

const TURN: &str = "turn";
const CERTIFICATE: &str = "certificate";
const ATTEMPTS: &str = "attempts";
const SHOWN: &str = "shown";
/// Of the digest of what a certificate is for.
const ID_BYTES: usize = 12;
/// How long a turn lasts that nobody keeps: the node that has it was killed.
const TURN_LASTS: Duration = Duration::from_secs(60);
/// As long as the longest pause after a failure, and some more.
const ATTEMPTS_LAST: Duration = Duration::from_secs(7 * 3_600);
/// Longer than any order, so that no proof goes while the authority may look for it.
const SHOWN_LASTS: Duration = Duration::from_secs(600);
/// How often a node looks for proofs to show.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the nodes have before the authority is told to look: two looks and what Redis takes.
const NOTICED_WITHIN: Duration = Duration::from_millis(2_500);
