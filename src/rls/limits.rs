//! The bounds of the gRPC listener. They cannot be configured, since no operator needs to.

use std::time::Duration;

/// Connections at once; a proxy has one for each of its threads.
pub(super) const CONNECTIONS_MAX: usize = 4_096;
/// Calls at once on one connection; the client waits with those beyond.
pub(super) const STREAMS_MAX: u32 = 1_024;
/// A message, bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of messages that are not whole, or not answered yet, on all connections of one thread.
pub(super) const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Descriptors of one request.
pub(super) const DESCRIPTORS_MAX: usize = 256;
/// Entries of all descriptors of one request.
pub(super) const ENTRIES_MAX: usize = 1_024;
/// Fields of a call's head, bytes.
pub(super) const HEAD_BYTES_MAX: u32 = 16 * 1024;
/// From accepting a connection to the end of its TLS handshake, and from there to its first frame.
pub(super) const PRELUDE: Duration = Duration::from_secs(5);
/// From the head of a check to its answer.
pub(super) const CHECK_WITHIN: Duration = Duration::from_secs(10);
/// A connection on which nothing moves is asked whether its client is there.
pub(super) const PING_EVERY: Duration = Duration::from_secs(30);
/// How long the client has to answer that.
pub(super) const PING_WITHIN: Duration = Duration::from_secs(10);
/// How long calls under way get when the listener ends.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// HTTP/2 flow control.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same of a whole connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Streams that may be reset because of the client's errors before the connection is closed.
pub(super) const LOCAL_RESETS_MAX: usize = 1_024;
/// Connections that wait for a thread to take them.
pub(super) const HANDED_MAX: usize = 256;
/// Streams of usage reports, of all connections.
pub(super) const QUOTA_STREAMS_MAX: usize = 4_096;
/// Streams of usage reports of one connection; a proxy has one for each of its filters.
pub(super) const CONNECTION_QUOTA_STREAMS_MAX: usize = 256;
/// From the head of a stream to its first report.
pub(super) const FIRST_REPORT_WITHIN: Duration = Duration::from_secs(10);
/// From one report of a stream to the next.
pub(super) const REPORT_WITHIN: Duration = Duration::from_secs(3_900);
/// A report, bytes. A proxy reports all of its buckets at once, whose names its clients may choose.
pub(super) const REPORT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Buckets of one report that are assigned something; the proxy is told to forget the others.
pub(super) const USAGES_MAX: usize = 32_768;
/// Buckets of one report that are read at all.
pub(super) const USAGES_READ_MAX: usize = 4 * USAGES_MAX;
/// Entries of the names of all buckets of one report that are read.
pub(super) const ENTRIES_READ_MAX: usize = 4 * USAGES_READ_MAX;
/// Entries of the name of one bucket that are read.
pub(super) const BUCKET_ENTRIES_READ_MAX: usize = 1_024;
/// How long an answer to a report waits for a client that does not read.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Answers that wait for a client to read them.
pub(super) const ANSWERS_WAITING: usize = 4;
/// Buckets of one answer; more are told in several.
pub(super) const ACTIONS_MAX: usize = 256;
