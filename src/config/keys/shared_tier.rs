//! The keys of `[redis]` and `[database]`, which nodes share.

use control::database::config::USAGE_ROWS_MAX;
use limiter::global::config::CONNECTIONS_MAX;

use super::KeyDefault::{Means, Needs, Required, Value, ValueBeside};
use super::Kind::{Any, Bool, List, Number, Path, Secret, Table, Text, Texts, TimeWithin, Url, Word};
use super::{MS, SECOND, sections};

const SHARD_WEIGHT_MAX: u64 = 100;

sections! {
    REDIS = "[redis]" {
        /// `redis://user:password@host:port,host:port/db`, or `rediss://` for TLS. User and password are those of an
        /// ACL user. They are taken literally up to the last `@`, without percent-decoding
        "url": Url;
        /// `"single"`: the first host that accepts writes. `"sentinel:<master>"`: the hosts are sentinels; user and
        /// password are for the primary. `"cluster"`: the hosts are some nodes of a Redis Cluster. `"ring"`:
        /// independent servers
        "topology": Text, Value("single");
        /// how long a decision waits for Redis. `"auto"`: 1.5 times the round trip that nearly all calls stay below, at
        /// least 2 ms, and at most 20 ms or, if that is longer, twice the shortest round trip (up to 100 ms)
        "deadline": Any(&[TimeWithin(MS, SECOND, ": a request waits that long"), Word("auto")]), Value("auto");
        /// the prefix of every key in Redis, 1 to 32 characters. Nodes that share limits need the same one
        "prefix": Text, Value("sg");
        /// connections to each server
        "connections": Number(1, CONNECTIONS_MAX as u64), Value("2");
        /// the secret for hashing keys, so that nobody can compute a client's key. All nodes need the same one
        "key-secret": Secret;
        /// a PEM file with the CA certificates that verify `rediss://` servers
        "ca": Path, Means("the system's");
        /// the servers for `topology = "ring"`
        "ring": Table(&RING);
    }
    RING = "[redis.ring]" {
        /// servers, each with a part of the keys
        "shards": List(&Table(&SHARD)), Required;
        /// servers that hold only the keys of certain tenants
        "dedicated": List(&Table(&DEDICATED)), Value("[]");
    }
    SHARD = "a shard" {
        /// the server: `"redis://a:6379"`
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        /// its share of the keys
        "weight": Number(1, SHARD_WEIGHT_MAX), Value("1");
    }
    DEDICATED = "a dedicated shard" {
        /// the server: `"redis://vip:6379"`
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        /// the tenants whose keys it holds
        "tenants": Texts, Required;
    }
    DATABASE = "[database]" {
        /// `"sqlite:PATH"`: a file on this machine, created at the first start with mode 0600.
        /// `"postgres://user:password@host:port/name"`: a server, for a fleet
        "url": Url, Needs("`[database]` needs `url`", "write `url = \"sqlite:state.db\"`");
        /// the password, taken literally, instead of one in `url`: `"${file:/run/secrets/database}"`
        "password": Secret;
        /// with `postgres://`: a file (mode 0600) with the last good state, for a start while the server is down
        "copy": Path, ValueBeside(&[], "/var/lib/sluicegate/control.json");
        /// with `sqlite:` and [`[redis]`](redis.md): states that there is no other node
        "single-node": Bool, Value("false");
        /// rows of [usage per minute](../../control-usage.md#minute-by-minute) that this node writes per minute: one
        /// row for each policy, consumer and tenant with a decision. `0`: usage is not counted
        "usage-rows": Number(0, USAGE_ROWS_MAX), Value("1000");
    }
}
