//! The metric families of the local table.

use std::fmt;

use super::Table;
use metrics::{Families, MetricUnit};

impl Table {
    /// Writes the families of the table.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let stats = self.stats();
        families.gauge("table_slots", "Limiter keys the local table has room for", stats.slots)?;
        families.gauge("table_keys", "Limiter keys the local table holds", stats.used)?;
        let help = "Limiter keys evicted to make room for others";
        families.counter("table_evictions", help, stats.evictions)?;
        let help = "Decisions on keys without a slot, which share one overflow bucket";
        families.counter("table_overflow_decisions", help, stats.overflow_decisions)?;
        families.gauge("table_logs", "Limiter keys that have a sliding log", stats.logs)?;
        let bytes = [([], stats.log_bytes)];
        families.gauges("table_logs_size", "Memory that sliding logs take", Some(&MetricUnit::Bytes), bytes)
    }
}
