//! Requests that nobody reports, because they are decided where units are drawn: how many come, and how much of a limit they
//! may take while reporters want more than there is. Nothing is drawn for them: what they may take stays in the limit.

/// Those of one bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    /// When it was last measured how many come; `None`: never.
    measured_ns: Option<u64>,
    /// What they want, on the scale of a reporter's weight.
    weight: u64,
    /// Parts of a unit that they were not given in earlier turns.
    pub(super) credit: u64,
    /// The last round in which they had their turn.
    pub(super) round: u64,
}

impl Own {
    /// Notes how many came since this was last called.
    pub fn measure(&mut self, came: u64, now_ns: u64) {
        let Some(measured_ns) = self.measured_ns.replace(now_ns) else { return };
        let elapsed_ns = now_ns.saturating_sub(measured_ns).max(1);
        // A quarter more than came, as reporters want, so that both are on one scale.
        let seen = u128::from(came) * u128::from(1_280 * SECOND_NS) / u128::from(elapsed_ns);
        let (seen, before) = (seen.min(u128::from(WEIGHT_MAX)), u128::from(self.weight));
        // A mean of two seconds: in a round come few, and their number differs.
        let fresh_ns = if before == 0 { MEAN_NS } else { elapsed_ns.min(MEAN_NS) };
        let (fresh, old) = (u128::from(fresh_ns), u128::from(MEAN_NS - fresh_ns));
        // At most `WEIGHT_MAX`, as both are.
        self.weight = ((seen * fresh + before * old) / u128::from(MEAN_NS)) as u64;
        if self.weight < WEIGHT_LEAST {
            (self.weight, self.credit) = (0, 0);
        }
    }

    /// What they want, as a reporter's weight.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Units that they want in this time.
    pub fn wants_within(&self, interval_ns: u64) -> u64 {
        let wanted = u128::from(self.weight) * u128::from(interval_ns) / u128::from(1_024 * SECOND_NS);
        u64::try_from(wanted).unwrap_or(u64::MAX).max(1)
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const MEAN_NS: u64 = 2 * SECOND_NS;
const WEIGHT_MAX: u64 = 1 << 40;
/// Less than one in a minute is none: they take what they find.
const WEIGHT_LEAST: u64 = 20;
