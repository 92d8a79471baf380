//! Stands for the collector in a binary that was built without the feature `otlp`: `config` refuses `[trace]`, so there is none.

use bytes::Bytes;

use super::config::Config;
use super::reply::{CollectorReply, Error};
use net::fetch::Connect;

pub(super) enum OtlpCollector {}

impl OtlpCollector {
    pub(super) fn new(_: &Config, _: &Connect) -> Option<OtlpCollector> {
        None
    }

    pub(super) async fn send(&self, _: &Bytes) -> Result<CollectorReply, Error> {
        match *self {}
    }
}
