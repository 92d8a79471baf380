//! The lingering close: how a connection is closed on a client that is still sending. The last answer is sent, our side
//! shut, and what the client still sends is read and thrown away for a moment.
//!
//! It is needed because the kernel resets a connection whose socket is closed with unread bytes, and the reset destroys
//! what the client has not read yet: the very answer that says what was wrong (RFC 9112 section 9.6).

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::stream::ClientStream;

/// Sends the last answer of a connection that hyper does not drive any more, and shuts our side of it.
pub async fn say(stream: &mut ClientStream, answer: &[u8]) {
    let sent = async {
        stream.write_all(answer).await?;
        stream.shutdown().await
    };
    // An error is ignored, because the connection ends in any case.
    let _ = timeout(QUIET, sent).await;
}

/// Reads and discards what still comes after the last answer, until the client closes, is silent for [`QUIET`], or
/// [`LINGER`] is over.
pub async fn linger(stream: &ClientStream) {
    let tcp = stream.tcp();
    let drained = async {
        // From the socket under TLS, too, because bytes that are thrown away need no decrypting.
        while let Ok(Ok(())) = timeout(QUIET, tcp.readable()).await {
            // Not kept while the client is waited for.
            match tcp.try_read(&mut [0; 8 * 1024]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    let _ = timeout(LINGER, drained).await;
}

/// How long a client may be silent before it is taken to have read the answer.
const QUIET: Duration = Duration::from_secs(1);
/// How long it may go on sending. It is bounded, because a client that never stops would hold the connection.
const LINGER: Duration = Duration::from_secs(2);
