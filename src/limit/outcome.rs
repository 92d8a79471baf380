//! [`Outcome`]: the decision of one window on one request. Being limited is a value, not an error.

/// Whether a window admits a cost and, if not, when it would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cost fits into what is left.
    Admitted,
    /// It does not fit now. It fits exactly this long from now if nobody spends in between, and not a nanosecond earlier.
    Later {
        /// How long from now, nanoseconds; at least 1.
        retry_after_ns: u64,
    },
    /// It never fits, because the cost is more than a full window holds.
    Never,
}

/// The answer of one window, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Nanoseconds. Above 0: refused for this long (`NEVER`: for ever). 0 or below: admitted, after a delay of this long.
    /// One number instead of an enum, so that an outcome stays in registers on the hot path.
    wait_ns: i64,
    /// Units left, after the cost where it was taken.
    pub remaining: u64,
    /// Nanoseconds until the window is full again if nobody spends in between, to about a nanosecond.
    pub reset_ns: u64,
}

impl Outcome {
    /// An outcome of these parts; `reset_ns` in nanoseconds, until the window is whole.
    #[inline]
    pub fn new(answer: Answer, remaining: u64, reset_ns: u64) -> Outcome {
        let wait_ns = match answer {
            Answer::Admitted => 0,
            // Waits beyond 292 years, the range of an i64, are cut to that.
            Answer::Later { retry_after_ns } => retry_after_ns.clamp(1, NEVER as u64 - 1) as i64,
            Answer::Never => NEVER,
        };
        Outcome { wait_ns, remaining, reset_ns }
    }

    /// An admission with a delay: the request waits in a queue first.
    #[inline]
    pub fn delayed(delay_ns: u64, remaining: u64, reset_ns: u64) -> Outcome {
        Outcome { wait_ns: -(delay_ns.min(NEVER as u64) as i64), remaining, reset_ns }
    }

    /// Whether the window admits and, if not, when it would.
    #[inline]
    pub fn answer(&self) -> Answer {
        match self.wait_ns {
            ..=0 => Answer::Admitted,
            NEVER => Answer::Never,
            retry_after_ns => Answer::Later { retry_after_ns: retry_after_ns.unsigned_abs() },
        }
    }

    /// The same of a window that refuses this cost now: less than that is left, whatever its last known count says.
    pub fn short_of(self, cost: u64) -> Outcome {
        let is_short = matches!(self.answer(), Answer::Later { .. });
        let most = if is_short { cost.saturating_sub(1) } else { u64::MAX };
        Outcome { remaining: self.remaining.min(most), ..self }
    }

    /// The same if this cost, which it admits, was not taken.
    pub fn uncharged(self, cost: u64) -> Outcome {
        let back = if self.is_admitted() { cost } else { 0 };
        Outcome { remaining: self.remaining.saturating_add(back), ..self }
    }

    /// The same with the answer that a cost would get, which is not taken because something else refuses it.
    pub fn with_answer_of(self, asked: Outcome) -> Outcome {
        let reset_ns = self.reset_ns.max(asked.retry_after_ns().unwrap_or(0));
        Outcome { wait_ns: asked.wait_ns.max(0), reset_ns, ..self }
    }

    /// Whether the cost fits, be it after a delay.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.wait_ns <= 0
    }

    /// Nanoseconds an admitted request waits in its queue; 0 if it is refused.
    #[inline]
    pub fn delay_ns(&self) -> u64 {
        self.wait_ns.min(0).unsigned_abs()
    }

    /// Nanoseconds until the same cost fits: 0 if admitted, `None` if it never does.
    #[inline]
    pub fn retry_after_ns(&self) -> Option<u64> {
        (self.wait_ns != NEVER).then_some(self.wait_ns.max(0).unsigned_abs())
    }
}

const NEVER: i64 = i64::MAX;
