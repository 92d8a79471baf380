//! What has had its time goes, and nothing else.

use std::time::Duration;

use control::database::{NewOverride, OverrideFilter, RowChanges, Time};

use crate::documents::documents_with;

use super::lab::{Lab, alice_once, all, both, of_user};

both! {
    what_is_over_is_deleted_and_the_rest_stays
    events_have_their_months_and_go_by_age
    several_nodes_may_do_it_at_once
    the_audit_log_is_shortened_by_its_owner_alone
}

const MONTH: Duration = Duration::from_secs(31 * 86_400);

async fn what_is_over_is_deleted_and_the_rest_stays(lab: Lab) {
    let database = lab.open().await;
    let now = Time::now();
    let mut rows = Vec::new();
    for (user, ends) in
        [("over", Some(-90_000)), ("just-over", Some(-80_000)), ("running", Some(60)), ("for-good", None)]
    {
        let expires_at = ends.map(|seconds| Time(now.0 + seconds * 1_000_000));
        let new = NewOverride { expires_at, ..of_user(user, 1) };
        rows.push(database.add_override(&alice_once(user, user), new).await.expect("it is made"));
    }
    lab.sql(&format!("UPDATE changes SET at = {} WHERE version <= 2", lab.moment(-86_500)));
    lab.sql(&format!("UPDATE idempotency_keys SET at = {} WHERE key = 'over'", lab.moment(-86_500)));
    database.upkeep(MONTH).await.expect("it is done");
    assert_eq!(lab.sql("SELECT min(version) FROM changes"), "3");
    assert_eq!(lab.sql("SELECT count(*) FROM idempotency_keys"), "3");
    assert_eq!(lab.sql("SELECT count(*) FROM audit_log"), "4");
    let mut listed = database.overrides(&all(), &OverrideFilter::default()).await.expect("they are listed");
    listed.sort_by_key(|row| row.version);
    assert_eq!(listed, rows[1..]);
    // Nodes let an override end on their own: that it is deleted later is no change.
    assert_eq!(database.version().await, Ok(4));
    assert!(matches!(database.changes_since(1, None).await, Ok(RowChanges::Everything(_))));
    assert!(matches!(database.changes_since(2, None).await, Ok(RowChanges::Since { .. })));
}

async fn events_have_their_months_and_go_by_age(lab: Lab) {
    let database = lab.open().await;
    database.upkeep(MONTH).await.expect("it is done");
    let insert = |when: &str| {
        lab.try_sql(&format!(
            "INSERT INTO rate_limit_events (user_id, node_id, decision, recorded_at) VALUES ('ada', 'n1', 'deny', {when})"
        ))
    };
    insert(&lab.moment(0)).expect("there is a table for this month");
    insert(&lab.moment(20 * 86_400)).expect("and for the days to come");
    if lab.is_postgres() {
        lab.sql(
            "CREATE TABLE rate_limit_events_2020_01 PARTITION OF rate_limit_events \
             FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z')",
        );
        lab.sql(
            "CREATE TABLE rate_limit_events_old PARTITION OF rate_limit_events \
             FOR VALUES FROM ('2019-01-01Z') TO ('2019-02-01Z')",
        );
        insert("'2020-01-31T23:59:59Z'").expect("there is a table for it");
        insert("'2019-01-31T23:59:59Z'").expect("there is a table for it");
    } else {
        insert(&lab.moment(-40 * 86_400)).expect("it takes any");
    }
    database.upkeep(MONTH).await.expect("it is done");
    // Tables that somebody named otherwise are not touched.
    let left = if lab.is_postgres() { "3" } else { "2" };
    assert_eq!(lab.sql("SELECT count(*) FROM rate_limit_events"), left);
    if lab.is_postgres() {
        assert_eq!(lab.sql("SELECT to_regclass('rate_limit_events_2020_01') IS NULL"), "t");
    }
}

/// By the statements that a document shows.
async fn the_audit_log_is_shortened_by_its_owner_alone(lab: Lab) {
    let database = lab.open().await;
    for user in ["ada", "bob"] {
        database.add_override(&alice_once(user, user), of_user(user, 1)).await.expect("it is made");
    }
    let delete = "DELETE FROM audit_log WHERE id = (SELECT min(id) FROM audit_log)";
    let refused = lab.try_sql(delete).expect_err("it is append-only");
    assert!(refused.contains("append-only"), "{refused}");
    let (before, after) = match lab.is_postgres() {
        true => (
            "ALTER TABLE audit_log DISABLE TRIGGER audit_log_is_not_changed",
            "ALTER TABLE audit_log ENABLE TRIGGER audit_log_is_not_changed",
        ),
        false => (
            "DROP TRIGGER audit_log_is_not_deleted",
            "CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log \
             BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END",
        ),
    };
    let (_, text) = documents_with(before).remove(0);
    assert!(text.replace('\n', " ").contains(after), "the document has them");
    lab.sql(&format!("BEGIN; {before}; {delete}; {after}; COMMIT"));
    assert_eq!(lab.sql("SELECT count(*) FROM audit_log"), "1");
    lab.try_sql(delete).expect_err("it is append-only again");
    // The gateways go on.
    database.add_override(&alice_once("eve", "eve"), of_user("eve", 1)).await.expect("it is made");
}

async fn several_nodes_may_do_it_at_once(lab: Lab) {
    let nodes = [lab.open().await, lab.open().await, lab.open().await];
    let done = tokio::join!(nodes[0].upkeep(MONTH), nodes[1].upkeep(MONTH), nodes[2].upkeep(MONTH));
    assert_eq!(done, (Ok(()), Ok(()), Ok(())));
}
