//! The metric families of Redis.

use std::fmt;
use std::time::Duration;

use super::readings::Reading;
use super::{Global, Status};
use metrics::{Families, Labels, MetricUnit};

impl Global {
    /// Writes the families of every shard.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let shards = self.status();
        let each = |level: fn(&Status) -> u64| shards.iter().map(move |shard| (label(shard), level(shard)));
        let times = |ns: fn(&Status) -> u64| {
            shards.iter().map(move |shard| (label(shard), Duration::from_nanos(ns(shard)).as_secs_f64()))
        };
        let seconds = Some(&MetricUnit::Seconds);
        families.gauges("redis_up", "Whether a shard of Redis answers", None, each(|it| it.is_up.into()))?;
        let help = "Whether a shard answers within the deadline, so that requests wait for it";
        families.gauges("redis_in_time", help, None, each(|it| it.is_quick.into()))?;
        let help =
            "Round trip that nearly all recent calls to a shard stayed within; 0: none was answered yet";
        families.gauges("redis_round_trip", help, seconds, times(|it| it.round_trip_ns))?;
        let help = "How long a request waits for a shard: `redis.deadline` or, by default, a time derived from \
            the round trip";
        families.gauges("redis_deadline", help, seconds, times(|it| it.deadline_ns))?;
        let conditions = shards
            .iter()
            .map(|shard| ([("shard", shard.shard.as_str()), ("condition", shard.condition.name())], 1_u64));
        families.gauges("redis_condition", "Condition of a shard of Redis", None, conditions)?;
        let help = "Whether a shard evicts keys when its memory is full";
        families.gauges("redis_evicts", help, None, each(|it| it.evicts.into()))?;
        type Count = fn(&Status) -> u64;
        let counters: [(&str, &str, Count); 8] = [
            ("redis_calls", "Script calls to Redis", |it| it.counts.calls),
            ("redis_operations", "Operations in those calls", |it| it.counts.operations),
            ("redis_late_calls", "Calls not answered within the deadline", |it| it.counts.late),
            ("redis_lost_operations", "Operations without an answer", |it| it.counts.lost),
            ("redis_refused_operations", "Operations answered with an error", |it| it.counts.refused),
            ("redis_resent_calls", "Calls sent again after their answer was lost", |it| it.counts.resent),
            ("redis_connects", "Connections made to Redis", |it| it.counts.connects),
            ("redis_breaker_opened", "Times the breaker of a shard opened", |it| it.counts.opened),
        ];
        for (name, help, count) in counters {
            families.counters(name, help, None, each(count))?;
        }
        let vanished = self.shared.shards.ids().zip(&shards);
        let vanished = vanished.map(|(id, shard)| (label(shard), self.readings.vanished(id)));
        let help = "Times all keys of a shard disappeared at once, as after FLUSHALL";
        families.counters("redis_keys_vanished", help, None, vanished)?;
        let units = shards.iter().flat_map(|shard| {
            let level = |from, count| ([("shard", shard.shard.as_str()), ("from", from)], count);
            [level("lease", shard.counts.leased_units), level("wait", shard.counts.awaited_units)]
        });
        let help =
            "Units that requests spent from leases (as of the latest renewals), or after waiting for Redis";
        families.counters("redis_units", help, None, units)?;
        let durations = self.shared.shards.iter();
        let durations = durations.map(|shard| ([("shard", shard.name.as_str())], shard.call_durations()));
        families.histograms("redis_call_duration", "How long answered calls to a shard took", durations)?;
        let help = "Nodes that share this Redis, as this node counts them";
        families.gauge("fleet_nodes", help, self.nodes.count())?;
        self.collect_readings(families)
    }

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
        let seconds = Some(&MetricUnit::Seconds);
        families.gauges("redis_replication_silence", help, seconds, each(|it| it.lag_seconds))?;
        let saturations = servers.iter().filter_map(|(server, reading)| {
            reading.saturation.map(|saturation| ([("server", server.as_str())], saturation))
        });
        let help = "Share of time that the thread of a server that runs commands is busy";
        families.gauges("redis_saturation_ratio", help, None, saturations)
    }
}

fn label(shard: &Status) -> Labels<'_, 1> {
    [("shard", shard.shard.as_str())]
}
