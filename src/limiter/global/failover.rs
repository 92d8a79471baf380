//! Failover: follows the sentinels of a node, and points the node at another primary when they name one.
//!
//! Sentinels are asked once a second, and whenever one of them announces `+switch-master`.

use std::sync::Arc;
use std::time::Duration;

use redis::{PushKind, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::config::Server;
use super::connection::Connector;
use super::node::Node;
use super::sentinel;

/// Moves the node when its sentinels agree on another primary, until it is stopped.
pub(super) async fn follow(connector: Arc<Connector>, node: Arc<Node>, mut stop: watch::Receiver<bool>) {
    let Some(sentinels) = node.sentinels() else { return };
    let hint = Arc::new(Notify::new());
    // The primary that was last logged, so that each is logged once.
    let mut logged: Option<Server> = None;
    let mut listening = JoinSet::new();
    for server in sentinels.servers.iter().cloned() {
        listening.spawn(listen(Arc::clone(&connector), server, Arc::clone(&hint)));
    }
    loop {
        tokio::select! {
            () = hint.notified() => {}
            () = tokio::time::sleep(PAUSE) => {}
            // Returning drops the set of listeners, which aborts them.
            _ = stop.changed() => return,
        }
        let named = sentinels.agreed(&connector).await;
        let (Some(named), Some(found)) = (named, node.place()) else { continue };
        if (&named.host, named.port) == (&found.0.host, found.0.port) {
            logged = None;
        } else if may_be_primary(&connector, &named).await {
            if logged.as_ref() != Some(&named) {
                tracing::info!(node = node.name, server = %named, "sentinels name another primary");
            }
            node.moves.send_modify(|moves| *moves += 1);
            logged = Some(named);
        }
    }
}

/// Whether the named server should be followed. A promoted replica is found before the sentinels name it, and for a
/// moment they still name the old primary, which is unreachable or says that it is a replica.
async fn may_be_primary(connector: &Connector, named: &Server) -> bool {
    let Ok(connection) = connector.plain(named).await else { return false };
    let asked = redis::cmd("ROLE");
    match tokio::time::timeout(connector.patience(), connection.call(&asked)).await {
        Ok(Ok(Value::Array(role))) => sentinel::says_primary(&role),
        // Our user may lack the right to ask for the role, so an error does not rule the server out.
        Ok(Ok(_) | Err(_)) => true,
        Err(_) => false,
    }
}

/// Listens to one sentinel for as long as it runs.
async fn listen(connector: Arc<Connector>, server: Server, hint: Arc<Notify>) {
    loop {
        let (pushed, mut pushes) = mpsc::unbounded_channel();
        let connection = sentinel::open(&connector, &server, Some(pushed)).await;
        let subscribe = redis::cmd("SUBSCRIBE").arg("+switch-master").to_owned();
        let subscribed = match &connection {
            Ok(connection) => connection.call(&subscribe).await.is_ok(),
            Err(_) => false,
        };
        while subscribed && let Some(push) = pushes.recv().await {
            match push.kind {
                PushKind::Disconnection => break,
                PushKind::Message => hint.notify_one(),
                _ => {}
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How often sentinels are asked, and how soon a lost subscription is opened again.
const PAUSE: Duration = Duration::from_secs(1);
