//! The keys of `[redis]` and `[database]`, which nodes share.

use control::database::config::USAGE_ROWS_MAX;
use limiter::global::config::CONNECTIONS_MAX;

use super::Kind::{Any, Bool, List, Number, Path, Secret, Table, Text, Texts, TimeWithin, Url, Word};
use super::Unwritten::{Means, Needs, Required, Value, ValueBeside};
use super::{MS, SECOND, sections};

const SHARD_WEIGHT_MAX: u64 = 100;

sections! {
    REDIS = "[redis]" {
        /// `redis://user:password@host:port,host:port/db`; `rediss://` over TLS. User and password are an ACL
        /// user's and are taken as they stand, up to the last `@`, without percent-decoding
        "url": Url;
        /// `"single"`: of the hosts, the first that can be written to. `"sentinel:<master>"`: the hosts are
        /// sentinels, the URL's login is the primary's. `"cluster"`: the hosts are some nodes of a Redis Cluster.
        /// `"ring"`: independent servers
        "topology": Text, Value("single");
        /// how long a decision waits for Redis, once. `"auto"` follows the round trip of each shard: half as much again
        /// as nearly all calls take, from 2 to 20 ms
        "deadline": Any(&[TimeWithin(MS, SECOND, ": every request may wait so long"), Word("auto")]), Value("auto");
        /// what every key begins with, 1 to 32 characters. Nodes that share limits have the same
        "prefix": Text, Value("sg");
        /// connections to each server
        "connections": Number(1, CONNECTIONS_MAX as u64), Value("2");
        /// the secret that keys are hashed with, so that knowing a client's values is not enough to compute its
        /// key. The same on all nodes that share limits
        "key-secret": Secret;
        /// certificates, PEM, by which `rediss://` servers are trusted
        "ca": Path, Means("the system's");
        /// for `topology = "ring"`: independent servers
        "ring": Table(&RING);
    }
    RING = "[redis.ring]" {
        /// servers, each with a share of the keys
        "shards": List(&Table(&SHARD)), Required;
        /// servers for the keys of some tenants alone
        "dedicated": List(&Table(&DEDICATED)), Value("[]");
    }
    SHARD = "a shard" {
        /// where it is: `"redis://a:6379"`
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        /// its share of the keys
        "weight": Number(1, SHARD_WEIGHT_MAX), Value("1");
    }
    DEDICATED = "a dedicated shard" {
        /// where it is: `"redis://vip:6379"`
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        /// whose keys are there
        "tenants": Texts, Required;
    }
    DATABASE = "[database]" {
        /// `"sqlite:PATH"`: a file of this machine, made at the first start with mode 0600.
        /// `"postgres://user:password@host:port/name"`: a server, for a fleet
        "url": Url, Needs("`[database]` needs `url`", "write `url = \"sqlite:state.db\"`");
        /// the password as it stands, in the place of one in `url`: `"${file:/run/secrets/database}"`
        "password": Secret;
        /// with `postgres://`: the file (mode 0600) that the last good state is kept in, at most five seconds old,
        /// and as it is at a stop, for a start while the server is gone
        "copy": Path, ValueBeside(&[], "/var/lib/sluicegate/control.json");
        /// with `sqlite:` and [`[redis]`](#redis): that there is no other node
        "single-node": Bool, Value("false");
        /// how many rows of [usage by the minute](control.md#minute-by-minute) this node writes for each minute:
        /// one for each policy, consumer and tenant that it decided on. 0: none, and nothing is counted
        "usage-rows": Number(0, USAGE_ROWS_MAX), Value("1000");
    }
}
