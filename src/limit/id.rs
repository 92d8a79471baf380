//! Ids of what a charge names. Each is a type of its own, so that none is taken for another.

use std::num::NonZeroU32;

/// A policy: its place in the table it was compiled into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PolicyId(u32);

/// A [`Plan`](super::Plan): given once, and never to another plan. In the table of leases, which keeps it in a slot's
/// fingerprint, none is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PlanId(NonZeroU32);

impl PolicyId {
    /// The policy at this place of its table.
    pub const fn new(index: u32) -> PolicyId {
        PolicyId(index)
    }

    /// Its place in the table it was compiled into.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl PlanId {
    /// The plan that was given this number.
    pub const fn new(number: NonZeroU32) -> PlanId {
        PlanId(number)
    }

    /// Its number, which no other plan has or gets.
    #[inline]
    pub const fn number(self) -> NonZeroU32 {
        self.0
    }

    /// A plan as a slot keeps it; 0: none.
    #[inline]
    pub fn from_bits(bits: u32) -> Option<PlanId> {
        NonZeroU32::new(bits).map(PlanId)
    }

    /// What a slot keeps of a plan.
    #[inline]
    pub fn into_bits(plan: Option<PlanId>) -> u32 {
        plan.map_or(0, |plan| plan.0.get())
    }
}
