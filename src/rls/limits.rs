//! The bounds of the gRPC listener. They cannot be configured, because no operator needs to.

use std::time::Duration;

/// Connections at once; a proxy has one for each of its threads.
pub(super) const CONNECTIONS_MAX: usize = 4_096;
/// Calls at once on one connection; the client waits with those beyond.
pub(super) const STREAMS_MAX: u32 = 1_024;
/// The longest message, packed and unpacked, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of messages that are not whole, or not answered yet, on all connections of one thread.
pub(super) const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
pub(super) const DESCRIPTORS_MAX: usize = 256;
/// Entries of all descriptors of one request.
pub(super) const ENTRIES_MAX: usize = 1_024;
/// Fields of a call's head, bytes.
pub(super) const HEAD_BYTES_MAX: u32 = 16 * 1024;
/// From accepting a connection to the end of its TLS handshake, and from there to its first frame.
pub(super) const PRELUDE: Duration = Duration::from_secs(5);
/// From the head of a check to its answer.
pub(super) const CHECK_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may hardly read while answers wait for it.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of answers that it has to read in this time.
pub(super) const READ_BYTES_MIN: u64 = 16 * 1024;
/// Answers that wait for clients to read, on all connections of one thread: some 9 KiB each.
pub(super) const UNREAD_MAX: usize = 8 * 1024;
/// A connection on which nothing moves is asked whether its client is there.
pub(super) const PING_EVERY: Duration = Duration::from_secs(30);
/// How long the client has to answer that.
pub(super) const PING_WITHIN: Duration = Duration::from_secs(10);
/// How long calls under way get when the listener ends.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// HTTP/2 flow control: bytes that may come of one call before they are read.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same of a whole connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Streams that may be reset because of the client's errors before the connection is closed.
pub(super) const LOCAL_RESETS_MAX: usize = 1_024;
/// Connections that wait for a thread to take them.
pub(super) const HANDED_MAX: usize = 256;
