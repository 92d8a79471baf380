//! What one window says to one request. Being denied is a value here, not an error.

/// Whether a window admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cost fits.
    Admitted,
    /// It does not fit now; it fits at exactly this time from now if nobody spends in between.
    Later {
        /// Nanoseconds, at least 1.
        retry_after_ns: u64,
    },
    /// It never fits: the cost is more than the window holds when it is whole.
    Never,
}

/// What one window says, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Nanoseconds; above 0: refused so long, `NEVER`: for ever; 0 or below: admitted, to go on after so long. One
    /// plain number, so that an outcome stays in registers where a decision is made.
    wait_ns: i64,
    /// Units left, after the cost where it was taken.
    pub remaining: u64,
    /// Nanoseconds until the window is whole again if nobody spends in between, to about a nanosecond.
    pub reset_ns: u64,
}

impl Outcome {
    /// An outcome of these parts.
    #[inline]
    pub fn new(answer: Answer, remaining: u64, reset_ns: u64) -> Outcome {
        let wait_ns = match answer {
            Answer::Admitted => 0,
            // What is beyond 292 years is said as that.
            Answer::Later { retry_after_ns } => retry_after_ns.clamp(1, NEVER as u64 - 1) as i64,
            Answer::Never => NEVER,
        };
        Outcome { wait_ns, remaining, reset_ns }
    }

    /// An admission that is to go on after `delay_ns`.
    #[inline]
    pub fn delayed(delay_ns: u64, remaining: u64, reset_ns: u64) -> Outcome {
        Outcome { wait_ns: -(delay_ns.min(NEVER as u64) as i64), remaining, reset_ns }
    }

    /// Whether the window admits, and when not, when it might.
    #[inline]
    pub fn answer(&self) -> Answer {
        match self.wait_ns {
            ..=0 => Answer::Admitted,
            NEVER => Answer::Never,
            retry_after_ns => Answer::Later { retry_after_ns: retry_after_ns.unsigned_abs() },
        }
    }

    /// Whether the cost fits.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.wait_ns <= 0
    }

    /// Nanoseconds an admitted request waits for its turn before it goes on; 0 where it is refused.
    #[inline]
    pub fn delay_ns(&self) -> u64 {
        self.wait_ns.min(0).unsigned_abs()
    }

    /// Nanoseconds until the same cost fits: 0 when admitted, `None` when it never does.
    #[inline]
    pub fn retry_after_ns(&self) -> Option<u64> {
        (self.wait_ns != NEVER).then_some(self.wait_ns.max(0).unsigned_abs())
    }
}

const NEVER: i64 = i64::MAX;
