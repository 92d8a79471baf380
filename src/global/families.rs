//! The metric families of Redis.

use std::fmt;
use std::time::Duration;

use super::{Global, Status};
use crate::metrics::{Families, Unit};

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
        families.gauges("redis_up", "Whether a shard of Redis answers, so that it is asked", None, up)?;
        let in_time = each(|shard| u64::from(shard.is_quick));
        let help = "Whether the answers of a shard come within the deadline, so that requests wait for them";
        families.gauges("redis_in_time", help, None, in_time)?;
        let round_trips = shards.iter().map(|shard| {
            ([("shard", shard.shard.as_str())], Duration::from_nanos(shard.round_trip_ns).as_secs_f64())
        });
        let help = "How long nearly all recent calls to a shard took; 0: none was answered yet";
        families.gauges("redis_round_trip", help, Some(&Unit::Seconds), round_trips)?;
        let conditions = shards
            .iter()
            .map(|shard| ([("shard", shard.shard.as_str()), ("condition", shard.condition.name())], 1_u64));
        families.gauges("redis_condition", "Condition of a shard of Redis", None, conditions)?;
        let evicts = each(|shard| u64::from(shard.evicts));
        families.gauges(
            "redis_evicts",
            "Whether a shard forgets keys when its memory is full",
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
        Ok(())
    }
}
