use std::sync::Arc;

use super::*;
use crate::limit::central::Grant;
use crate::limit::{Algorithm, Sharing, WhenDown, quota};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 3_600 * SECOND;

fn plan(limit: u64, period_ns: u64, burst: u64) -> Arc<Plan> {
    let quota = quota::tests::quota(Algorithm::TokenBucket, limit, period_ns, burst);
    let sharing = Sharing { epoch_ns: 500 * MS, spare: 100, when_down: WhenDown::Local };
    Arc::new(Plan { policy: "test".into(), quota, sharing })
}

#[test]
fn a_first_touch_asks_and_spends_what_it_is_given() {
    let plan = plan(1_000, SECOND, 1_000);
    let mut share = Share::default();
    assert_eq!(share.take(&plan, 1, NOW), Told::Ask);
    let renewal = share.renewal(&plan, 7, 1, NOW);
    assert_eq!((renewal.pending, renewal.demand, renewal.epoch), (1, 0.5, 0));
    let grant = Grant { epoch: 9, tokens: 3.0, rate: 10.0, lasts_ns: 400 * MS, ..Grant::default() };
    share.granted(&grant, NOW);
    for _ in 0..3 {
        assert!(matches!(share.take_again(&plan, 1, NOW + MS), Told::Admitted { .. }));
    }
    assert_eq!(share.take(&plan, 1, NOW + MS), Told::Ask);
    assert!(matches!(share.take(&plan, 1, NOW + 101 * MS), Told::Admitted { .. }));
    // The rest of the lease accrues three more; one unit may be overdrawn while it is renewed.
    for _ in 0..3 {
        assert!(matches!(share.take(&plan, 1, NOW + 401 * MS), Told::Admitted { .. }));
    }
    assert!(matches!(share.take(&plan, 1, NOW + 401 * MS), Told::Admitted { .. }));
    assert_eq!(share.take(&plan, 1, NOW + 401 * MS), Told::Ask);
    let renewal = share.renewal(&plan, 7, 1, NOW + 402 * MS);
    assert!((renewal.delta - 1.0).abs() < 0.01, "the overdraft is told: {}", renewal.delta);
}
