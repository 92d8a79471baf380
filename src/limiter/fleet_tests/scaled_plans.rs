//! Plans that overrides have made.

use super::*;
use crate::check::tests::{Job, policy, table};
use ::policy::Holder;

#[test]
fn plans_of_overrides_go_when_nobody_needs_them() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let mut table = table(&[policy("jobs", "100000/s by consumer")]);
    let plans = node.fleet().expect("a fleet's node").plans();
    table.share(|policy, quota, sharing| {
        plans.id(Plan { policy: policy.name.as_ref().into(), quota: *quota, sharing })
    });
    let (ann, job) = (Holder::Consumer("ann".into()), Job { consumer: "ann", units: 1, number: None });
    let mut now_ns = NOW;
    for number in 1..=10_000_u32 {
        let factor = Change::Multiplicative(1.0 + f64::from(number) / 10_000.0);
        node.overrides().put(&ann, Override::new("raised", factor, "", number.into()));
        let mut check = Check::default();
        let pending = node.check(table.chosen(&table.routes()[0], false), &job, now_ns, &mut check);
        desk.answer(now_ns);
        if let Some(pending) = pending {
            assert!(node.proceed(pending, &job, now_ns, &mut check).is_none());
        }
        assert!(check.is_admitted());
        let plan = plans.get(check.charges[0].plan).expect("the one in force is known");
        assert_eq!(plan.quota.limit().get(), 100_000 + u64::from(number) * 10);
        now_ns += SECOND;
        node.sweep(now_ns);
        desk.answer(now_ns);
    }
    // Those of the last ten minutes and of the minute until they are looked for.
    assert!(plans.len() < 700, "{}", plans.len());
}
