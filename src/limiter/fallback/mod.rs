//! Fallback: what this node admits while Redis is unavailable, and tells Redis afterwards.

pub(super) mod debts;
pub(super) mod repayment;
pub(super) mod unsent_queue;
