//! Keeps one certificate in date: looks when it is due, orders it, writes it, and waits longer after each failure. It goes
//! on until its task is aborted, whatever the authority, the disk or the clock do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use instant_acme::{Account, CertificateIdentifier};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::challenges::Challenges;
use super::client::AcmeClient;
use super::config::{Challenge, Config};
use super::fleet::CertificateFleet;
use super::fleet_values::FleetValues;
use super::order::{self, Error, Provers};
use super::schedule::{self, RenewalWindow};
use super::state::{FailedAttempts, IssuedCertificate};
use base::{clock, log_lines::Outage, random::Random, whole_file};
use net::fetch::{self, Connect};

/// What all keepers of a process share.
#[derive(Debug, Default)]
pub struct AcmeCounts {
    /// Certificates that were issued and written.
    pub issued: AtomicU64,
    /// Attempts that came to nothing, also those that were given up because the disk takes no file.
    pub failed: AtomicU64,
    /// Orders take turns, so that two never make two accounts of one authority.
    turn: Mutex<()>,
}

/// Keeps the certificate of one configuration.
pub struct Keeper {
    config: Config,
    /// The ways that the listeners allow, the preferred one first; one at least.
    ways: Vec<Challenge>,
    challenges: Arc<Challenges>,
    client: AcmeClient,
    counts: Arc<AcmeCounts>,
    random: Random,
    /// Read again after every error, because the authority may have changed its directory.
    account: Option<Account>,
    advice: Option<Advice>,
    /// A certificate that could not be written. It is written before anything else is ordered, because authorities
    /// count orders.
    unwritten: Option<String>,
    /// Its files cannot be written.
    outage: Outage,
    /// The other nodes that share it. `None`: this node orders for itself.
    fleet: Option<Arc<CertificateFleet>>,
}

/// When the authority wants a certificate replaced, as it said last.
struct Advice {
    /// The certificate that it is about, in DER.
    leaf: Vec<u8>,
    window: Option<RenewalWindow>,
    /// Picks the moment within the window, once.
    chance: u64,
    /// When to ask again, Unix seconds.
    again: u64,
}

impl Keeper {
    /// A keeper that has looked at nothing yet. `values` are those of the fleet, if there is one.
    pub fn new(
        config: Config,
        ways: Vec<Challenge>,
        challenges: Arc<Challenges>,
        connect: Connect,
        counts: Arc<AcmeCounts>,
        values: Option<Arc<dyn FleetValues>>,
    ) -> Keeper {
        let fleet = values.and_then(|values| CertificateFleet::of(&config, values)).map(Arc::new);
        let client = AcmeClient::new(fetch::FetchClient::new(connect, config.trust.clone()));
        let random = Random::seeded();
        Keeper {
            config,
            ways,
            challenges,
            client,
            counts,
            random,
            account: None,
            advice: None,
            unwritten: None,
            outage: Outage::default(),
            fleet,
        }
    }

    /// Starts a task that keeps the certificate in date, for ever, and shows what other nodes ask to be shown.
    pub fn spawn(self) -> JoinHandle<()> {
        tokio::spawn(self.run())
    }

    async fn run(self) {
        let (fleet, challenges) = (self.fleet.clone(), Arc::clone(&self.challenges));
        match fleet {
            None => self.keep().await,
            Some(fleet) => tokio::select! {
                never = self.keep() => never,
                never = fleet.follow(&challenges) => never,
            },
        }
    }

    async fn keep(mut self) -> ! {
        loop {
            let wait = self.step().await;
            // Not for longer, because the clock may be set, and the files may be replaced.
            sleep(wait.clamp(STEP_MIN, STEP_MAX)).await;
        }
    }

    /// Does what is due now. Returns how long nothing more is.
    async fn step(&mut self) -> Duration {
        if let Some(pem) = self.unwritten.take() {
            return self.write(pem).await;
        }
        let now = clock::unix().as_secs();
        let issued =
            IssuedCertificate::read(&self.config.file()).filter(|issued| issued.covers(&self.config.names));
        let fleet = self.fleet.clone();
        if let Some(fleet) = &fleet
            && let Some(wait) = self.share(fleet, issued.as_ref(), now).await
        {
            return wait;
        }
        let attempts = FailedAttempts::read(&self.config.attempts());
        let due = match &issued {
            Some(issued) => self.due(issued, now).await,
            None => 0,
        };
        let at = due.max(schedule::not_before(attempts.not_before, now));
        let wait = match &fleet {
            _ if at > now => Duration::from_secs(at - now),
            Some(fleet) => self.attempt_in_turn(fleet, issued.as_ref(), &attempts, now).await,
            None => self.attempt(issued.as_ref(), &attempts, now).await,
        };
        // Without any, what another node leaves is wanted soon.
        if issued.is_none() && fleet.is_some() { wait.min(TURN_AGAIN) } else { wait }
    }

