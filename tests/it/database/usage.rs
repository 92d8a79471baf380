//! Usage by the minute: added up over nodes, once however often it is tried, and gone after a day.

use std::time::Duration;

use control::database::{Time, UsageFilter, UsageHolder, UsageMinute, batch_id};
use metrics::usage::{Amount, UsageRow};

use super::lab::{Lab, both};

both! {
    nodes_add_to_one_row_and_each_batch_counts_once
    minutes_are_those_of_the_holder_and_the_policies_asked_for
    nodes_may_add_at_once
    minutes_go_after_a_day
    names_of_any_length_that_is_kept_are_taken
}

fn row(policy: &str, consumer: &str, tenant: &str, admitted: u64) -> UsageRow {
    let amount = Amount { admitted, denied: 1, units: 10 * admitted };
    UsageRow { policy: policy.to_owned(), consumer: consumer.to_owned(), tenant: tenant.to_owned(), amount }
}

/// What is answered, as policy, minute and admitted.
fn told(rows: &[UsageMinute]) -> Vec<(&str, Time, u64)> {
    rows.iter().map(|row| (row.policy.as_str(), row.at, row.amount.admitted)).collect()
}

fn of(holder: UsageHolder<'_>) -> UsageFilter<'_> {
    UsageFilter { holder, policies: ("", "zzz"), since: Time(0) }
}

async fn nodes_add_to_one_row_and_each_batch_counts_once(lab: Lab) {
    let (one, two) = (lab.open().await, lab.open().await);
    let at = Time(60_000_000);
    let id = batch_id();
    for _ in 0..3 {
        one.add_usage(&id, at, &[row("calls", "ann", "", 2)]).await.expect("it is written");
    }
    two.add_usage(&batch_id(), at, &[row("calls", "ann", "", 5)]).await.expect("it is written");
    let rows = two.usage(&of(UsageHolder::Consumer("ann", None))).await.expect("it is read");
    let amount = Amount { admitted: 7, denied: 2, units: 70 };
    assert_eq!(rows, [UsageMinute { policy: "calls".to_owned(), at, amount }]);
    assert_eq!(two.version().await, Ok(0), "it is no change that nodes follow");
}

async fn minutes_are_those_of_the_holder_and_the_policies_asked_for(lab: Lab) {
    let database = lab.open().await;
    let (early, late) = (Time(60_000_000), Time(120_000_000));
    let rows = [
        row("", "", "", 9),
        row("calls", "ann", "acme", 1),
        row("calls", "ann", "blue", 2),
        row("plans", "ann", "acme", 4),
        row("calls", "bob", "acme", 8),
        row("calls", "", "acme", 16),
    ];
    for at in [early, late] {
        database.add_usage(&batch_id(), at, &rows).await.expect("it is written");
    }
    let asked = async |filter: UsageFilter<'_>| database.usage(&filter).await.expect("it is read");
    let all = asked(of(UsageHolder::Consumer("ann", None))).await;
    assert_eq!(
        told(&all),
        [("calls", early, 3), ("calls", late, 3), ("plans", early, 4), ("plans", late, 4)]
    );
    let as_blue = asked(of(UsageHolder::Consumer("ann", Some("blue")))).await;
    assert_eq!(told(&as_blue), [("calls", early, 2), ("calls", late, 2)]);
    let late_plans =
        UsageFilter { policies: ("d", "plans"), since: late, ..of(UsageHolder::Consumer("ann", None)) };
    assert_eq!(told(&asked(late_plans).await), [("plans", late, 4)]);
    let tenant = UsageFilter { since: late, ..of(UsageHolder::Tenant("acme")) };
    assert_eq!(told(&asked(tenant).await), [("calls", late, 25), ("plans", late, 4)]);
    assert_eq!(told(&asked(of(UsageHolder::Others)).await), [("", early, 9), ("", late, 9)]);
}

async fn nodes_may_add_at_once(lab: Lab) {
    let nodes = [lab.open().await, lab.open().await, lab.open().await];
    // More than one statement has, and the same rows from all of them.
    let rows: Vec<UsageRow> =
        (0..1_201).map(|number| row("calls", &format!("c{number:04}"), "", 1)).collect();
    let add = |node: usize| {
        let (database, rows) = (nodes[node].clone(), rows.clone());
        async move { database.add_usage(&batch_id(), Time(60_000_000), &rows).await }
    };
    let done = tokio::join!(add(0), add(1), add(2));
    assert_eq!(done, (Ok(()), Ok(()), Ok(())));
    assert_eq!(lab.sql("SELECT count(*), min(admitted), max(admitted) FROM usage_minutes"), "1201|3|3");
}

async fn minutes_go_after_a_day(lab: Lab) {
    let database = lab.open().await;
    let now = Time::now();
    for hours in [0, 23, 25] {
        let at = now.before(Duration::from_secs(hours * 3_600));
        database
            .add_usage(&batch_id(), at, &[row("calls", "ann", "", hours + 1)])
            .await
            .expect("it is written");
    }
    lab.sql(&format!(
        "UPDATE usage_batches SET at = {} WHERE id = (SELECT min(id) FROM usage_batches)",
        lab.moment(-90_000)
    ));
    database.upkeep(Duration::from_secs(86_400)).await.expect("it is done");
    let rows = database.usage(&of(UsageHolder::Consumer("ann", None))).await.expect("it is read");
    assert_eq!(rows.iter().map(|row| row.amount.admitted).collect::<Vec<_>>(), [24, 1]);
    assert_eq!(lab.sql("SELECT count(*) FROM usage_batches"), "2");
}

async fn names_of_any_length_that_is_kept_are_taken(lab: Lab) {
    let database = lab.open().await;
    // Nothing that an index could make shorter.
    let noise = |seed: u64, length: usize| -> String {
        let mut state = seed;
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 33) % 94).expect("below 94"))
        };
        (0..length).map(letter).collect()
    };
    let (policy, consumer, tenant) = (noise(1, 200), noise(2, 1_000), noise(3, 798));
    database
        .add_usage(&batch_id(), Time(60_000_000), &[row(&policy, &consumer, &tenant, 1)])
        .await
        .expect("taken");
    let filter = UsageFilter {
        holder: UsageHolder::Consumer(&consumer, Some(&tenant)),
        policies: (&policy, &policy),
        since: Time(0),
    };
    assert_eq!(database.usage(&filter).await.map(|rows| rows.len()), Ok(1));
}
