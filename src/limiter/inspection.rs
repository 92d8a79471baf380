//! [`Inspection`]: what operators are shown of a limiter. Nothing is spent, and no request waits for it. What Redis holds of windows
//! that a fleet shares is here; what else there is to see is beside what it is about.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Limiter;
use crate::leases::lease_table::LeaseTable;
use limit::Charge;
use limit::lease_messages::{ExactCharge, LinkError, Op, Reply, WindowRecord};

/// What came of a look in Redis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RedisView {
    /// What Redis holds of the window, read without spending.
    Seen(WindowRecord),
    /// The key's shard is known to be away.
    Away,
    /// Nothing came back in the time that operators wait.
    Late,
    /// The shard refused: it is loading, a replica, or the key holds something else.
    Refused,
}

/// A limiter, as operators look at it.
#[derive(Clone, Copy, Debug)]
pub struct Inspection<'l> {
    pub(crate) limiter: &'l Limiter,
}

impl Limiter {
    /// For operators.
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection { limiter: self }
    }
}

impl<'l> Inspection<'l> {
    /// This node's leases, if Redis is configured.
    pub fn leases(&self) -> Option<&'l LeaseTable> {
        self.limiter.shared.as_ref().map(|shared| &shared.leases.table)
    }

    /// Asks Redis for what it holds of each charge, all at once; `None` where the fleet does not share it. Waits
    /// `PATIENCE`, or the deadline of requests where that is longer.
    pub async fn look_in_redis(&self, charges: &[Charge]) -> Vec<Option<RedisView>> {
        let keys = charges.iter().map(|charge| charge.key);
        let deadline = self.limiter.fleet().map_or(Duration::ZERO, |fleet| fleet.deadline(keys));
        let asked: Vec<_> = charges.iter().map(|charge| self.ask_for_look(charge)).collect();
        let mut patience = pin!(tokio::time::sleep(deadline.max(PATIENCE)));
        let mut looks = Vec::with_capacity(asked.len());
        let link = self.limiter.shared.as_ref().map(|shared| &shared.fleet.link);
        for (answer, charge) in asked.into_iter().zip(charges) {
            let Some(answer) = answer else {
                looks.push(None);
                continue;
            };
            looks.push(Some(tokio::select! {
                biased;
                answer = answer => match look_of(answer) {
                    RedisView::Away if link.is_some_and(|link| link.refuses(charge.key)) => RedisView::Refused,
                    view => view,
                },
                () = &mut patience => RedisView::Late,
            }));
        }
        looks
    }

    fn ask_for_look(&self, charge: &Charge) -> Option<oneshot::Receiver<Result<Reply, LinkError>>> {
        let (shared, plan) = self.limiter.shared(charge)?;
        let (tx, rx) = oneshot::channel();
        // Whoever asked may have gone.
        let done = move |answer, _| drop(tx.send(answer));
        shared.fleet.link.send(Op::Look(ExactCharge::of(charge, &plan)), Box::new(done));
        Some(rx)
    }
}

fn look_of(answer: Result<Result<Reply, LinkError>, oneshot::error::RecvError>) -> RedisView {
    match answer {
        Ok(Ok(Reply::Seen(seen))) => RedisView::Seen(seen),
        Ok(Err(LinkError::Down)) => RedisView::Away,
        Ok(Err(LinkError::Lost)) | Err(_) => RedisView::Late,
        Ok(Ok(_) | Err(LinkError::Refused)) => RedisView::Refused,
    }
}

/// How long operators wait for Redis, where requests do not wait longer.
pub const PATIENCE: Duration = Duration::from_millis(250);
