//! What an admitted request holds of its limits: concurrency permits until its answer has ended, a place in a leaky
//! bucket's queue until its turn comes, an estimated cost until the real one is known.
//!
//! The request's context owns it, so it is given back however the request ends: by the last byte, a client that leaves,
//! or a panic. Most requests hold nothing and have no reservation. It decides nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use super::response::answer_reader::{AnswerReader, Readable};
use limit::{Algorithm, Charge};
use limiter::{Decision, Limiter, Refund};
use metrics::CostOutcome;
use policy::RouteTable;
use policy::counting::Policy;
use policy::definition::Actual;
use policy::json::JsonPath;

#[derive(Debug)]
pub struct Reservation {
    permits: SmallVec<[(Charge, Refund); 1]>,
    places: SmallVec<[(Charge, Refund); 1]>,
    estimates: SmallVec<[(Charge, Refund); 1]>,
    /// What was decided, until the status is known by which a policy charges; `None` if none does.
    by_status: Option<Rc<DecisionByStatus>>,
    /// The numbers of the answer that are costs; `None` if its body is not read.
    answer_paths: Option<Arc<[JsonPath]>>,
    answer: AnswerState,
    /// When all of it was charged. It is kept because a refund goes to the window of that time.
    taken_ns: u64,
    /// From `taken_ns` to the request's turn; 0 once it has come.
    delay_ns: u64,
}

/// A decision some of whose charges come back if the status of the answer is none that they count.
#[derive(Debug)]
pub struct DecisionByStatus {
    pub charges: SmallVec<[Charge; 4]>,
    decision: Decision,
    /// The decision without what came back, once a status is known.
    pub settled: RefCell<Option<Decision>>,
}

