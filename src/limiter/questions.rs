//! Questions to Redis about exact windows that are on their way, and those that wait to be asked together.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use smallvec::SmallVec;

use super::striped::Striped;
use super::wait::Wait;
use crate::limit::{Algorithm, Charge, Key};

/// Questions on their way and those that wait for them, by the first key of each.
#[derive(Debug, Default)]
pub(super) struct Questions(Striped<Asking>);

/// One key's.
#[derive(Debug, Default)]
struct Asking {
    on_their_way: usize,
    queued: VecDeque<Question>,
}

/// The charges of one request on exact windows of one shard.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) wait: Arc<Wait>,
    /// Of its charges.
    pub(super) indices: SmallVec<[usize; 2]>,
    pub(super) charges: SmallVec<[Charge; 2]>,
}

/// Questions asked as one, in their order.
pub(super) type Group = SmallVec<[Question; 1]>;
/// Units free of each window of a question.
pub(super) type Rooms = SmallVec<[u64; 2]>;

impl Questions {
    /// How many keys are asked about.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets a question go, or queues it behind those that are on their way. `room`: units that are left, as far as this
    /// node knows.
    pub(super) fn begin(&self, question: Question, room: u64) -> Option<Question> {
        match self.0.of(question.key()).entry(question.key()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Asking { on_their_way: 1, queued: VecDeque::new() });
                Some(question)
            }
            Entry::Occupied(mut asking) => {
                let asking = asking.get_mut();
                let is_plenty = room / PLENTY > (asking.on_their_way as u64 + 1) * question.dearest();
                if asking.queued.is_empty() && asking.on_their_way < TOGETHER_MAX && is_plenty {
                    asking.on_their_way += 1;
                    return Some(question);
                }
                asking.queued.push_back(question);
                None
            }
        }
    }

    /// Takes out those that wait; where none do, one question less is on its way.
    pub(super) fn take_queued(&self, key: Key) -> VecDeque<Question> {
        let mut keys = self.0.of(key);
        let Some(asking) = keys.get_mut(&key) else { return VecDeque::new() };
        if asking.queued.is_empty() {
            asking.on_their_way -= 1;
            if asking.on_their_way == 0 {
                keys.remove(&key);
            }
            return VecDeque::new();
        }
        std::mem::take(&mut asking.queued)
    }

    /// Lets these wait on, before whoever has come meanwhile.
    pub(super) fn put_back(&self, key: Key, questions: VecDeque<Question>) {
        if let Some(asking) = self.0.of(key).get_mut(&key) {
            questions.into_iter().rev().for_each(|question| asking.queued.push_front(question));
        }
    }

    /// Takes out those behind a question that was refused who want the same and as much of it.
    pub(super) fn take_alike(&self, refused: &Question) -> VecDeque<Question> {
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
    pub(super) fn key(&self) -> Key {
        self.charges.first().map_or_else(Key::default, |charge| charge.key)
    }

    pub(super) fn dearest(&self) -> u64 {
        self.charges.iter().map(|charge| charge.cost).max().unwrap_or(0)
    }

    /// Whether it can be asked together with others: what is counted when it is refused, or refuses nobody, and what
    /// waits in a queue is told of each alone.
    pub(super) fn is_plain(&self) -> bool {
        self.charges.iter().all(|charge| {
            !charge.shadow && !charge.count_denied && charge.quota.algorithm() != Algorithm::LeakyBucket
        })
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.indices.iter().any(|index| self.wait.is_reserved(*index))
    }

    fn is_alike(&self, other: &Question) -> bool {
        let is_of = |(one, other): (&Charge, &Charge)| one.key == other.key && one.plan == other.plan;
        self.charges.len() == other.charges.len() && self.charges.iter().zip(&other.charges).all(is_of)
    }

    /// Its charges and their indices.
    pub(super) fn charges(&self) -> impl Iterator<Item = (usize, &Charge)> {
        self.indices.iter().copied().zip(&self.charges)
    }
}

/// What all of a group want of one of their windows.
pub(super) fn cost_of(group: &Group, window: usize) -> u64 {
    group.iter().fold(0, |sum, question| sum.saturating_add(question.charges[window].cost))
}

/// The longest beginning of the queue that may be asked for as one: alike, within these rooms, or the first alone.
pub(super) fn next_group(queued: &mut VecDeque<Question>, rooms: &Rooms, most: usize) -> Group {
    let mut group = Group::new();
    let mut sums: Rooms = SmallVec::from_elem(0, rooms.len());
    while group.len() < most {
        let Some(question) = queued.front() else { break };
        let is_alike = group.first().is_none_or(|first: &Question| first.is_alike(question));
        let costs = question.charges.iter().map(|charge| charge.cost);
        let next: Rooms = sums.iter().zip(costs).map(|(sum, cost)| sum.saturating_add(cost)).collect();
        let fits = next.iter().zip(rooms).all(|(sum, room)| sum <= room);
        if !(group.is_empty() || is_alike && fits) {
            break;
        }
        sums = next;
        group.extend(queued.pop_front());
    }
    group
}

/// Questions about one key that are on their way at a time while plenty is left.
const TOGETHER_MAX: usize = 8;
/// Plenty is so many times what these want.
const PLENTY: u64 = 4;
