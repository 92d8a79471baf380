//! The keys of `[redis]` and `[database]`, which nodes share.

use control::database::config::USAGE_ROWS_MAX;
use limiter::global::config::CONNECTIONS_MAX;

use super::KeyDefault::{Means, Needs, Required, Value, ValueBeside};
use super::Kind::{Any, Bool, List, Number, Path, Secret, Table, Text, Texts, TimeWithin, Url, Word};
use super::{MS, SECOND, sections};

const SHARD_WEIGHT_MAX: u64 = 100;

sections! {
    REDIS = "[redis]", "redis" {
        "url": Url;
        "topology": Text, Value("single");
        "deadline": Any(&[TimeWithin(MS, SECOND, ": a request waits that long"), Word("auto")]), Value("auto");
        "prefix": Text, Value("sg");
        "connections": Number(1, CONNECTIONS_MAX as u64), Value("2");
        "key-secret": Secret;
        "ca": Path, Means("the system's");
        "ring": Table(&RING);
    }
    RING = "[redis.ring]", "redis.ring" {
        "shards": List(&Table(&SHARD)), Required;
        "dedicated": List(&Table(&DEDICATED)), Value("[]");
    }
    SHARD = "a shard", "redis.ring.shards[]" {
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        "weight": Number(1, SHARD_WEIGHT_MAX), Value("1");
    }
    DEDICATED = "a dedicated shard", "redis.ring.dedicated[]" {
        "url": Url, Needs("a shard needs `url`", "write `{ url = \"redis://127.0.0.1:6379\" }`");
        "tenants": Texts, Required;
    }
    DATABASE = "[database]", "database" {
        "url": Url, Needs("`[database]` needs `url`", "write `url = \"sqlite:state.db\"`");
        "password": Secret;
        "copy": Path, ValueBeside(&[], "/var/lib/sluicegate/control.json");
        "single-node": Bool, Value("false");
        "usage-rows": Number(0, USAGE_ROWS_MAX), Value("1000");
    }
}
