//! Names of servers into addresses, on the control runtime, over and over. A name that does not resolve keeps what
//! it had; one that never did leaves its server without an address, which a request learns at once.

use std::net::SocketAddr;
use std::sync::Weak;
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
                if !addresses.is_empty() && !are_same(&server.addresses(), &addresses) {
                    tracing::info!(upstream = %upstream.config.name, server = %server.authority, ?addresses, "resolved");
                    server.move_to(addresses);
                }
            }
            Err(error) => {
                tracing::warn!(upstream = %upstream.config.name, server = %server.authority, %error, "name does not resolve");
            }
        }
    }
}

/// Whether they are the same in any order: name servers turn them to spread connections.
fn are_same(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    one.len() == other.len() && one.iter().all(|address| other.contains(address))
}

/// Resolves again and again, for the first time after a pause, until the last user of the upstream is gone.
pub async fn keep_resolving(upstream: Weak<Upstream>) {
    loop {
        let pause = {
            let Some(strong) = upstream.upgrade() else { return };
            if strong.config.servers.iter().all(|server| server.host.parse::<std::net::IpAddr>().is_ok()) {
                return;
            }
            let known = strong.servers.iter().all(|server| !server.addresses().is_empty());
            if known { EVERY } else { UNTIL_KNOWN }
        };
        tokio::time::sleep(pause).await;
        let Some(strong) = upstream.upgrade() else { return };
        resolve(&strong).await;
    }
}

const EVERY: Duration = Duration::from_secs(5);
const UNTIL_KNOWN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::config::{self, Config, Connections, Retry, Timeouts};
    use std::sync::Arc;

    fn upstream(host: &str) -> Arc<Upstream> {
        let server = config::Server { tls: false, host: host.to_owned(), port: 80, weight: 1 };
        let config = Config {
            name: "u".to_owned(),
            servers: vec![server],
            balance: config::Balance::default(),
            http: config::Version::default(),
            connections: Connections::default(),
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            host: config::HostHeader::default(),
            uploads: config::Uploads::default(),
        };
        Arc::new(Upstream::new(config, None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_asked_for_again_only_after_a_pause() {
        let upstream = upstream("localhost");
        let known = || !upstream.servers[0].addresses().is_empty();
        let keeping = tokio::spawn(keep_resolving(Arc::downgrade(&upstream)));
        tokio::time::sleep(UNTIL_KNOWN / 2).await;
        assert!(!known(), "whoever began has just asked");
        tokio::time::sleep(EVERY).await;
        assert!(known());
        keeping.abort();
    }
}
