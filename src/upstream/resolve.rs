//! Names of servers into addresses, on the control runtime, over and over. A name that does not resolve keeps what
//! it had; one that never did leaves its server without an address, which a request learns at once.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shared::Upstream;

/// Resolves the names of one upstream, and says when one of them begins and ceases to have no address.
pub struct Resolver {
    upstream: Weak<Upstream>,
    /// Servers whose names had no address when they were last asked for, by index.
    failing: Vec<bool>,
}

impl Resolver {
    /// One of an upstream whose names have not been asked for yet.
    pub fn new(upstream: &Arc<Upstream>) -> Resolver {
        Resolver { upstream: Arc::downgrade(upstream), failing: vec![false; upstream.servers.len()] }
    }

    /// Resolves every name once. One that has no address keeps those it had.
    pub async fn resolve(&mut self) {
        let Some(upstream) = self.upstream.upgrade() else { return };
        let servers = upstream.config.servers.iter().zip(&upstream.servers);
        for ((config, server), failing) in servers.zip(&mut self.failing) {
            let Some(name) = config.unresolved() else { continue };
            let found = tokio::net::lookup_host(name).await;
            let found = found.map(Vec::from_iter).map_err(|error| error.to_string());
            let (upstream, server_name) = (&upstream.config.name, &server.authority);
            match News::of(found, &server.addresses(), failing) {
                Some(News::Fails(error)) => {
                    tracing::warn!(%upstream, server = %server_name, error, "name does not resolve");
                }
                Some(News::Resolves { addresses, again: true }) => {
                    tracing::info!(%upstream, server = %server_name, ?addresses, "name resolves again");
                    server.move_to(addresses);
                }
                Some(News::Resolves { addresses, again: false }) => {
                    tracing::info!(%upstream, server = %server_name, ?addresses, "resolved");
                    server.move_to(addresses);
                }
                None => {}
            }
        }
    }

    /// Resolves again and again, for the first time after a pause, until the last user of the upstream is gone.
    pub async fn keep_resolving(mut self) {
        loop {
            let pause = {
                let Some(strong) = self.upstream.upgrade() else { return };
                let names = strong.config.servers.iter().map(|server| server.unresolved().is_some());
                if !names.clone().any(|is_name| is_name) {
                    return;
                }
                let mut named = names.zip(&strong.servers).filter(|(is_name, _)| *is_name);
                let known = named.all(|(_, server)| !server.addresses().is_empty());
                if known { EVERY } else { UNTIL_KNOWN }
            };
            tokio::time::sleep(pause).await;
            self.resolve().await;
        }
    }
}

/// Whether they are the same in any order: name servers turn them to spread connections.
fn are_same(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    one.len() == other.len() && one.iter().all(|address| other.contains(address))
}

/// What is worth saying of a name that was asked for.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// It has no address, and had one before, or was not asked for.
    Fails(String),
    /// It has other addresses than before, or some again.
    Resolves { addresses: Vec<SocketAddr>, again: bool },
}

impl News {
    /// Whether there is any; notes whether the name has no address now. It is asked for every few seconds, so what goes
    /// on is not said again.
    fn of(found: Result<Vec<SocketAddr>, String>, known: &[SocketAddr], failing: &mut bool) -> Option<News> {
        let (mut addresses, error) = match found {
            Ok(addresses) => (addresses, "it has no address".to_owned()),
            Err(error) => (Vec::new(), error),
        };
        addresses.dedup();
        let is_failing = addresses.is_empty();
        let was_failing = std::mem::replace(failing, is_failing);
        match (is_failing, was_failing) {
            (true, true) => None,
            (true, false) => Some(News::Fails(error)),
            (false, again) => {
                (again || !are_same(&addresses, known)).then_some(News::Resolves { addresses, again })
            }
        }
    }
}

const EVERY: Duration = Duration::from_secs(5);
const UNTIL_KNOWN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::config::{self, Config, Connections, Retry, Timeouts};

    fn upstream(host: &str) -> Arc<Upstream> {
        let server = config::Server {
            tls: false,
            place: config::Place::Tcp { host: host.to_owned(), port: 80 },
            weight: 1,
        };
        let config = Config {
            name: "u".to_owned(),
            servers: vec![server],
            balance: config::Balance::default(),
            http: config::Version::default(),
            tls: Default::default(),
            connections: Connections::default(),
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            host: config::HostHeader::default(),
            uploads: config::Uploads::default(),
            health: config::Health::default(),
        };
        Arc::new(Upstream::new(config, None))
    }

    #[test]
    fn a_failure_is_said_when_it_begins_and_when_it_ends() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let mut failing = false;
        let mut news = |found: Result<Vec<SocketAddr>, &str>, known: &[SocketAddr]| {
            News::of(found.map_err(str::to_owned), known, &mut failing)
        };
        let resolves = |port, again| Some(News::Resolves { addresses: vec![address(port)], again });
        assert_eq!(news(Err("gone"), &[]), Some(News::Fails("gone".to_owned())));
        assert_eq!(news(Err("gone still"), &[]), None);
        assert_eq!(news(Ok(vec![]), &[]), None);
        assert_eq!(news(Ok(vec![address(1), address(1)]), &[]), resolves(1, true));
        assert_eq!(news(Ok(vec![address(1)]), &[address(1)]), None);
        assert_eq!(news(Ok(vec![address(2)]), &[address(1)]), resolves(2, false));
        assert_eq!(news(Ok(vec![]), &[address(2)]), Some(News::Fails("it has no address".to_owned())));
        assert_eq!(news(Ok(vec![address(2)]), &[address(2)]), resolves(2, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_asked_for_again_only_after_a_pause() {
        let upstream = upstream("localhost");
        let known = || !upstream.servers[0].addresses().is_empty();
        let keeping = tokio::spawn(Resolver::new(&upstream).keep_resolving());
        tokio::time::sleep(UNTIL_KNOWN / 2).await;
        assert!(!known(), "whoever began has just asked");
        tokio::time::sleep(EVERY).await;
        assert!(known());
        keeping.abort();
    }
}
