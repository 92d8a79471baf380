//! Names and passwords (RFC 7617), against a file of argon2id hashes.
//!
//! Because hashing is slow on purpose, it runs on blocking threads, few at a time, and never on a worker. A verified
//! password is remembered for a while. An unknown name takes as long as a wrong password, so that timing does not
//! reveal names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use argon2::password_hash::{PasswordHash, PasswordHashString, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::attempt::PasswordAttempt;
use super::cache::Cache;
use super::credential_source::authorization;
use super::entries::{CredentialEntry, Error, FileSummary, ParsedFile};
use super::request::{AuthRequest, MethodAnswer, PendingCheck};
use base::cause::Cause;
use base::identity::Identity;

/// The configuration of `kind = "basic"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub file: PathBuf,
    /// How long a verified password is believed without hashing it again.
    pub keep: Duration,
}

/// The users in force; replaced when the file changes.
#[derive(Debug)]
pub(super) struct Users {
    config: Config,
    table: ArcSwap<UserTable>,
    /// Of its file when this was read.
    pub(super) summary: FileSummary,
}

#[derive(Debug)]
struct UserTable {
    /// Unique in the process, so that a table never trusts what another one has verified.
    generation: u64,
    users: HashMap<Box<str>, Arc<User>>,
    /// The user whose hash is computed for unknown names.
    anybody: Option<Arc<User>>,
}

#[derive(Debug)]
struct User {
    hash: PasswordHashString,
    /// Unix seconds.
    expires: Option<i64>,
    identity: Arc<Identity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserFile {
    #[serde(default)]
    user: Vec<CredentialEntry>,
}

impl Users {
    pub(super) fn read(config: &Config) -> Result<Users, Error> {
        let (table, summary) = UserTable::read(config)?;
        Ok(Users { config: config.clone(), table: ArcSwap::from_pointee(table), summary })
    }

    /// Replaces the users by those that were read again.
    pub(super) fn adopt(&self, fresh: Users) {
        self.table.store(fresh.table.into_inner());
    }

    /// Answers from the cache, or asks to wait for the hash.
    pub(super) fn check(&self, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        let credential = match authorization(asked.headers, "basic").only() {
            Ok(credential) => credential,
            Err(checked) => return checked,
        };
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return MethodAnswer::Refused(Cause::CredentialMalformed);
        }
        let Some(attempt) = STANDARD.decode(&credential).ok().and_then(PasswordAttempt::read) else {
            return MethodAnswer::Refused(Cause::CredentialMalformed);
        };
        let generation = self.table.load().generation;
        match cache.find(&attempt.digest, generation, asked.unix_seconds()) {
            Some(identity) => MethodAnswer::Known(identity),
            None => MethodAnswer::Wait(PendingCheck::Password(attempt)),
        }
    }

    /// Hashes the password on another thread, when it is its turn.
    pub(super) async fn resolve(
        &self,
        attempt: PasswordAttempt,
        asked: &AuthRequest<'_>,
        cache: &Cache,
    ) -> MethodAnswer {
        let table = self.table.load_full();
        let Some(turn) = turn().await else { return MethodAnswer::Unverified(None) };
        let now = asked.unix_seconds();
        // Another request with the same password may have verified it while this one waited.
        if let Some(identity) = cache.find(&attempt.digest, table.generation, now) {
            return MethodAnswer::Known(identity);
        }
        // An unknown name is hashed against another user's hash, so that timing does not reveal unknown names.
        let own = table.users.get(attempt.name.as_str()).cloned();
        let Some(user) = own.clone().or_else(|| table.anybody.clone()) else {
            return MethodAnswer::Refused(Cause::UserUnknown);
        };
        let PasswordAttempt { digest, password, .. } = attempt;
        let is_right = tokio::task::spawn_blocking(move || {
            // The thread holds the turn, because it continues to hash after its request is dropped.
            let _turn = turn;
            Argon2::default().verify_password(&password, &user.hash.password_hash()).is_ok()
        });
        // False if the thread panicked, because nothing is verified then.
        let is_right = is_right.await.unwrap_or(false);
        let user = match own {
            None => return MethodAnswer::Refused(Cause::UserUnknown),
            Some(_) if !is_right => return MethodAnswer::Refused(Cause::PasswordWrong),
            Some(user) if user.expires.is_some_and(|expires| expires <= now) => {
                return MethodAnswer::Refused(Cause::UserExpired);
            }
            Some(user) => user,
        };
        let keep = i64::try_from(self.config.keep.as_secs()).unwrap_or(i64::MAX);
        let until = now.saturating_add(keep).min(user.expires.unwrap_or(i64::MAX));
        cache.keep(digest, &user.identity, table.generation, until);
        MethodAnswer::Known(Arc::clone(&user.identity))
    }
}

