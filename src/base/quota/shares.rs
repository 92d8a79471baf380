//! The reporters of one bucket, and how what is left of its limit is divided among them.

use std::collections::HashMap;

use super::pot::{Rivals, Wants};
use super::receipts::Back;
use super::share::Share;
use super::{Assignment, StreamId, Usage};

/// The shares of one bucket's reporters. `R` is what units were drawn as.
#[derive(Clone, Debug)]
pub struct Shares<R> {
    shares: HashMap<StreamId, Share<R>>,
}

/// What there is of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Units.
    pub units: u64,
    /// Whether all of the limit comes back within seconds.
    pub is_quick: bool,
}

/// When a stream has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// With its report.
    Report,
    /// With all others that wait, at the beginning of a round.
    Round,
}

/// What a report has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Units that passed though nobody had assigned them, to be charged before any are assigned.
    pub unassigned: u64,
    /// Whether the reporter has had no request for so long that it should forget the bucket.
    pub is_idle: bool,
}

impl<R> Default for Shares<R> {
    fn default() -> Shares<R> {
        Shares { shares: HashMap::new() }
    }
}

impl<R: Clone> Shares<R> {
    /// Whether nobody reports the bucket.
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Whether a stream has reported the bucket.
    pub fn has(&self, stream: StreamId) -> bool {
        self.shares.contains_key(&stream)
    }

    /// Takes a report. `None` if the stream is new and there is no room for one more.
    pub fn report(&mut self, stream: StreamId, usage: &Usage, now_ns: u64) -> Option<Heard> {
        if !self.has(stream) && self.shares.len() >= SHARES_MAX {
            return None;
        }
        let share = self.shares.entry(stream).or_insert_with(|| Share::new(now_ns));
        let unassigned = share.report(usage, now_ns);
        Some(Heard { unassigned, is_idle: share.is_idle(now_ns, IDLE_NS) })
    }

    /// Notes of a stream what it should have if nothing is known of it but that it has come.
    pub fn expect(&mut self, stream: StreamId, left: Left) {
        if let Some(share) = self.shares.get_mut(&stream) {
            share.expect(left.units, left.is_quick);
        }
    }

    /// What its streams want together. `next_ns`: from now until the next round.
    pub fn wants(&self, round: u64, now_ns: u64, next_ns: u64) -> Wants {
        let mut wants = Wants { round, streams: self.shares.len() as u64, ..Wants::default() };
        for share in self.shares.values() {
            let (weight, is_gone) = (share.weight(), share.round == round);
            // Weights of all streams of a bucket fit: each is below 2^41.
            wants.demand += weight;
            if share.needs() == 0 {
                continue;
            }
            wants.weight += weight;
            if share.is_unknown() {
                wants.unknown += 1;
                wants.unknown_gone += u64::from(is_gone);
                continue;
            }
            wants.needs = wants.needs.saturating_add(share.needs());
            if share.hungers(now_ns.saturating_add(next_ns)) {
                wants.soon += weight;
                wants.gone += if is_gone { weight } else { 0 };
            }
        }
        wants
    }

    /// From one report of a stream to the next, of the stream that waits and reports most rarely.
    pub fn interval_ns(&self) -> u64 {
        let waiting = self.shares.values().filter(|share| share.needs() > 0);
        waiting.map(Share::interval_ns).max().unwrap_or(SECOND_NS)
    }

    /// How many of the units that there are should be drawn for a stream now. If there are fewer than all reporters want,
    /// each gets a part as large as its part of what they want. They have their turn once a `round` and at its beginning, so
    /// that the first and the last of a round get the same, and none gets what has come back since by reporting later than
    /// the others. `rivals`: what streams of other buckets want of the same units.
    pub fn plan(
        &mut self,
        stream: StreamId,
        left: Left,
        rivals: Rivals,
        (turn, round): (Turn, u64),
        now_ns: u64,
    ) -> u64 {
        let Left { units: left, is_quick } = left;
        let Some(own) = self.shares.get_mut(&stream) else { return 0 };
        own.expect(left, is_quick);
        let (need, is_new, had_turn) = (own.needs(), own.is_new(), own.round == round);
        if need == 0 {
            return 0;
        }
        let known = self.shares.values().filter(|share| !share.is_unknown());
        let all = known.map(|share| u128::from(share.needs())).sum::<u128>() + u128::from(rivals.needs);
        let waits = |(id, share): &(&StreamId, &Share<R>)| {
            **id == stream || (share.hungers(now_ns) && share.round != round)
        };
        let waiting = self.shares.iter().filter(waits);
        let weights =
            waiting.map(|(_, share)| u128::from(share.weight())).sum::<u128>() + u128::from(rivals.waits);
        let Some(own) = self.shares.get_mut(&stream) else { return 0 };
        if own.is_unknown() {
            return self.first_part(stream, left, rivals, round);
        }
        if all <= left.into() {
            own.round = round;
            own.credit = 0;
            return need;
        }
        if had_turn || turn == Turn::Report && !is_new {
            return 0;
        }
        own.round = round;
        let part = u128::from(left) * PART * u128::from(own.weight()) / weights.max(1);
        let most = u128::from(need) * PART;
        let credit = (u128::from(own.credit) + part).min(most);
        // One that has just come is given a unit at once, if there is one.
        let whole = (credit / PART).max(u128::from(is_new)).min(u128::from(left));
        own.credit = u64::try_from(credit.saturating_sub(whole * PART)).unwrap_or(0);
        // At most `left`.
        whole as u64
    }

