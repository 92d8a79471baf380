//! Names of servers into addresses, on the control runtime, over and over. A name that does not resolve keeps what
//! it had; one that never did leaves its server without an address, which a request learns at once.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Upstream;

/// Resolves every name of `upstream` once. Errors are logged and leave the addresses as they were.
pub async fn resolve(upstream: &Upstream) {
    for (config, server) in upstream.config.servers.iter().zip(&upstream.servers) {
        if config.host.parse::<std::net::IpAddr>().is_ok() {
            continue;
        }
        match tokio::net::lookup_host((config.host.as_str(), config.port)).await {
            Ok(found) => {
                let mut addresses: Vec<SocketAddr> = found.collect();
                addresses.dedup();
                if !addresses.is_empty() && **server.addresses.load() != addresses {
                    tracing::info!(upstream = %upstream.config.name, server = %server.authority, ?addresses, "resolved");
                    server.addresses.store(Arc::new(addresses));
                }
            }
            Err(error) => {
                tracing::warn!(upstream = %upstream.config.name, server = %server.authority, %error, "name does not resolve");
            }
        }
    }
}

/// Keeps resolving until the last user of the upstream is gone.
pub async fn keep_resolving(upstream: Weak<Upstream>) {
    loop {
        let Some(strong) = upstream.upgrade() else { return };
        if strong.config.servers.iter().all(|server| server.host.parse::<std::net::IpAddr>().is_ok()) {
            return;
        }
        resolve(&strong).await;
        let known = strong.servers.iter().all(|server| !server.addresses.load().is_empty());
        drop(strong);
        tokio::time::sleep(if known { EVERY } else { UNTIL_KNOWN }).await;
    }
}

const EVERY: Duration = Duration::from_secs(30);
const UNTIL_KNOWN: Duration = Duration::from_secs(2);
