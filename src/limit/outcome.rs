//! What an algorithm says of one request: a value, admitted or not.

/// The answer to one charge, and what a client may be told of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it may pass, and when not, when it might.
    pub answer: Answer,
    /// Units of one period.
    pub limit: u64,
    /// Whole units left, after this request where it was admitted.
    pub remaining: u64,
    /// Until everything is left again (token bucket), or the window ends, nanoseconds.
    pub reset_ns: u64,
}

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may, and is charged.
    Admitted,
    /// Not now, but after this many nanoseconds if nobody else comes first.
    Later(u64),
    /// It costs more than the quota ever holds.
    Never,
}

impl Outcome {
    /// Whether it may pass.
    pub fn is_admitted(&self) -> bool {
        self.answer == Answer::Admitted
    }

    /// Nanoseconds until it might be admitted: 0 where it was, `None` where it never will be.
    pub fn retry_after_ns(&self) -> Option<u64> {
        match self.answer {
            Answer::Admitted => Some(0),
            Answer::Later(wait_ns) => Some(wait_ns),
            Answer::Never => None,
        }
    }
}
