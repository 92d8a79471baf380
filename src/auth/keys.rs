//! API keys: random texts that a client sends with every request. Only their SHA-256 is stored, in a file or in the table of
//! those that change while traffic runs.
//!
//! A fast digest is enough for random texts, because they cannot be guessed. It is not for passwords; see
//! [`super::basic`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use smallvec::SmallVec;

use super::credential_source::{CredentialSource, carried};
use super::entries::{CredentialEntry, Error, FileSummary, ParsedFile};
use super::issued_keys::{IssuedKeys, prefix};
use super::request::{AuthRequest, MethodAnswer};
use base::cause::Cause;
use base::identity::Identity;

/// The configuration of `kind = "api-key"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where a request carries its key.
    pub places: Vec<CredentialSource>,
    pub source: ApiKeySource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeySource {
    File(PathBuf),
    Database,
    /// In both. If a key is in the database, that decides.
    Both(PathBuf),
}

impl ApiKeySource {
    pub fn file(&self) -> Option<&Path> {
        match self {
            ApiKeySource::File(file) | ApiKeySource::Both(file) => Some(file),
            ApiKeySource::Database => None,
        }
    }

    pub fn has_database(&self) -> bool {
        matches!(self, ApiKeySource::Database | ApiKeySource::Both(_))
    }
}

/// The keys in force; replaced when the file changes.
#[derive(Debug)]
pub(super) struct ApiKeySet {
    config: Config,
    table: ArcSwap<ApiKeyTable>,
    /// Those of the database; `None`: none of them counts here.
    issued: Option<Arc<IssuedKeys>>,
    /// Of its file when this was read; `None`: it has none.
    pub(super) summary: Option<FileSummary>,
}

/// Keys by the first bytes of their digests; the whole digest is compared in constant time.
#[derive(Debug, Default)]
struct ApiKeyTable {
    keys: Vec<ApiKeyRecord>,
    by_prefix: HashMap<u64, SmallVec<[u32; 1]>>,
}

#[derive(Debug)]
struct ApiKeyRecord {
    digest: [u8; SHA256_OUTPUT_LEN],
    /// Unix seconds.
    expires: Option<i64>,
    identity: Arc<Identity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiKeyFile {
    #[serde(default)]
    key: Vec<CredentialEntry>,
}

impl ApiKeySet {
    pub(super) fn read(config: &Config, issued: &Arc<IssuedKeys>) -> Result<ApiKeySet, Error> {
        let (table, summary) = config.source.file().map(ApiKeyTable::read).transpose()?.unzip();
        let issued = config.source.has_database().then(|| Arc::clone(issued));
        let table = ArcSwap::from_pointee(table.unwrap_or_default());
        Ok(ApiKeySet { config: config.clone(), table, issued, summary })
    }

    /// Replaces the keys by those that were read again.
    pub(super) fn adopt(&self, fresh: ApiKeySet) {
        self.table.store(fresh.table.into_inner());
    }

    /// Looks up what the request carries.
    pub(super) fn check(&self, asked: &AuthRequest<'_>) -> MethodAnswer {
        match carried(&self.config.places, asked.headers, asked.query).only() {
            Ok(key) => self.find(digest(&SHA256, &key).as_ref(), asked),
            Err(checked) => checked,
        }
    }

    fn find(&self, digest: &[u8], asked: &AuthRequest<'_>) -> MethodAnswer {
        let issued = self.issued.as_ref().and_then(|issued| issued.find(digest, asked.unix_us()));
        let found = issued.unwrap_or_else(|| self.table.load().find(digest, asked.unix_seconds()));
        match found {
            Ok(identity) => MethodAnswer::Known(identity),
            // It may be right, because nobody has said yet which keys there are.
            Err(Cause::ApiKeyUnknown) if self.issued.as_ref().is_some_and(|it| !it.is_filled()) => {
                MethodAnswer::Unverified(Some(Cause::ApiKeysUnread))
            }
            Err(cause) => MethodAnswer::Refused(cause),
        }
    }
}

impl ApiKeyTable {
    fn read(file: &Path) -> Result<(ApiKeyTable, FileSummary), Error> {
        let file: ParsedFile<ApiKeyFile> = ParsedFile::read(file)?;
        let mut table = ApiKeyTable::default();
        for (entry, index) in file.content.key.iter().zip(0..) {
            let Some(written) = entry.digest.as_ref().or(entry.sha256.as_ref()) else {
                return Err(file.wrong(0, format!("key {}: `digest` is missing", index + 1)));
            };
            let at = written.span().start;
            if entry.digest.is_some() && entry.sha256.is_some() {
                return Err(file.wrong(at, "`digest` and `sha256` say the same: leave `sha256` out"));
            }
            if entry.name.is_some() || entry.hash.is_some() {
                return Err(file.wrong(at, "`name` and `hash` are for users, not for API keys"));
            }
            if !entry.has_consumer() {
                return Err(
                    file.wrong(at, "`consumer` is missing or empty: name the client that has this key")
                );
            }
            let digest = match entry.digest {
                Some(_) => read(written.get_ref()),
                None => digest_bytes(written.get_ref()),
            };
            let digest = digest.ok_or_else(|| file.wrong(at, DIGEST_HINT))?;
            if table.find_index(&digest).is_some() {
                return Err(file.wrong(at, "another entry has this key: remove one"));
            }
            table.by_prefix.entry(prefix(&digest)).or_default().push(index);
            let identity = Arc::new(entry.identity(None));
            table.keys.push(ApiKeyRecord { digest, expires: file.expires(entry)?, identity });
        }
        Ok((table, file.summary(&file.content.key)))
    }

    fn find(&self, digest: &[u8], now: i64) -> Result<Arc<Identity>, Cause> {
        let key = &self.keys[self.find_index(digest).ok_or(Cause::ApiKeyUnknown)?];
        match key.expires {
            Some(expires) if expires <= now => Err(Cause::ApiKeyExpired),
            _ => Ok(Arc::clone(&key.identity)),
        }
    }

    fn find_index(&self, digest: &[u8]) -> Option<usize> {
        let candidates = self.by_prefix.get(&prefix(digest))?.iter().map(|index| *index as usize);
        let is_same = |index: &usize| verify_slices_are_equal(&self.keys[*index].digest, digest).is_ok();
        candidates.fold(None, |found, index| if is_same(&index) { Some(index) } else { found })
    }
}

/// A new key: 256 random bits, in characters that need no quoting in headers, URLs, TOML and shells. `None` if the system
/// has no random numbers.
pub fn random() -> Option<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(format!("sg_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// The digest of a key or a token as files have it: `sha256:` and [`digest_text`].
pub fn written(key: &[u8]) -> String {
    format!("{SCHEME}{}", digest_text(key))
}

/// The bytes of a digest that files have.
pub fn read(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    text.strip_prefix(SCHEME).and_then(digest_bytes)
}

/// What a digest begins with, so that another function can be told from it one day.
pub const SCHEME: &str = "sha256:";
const DIGEST_HINT: &str = "`digest` must be `sha256:` and 64 hex digits; `sluicegate hash-key` prints it";

/// The digest of a key, in hex.
pub fn digest_text(key: &[u8]) -> String {
    digest(&SHA256, key).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a digest that [`digest_text`] has written.
pub fn digest_bytes(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != SHA256_OUTPUT_LEN || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut digest = [0; SHA256_OUTPUT_LEN];
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod timing;
