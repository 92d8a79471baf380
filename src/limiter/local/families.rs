//! The metric families of the local table.

use std::fmt;

use super::Table;
use metrics::{Families, MetricUnit};

impl Table {
    /// Writes the families of the table.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let stats = self.stats();
        families.gauges(
            "table_slots",
            "Limiter keys the local table has room for",
            None,
            [([], stats.slots)],
        )?;
        families.gauges("table_keys", "Limiter keys the local table holds", None, [([], stats.used)])?;
        families.counters(
            "table_evictions",
            "Limiter keys evicted to make room for others",
            None,
            [([], stats.evictions)],
        )?;
        families.counters(
            "table_overflow_decisions",
            "Decisions on keys without a slot, which share one overflow bucket",
            None,
            [([], stats.overflow_decisions)],
        )?;
        families.gauges("table_logs", "Limiter keys that have a sliding log", None, [([], stats.logs)])?;
        families.gauges(
            "table_logs_size",
            "Memory that sliding logs take",
            Some(&MetricUnit::Bytes),
            [([], stats.log_bytes)],
        )
    }
}
