//! A sliding window of few units: a log of them in two words, for which two counters would be too rough.
//!
//! The period is divided into steps, as many as fit. A unit counts from its step until that step of the next period, so
//! nobody who stays below the limit is refused, and in the long run no more than the limit is admitted a period; at
//! once a little more than the limit may pass only if a step of the period lies between. 84 bits hold for each unit, from
//! the newest on, how many steps before the last one it was taken (Rice's code), and 44 bits the step of the newest.
//!
//! A unit that is owed takes the place of one that expires: its step is when that happens, which may be many periods
//! ahead. So the log never holds more units than the limit. lua/sliding_window.lua has the same steps.

use super::{Answer, Outcome, Quota};

/// How a window of few units divides its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Steps {
    /// Into how many steps a period is divided, at most `COUNT_MAX`.
    pub(super) count: u16,
    /// Binary digits that the code of a unit has beside its count of zeros.
    digits: u8,
}

impl Steps {
    /// Of that many units in that time. `None`: they are more than few.
    pub(super) fn of(limit: u64, period_ns: u64) -> Option<Steps> {
        if limit > FEW_MAX {
            return None;
        }
        let most = |digits: u8| {
            let spare = u64::from(BITS).saturating_sub(limit * (u64::from(digits) + 1));
            (spare << digits, digits)
        };
        let (most, digits) = (0..16).map(most).max_by_key(|(count, _)| *count)?;
        // No finer than a millisecond, so that a log goes on for centuries.
        let useful = (period_ns / 1_000_000).max(u64::from(BITS) - FEW_MAX).min(period_ns);
        Some(Steps { count: most.min(COUNT_MAX).min(useful) as u16, digits })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SmallWindow {
    /// The step of the newest unit, `INDEX_BITS` of it.
    newest: u64,
    /// How many steps before the newest each unit was taken, the newest first.
    ages: [u32; FEW_MAX as usize],
    len: usize,
}

impl SmallWindow {
    /// Reads two words; all zero is nothing spent.
    pub(super) fn from_words(words: [u64; 2], steps: Steps) -> SmallWindow {
        let mut bits = u128::from(words[0]) | u128::from(words[1] & LATER_MASK) << 64;
        let mut few = SmallWindow { newest: words[1] >> (BITS - 64), ages: [0; FEW_MAX as usize], len: 0 };
        let mut age = 0;
        while bits != 0 && few.len < FEW_MAX as usize {
            let zeros = bits.trailing_zeros();
            // Shifted twice, because the sum may be all the bits there are.
            bits = bits >> zeros >> 1;
            age += zeros << steps.digits | (bits as u32 & ((1 << steps.digits) - 1));
            bits >>= steps.digits;
            few.ages[few.len] = age;
            few.len += 1;
        }
        few
    }

    pub(super) fn into_words(self, steps: Steps) -> [u64; 2] {
        let (mut bits, mut at, mut before) = (0u128, 0, 0);
        for age in &self.ages[..self.len] {
            let gap = age - before;
            before = *age;
            at += gap >> steps.digits;
            bits |= (1 | u128::from(gap & ((1 << steps.digits) - 1)) << 1) << at;
            at += 1 + u32::from(steps.digits);
        }
        if bits == 0 {
            return [0, 0];
        }
        [bits as u64, (bits >> 64) as u64 & LATER_MASK | self.newest << (BITS - 64)]
    }

    /// What still counts at a step.
    fn at(mut self, steps: Steps, step: u64) -> SmallWindow {
        let ahead = ahead(self.newest, step) + i64::from(steps.count);
        while self.len > 0 && i64::from(self.ages[self.len - 1]) >= ahead {
            self.len -= 1;
        }
        self
    }

    pub(super) fn take(self, quota: &Quota, steps: Steps, cost: u64, now_ns: u64) -> (SmallWindow, Outcome) {
        let (limit, step) = (quota.limit().get(), step_of(quota, steps, now_ns));
        let few = self.at(steps, step);
        let left = limit.saturating_sub(few.len as u64);
        let answer = match left.checked_sub(cost) {
            Some(left) => {
                let taken = few.spend(steps, cost, step);
                return (taken, Outcome::new(Answer::Admitted, left, taken.reset_ns(quota, steps, now_ns)));
            }
            None if cost > limit => Answer::Never,
            // So many of the oldest have to expire.
            None => {
                let age = few.ages[few.len.saturating_sub((cost - left) as usize)];
                Answer::Later { retry_after_ns: few.over_ns(quota, steps, age, now_ns) }
            }
        };
        (self, Outcome::new(answer, left, few.reset_ns(quota, steps, now_ns)))
    }

    pub(super) fn count_denied(self, quota: &Quota, steps: Steps, cost: u64, now_ns: u64) -> SmallWindow {
        let step = step_of(quota, steps, now_ns);
        let few = self.at(steps, step);
        few.spend(steps, cost.min(quota.limit().get().saturating_sub(few.len as u64)), step)
    }

    pub(super) fn debit(self, quota: &Quota, steps: Steps, cost: u64, now_ns: u64) -> SmallWindow {
        let (limit, step) = (quota.limit().get(), step_of(quota, steps, now_ns));
        let few = self.at(steps, step);
        let fits = cost.min(limit.saturating_sub(few.len as u64));
        let mut few = few.spend(steps, fits, step);
        let (owed, count) = (cost - fits, u64::from(steps.count));
        few.newest = few.newest.wrapping_add((owed / limit).min(AHEAD_MAX / count) * count) & INDEX_MASK;
        for _ in 0..owed % limit {
            let oldest = few.ages[few.len - 1];
            few.len -= 1;
            few.push(u32::from(steps.count) - oldest);
        }
        few
    }

    /// Undoes a `take` made at `taken_ns`; if the unit's place was owed since, what was owed last is not.
    pub(super) fn give_back(self, quota: &Quota, steps: Steps, cost: u64, taken_ns: u64) -> SmallWindow {
        let taken = step_of(quota, steps, taken_ns);
        let count = i64::from(steps.count);
        let mut few = self;
        for _ in 0..cost.min(FEW_MAX) {
            let ago = |age: u32| ahead(few.newest, taken) - i64::from(age);
            let of =
                |is_it: &dyn Fn(i64) -> bool| few.ages[..few.len].iter().position(|age| is_it(ago(*age)));
            if let Some(index) = of(&|ago| ago == 0) {
                few.remove(index);
            } else if of(&|ago| ago > 0 && ago % count == 0).is_some() {
                let before = few.newest;
                few.remove(0);
                few.ages[few.len] = steps.count.into();
                if few.len > 0 {
                    few.ages[few.len] -= ahead(before, few.newest) as u32;
                } else {
                    (few.newest, few.ages[0]) = (before.wrapping_sub(count as u64) & INDEX_MASK, 0);
                }
                few.len += 1;
            }
        }
        few
    }

    pub(super) fn is_full(self, quota: &Quota, steps: Steps, now_ns: u64) -> bool {
        self.at(steps, step_of(quota, steps, now_ns)).len == 0
    }

    /// What is missing, of each place all periods until it is repaid.
    pub(super) fn used(self, quota: &Quota, steps: Steps, now_ns: u64) -> u64 {
        let (step, count) = (step_of(quota, steps, now_ns), u64::from(steps.count));
        let few = self.at(steps, step);
        let until = (ahead(few.newest, step) + i64::from(steps.count)) as u64;
        few.ages[..few.len].iter().map(|age| (until - u64::from(*age)).div_ceil(count)).sum()
    }

    /// The same units in the steps of a changed limit of the same period. None of them is owed.
    pub(super) fn restepped(self, quota: &Quota, [old, new]: [Steps; 2], now_ns: u64) -> SmallWindow {
        let step = step_of(quota, old, now_ns);
        let few = self.at(old, step);
        // By their place in a period, as far back as needed.
        let (whole, within) = (now_ns / quota.period_ns(), step_within(quota, old, now_ns));
        let (old, new) = (i64::from(old.count), i64::from(new.count));
        let mut changed = SmallWindow { len: 0, ..few };
        for age in few.ages[..few.len].iter().rev() {
            let place = within as i64 + ahead(few.newest, step) - i64::from(*age);
            let at = place.div_euclid(old) * new + place.rem_euclid(old) * new / old;
            let at = whole.wrapping_mul(new as u64).wrapping_add_signed(at) & INDEX_MASK;
            let gap = if changed.len == 0 { 0 } else { ahead(at, changed.newest) as u32 };
            changed.push(gap);
            changed.newest = at;
        }
        changed
    }

    fn spend(mut self, steps: Steps, cost: u64, step: u64) -> SmallWindow {
        if cost == 0 {
            return self;
        }
        if self.len == 0 {
            self.newest = step;
        }
        let later = ahead(step, self.newest);
        if later > 0 {
            self.ages[..self.len].iter_mut().for_each(|age| *age += later as u32);
            self.newest = step;
        }
        // If the clock was set back, time stands still until what is known is a period old.
        let age = (-later).clamp(0, i64::from(steps.count) - 1) as u32;
        let at = self.ages[..self.len].partition_point(|known| *known < age);
        let count = (cost as usize).min(self.ages.len() - self.len);
        self.ages.copy_within(at..self.len, at + count);
        self.ages[at..at + count].fill(age);
        self.len += count;
        self
    }

    /// Puts a unit in front, `gap` steps after the newest.
    fn push(&mut self, gap: u32) {
        self.ages[..self.len].iter_mut().for_each(|age| *age += gap);
        self.ages.copy_within(..self.len, 1);
        self.ages[0] = 0;
        self.newest = self.newest.wrapping_add(gap.into()) & INDEX_MASK;
        self.len += 1;
    }

    fn remove(&mut self, index: usize) {
        self.ages.copy_within(index + 1..self.len, index);
        self.len -= 1;
        let gap = if index == 0 && self.len > 0 { self.ages[0] } else { 0 };
        self.ages[..self.len].iter_mut().for_each(|age| *age -= gap);
        self.newest = self.newest.wrapping_sub(gap.into()) & INDEX_MASK;
    }

    /// From now until the unit of this age no longer counts.
    fn over_ns(&self, quota: &Quota, steps: Steps, age: u32, now_ns: u64) -> u64 {
        let step = step_of(quota, steps, now_ns);
        let count = i64::from(steps.count);
        let place =
            step_within(quota, steps, now_ns) as i64 + ahead(self.newest, step) - i64::from(age) + count;
        let (whole, within) = (place.div_euclid(count), place.rem_euclid(count) as u64);
        let period = quota.period_ns().get();
        let begins = (u128::from(within) * u128::from(period)).div_ceil(count as u128);
        let at = i128::from(now_ns / period) + i128::from(whole);
        let at_ns = at * i128::from(period) + begins as i128;
        u64::try_from(at_ns - i128::from(now_ns)).unwrap_or(if at_ns < 0 { 0 } else { u64::MAX })
    }

    fn reset_ns(&self, quota: &Quota, steps: Steps, now_ns: u64) -> u64 {
        if self.len == 0 { 0 } else { self.over_ns(quota, steps, 0, now_ns) }
    }
}

/// How many steps one is ahead of another.
fn ahead(step: u64, of: u64) -> i64 {
    (step.wrapping_sub(of) << (64 - INDEX_BITS)) as i64 >> (64 - INDEX_BITS)
}

fn step_of(quota: &Quota, steps: Steps, now_ns: u64) -> u64 {
    let whole = now_ns / quota.period_ns();
    whole.wrapping_mul(steps.count.into()).wrapping_add(step_within(quota, steps, now_ns)) & INDEX_MASK
}

/// Which step of its period a time is in.
fn step_within(quota: &Quota, steps: Steps, now_ns: u64) -> u64 {
    let (within, count) = (now_ns % quota.period_ns(), u64::from(steps.count));
    match within.checked_mul(count) {
        Some(product) => product / quota.period_ns(),
        None => (u128::from(within) * u128::from(count) / u128::from(quota.period_ns().get())) as u64,
    }
}

const FEW_MAX: u64 = 32;
const COUNT_MAX: u64 = 32_768;
/// Bits of the two words that hold units; the others hold the step of the newest.
const BITS: u32 = 84;
const LATER_MASK: u64 = (1 << (BITS - 64)) - 1;
/// Bits of the newest unit's step.
const INDEX_BITS: u32 = 128 - BITS;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// How many steps ahead units may be owed.
const AHEAD_MAX: u64 = 1 << 41;

#[cfg(test)]
mod tests;
