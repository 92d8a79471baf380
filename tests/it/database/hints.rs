//! Hints of PostgreSQL reach every node, also after a cut, and cause nothing but a read.

use std::time::Duration;

use control::database::{Database, DatabaseHints, Error, HINTS_TESTED_EACH, HintConnection, LatestHint};

use super::lab::{Lab, alice, config, of_user, runtime};
use super::relay::Relay;
use crate::support::PATIENCE;
use crate::support::postgres::Postgres;

#[test]
fn a_change_is_heard_by_every_node() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        let mut nodes = [listening(&database).await, listening(&lab.open().await).await];
        for expected in 1..=3 {
            database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
            for node in &mut nodes {
                assert_eq!(
                    next(node).await,
                    LatestHint { version: Some(expected), ear: HintConnection::Open }
                );
            }
        }
    });
}

#[test]
fn hints_that_are_forged_name_no_version() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        let mut hints = listening(&database).await;
        for (payload, version) in
            [("", None), ("12x", None), ("99", Some(99)), ("99999999999999999999", None)]
        {
            lab.sql(&format!("SELECT pg_notify('sluicegate', '{payload}')"));
            assert_eq!(next(&mut hints).await, LatestHint { version, ear: HintConnection::Open });
        }
        // They change nothing.
        assert_eq!(database.version().await, Ok(0));
    });
}

#[test]
fn a_flood_of_hints_is_few() {
    Lab::postgres().run(async |lab: Lab| {
        let mut hints = listening(&lab.open().await).await;
        let statement = "SELECT pg_notify('sluicegate', n::text) FROM generate_series(1, 20000) n";
        lab.sql(statement);
        let mut heard = 0;
        while next(&mut hints).await.version != Some(20_000) {
            heard += 1;
        }
        assert!(heard < 10_000, "{heard} hints came one by one");
    });
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        let mut hints = listening(&database).await;
        for _ in 0..3 {
            lab.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND query LIKE 'LISTEN%'",
            );
            assert!(matches!(next(&mut hints).await.ear, HintConnection::Lost(Error::Unreachable { .. })));
            assert_eq!(next(&mut hints).await.ear, HintConnection::Open);
            let made = database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
            assert_eq!(next(&mut hints).await.version, Some(made.version));
        }
    });
}

#[test]
fn behind_a_pooler_of_transactions_nothing_is_heard() {
    Lab::postgres().run(async |lab: Lab| {
        let relay = Relay::start(&lab.config.url);
        relay.drop_notifications(true);
        let database = Database::open(&relay.config).await.expect("it opens");
        let mut hints = database.listen(Duration::from_millis(100)).expect("PostgreSQL has hints");
        // `LISTEN` was taken.
        assert!(matches!(next(&mut hints).await.ear, HintConnection::Lost(Error::Unreachable { .. })));
        relay.drop_notifications(false);
        while next(&mut hints).await.ear != HintConnection::Open {}
        // It stops being heard later, too.
        relay.drop_notifications(true);
        while next(&mut hints).await.ear == HintConnection::Open {}
    });
}

#[test]
fn a_server_that_comes_back_is_listened_to() {
    let mut server = Postgres::start();
    let config =
        config(control::database::config::Url::postgres(&server.url("postgres")).expect("it is a URL"));
    runtime().block_on(async {
        let database = Database::open(&config).await.expect("it opens");
        let mut hints = listening(&database).await;
        server.stop();
        assert!(matches!(next(&mut hints).await.ear, HintConnection::Lost(Error::Unreachable { .. })));
        server.restart();
        while next(&mut hints).await.ear != HintConnection::Open {}
        let made = database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
        assert_eq!(next(&mut hints).await.version, Some(made.version));
    });
}

#[test]
fn sqlite_has_none() {
    Lab::sqlite().run(async |lab: Lab| assert!(lab.open().await.listen(HINTS_TESTED_EACH).is_none()));
}

/// Hints whose connection is there.
async fn listening(database: &Database) -> DatabaseHints {
    let mut hints = database.listen(HINTS_TESTED_EACH).expect("PostgreSQL has hints");
    assert_eq!(next(&mut hints).await, LatestHint { version: None, ear: HintConnection::Open });
    hints
}

async fn next(hints: &mut DatabaseHints) -> LatestHint {
    let patience = PATIENCE + Duration::from_secs(5);
    tokio::time::timeout(patience, hints.next()).await.expect("something is heard")
}
