//! Samples of decisions: written by any node, found by a request's id and by a consumer, gone by age.

use std::time::Duration;

use control::database::{DecisionEvent, Time};
use serde_json::json;

use super::lab::{Lab, both};

both! {
    decisions_are_found_by_the_request_and_by_the_consumer
    many_at_once_are_taken_and_go_by_age
}

fn event(request_id: &str, consumer: Option<&str>, is_admitted: bool, at: Time) -> DecisionEvent {
    DecisionEvent {
        request_id: request_id.to_owned(),
        at,
        node: "edge-1".to_owned(),
        consumer: consumer.map(str::to_owned),
        tenant: None,
        is_admitted,
        policy: "search".to_owned(),
        tier: "lease".to_owned(),
        counted: 40,
        limit: 40,
        sample: json!({ "request-id": request_id, "at": at.0 }),
    }
}

async fn decisions_are_found_by_the_request_and_by_the_consumer(lab: Lab) {
    let (one, two) = (lab.open().await, lab.open().await);
    one.upkeep(Duration::from_secs(86_400)).await.expect("it makes the tables of the months");
    let now = Time::now();
    let later = Time(now.0 + 1);
    let written = [
        event("a", Some("ann"), false, now),
        event("b", Some("ann"), true, now),
        event("c", Some("ann"), false, later),
        event("c", Some("bob"), false, later),
        event("d", None, false, later),
    ];
    one.add_events(&written).await.expect("it is written");
    // One that was tried again is told once.
    one.add_events(&written[..1]).await.expect("it is written");
    assert_eq!(two.events_of("a").await, Ok(vec![written[0].sample.clone()]));
    assert_eq!(two.events_of("nobody's").await, Ok(Vec::new()));
    assert_eq!(two.events_of("' OR 1=1 --").await, Ok(Vec::new()));
    let refusals = two.refusals_of("ann", 10).await.expect("it is read");
    assert_eq!(
        refusals,
        [written[2].sample.clone(), written[0].sample.clone()],
        "the newest first, no admission"
    );
    assert_eq!(two.refusals_of("ann", 1).await.map(|found| found.len()), Ok(1));
    let counted = "SELECT count(*) FROM rate_limit_events WHERE decision = 'deny' AND count_at_decision = limit_applied";
    assert_eq!(lab.sql(counted), "5");
}

async fn many_at_once_are_taken_and_go_by_age(lab: Lab) {
    let database = lab.open().await;
    database.upkeep(Duration::from_secs(86_400)).await.expect("it makes the tables of the months");
    let now = Time::now();
    let many: Vec<DecisionEvent> =
        (0..1_200).map(|number| event(&number.to_string(), Some("ann"), false, now)).collect();
    database.add_events(&many).await.expect("they are written");
    assert_eq!(lab.sql("SELECT count(*) FROM rate_limit_events"), "1200");
    assert_eq!(database.events_of("1199").await.map(|found| found.len()), Ok(1));
    if !lab.is_postgres() {
        database.upkeep(Duration::ZERO).await.expect("it is done");
        assert_eq!(lab.sql("SELECT count(*) FROM rate_limit_events"), "0");
    }
}
