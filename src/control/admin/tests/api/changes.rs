//! What all changes share: their roles, the audit, the wait until they are in force, dry runs, idempotency keys.

use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_change_needs_the_role_of_its_endpoint() {
    let api = Api::start().await;
    for (token, request, status) in [
        ("read", "POST /v1/overrides", 403),
        ("operate", "POST /v1/overrides", 201),
        ("admin", "POST /v1/overrides", 201),
        ("wrong", "POST /v1/overrides", 401),
        ("operate", "POST /v1/api-keys", 403),
        ("read", "GET /v1/overrides", 200),
        ("read", "GET /v1/audit", 200),
        ("wrong", "GET /v1/audit", 401),
    ] {
        let body = request.starts_with("POST").then(of_acme);
        let said = api.ask_as(token, request, "", body).await;
        assert_eq!(said.status(), status, "{token}: {request}");
    }
    let refused = api.ask_as("operate", "POST /v1/api-keys", "", Some(json!({}))).await;
    assert_eq!(refused.detail(), "this needs the role `admin`, and these credentials have `operate`");
}

#[tokio::test]
async fn the_audit_says_who_changed_what_from_where() {
    let api = Api::start().await;
    let made = api.ask_as("operate", "POST /v1/overrides", "", Some(of_acme())).await;
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(api.ask(&format!("DELETE /v1/overrides/{id}"), None).await.status(), 204);
    let audit = api.ask(&format!("GET /v1/audit?what=override/{id}"), None).await.json();
    let [deleted, created] = audit["items"].as_array().expect("a list").as_slice() else {
        panic!("two entries: {audit}")
    };
    assert_eq!(
        (&created["who"], &created["from-address"], &created["action"], &created["old"], &created["new"]),
        (&json!("operate"), &json!("127.0.0.1"), &json!("create"), &Value::Null, &made.json())
    );
    assert_eq!(created["request-id"].as_str(), made.header("x-request-id"));
    assert_eq!(
        (&deleted["who"], &deleted["old"], &deleted["new"]),
        (&json!("admin"), &made.json(), &Value::Null)
    );
    let by = api.ask("GET /v1/audit?who=operate&since=2001-01-01T00:00:00Z", None).await.json();
    assert_eq!(by["items"], json!([created]));
    let refused = api.ask("GET /v1/audit?since=yesterday", None).await;
    assert!(refused.detail().starts_with("`since` is not a date and time"), "{}", refused.detail());
}

#[tokio::test]
async fn an_answer_waits_until_this_node_has_the_change_in_force() {
    let api = Api::slow().await;
    let answer = api.ask("POST /v1/overrides", Some(of_acme()));
    let mut answer = std::pin::pin!(answer);
    let woken = async {
        while *api.woken.lock().expect("no panic") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        said = &mut answer => panic!("it is answered before: {}", said.0.0),
        () = woken => {}
    }
    api.applied.send_replace(1);
    assert_eq!(answer.await.json()["version"], 1);
    // A deletion has a version of its own, which is waited for, not the one of the row that was there.
    api.applied.send_replace(i64::MAX);
    let list = api.ask("GET /v1/overrides", None).await.json();
    let id = list["items"][0]["id"].as_str().expect("an id").to_owned();
    api.applied.send_replace(1);
    let began = Instant::now();
    assert_eq!(api.ask(&format!("DELETE /v1/overrides/{id}"), None).await.status(), 204);
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&took), "all the same: {took:?}");
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let api = Api::start().await;
    let dry = api.ask("POST /v1/overrides?dry-run=true", Some(of_acme())).await;
    assert_eq!(dry.status(), 200);
    let said = dry.json();
    assert_eq!(
        (&said["dry-run"], &said["old"], &said["new"]["value"]),
        (&json!(true), &Value::Null, &json!(600))
    );
    assert_eq!(api.ask("GET /v1/overrides", None).await.json(), json!({ "items": [] }));
    let row = api.ask("POST /v1/overrides", Some(of_acme())).await.json();
    let id = row["id"].as_str().expect("an id").to_owned();
    let dry = api.ask(&format!("DELETE /v1/overrides/{id}?dry-run=true"), None).await.json();
    assert_eq!((&dry["old"], &dry["new"]), (&row, &Value::Null));
    let tier = json!({ "limit-value": 60, "window-seconds": 60 });
    let dry = api.ask("PUT /v1/tiers/pro/search?dry-run=true", Some(tier)).await.json();
    assert_eq!((&dry["old"], &dry["new"]["burst-multiplier"]), (&Value::Null, &json!(1.2)));
    let dry =
        api.ask("PUT /v1/consumers/acme/tier?dry-run=true", Some(json!({ "tier": "pro" }))).await.json();
    assert_eq!((&dry["old"], &dry["new"]["tier"]), (&Value::Null, &json!("pro")));
    for page in ["/v1/tiers/pro/search", "/v1/consumers/acme/tier"] {
        assert_eq!(api.ask(&format!("GET {page}"), None).await.status(), 404, "{page}");
    }
    let misspelt = api.ask("POST /v1/overrides?dry_run=true", Some(of_acme())).await;
    assert_eq!(
        (misspelt.status(), misspelt.detail()),
        (400, "`dry_run` is unknown: did you mean `dry-run`?".to_owned())
    );
    assert_eq!(api.ask("GET /v1/audit", None).await.json()["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_request_under_an_idempotency_key_acts_once() {
    let api = Api::start().await;
    let key = "idempotency-key: 8e03978e-40d5-43dd-bc93-6894a57f9324\r\n";
    let first = api.ask_with("POST /v1/overrides", key, Some(of_acme())).await;
    let second = api.ask_with("POST /v1/overrides", key, Some(of_acme())).await;
    assert_eq!((first.status(), second.status()), (201, 201));
    assert_eq!(first.json(), second.json());
    let mut other = of_acme();
    other["value"] = json!(601);
    let refused = api.ask_with("POST /v1/overrides", key, Some(other)).await;
    assert_eq!(refused.status(), 422, "{}", refused.0.0);
    // Another client's keys are its own.
    assert_eq!(api.ask_as("operate", "POST /v1/overrides", key, Some(of_acme())).await.status(), 201);
    let list = api.ask("GET /v1/overrides", None).await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    let refused = api.ask_with("POST /v1/overrides", "idempotency-key: a b\r\n", Some(of_acme())).await;
    assert_eq!(refused.status(), 400);
}