impl UserTable {
    fn read(config: &Config) -> Result<(UserTable, FileSummary), Error> {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let file: ParsedFile<UserFile> = ParsedFile::read(&config.file)?;
        let mut users = HashMap::new();
        let mut anybody = None;
        for (entry, number) in file.content.user.iter().zip(1..) {
            let (Some(name), Some(hash)) = (&entry.name, &entry.hash) else {
                return Err(file.wrong(0, format!("user {number}: `name` or `hash` is missing")));
            };
            let at = hash.span().start;
            if entry.digest.is_some() || entry.sha256.is_some() {
                let hint = "a `digest` is for API keys only: it does not protect a password; write `hash`";
                return Err(file.wrong(at, hint));
            }
            let hash = affordable(hash.get_ref()).map_err(|reason| file.wrong(at, reason))?;
            let name_text = name.get_ref().as_str();
            if name_text.is_empty() || name_text.contains(':') {
                return Err(file.wrong(name.span().start, "`name` must not be empty or have a colon"));
            }
            let identity = Arc::new(entry.identity(Some(name_text)));
            let user = Arc::new(User { hash, expires: file.expires(entry)?, identity });
            anybody.get_or_insert_with(|| Arc::clone(&user));
            if users.insert(name_text.into(), user).is_some() {
                return Err(file.wrong(name.span().start, "another entry has this user name: remove one"));
            }
        }
        let table = UserTable { generation: COUNT.fetch_add(1, Ordering::Relaxed), users, anybody };
        Ok((table, file.summary(&file.content.user)))
    }
}

/// Parses a hash, and refuses one that takes too much memory or time, because each request with a password would pay
/// for it.
fn affordable(text: &str) -> Result<PasswordHashString, &'static str> {
    let wrong = "`hash` must be an argon2id hash as `sluicegate hash-key --basic` prints it";
    let hash = PasswordHash::new(text).map_err(|_| wrong)?;
    let params = Params::try_from(&hash).map_err(|_| wrong)?;
    if hash.algorithm != Algorithm::Argon2id.ident() || hash.hash.is_none() || hash.salt.is_none() {
        return Err(wrong);
    }
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX {
        return Err("this hash is too expensive for a request: at most 256 MiB, 16 passes, 16 lanes");
    }
    Ok(hash.into())
}

/// Hashes a password for a file of users.
///
/// # Errors
/// If the system has no random numbers.
pub fn hash_text(password: &[u8]) -> Result<String, argon2::password_hash::Error> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| argon2::password_hash::Error::Crypto)?;
    let salt = SaltString::encode_b64(&salt)?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default());
    Ok(argon2.hash_password(password, &salt)?.to_string())
}

/// Waits for a turn to hash; `None` if too many wait, or it takes too long.
async fn turn() -> Option<tokio::sync::SemaphorePermit<'static>> {
    static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(turns()));
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    /// Counts a waiting request; its `Drop` counts it out however the wait ends.
    struct QueuedCheck;
    impl Drop for QueuedCheck {
        fn drop(&mut self) {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let waiting = WAITING.fetch_add(1, Ordering::Relaxed);
    let _queued = QueuedCheck;
    if waiting >= WAITING_MAX {
        return None;
    }
    tokio::time::timeout(TURN_WAIT, TURNS.acquire()).await.ok()?.ok()
}

/// Hashes at a time: half of the cores, so that guessing passwords never takes all of them.
fn turns() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// The longest name and password, encoded.
const CREDENTIAL_BYTES_MAX: usize = 2_048;
/// Requests that may wait for a turn.
const WAITING_MAX: usize = 256;
/// How long a request may wait for its turn to hash.
const TURN_WAIT: Duration = Duration::from_secs(5);
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
