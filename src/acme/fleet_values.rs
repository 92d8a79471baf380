//! What the nodes of a fleet leave for each other while certificates are ordered. Here is the question; `app` answers it
//! from Redis.

use std::pin::Pin;
use std::time::Duration;

/// Small values that the nodes of a fleet keep for each other, under a lock or for a time.
pub trait FleetValues: Send + Sync {
    /// Takes a lock for so long, or keeps it for longer; `false` if another holder has it.
    fn take<'a>(&'a self, name: &'a str, holder: &'a str, lasts: Duration) -> ValueAnswer<'a, bool>;
    /// Gives back a lock, if this holder has it.
    fn give_back<'a>(&'a self, name: &'a str, holder: &'a str) -> ValueAnswer<'a, ()>;
    /// Leaves a value for so long.
    fn put<'a>(&'a self, name: &'a str, value: &'a [u8], lasts: Duration) -> ValueAnswer<'a, ()>;
    fn get<'a>(&'a self, name: &'a str) -> ValueAnswer<'a, Option<Vec<u8>>>;
    fn remove<'a>(&'a self, name: &'a str) -> ValueAnswer<'a, ()>;
}

pub type ValueAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ValuesUnavailable>> + Send + 'a>>;

/// Nobody can be asked at the moment.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ValuesUnavailable(pub String);
