//! Questions to Redis about exact windows: those in flight, and those that wait to be asked together. It only keeps the
//! queues; `exact/mod.rs` sends and resolves.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::local::striped_map::StripedMap;
use crate::wait::Wait;
use limit::{Algorithm, Charge, Key};

/// Questions in flight and queued, by the first key of each.
#[derive(Debug, Default)]
pub(crate) struct Questions(StripedMap<KeyQuestions>);

#[derive(Debug, Default)]
struct KeyQuestions {
    in_flight: usize,
    /// When the last of them was sent, nanoseconds.
    sent_ns: u64,
    queued: VecDeque<Question>,
}

/// The charges of one request on exact windows of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) wait: Arc<Wait>,
    /// Indices of its charges in the request.
    pub(crate) indices: SmallVec<[usize; 2]>,
    pub(crate) charges: SmallVec<[Charge; 2]>,
}

/// Questions that are asked as one, in their order.
pub(crate) type Group = SmallVec<[Question; 1]>;
/// Free units of each window of a question.
pub(crate) type FreeUnits = SmallVec<[u64; 2]>;

impl Questions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the question if it may be sent now, else queues it behind those in flight. `room`: units left as far as
    /// this node knows. `is_ahead`: no request waits for the answer.
    pub(crate) fn begin(
        &self,
        question: Question,
        room: u64,
        is_ahead: bool,
        now_ns: u64,
    ) -> Option<Question> {
        match self.0.of(question.key()).entry(question.key()) {
            Entry::Vacant(vacant) => {
                vacant.insert(KeyQuestions { in_flight: 1, sent_ns: now_ns, queued: VecDeque::new() });
                Some(question)
            }
            Entry::Occupied(mut asking) => {
                let asking = asking.get_mut();
                let is_plenty = || room / PLENTY > (asking.in_flight as u64 + 1) * question.dearest();
                let is_room = match is_ahead {
                    true => asking.in_flight < AHEAD_MAX,
                    false => asking.in_flight < TOGETHER_MAX && is_plenty(),
                };
                if asking.queued.is_empty() && is_room {
                    (asking.in_flight, asking.sent_ns) = (asking.in_flight + 1, now_ns);
                    return Some(question);
                }
                asking.queued.push_back(question);
                None
            }
        }
    }

    /// When the last question about a key was sent that has no answer yet, nanoseconds.
    pub(crate) fn sent_ns(&self, key: Key) -> Option<u64> {
        self.0.of(key).get(&key).map(|asking| asking.sent_ns)
    }

    /// Takes out the queued questions, to be asked now. If there are none, counts one question less in flight.
    pub(crate) fn take_queued(&self, key: Key, now_ns: u64) -> VecDeque<Question> {
        let mut keys = self.0.of(key);
        let Some(asking) = keys.get_mut(&key) else { return VecDeque::new() };
        if asking.queued.is_empty() {
            asking.in_flight -= 1;
            if asking.in_flight == 0 {
                keys.remove(&key);
            }
            return VecDeque::new();
        }
        asking.sent_ns = now_ns;
        std::mem::take(&mut asking.queued)
    }

    /// Puts back questions that still wait, before those that came meanwhile. The others are asked now.
    pub(crate) fn put_back(&self, key: Key, questions: VecDeque<Question>, now_ns: u64) {
        if let Some(asking) = self.0.of(key).get_mut(&key) {
            asking.sent_ns = now_ns;
            questions.into_iter().rev().for_each(|question| asking.queued.push_front(question));
        }
    }

    /// Takes out the queued questions that want at least as much of the same windows as one that was refused.
    pub(crate) fn take_alike(&self, refused: &Question) -> VecDeque<Question> {
        let mut keys = self.0.of(refused.key());
        let Some(asking) = keys.get_mut(&refused.key()) else { return VecDeque::new() };
        let is_as_dear = |question: &Question| {
            let is_no_less = |(one, other): (&Charge, &Charge)| one.cost >= other.cost;
            question.is_alike(refused) && question.charges.iter().zip(&refused.charges).all(is_no_less)
        };
        let queued = std::mem::take(&mut asking.queued);
        let (alike, rest) = queued.into_iter().partition::<VecDeque<_>, _>(|question| {
            is_as_dear(question) && !question.wait.is_over() && question.dearest() == refused.dearest()
        });
        asking.queued = rest;
        alike
    }
}

impl Question {
    pub(crate) fn key(&self) -> Key {
        self.charges.first().map_or_else(Key::default, |charge| charge.key)
    }

    pub(crate) fn dearest(&self) -> u64 {
        self.charges.iter().map(|charge| charge.cost).max().unwrap_or(0)
    }

    /// Whether it can be asked together with others. Not if it is a shadow or counts denials, because then Redis has to
    /// decide each request, nor for a leaky bucket, where each request has a delay of its own.
    pub(crate) fn is_plain(&self) -> bool {
        self.charges.iter().all(|charge| {
            !charge.is_lenient() && !charge.count_denied && charge.quota.algorithm() != Algorithm::LeakyBucket
        })
    }

    /// Whether its request was, or may have been, admitted before the answer.
    pub(crate) fn is_admitted(&self) -> bool {
        self.indices.iter().any(|index| self.wait.stands(*index))
    }

    fn is_alike(&self, other: &Question) -> bool {
        let is_of = |(one, other): (&Charge, &Charge)| one.key == other.key && one.plan == other.plan;
        self.charges.len() == other.charges.len() && self.charges.iter().zip(&other.charges).all(is_of)
    }

    pub(crate) fn charges(&self) -> impl Iterator<Item = (usize, &Charge)> {
        self.indices.iter().copied().zip(&self.charges)
    }
}

/// What all questions of a group want of one window.
pub(crate) fn cost_of(group: &Group, window: usize) -> u64 {
    group.iter().fold(0, |sum, question| sum.saturating_add(question.charges[window].cost))
}

/// Takes as many questions from the front of the queue as can be asked as one: on the same windows and within `rooms`, but
/// at least the first.
pub(crate) fn next_group(queued: &mut VecDeque<Question>, rooms: &FreeUnits, most: usize) -> Group {
    let mut group = Group::new();
    let mut sums: FreeUnits = SmallVec::from_elem(0, rooms.len());
    while group.len() < most {
        let Some(question) = queued.front() else { break };
        let is_alike = group.first().is_none_or(|first: &Question| first.is_alike(question));
        let costs = question.charges.iter().map(|charge| charge.cost);
        let next: FreeUnits = sums.iter().zip(costs).map(|(sum, cost)| sum.saturating_add(cost)).collect();
        let fits = next.iter().zip(rooms).all(|(sum, room)| sum <= room);
        if !(group.is_empty() || is_alike && fits) {
            break;
        }
        sums = next;
        group.extend(queued.pop_front());
    }
    group
}

/// The most questions of a key in flight, while plenty is left.
const TOGETHER_MAX: usize = 8;
/// The same of a Redis that no request waits for.
const AHEAD_MAX: usize = 64;
/// Plenty is this many times what the questions in flight want.
const PLENTY: u64 = 4;