    /// Takes over a newer certificate that another node has left, or leaves this node's for the others. `Some`: one was
    /// taken over.
    async fn share(
        &mut self,
        fleet: &CertificateFleet,
        issued: Option<&IssuedCertificate>,
        now: u64,
    ) -> Option<Duration> {
        let left = fleet.certificate().await.ok()?;
        let left = left.filter(|(_, left)| left.covers(&self.config.names));
        let own_ends = issued.map_or(0, |issued| issued.validity.not_after);
        let left_ends = left.as_ref().map_or(0, |(_, left)| left.validity.not_after);
        match left {
            Some((pem, _)) if left_ends > own_ends.max(now) => Some(self.take_over(pem).await),
            _ if own_ends > left_ends.max(now) => {
                let pem = std::fs::read_to_string(self.config.file()).ok()?;
                leave(Some(fleet), self.config.first_name(), &pem).await;
                None
            }
            _ => None,
        }
    }

    /// Writes another node's certificate. From there it comes into force like one that was ordered here.
    async fn take_over(&mut self, pem: String) -> Duration {
        let (name, file) = (self.config.first_name().to_owned(), self.config.file());
        if let Err(error) = whole_file::write(&file, pem.into_bytes()).await {
            self.unwritable(&file, &error, "certificate of another node cannot be written: retrying");
            return WRITE_AGAIN;
        }
        self.outage.end();
        forget(&self.config.attempts());
        tracing::info!(%name, "certificate received from another node");
        STEP_MIN
    }

    /// One attempt while no other node makes one. If nobody can be asked for the turn, this node waits for as long as its
    /// certificate serves on, and then orders for itself, as it would alone.
    async fn attempt_in_turn(
        &mut self,
        fleet: &CertificateFleet,
        issued: Option<&IssuedCertificate>,
        own: &FailedAttempts,
        now: u64,
    ) -> Duration {
        match fleet.take_turn().await {
            Ok(true) => {}
            Ok(false) => return TURN_AGAIN,
            Err(error) => {
                let name = self.config.first_name();
                if issued.is_some_and(|issued| issued.validity.serves_on(now)) {
                    tracing::debug!(%name, %error, "renewal waits for Redis, through which nodes take turns");
                    return STEP_MAX;
                }
                tracing::warn!(%name, %error, "Redis is unavailable, so nodes cannot take turns: this node orders a certificate of its own");
                return self.attempt(issued, own, now).await;
            }
        }
        // Looked at again, because another node may have ordered, or failed, between the look and the turn.
        let wait = match self.share(fleet, issued, now).await {
            Some(wait) => wait,
            None => {
                let theirs = fleet.attempts().await.unwrap_or_default();
                let at = schedule::not_before(theirs.not_before, now);
                let before = FailedAttempts { failures: own.failures.max(theirs.failures), ..theirs };
                match at > now {
                    true => Duration::from_secs(at - now),
                    false => tokio::select! {
                        wait = self.attempt(issued, &before, now) => wait,
                        never = fleet.keep_turn() => never,
                    },
                }
            }
        };
        fleet.end_turn().await;
        wait
    }

    /// When a certificate is to be renewed: as the authority advises, else at two thirds of its life.
    async fn due(&mut self, issued: &IssuedCertificate, now: u64) -> u64 {
        let is_known = |advice: &Advice| {
            advice.leaf == issued.leaf.as_ref() && (now..=now + ASK_MAX).contains(&advice.again)
        };
        if !self.advice.as_ref().is_some_and(is_known) {
            self.advice = Some(self.ask(issued, now).await);
        }
        let (window, chance) =
            self.advice.as_ref().map_or((None, 0), |advice| (advice.window, advice.chance));
        issued.validity.due(window, chance)
    }

