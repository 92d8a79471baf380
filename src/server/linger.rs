//! How a connection is closed on a client that is still sending: said, shut, and read on for a moment.
//!
//! The kernel answers bytes that nobody has read by a reset, and a reset takes with it what the client has not read
//! yet: the very answer that says why (RFC 9112 section 9.6). What is read here is forgotten.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::stream::Stream;

/// Sends the last answer of a connection that no parser stands behind any more, and shuts our side of it.
pub async fn say(stream: &mut Stream, answer: &[u8]) {
    let said = async {
        stream.write_all(answer).await?;
        stream.shutdown().await
    };
    let _ = timeout(QUIET, said).await;
}

/// Reads what still comes after the last answer, until the client closes, is quiet, or takes too long.
pub async fn linger(stream: &Stream) {
    let tcp = stream.tcp();
    let drained = async {
        let mut forgotten = vec![0; 16 * 1024];
        // Under TLS, too: what it says does not matter any more.
        while let Ok(Ok(())) = timeout(QUIET, tcp.readable()).await {
            match tcp.try_read(&mut forgotten) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    let _ = timeout(LINGER, drained).await;
}

/// How long a client may be quiet before it is taken to have heard.
const QUIET: Duration = Duration::from_secs(1);
/// How long it may go on sending.
const LINGER: Duration = Duration::from_secs(2);
