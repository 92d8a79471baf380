//! Writers at the same time: nobody's change is lost, and every version is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::database::{AuditFilter, Error, Expect, OverrideRow, PolicyRow};
use serde_json::json;
use tokio::task::JoinSet;

use super::changes::Copy;
use super::lab::{Lab, alice, alice_once, all, both, of_user};

both! {
    of_two_writers_of_one_version_one_wins
    followers_miss_nothing_while_others_write
    one_request_at_two_nodes_acts_once
    a_call_that_is_given_up_leaves_nothing
}

async fn of_two_writers_of_one_version_one_wins(lab: Lab) {
    let nodes = [lab.open().await, lab.open().await];
    let mut version =
        nodes[0].put_policy(&alice(), "p", json!(0), Expect::Nothing).await.expect("it is made").version;
    for round in 0..10 {
        let mut writers = JoinSet::new();
        for writer in 0..6 {
            let database = nodes[writer % 2].clone();
            let document = json!([round, writer]);
            let put =
                async move { database.put_policy(&alice(), "p", document, Expect::Version(version)).await };
            writers.spawn(put);
        }
        let answers = writers.join_all().await;
        let won: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let new = won[0].version;
        let lost = answers.iter().filter(|answer| **answer == Err(Error::Conflict { version: Some(new) }));
        assert_eq!(lost.count(), 5, "{answers:?}");
        assert_eq!(nodes[1].row::<PolicyRow>("p").await, Ok(Some(won[0].clone())));
        version = new;
    }
}

async fn followers_miss_nothing_while_others_write(lab: Lab) {
    let database = lab.open().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut followers = JoinSet::new();
    for _ in 0..2 {
        let (database, is_over) = (lab.open().await, Arc::clone(&is_over));
        followers.spawn(async move {
            let mut copy = Copy::default();
            while !is_over.load(Ordering::SeqCst) {
                copy.follow(&database).await;
                tokio::task::yield_now().await;
            }
            copy.follow(&database).await;
            copy
        });
    }
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let database = lab.open().await;
        writers.spawn(async move {
            for number in 0..25 {
                let user = format!("u{}", (writer + number) % 7);
                let made = database.add_override(&alice(), of_user(&user, 1)).await.expect("it is made");
                if number % 3 == 0 {
                    let gone = database.delete::<OverrideRow>(&alice(), &made.id, Expect::Anything).await;
                    gone.expect("it is there");
                }
            }
        });
    }
    writers.join_all().await;
    is_over.store(true, Ordering::SeqCst);
    let whole = Copy::of(&database).await;
    assert_eq!(whole.version, 4 * (25 + 9));
    for copy in followers.join_all().await {
        assert_eq!(copy, whole);
    }
}

async fn one_request_at_two_nodes_acts_once(lab: Lab) {
    let nodes = [lab.open().await, lab.open().await];
    for round in 0..10 {
        let by = [alice_once(&format!("k{round}"), "POST"), alice_once(&format!("k{round}"), "POST")];
        let (one, other) = tokio::join!(
            nodes[0].add_override(&by[0], of_user("ada", 5)),
            nodes[1].add_override(&by[1], of_user("ada", 5))
        );
        assert!(one.is_ok() && one == other, "{one:?} {other:?}");
    }
    assert_eq!(nodes[0].version().await, Ok(10));
}

async fn a_call_that_is_given_up_leaves_nothing(lab: Lab) {
    let database = lab.open().await;
    let made = database.put_policy(&alice(), "p", json!(0), Expect::Nothing).await.expect("it is made");
    let mut given_up = 0;
    for polls in 1..200 {
        let before = database.version().await.expect("it is read");
        let by = alice();
        let mut put = Box::pin(database.put_policy(&by, "p", json!(polls), Expect::Anything));
        // Polled this often, then dropped: wherever it stands, it is all there or not at all.
        let mut answer = None;
        for _ in 0..polls {
            tokio::select! {
                biased;
                done = &mut put => answer = Some(done),
                () = tokio::task::yield_now() => {}
            }
            if answer.is_some() {
                break;
            }
        }
        drop(put);
        // Waits its turn behind what the other still does.
        let next =
            database.put_assignment(&alice(), "ada", "pro", Expect::Anything).await.expect("it is made");
        let row = database.row::<PolicyRow>("p").await.expect("it is read").expect("it is there");
        let entries = database.audit(&all(), &AuditFilter::default()).await.expect("they are listed");
        assert_eq!(entries.len() as i64, next.version, "an entry a version");
        let is_made = row.version == before + 1;
        assert_eq!((row.document == json!(polls), next.version - before), (is_made, 1 + i64::from(is_made)));
        match answer {
            Some(answer) => assert_eq!(answer, Ok(row)),
            None => given_up += 1,
        }
    }
    assert!(given_up > 3 && made.version == 1, "only {given_up} were given up");
}
