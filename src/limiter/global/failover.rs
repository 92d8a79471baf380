//! Failover: follows the sentinels of a node, and points the node at another primary when they name one.
//!
//! Sentinels are asked once a second, and whenever one of them announces `+switch-master`.

use std::sync::Arc;
use std::time::Duration;

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
        // A promoted replica is found before the sentinels name it, and for a moment they still name the old primary, which
        // is unreachable or says that it is a replica. An error does not rule a server out.
        if (&named.host, named.port) == (&found.0.host, found.0.port) {
            logged = None;
        } else if sentinel::is_primary(&connector, &named).await.unwrap_or(true) {
            if logged.as_ref() != Some(&named) {
                tracing::info!(node = node.name, server = %named, "sentinels name another primary: connecting to it");
            }
            node.moves.send_modify(|moves| *moves += 1);
            logged = Some(named);
        }
    }
}

async fn listen(connector: Arc<Connector>, server: Server, hint: Arc<Notify>) {
    loop {
        let (pushed, pushes) = mpsc::unbounded_channel();
        if let Ok(connection) = sentinel::open(&connector, &server, Some(pushed)).await
            && let Ok(mut switches) = connection.subscribe("+switch-master", pushes).await
        {
            while let Some(is_told) = switches.next(QUIET).await {
                if is_told {
                    hint.notify_one();
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How often sentinels are asked, and how soon a lost subscription is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a sentinel may announce nothing before it is asked whether it is there.
const QUIET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::global::config::Login;
    use crate::global::connection::{CONNECT_WITHIN, Connection, Pushes, login};

    /// A connection to a sentinel that answers so many questions, announces a change after each, and then falls silent.
    async fn sentinel(answers: usize) -> (Connection, Pushes) {
        let (own, mut theirs) = duplex(4_096);
        tokio::spawn(async move {
            let mut bytes = [0; 4_096];
            let mut answered = 0;
            while let Ok(count) = theirs.read(&mut bytes).await
                && count > 0
            {
                let asked = String::from_utf8_lossy(&bytes[..count]).into_owned();
                let answer = match asked {
                    asked if asked.contains("HELLO") => "%0\r\n",
                    _ if answered == answers => continue,
                    asked if asked.contains("SUBSCRIBE") => ">3\r\n+subscribe\r\n+switch-master\r\n:1\r\n",
                    _ => "+PONG\r\n>3\r\n+message\r\n+switch-master\r\n+main\r\n",
                };
                answered += usize::from(answer != "%0\r\n");
                theirs.write_all(answer.as_bytes()).await.expect("it is read");
            }
        });
        let (pushed, pushes) = mpsc::unbounded_channel();
        let server = Server { host: "s".to_owned(), port: 1, tls: false, login: Login::default() };
        (login(&server, own, Some(pushed)).await.expect("a connection"), pushes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_falls_silent_is_left() {
        for answers in [0, 1, 4] {
            let (connection, pushes) = sentinel(answers).await;
            let (begun, mut hints) = (Instant::now(), 0);
            let subscribed = connection.subscribe("+switch-master", pushes).await;
            assert_eq!(subscribed.is_ok(), answers > 0);
            if let Ok(mut switches) = subscribed {
                let heard = async {
                    while let Some(is_told) = switches.next(QUIET).await {
                        hints += u32::from(is_told);
                    }
                };
                let heard = tokio::time::timeout(Duration::from_secs(3_600), heard);
                assert!(heard.await.is_ok(), "it is waited for without end");
                // One question for each quiet while, and one that is not answered.
                let most = QUIET * (2 * answers as u32) + CONNECT_WITHIN;
                assert!(begun.elapsed() <= most, "{answers}: {:?}", begun.elapsed());
            }
            assert_eq!(hints > 0, answers > 1);
        }
    }
}