/// What is known of the upstream's answer.
#[derive(Debug)]
enum AnswerState {
    /// None has come.
    Awaited,
    /// None can come: the request was not sent.
    Unsent,
    /// Its head has come.
    Begun {
        /// The upstream says that it failed.
        is_error: bool,
        is_encoded: bool,
        reader: Option<Rc<AnswerReader>>,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct RequestUsage {
    /// Bytes of its body, as far as they came.
    pub bytes_in: u64,
    /// Bytes of its answer, as far as they were sent.
    pub bytes_out: u64,
    /// From the decision to the end.
    pub nanos: u64,
    pub now_ns: u64,
}

impl Reservation {
    /// What an admitted request holds of its charges; `None` if nothing.
    pub fn of(
        table: &RouteTable,
        answer_paths: Option<&Arc<[JsonPath]>>,
        charges: &[Charge],
        decision: &Decision,
        taken_ns: u64,
    ) -> Option<Box<Reservation>> {
        let delay_ns = decision.delay_ns(charges);
        let mut held = Reservation {
            permits: SmallVec::new(),
            places: SmallVec::new(),
            estimates: SmallVec::new(),
            by_status: None,
            answer_paths: None,
            answer: AnswerState::Awaited,
            taken_ns,
            delay_ns,
        };
        for (index, charge) in charges.iter().enumerate() {
            if !decision.has_taken(index, charge) {
                continue;
            }
            let taken = (*charge, decision.refund(index));
            match charge.quota.algorithm() {
                Algorithm::Concurrency => held.permits.push(taken),
                Algorithm::LeakyBucket if delay_ns > 0 => held.places.push(taken),
                _ => {}
            }
            // Not for permits, because they come back as they were taken.
            if let Some(actual) = table.policies()[charge.policy.index()].actual_cost()
                && charge.quota.algorithm() != Algorithm::Concurrency
            {
                held.estimates.push(taken);
                match actual {
                    Actual::ResponseJson(_) => held.answer_paths = answer_paths.cloned(),
                    Actual::Status(_) if held.by_status.is_none() => {
                        let (charges, decision) = (charges.into(), decision.clone());
                        let by_status = DecisionByStatus { charges, decision, settled: RefCell::default() };
                        held.by_status = Some(Rc::new(by_status));
                    }
                    _ => {}
                }
            }
        }
        let is_empty = held.permits.is_empty() && held.places.is_empty() && held.estimates.is_empty();
        (!is_empty).then(|| Box::new(held))
    }

    /// The numbers of the answer that are costs; `None` if its body is not read.
    pub fn answer_paths(&self) -> Option<&Arc<[JsonPath]>> {
        self.answer_paths.as_ref()
    }

    /// What was decided, if a policy charges by a status that is not known yet.
    pub fn by_status(&self) -> Option<&Rc<DecisionByStatus>> {
        self.by_status.as_ref()
    }

    /// The client gets this status, and its gRPC call, if it is one, ends with the other: gives back what the policies that
    /// charge by them do not count. What charges by the end of a call that `goes_on` waits for it. Returns the decision,
    /// which is settled now; `None` if there is no such policy, or all was known before.
    pub fn settle_status(
        &mut self,
        table: &RouteTable,
        limiter: &Arc<Limiter>,
        (status, of_call, goes_on): (u16, Option<u32>, bool),
        count: impl Fn(&Charge, CostOutcome),
    ) -> Option<Rc<DecisionByStatus>> {
        let decided = self.by_status.take()?;
        if goes_on {
            self.by_status = Some(Rc::clone(&decided));
        }
        let is_counted = |charge: &Charge| {
            let statuses = table.policies()[charge.policy.index()].actual_cost()?.statuses()?;
            (!goes_on || !statuses.are_of_calls()).then(|| statuses.contains(status, of_call))
        };
        let (taken_ns, mut told) = (self.taken_ns, None);
        self.estimates.retain(|(charge, refund)| {
            let Some(is_counted) = is_counted(charge) else { return true };
            if !is_counted {
                limiter.refund(charge, *refund, taken_ns);
            }
            if told.replace(charge.policy) != Some(charge.policy) {
                count(charge, if is_counted { CostOutcome::Known } else { CostOutcome::Waived });
            }
            false
        });
        let is_back = |charge: &Charge| is_counted(charge) == Some(false);
        *decided.settled.borrow_mut() = Some(decided.decision.refunded(&decided.charges, is_back));
        Some(decided)
    }

    /// What reads the answer's body, once its head has come and it can be read.
    pub fn answer_reader(&self) -> Option<Rc<AnswerReader>> {
        match &self.answer {
            AnswerState::Begun { reader, .. } => reader.clone(),
            AnswerState::Awaited | AnswerState::Unsent => None,
        }
    }

    /// Notes what the head of the upstream's answer says. Where it says a cost, that takes the place of the estimate.
    /// `slots` are those of the worker's codecs.
    pub fn answered(
        &mut self,
        table: &RouteTable,
        limiter: &Arc<Limiter>,
        (status, headers): (StatusCode, &HeaderMap),
        slots: &Rc<()>,
        now_ns: u64,
        count: impl Fn(&Charge, CostOutcome),
    ) {
        let (taken_ns, mut counted) = (self.taken_ns, None);
        self.estimates.retain(|(charge, refund)| {
            let policy = &table.policies()[charge.policy.index()];
            let Some(units) = policy.cost_in(headers) else { return true };
            limiter.reconcile(charge, *refund, taken_ns, policy.cost_cut(units, charge), now_ns);
            // The last one is enough to count each once, because the windows of a policy follow each other.
            if counted.replace(charge.policy) != Some(charge.policy) {
                count(charge, CostOutcome::Known);
            }
            false
        });
        let is_error = status.is_client_error() || status.is_server_error();
        let readable = self.answer_paths.as_ref().map(|paths| (paths, Readable::of(headers)));
        let reader = match readable {
            Some((paths, Readable::Yes(form, coding))) => AnswerReader::new(paths, (form, coding), slots),
            _ => None,
        };
        let reader = reader.map(Rc::new);
        let is_encoded = reader.is_none() && readable.is_some_and(|(_, readable)| readable != Readable::No);
        self.answer = AnswerState::Begun { is_error, is_encoded, reader };
    }

    /// The request was not sent: its answer costs nothing.
    pub fn waive(&mut self) {
        self.answer = AnswerState::Unsent;
    }

    /// Whether a cost is to be known. A request whose turn has not come gives back all that it was charged.
    pub fn has_estimates(&self) -> bool {
        !self.estimates.is_empty() && self.delay_ns == 0
    }

    /// Replaces each charged estimate by the cost that the request turned out to have; if that is not known, the estimate
    /// stays. `count` is told once for each policy.
    pub fn reconcile(
        &mut self,
        table: &RouteTable,
        limiter: &Arc<Limiter>,
        spent: &RequestUsage,
        count: impl Fn(&Charge, CostOutcome),
    ) {
        let mut counted = None;
        for (charge, refund) in std::mem::take(&mut self.estimates) {
            let policy = &table.policies()[charge.policy.index()];
            let (cost, units) = self.cost_of(policy, spent);
            if let Some(units) = units {
                limiter.reconcile(
                    &charge,
                    refund,
                    self.taken_ns,
                    policy.cost_cut(units, &charge),
                    spent.now_ns,
                );
            }
            if counted.replace(charge.policy) != Some(charge.policy) {
                count(&charge, cost);
            }
        }
    }

    /// What became of a policy's cost, and its units if the estimate does not stay.
    fn cost_of(&self, policy: &Policy, spent: &RequestUsage) -> (CostOutcome, Option<u64>) {
        let paths = match policy.actual_cost() {
            Some(Actual::Measured(measured)) => {
                let units = measured.units(spent.bytes_in, spent.bytes_out, spent.nanos);
                return (CostOutcome::Known, Some(units));
            }
            // It stays, because the head would have settled it.
            Some(Actual::ResponseHeader(_) | Actual::Status(_)) | None => {
                let is_begun = matches!(self.answer, AnswerState::Begun { .. });
                return (if is_begun { CostOutcome::Absent } else { CostOutcome::Cut }, None);
            }
            Some(Actual::ResponseJson(paths)) => paths,
        };
        let AnswerState::Begun { is_error, is_encoded, reader } = &self.answer else {
            return match self.answer {
                AnswerState::Unsent => (CostOutcome::Waived, Some(0)),
                _ => (CostOutcome::Cut, None),
            };
        };
        let sum = reader.as_ref().and_then(|reader| reader.sum(paths));
        match sum {
            Some(units) => (CostOutcome::Known, Some(units)),
            None if *is_error => (CostOutcome::Waived, Some(0)),
            None if *is_encoded || reader.as_ref().is_some_and(|reader| reader.is_lost()) => {
                (CostOutcome::Encoded, None)
            }
            None if reader.as_ref().is_some_and(|reader| !reader.is_whole()) => (CostOutcome::Cut, None),
            None => (CostOutcome::Absent, None),
        }
    }

    /// From the request's begin to its turn; 0 once it has come.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The turn has come: the place in the queue is used up and not given back any more.
    pub fn turn_came(&mut self) {
        self.delay_ns = 0;
    }

    /// Gives back what is still held: permits, and the place in a queue of a request whose turn had not come.
    pub fn end(&mut self, limiter: &Arc<Limiter>) {
        let places = if self.delay_ns > 0 { self.places.as_slice() } else { &[] };
        for (charge, refund) in self.permits.iter().chain(places) {
            limiter.refund(charge, *refund, self.taken_ns);
        }
    }
}
