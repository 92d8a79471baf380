//! [`Holders`]: what consumers and tenants have of their own, beside the compiled policies: overrides, resets, tiers, and limits
//! that they bring themselves.

pub(super) mod account;
pub(super) mod assignments;
pub(super) mod by_holder;
pub(super) mod overrides;
pub(super) mod overriding;
pub(super) mod own_limits;
pub(super) mod resets;
pub(super) mod standings;

use std::sync::Arc;

use crate::fleet::Fleet;
use crate::holders::assignments::Assignments;
use crate::holders::overrides::Overrides;
use crate::holders::own_limits::OwnLimits;
use crate::holders::resets::Resets;
use crate::local::Table;

pub(crate) struct Holders {
    table: Arc<Table>,
    fleet: Option<Arc<Fleet>>,
    pub(crate) overrides: Overrides,
    pub(crate) resets: Resets,
    pub(crate) assignments: Assignments,
    own_limits: OwnLimits,
}

impl Holders {
    pub(crate) fn new(table: &Arc<Table>, fleet: Option<&Arc<Fleet>>) -> Holders {
        Holders {
            table: Arc::clone(table),
            fleet: fleet.cloned(),
            overrides: Overrides::default(),
            resets: Resets::default(),
            assignments: Assignments::default(),
            own_limits: OwnLimits::default(),
        }
    }
}
