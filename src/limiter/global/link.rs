//! The way to Redis, as the limiter needs it: the global tier in a gateway, an event queue in a simulation.

use std::time::Duration;

use super::ShardId;
use super::config::deadline_of;
use limit::Key;
use limit::lease_messages::{LinkError, Op, Reply};

/// Carries questions to Redis and brings its answers back.
pub trait Link: Send + Sync {
    /// Sends an operation; neither waits nor takes a lock. `done` is called exactly once, with the answer, even if it comes
    /// after the deadline, or with the reason there is none: on another thread or, if there is no room or no connection, on
    /// this one. An operation that is sent once has its result after a second and a little; `Renew`, `Return`, `Debit`
    /// and the like are sent again until they are answered, over an outage too (see [`LinkError`]).
    fn send(&self, op: Op, done: Done);

    /// Whether the key's shard answers, as far as is known. For a shard that does not, it is true now and then, so that a
    /// call finds out.
    fn is_up(&self, key: Key) -> bool;

    /// Whether the key's shard is known to answer. Unlike `is_up` it lets no call through to find out.
    fn answers(&self, key: Key) -> bool {
        self.is_up(key)
    }

    /// Whether the key's shard can be reached and takes no charges.
    fn refuses(&self, _key: Key) -> bool {
        false
    }

    /// Whether a request should wait for this key: its shard answers within the deadline. A shard that is up but not
    /// quick is still asked for what nobody waits for.
    fn is_quick(&self, key: Key) -> bool {
        self.is_up(key)
    }

    /// How long nearly all answers for this key take, nanoseconds: a mean and some deviations, of late. 0: nothing is known
    /// yet.
    fn round_trip_ns(&self, key: Key) -> u64;

    /// How long a request waits for an answer for this key.
    fn deadline(&self, key: Key) -> Duration {
        let round_trip = Duration::from_nanos(self.round_trip_ns(key));
        deadline_of(round_trip, round_trip)
    }

    /// What the clock of the key's shard reads at a time of this node's, microseconds since 1970.
    fn shard_us(&self, _key: Key, at_ns: u64) -> u64 {
        at_ns / 1_000
    }

    /// The share of keys that should be renewed at the key's shard now, percent. It is 100, except that it rises over two
    /// seconds after an outage, so that the shard does not meet every key at once.
    fn ramp_percent(&self, _key: Key) -> u32 {
        100
    }

    /// Routes a key to its tenant's dedicated shard, if the tenant has one, by putting the shard's number into the key's
    /// lowest byte (0: the ring). With dedicated shards every key must pass here, with `None` if no tenant is known,
    /// because otherwise its own lowest byte would be read as a shard; without dedicated shards keys stay as they are.
    fn route(&self, key: Key, _tenant: Option<&str>) -> Key {
        key
    }

    /// The shard that keeps a key. One `Op::Take` may hold only keys of one.
    fn shard(&self, _key: Key) -> ShardId {
        ShardId::new(0)
    }

    /// The name of a shard in logs and metrics.
    fn shard_name(&self, _shard: ShardId) -> Option<String> {
        None
    }

    /// How many nodes share the limits, this one included; at least 1. While Redis is down, the last count.
    fn nodes(&self) -> u32;

    /// The place of this node, from 0, in an order of the nodes that the key names and all of them know.
    fn rank(&self, _key: Key) -> u32 {
        0
    }
}

/// Called with the answer and the monotonic time at which it came, nanoseconds.
pub type Done = Box<dyn FnOnce(Result<Reply, LinkError>, u64) + Send>;