    /// Asks the authority when it wants the certificate replaced (RFC 9773).
    async fn ask(&mut self, issued: &IssuedCertificate, now: u64) -> Advice {
        // Of the same certificate the moment stays, and of an authority that cannot be reached the last word.
        let before = self.advice.take().filter(|advice| advice.leaf == issued.leaf.as_ref());
        let (before_window, chance) =
            before.map_or_else(|| (None, self.random.next()), |advice| (advice.window, advice.chance));
        let (window, again) = match self.renewal_info(issued).await {
            Ok(Some((window, wait))) => (Some(window), wait.as_secs().clamp(ASK_MIN, ASK_MAX)),
            Ok(None) => (None, ASK_MAX),
            Err(error) => {
                let name = self.config.first_name();
                tracing::debug!(%name, %error, "ACME renewal information is unavailable");
                (before_window, ASK_AFTER_ERROR)
            }
        };
        Advice { leaf: issued.leaf.to_vec(), window, chance, again: now + again }
    }

    /// `None` if there is no account to ask with, or the authority has no such service.
    async fn renewal_info(
        &mut self,
        issued: &IssuedCertificate,
    ) -> Result<Option<(RenewalWindow, Duration)>, Error> {
        let Ok(id) = CertificateIdentifier::try_from(&issued.leaf) else { return Ok(None) };
        if self.account.is_none() {
            self.account = order::known_account(&self.config, &self.client).await.transpose()?;
        }
        let Some(account) = &self.account else { return Ok(None) };
        match account.renewal_info(&id).await {
            Ok((info, wait)) => {
                let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
                let window = info.suggested_window;
                let start = seconds(window.start.unix_timestamp());
                Ok(Some((RenewalWindow { start, end: seconds(window.end.unix_timestamp()) }, wait)))
            }
            Err(instant_acme::Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// One attempt. It is written down as failed before it begins, so that a process that dies over and over does not
    /// order over and over, and a disk that takes no certificate is noticed before the authority has counted one.
    async fn attempt(
        &mut self,
        issued: Option<&IssuedCertificate>,
        before: &FailedAttempts,
        now: u64,
    ) -> Duration {
        let failures = before.failures.saturating_add(1);
        let pause = schedule::pause(failures, None);
        let attempts = FailedAttempts { failures, not_before: now + pause.as_secs() };
        let (name, file) = (self.config.first_name().to_owned(), self.config.attempts());
        if let Err(error) = attempts.write(&file).await {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.unwritable(&file, &error, "certificate is not ordered: the state file cannot be written");
            return STEP_MAX;
        }
        tell(self.fleet.as_deref(), Some(&attempts)).await;
        match self.order(issued, before.failures).await {
            Ok(pem) => {
                // Before it is written here, so that a full disk of this node does not keep it from the others.
                leave(self.fleet.as_deref(), self.config.first_name(), &pem).await;
                self.write(pem).await
            }
            Err(error) => {
                self.account = None;
                if error.is_of_account() {
                    let _ = whole_file::remove(&self.config.account());
                }
                let pause = schedule::pause(failures, self.client.take_asked());
                let attempts =
                    FailedAttempts { failures, not_before: clock::unix().as_secs() + pause.as_secs() };
                // An error is ignored, because what was written before the attempt counts then.
                let _ = attempts.write(&file).await;
                tell(self.fleet.as_deref(), Some(&attempts)).await;
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                let (directory, again_in_seconds) = (&self.config.directory, pause.as_secs());
                let error = order::chain(&error, self.client.last());
                tracing::error!(%name, %directory, failures, again_in_seconds, %error, "certificate order failed");
                pause
            }
        }
    }

    async fn order(&mut self, issued: Option<&IssuedCertificate>, failures: u32) -> Result<String, Error> {
        let _turn = self.counts.turn.lock().await;
        let client = self.client.clone();
        let _ = client.take_asked();
        // Ways take turns, so that a port that the authority cannot reach does not keep the name without a certificate.
        let by = self.ways[failures as usize % self.ways.len()];
        // Only where the authority knows the field, and only at first, because it refuses a replacement of what was
        // replaced.
        let has_window = self.advice.as_ref().is_some_and(|advice| advice.window.is_some());
        let replaced = issued.filter(|_| has_window && failures == 0);
        let replaces = replaced.and_then(|issued| CertificateIdentifier::try_from(&issued.leaf).ok());
        let ordered = async {
            let account = match &self.account {
                Some(account) => account.clone(),
                None => order::account(&self.config, &client).await?,
            };
            let account = self.account.insert(account);
            let provers = Provers { challenges: &self.challenges, fleet: self.fleet.as_deref() };
            order::certificate(account, &self.config, by, provers, replaces).await
        };
        timeout(ORDER_WITHIN, ordered).await.unwrap_or(Err(Error::Timeout))
    }

    /// Writes a certificate that was issued, or keeps it in memory until it can be written.
    async fn write(&mut self, pem: String) -> Duration {
        let (name, file) = (self.config.first_name().to_owned(), self.config.file());
        if let Err(error) = whole_file::write(&file, pem.clone().into_bytes()).await {
            self.unwritable(&file, &error, "issued certificate cannot be written: retrying");
            self.unwritten = Some(pem);
            return WRITE_AGAIN;
        }
        self.outage.end();
        self.counts.issued.fetch_add(1, Ordering::Relaxed);
        let now = clock::unix().as_secs();
        let Some(issued) = IssuedCertificate::parse(pem.as_bytes()) else {
            tracing::error!(%name, "issued certificate is invalid");
            return STEP_MIN;
        };
        let due = issued.validity.due(None, 0);
        let valid_days = issued.validity.not_after.saturating_sub(now) / 86_400;
        tracing::info!(%name, valid_days, "certificate issued");
        if due <= now {
            // The record of the attempt stays, so that the next one waits: else this would order without an end.
            tracing::error!(%name, "issued certificate is already due for renewal: check the system clock");
            return STEP_MAX;
        }
        forget(&self.config.attempts());
        tell(self.fleet.as_deref(), None).await;
        // The authority is asked at once when it wants this one replaced: it may be sooner than two thirds.
        STEP_MIN
    }

    /// Logs that a file cannot be written, once however often it is tried.
    fn unwritable(&mut self, file: &Path, error: &std::io::Error, what: &str) {
        let (name, file) = (self.config.first_name(), file.display());
        if self.outage.is_news(&format!("{what} {error}")) {
            tracing::error!(%name, %file, %error, "{what}");
        }
    }
}

/// Leaves a certificate for the other nodes, if there are any.
async fn leave(fleet: Option<&CertificateFleet>, name: &str, pem: &str) {
    let (Some(fleet), Some(issued)) = (fleet, IssuedCertificate::parse(pem.as_bytes())) else { return };
    let left = issued.validity.not_after.saturating_sub(clock::unix().as_secs());
    if let Err(error) = fleet.leave_certificate(pem, Duration::from_secs(left)).await {
        tracing::warn!(%name, %error, "certificate cannot be shared with the other nodes: retrying");
    }
}

/// Tells the other nodes what failed; none: that nothing did. If they cannot be told, each node counts its own.
async fn tell(fleet: Option<&CertificateFleet>, attempts: Option<&FailedAttempts>) {
    if let Some(fleet) = fleet {
        let _ = fleet.note_attempts(attempts).await;
    }
}

fn forget(attempts: &Path) {
    if let Err(error) = whole_file::remove(attempts) {
        tracing::warn!(file = %attempts.display(), %error, "the file of failed orders cannot be removed: delete it, or the next order waits longer than needed");
    }
}

const STEP_MIN: Duration = Duration::from_secs(1);
const STEP_MAX: Duration = Duration::from_secs(60);
/// How soon the turn to order is asked for again, and what the node that has it may have left by then.
const TURN_AGAIN: Duration = Duration::from_secs(3);
/// How soon a certificate that could not be written is written again: soon, because until then another one may be
/// presented.
const WRITE_AGAIN: Duration = Duration::from_secs(5);
/// The bound on a whole order. The deadlines of connections do not do, because an authority may answer each in time and
/// finish nothing.
const ORDER_WITHIN: Duration = Duration::from_secs(300);
/// How often an authority is asked when to renew, seconds: what it says, within these (RFC 9773 section 4.3.2).
const ASK_MIN: u64 = 60;
const ASK_MAX: u64 = 24 * 3_600;
/// After an error (RFC 9773 section 4.3.3 says six hours).
const ASK_AFTER_ERROR: u64 = 6 * 3_600;
