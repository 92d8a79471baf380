//! Stands for what orders certificates in a binary that was built without the feature `acme`. `config` refuses what would
//! order one, so no keeper is made and no authority is shown anything.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustls::sign::CertifiedKey;
use tokio::task::JoinHandle;

use super::config::{Challenge, Config};
use super::fleet_values::FleetValues;
use net::fetch::Connect;

/// Challenges, of which there are none.
#[derive(Debug, Default)]
pub struct Challenges;

impl Challenges {
    pub fn text(&self, _: &str) -> Option<String> {
        None
    }

    pub fn certificate(&self, _: &str) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// What all keepers of a process would share.
#[derive(Debug, Default)]
pub struct AcmeCounts {
    pub issued: AtomicU64,
    pub failed: AtomicU64,
}

pub struct Keeper;

impl Keeper {
    pub fn new(
        _: Config,
        _: Vec<Challenge>,
        _: Arc<Challenges>,
        _: Connect,
        _: Arc<AcmeCounts>,
        _: Option<Arc<dyn FleetValues>>,
    ) -> Keeper {
        Keeper
    }

    /// Starts a task that ends at once.
    pub fn spawn(self) -> JoinHandle<()> {
        tokio::spawn(async {})
    }
}
