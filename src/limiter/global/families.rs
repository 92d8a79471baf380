//! The metric families of Redis.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::readings::Reading;
use super::{Global, Status};
use metrics::{Families, MetricUnit};

impl Global {
    /// Writes the families of every shard.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let shards = self.status();
        let each = |level: fn(&Status) -> u64| {
            shards
                .iter()
                .map(move |shard| ([("shard", shard.shard.as_str())], level(shard)))
                .collect::<Vec<_>>()
        };
        let up = each(|shard| u64::from(shard.is_up));
        families.gauges("redis_up", "Whether a shard of Redis answers", None, up)?;
        let in_time = each(|shard| u64::from(shard.is_quick));
        let help = "Whether a shard answers within the deadline, so that requests wait for it";
        families.gauges("redis_in_time", help, None, in_time)?;
        let round_trips = shards.iter().map(|shard| {
            ([("shard", shard.shard.as_str())], Duration::from_nanos(shard.round_trip_ns).as_secs_f64())
        });
        let help =
            "Round trip that nearly all recent calls to a shard stayed within; 0: none was answered yet";
        families.gauges("redis_round_trip", help, Some(&MetricUnit::Seconds), round_trips)?;
        let deadlines = shards.iter().map(|shard| {
            ([("shard", shard.shard.as_str())], Duration::from_nanos(shard.deadline_ns).as_secs_f64())
        });
        let help = "How long a request waits for a shard: `redis.deadline` or, by default, a time derived from \
            the round trip";
        families.gauges("redis_deadline", help, Some(&MetricUnit::Seconds), deadlines)?;
        let conditions = shards
            .iter()
            .map(|shard| ([("shard", shard.shard.as_str()), ("condition", shard.condition.name())], 1_u64));
        families.gauges("redis_condition", "Condition of a shard of Redis", None, conditions)?;
        let evicts = each(|shard| u64::from(shard.evicts));
        families.gauges(
            "redis_evicts",
            "Whether a shard evicts keys when its memory is full",
            None,
            evicts,
        )?;
        type Level = fn(&Status) -> u64;
        let counters: [(&str, &str, Level); 8] = [
            ("redis_calls", "Script calls to Redis", |shard| shard.calls),
            ("redis_operations", "Operations in those calls", |shard| shard.operations),
            ("redis_late_calls", "Calls not answered within the deadline", |shard| shard.late),
            ("redis_lost_operations", "Operations without an answer", |shard| shard.lost),
            ("redis_refused_operations", "Operations answered with an error", |shard| shard.refused),
            ("redis_resent_calls", "Calls sent again after their answer was lost", |shard| shard.resent),
            ("redis_connects", "Connections made to Redis", |shard| shard.connects),
            ("redis_breaker_opened", "Times the breaker of a shard opened", |shard| shard.opened),
        ];
        for (name, help, level) in counters {
            families.counters(name, help, None, each(level))?;
        }
        let vanished = self.shared.shards.ids().zip(&shards);
        let vanished =
            vanished.map(|(id, shard)| ([("shard", shard.shard.as_str())], self.readings.vanished(id)));
        let help = "Times all keys of a shard disappeared at once, as after FLUSHALL";
        families.counters("redis_keys_vanished", help, None, vanished)?;
        self.collect_units(families)?;
        let call_durations = self.shared.shards.iter();
        let call_durations =
            call_durations.map(|shard| ([("shard", shard.name.as_str())], shard.call_durations()));
        families.histograms(
            "redis_call_duration",
            "How long answered calls to a shard took",
            call_durations,
        )?;
        let help = "Nodes that share this Redis, as this node counts them";
        families.gauges("fleet_nodes", help, None, [([], self.nodes.count())])?;
        self.collect_readings(families)
    }

    /// Writes how many units nodes needed not wait for.
    fn collect_units(&self, families: &mut Families<'_>) -> fmt::Result {
        let units = self.shared.shards.iter().flat_map(|shard| {
            let (name, stats) = (shard.name.as_str(), &shard.stats);
            let level = |from, count: &AtomicU64| ([("shard", name), ("from", from)], count.load(Relaxed));
            [level("lease", &stats.leased_units), level("wait", &stats.awaited_units)]
        });
        let help =
            "Units that requests spent from leases (as of the latest renewals), or after waiting for Redis";
        families.counters("redis_units", help, None, units)
    }

    /// Writes what servers say of themselves.
    fn collect_readings(&self, families: &mut Families<'_>) -> fmt::Result {
        let servers = self.readings.servers();
        let each = |level: fn(&Reading) -> u64| {
            servers.iter().map(move |(server, reading)| ([("server", server.as_str())], level(reading)))
        };
        families.gauges("redis_keys", "Keys in the database of a server", None, each(|it| it.keys))?;
        let bytes = Some(&MetricUnit::Bytes);
        families.gauges("redis_memory", "Memory that a server uses", bytes, each(|it| it.memory))?;
        let help = "Memory that a server may use; 0: no limit is set";
        families.gauges("redis_memory_limit", help, bytes, each(|it| it.memory_max))?;
        let help = "Keys that a server has evicted because its memory was full";
        families.counters("redis_evicted_keys", help, None, each(|it| it.evicted))?;
        families.gauges("redis_replicas", "Replicas of a server", None, each(|it| it.replicas))?;
        let help = "How far the slowest replica of a server is behind it";
        families.gauges("redis_replication_lag", help, bytes, each(|it| it.lag_bytes))?;
        let help = "Time since the last acknowledgement of the replica that has been silent longest";
        families.gauges(
            "redis_replication_silence",
            help,
            Some(&MetricUnit::Seconds),
            each(|it| it.lag_seconds),
        )?;
        let saturations = servers.iter().filter_map(|(server, reading)| {
            reading.saturation.map(|saturation| ([("server", server.as_str())], saturation))
        });
        let help = "Share of time that the thread of a server that runs commands is busy";
        families.gauges("redis_saturation_ratio", help, None, saturations)
    }
}