    /// What one should have now of which nothing is known, of what comes back soon: as much as each other such one, and as all
    /// together that are known. Of what has gathered a half, round by round: it loses what it has not spent by the next one. What
    /// has come back since the last round goes on whole: what it does not spend of that nobody else has asked for.
    fn first_part(&mut self, stream: StreamId, left: u64, rivals: Rivals, round: u64) -> u64 {
        let waits = |share: &&Share<R>| share.is_unknown() && share.round != round;
        let alike = self.shares.values().filter(waits).count() as u64;
        let alike = alike.saturating_add(rivals.unknown);
        let are_others =
            rivals.needs > 0 || self.shares.values().any(|share| !share.is_unknown() && share.needs() > 0);
        let Some(own) = self.shares.get_mut(&stream).filter(|own| own.round != round) else { return 0 };
        own.round = round;
        let gathered = own.kept.unwrap_or(left).min(left);
        own.kept = Some(gathered / 2);
        let left = left - gathered / 2;
        (left / alike.saturating_add(are_others.into()).max(1)).max(u64::from(own.is_new())).min(left)
    }

    /// Answers a report with what was drawn for the stream. `None` if it has no share.
    pub fn answer(
        &mut self,
        stream: StreamId,
        drawn: u64,
        receipt: Option<R>,
        now_ns: u64,
    ) -> Option<(Assignment, Vec<Back<R>>)> {
        Some(self.shares.get_mut(&stream)?.answer(drawn, receipt, now_ns))
    }

    /// Assigns what was drawn for the stream between two reports. `None` if that is nothing.
    pub fn top_up(
        &mut self,
        stream: StreamId,
        drawn: u64,
        receipt: Option<R>,
        now_ns: u64,
    ) -> Option<Assignment> {
        let share = self.shares.get_mut(&stream)?;
        (drawn > 0).then(|| share.top_up(drawn, receipt, now_ns))
    }

    /// Whether a stream should be given more before its next report, now or later.
    pub fn waits(&self, stream: StreamId) -> bool {
        self.shares.get(&stream).is_some_and(|share| share.needs() > 0)
    }

    /// Whether it should be now.
    pub fn hungers(&self, stream: StreamId, now_ns: u64) -> bool {
        self.shares.get(&stream).is_some_and(|share| share.hungers(now_ns))
    }

    /// Whether a stream has said nothing about the bucket for as long as it was told something for.
    pub fn is_silent(&self, stream: StreamId, now_ns: u64) -> bool {
        self.shares.get(&stream).is_some_and(|share| share.is_silent(now_ns))
    }

    /// Forgets a stream that has ended or fallen silent. What it will hardly have spent since its last report goes back.
    pub fn leave(&mut self, stream: StreamId, now_ns: u64) -> Vec<Back<R>> {
        self.shares.remove(&stream).map(|mut share| share.leave(now_ns)).unwrap_or_default()
    }

    /// Forgets a stream that is told to forget the bucket. All that it has goes back.
    pub fn abandon(&mut self, stream: StreamId) -> Vec<Back<R>> {
        self.shares.remove(&stream).map(|mut share| share.take_all()).unwrap_or_default()
    }
}

/// Reporters of one bucket: each turn looks at all of them.
pub const SHARES_MAX: usize = 1_024;
/// A part of a unit.
const PART: u128 = 256;
const SECOND_NS: u64 = 1_000_000_000;
/// A bucket without a request for so long is to be forgotten.
const IDLE_NS: u64 = 60 * SECOND_NS;
