//! The way to Redis, as the limiter needs it: the global tier in a gateway, an event queue in a simulation.

use std::time::Duration;

use crate::global::config::deadline_of;
use crate::global::{Global, ShardId};
use limit::Key;
use limit::lease_messages::{LinkError, Op, Reply};

/// Carries questions to Redis and brings its answers back.
pub trait Link: Send + Sync {
    /// Sends an operation without waiting. `done` is called exactly once, from any thread, possibly before this returns.
    fn send(&self, op: Op, done: Done);

    /// Whether the key's shard answers, as far as is known. For a shard that does not, it is true now and then, so that a
    /// call finds out.
    fn is_up(&self, key: Key) -> bool;

    /// Whether the key's shard is known to answer. Unlike `is_up` it lets no call through to find out.
    fn answers(&self, key: Key) -> bool {
        self.is_up(key)
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
        deadline_of(Duration::from_nanos(self.round_trip_ns(key)))
    }

    /// The share of keys that should be renewed at the key's shard now, percent: less than all just after an outage.
    fn ramp_percent(&self, _key: Key) -> u32 {
        100
    }

    /// Whether one `Op::Take` may hold both keys.
    fn same_shard(&self, one: Key, other: Key) -> bool;

    /// The key with the tenant's dedicated shard in it, if the tenant has one.
    fn route(&self, key: Key, _tenant: Option<&str>) -> Key {
        key
    }

    /// The shard that keeps a key.
    fn shard(&self, _key: Key) -> ShardId {
        ShardId::new(0)
    }

    /// The name of a shard in logs and metrics.
    fn shard_name(&self, _shard: ShardId) -> Option<String> {
        None
    }

    /// How many nodes share the limits, this one included; at least 1.
    fn nodes(&self) -> u32;

    /// The place of this node, from 0, in an order of the nodes that the key names and all of them know.
    fn rank(&self, _key: Key) -> u32 {
        0
    }
}

/// Called with the answer and the monotonic time at which it came, nanoseconds.
pub type Done = Box<dyn FnOnce(Result<Reply, LinkError>, u64) + Send>;

impl Link for Global {
    fn send(&self, op: Op, done: Done) {
        Global::send(self, op, done);
    }

    fn is_up(&self, key: Key) -> bool {
        Global::is_up(self, key)
    }

    fn answers(&self, key: Key) -> bool {
        Global::answers(self, key)
    }

    fn is_quick(&self, key: Key) -> bool {
        Global::is_quick(self, key)
    }

    fn round_trip_ns(&self, key: Key) -> u64 {
        Global::round_trip_ns(self, key)
    }

    fn deadline(&self, key: Key) -> Duration {
        Global::deadline(self, key)
    }

    fn ramp_percent(&self, key: Key) -> u32 {
        Global::ramp_percent(self, key)
    }

    fn same_shard(&self, one: Key, other: Key) -> bool {
        Global::same_shard(self, one, other)
    }

    fn route(&self, key: Key, tenant: Option<&str>) -> Key {
        Global::route(self, key, tenant)
    }

    fn shard(&self, key: Key) -> ShardId {
        Global::shard(self, key)
    }

    fn shard_name(&self, shard: ShardId) -> Option<String> {
        Global::shard_name(self, shard)
    }

    fn nodes(&self) -> u32 {
        Global::nodes(self)
    }

    fn rank(&self, key: Key) -> u32 {
        Global::rank(self, key)
    }
}
