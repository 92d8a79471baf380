//! Tiers, assignments of tiers, API keys.

use super::*;

#[tokio::test]
async fn a_tier_is_written_replaced_and_deleted() {
    let api = Api::start().await;
    let body = json!({
        "limit-value": 600, "window-seconds": 60, "burst-multiplier": 2, "algorithm": "sliding-window",
    });
    // A name may have any character but control characters.
    let path = "/v1/tiers/pro/GET%20%2Forders";
    let put = api.ask(&format!("PUT {path}"), Some(body)).await;
    assert_eq!(put.status(), 200, "{}", put.0.0);
    let row = put.json();
    assert_eq!((&row["tier"], &row["resource"]), (&json!("pro"), &json!("GET /orders")));
    let put = api.ask(&format!("PUT {path}"), Some(json!({ "limit-value": 1, "window-seconds": 1 }))).await;
    assert_eq!((&put.json()["burst-multiplier"], &put.json()["algorithm"]), (&json!(1.2), &Value::Null));
    assert_eq!(put.json()["created-at"], row["created-at"]);
    for tier in ["a", "b", "c"] {
        let body = json!({ "limit-value": 1, "window-seconds": 1 });
        assert_eq!(api.ask(&format!("PUT /v1/tiers/{tier}/r"), Some(body)).await.status(), 200);
    }
    let first = api.ask("GET /v1/tiers?limit=3", None).await.json();
    let next = first["next"].as_str().expect("there is more");
    let mut encoded = String::new();
    policy::percent::encode_segment(next, &mut encoded);
    let second = api.ask(&format!("GET /v1/tiers?limit=3&after={encoded}"), None).await.json();
    assert_eq!(second, json!({ "items": [put.json()] }));
    assert_eq!(api.ask("GET /v1/tiers?after=x", None).await.status(), 422);
    assert_eq!(api.ask(&format!("DELETE {path}"), None).await.status(), 204);
    assert_eq!(api.ask(&format!("DELETE {path}"), None).await.status(), 404);
    assert_eq!(api.ask("GET /v1/tiers/%00/r", None).await.status(), 400);
    assert_eq!(api.ask("GET /v1/tiers/%FF/r", None).await.status(), 400);
}

#[tokio::test]
async fn a_consumer_has_one_tier() {
    let api = Api::start().await;
    let path = "/v1/consumers/acme/tier";
    assert_eq!(api.ask(&format!("GET {path}"), None).await.status(), 404);
    for tier in ["free", "pro"] {
        let put = api.ask_as("operate", &format!("PUT {path}"), "", Some(json!({ "tier": tier }))).await;
        assert_eq!((put.status(), &put.json()["assigned-by"]), (200, &json!("operate")));
    }
    let shown = api.ask(&format!("GET {path}"), None).await.json();
    assert_eq!((&shown["user-id"], &shown["tier"]), (&json!("acme"), &json!("pro")));
    let refused = api.ask(&format!("PUT {path}"), Some(json!({ "teir": "x" }))).await;
    assert_eq!(
        refused.json()["errors"],
        json!([
            { "pointer": "#/tier", "detail": "`tier` is missing: the name of a tier" },
            { "pointer": "#/teir", "detail": "unknown field `teir`: did you mean `tier`?" },
        ])
    );
    for (ask, body) in [
        (format!("PUT {path}"), json!({ "tier": "prp" })),
        (format!("PUT {path}?dry-run=true"), json!({ "tier": "prp" })),
        ("POST /v1/api-keys".to_owned(), json!({ "consumer": "acme", "tier": "prp" })),
    ] {
        let unknown = api.ask(&ask, Some(body)).await;
        let said = unknown.json()["errors"][0].clone();
        assert_eq!((unknown.status(), &said["pointer"]), (422, &json!("#/tier")), "{ask}");
        assert!(
            said["detail"].as_str().is_some_and(|it| it.contains("did you mean `pro`?")),
            "{ask}: {said}"
        );
    }
    assert_eq!(
        api.ask(&format!("GET {path}"), None).await.json()["tier"],
        "pro",
        "it has the tier that it had"
    );
    assert_eq!(api.ask(&format!("DELETE {path}"), None).await.status(), 204);
    assert_eq!(api.ask(&format!("DELETE {path}"), None).await.status(), 404);
}

#[tokio::test]
async fn a_key_is_shown_once_and_known_by_its_digest() {
    let api = Api::start().await;
    let body = json!({
        "consumer": "acme", "tenant": "t", "claims": { "role": ["ops", "dev"], "level": 3 }, "duration": "90d",
    });
    let once = "idempotency-key: one\r\n";
    let made = api.ask_with("POST /v1/api-keys", once, Some(body.clone())).await;
    assert_eq!(made.status(), 201, "{}", made.0.0);
    let key = made.json()["key"].as_str().expect("it is shown").to_owned();
    let digest = auth::keys::digest_text(key.as_bytes());
    assert_eq!(made.json()["digest"], digest);
    let again = api.ask_with("POST /v1/api-keys", once, Some(body)).await.json();
    assert_eq!((&again["digest"], &again["key"]), (&json!(digest), &Value::Null));

    let path = format!("/v1/api-keys/{}", &digest[..12]);
    let shown = api.ask(&format!("GET {path}"), None).await.json();
    assert_eq!((&shown["disabled"], &shown["claims"]["level"]), (&json!(false), &json!(3)));
    let as_in_files = api.ask(&format!("GET /v1/api-keys/sha256:{digest}"), None).await;
    assert_eq!(as_in_files.json(), shown, "the scheme of files may stand before it");
    let listed = api.ask(&format!("GET /v1/api-keys?consumer=acme&prefix={}", &digest[..8]), None).await;
    assert_eq!(listed.json(), json!({ "items": [shown.clone()] }));
    let disabled = api.ask(&format!("PATCH {path}"), Some(json!({ "disabled": true }))).await.json();
    assert_eq!((&disabled["disabled"], &disabled["expires-at"]), (&json!(true), &shown["expires-at"]));
    let endless = api.ask(&format!("PATCH {path}"), Some(json!({ "expires-at": null }))).await.json();
    assert_eq!((&endless["disabled"], &endless["expires-at"]), (&json!(true), &Value::Null));
    for text in [api.ask("GET /v1/audit", None).await.0.0, api.ask("GET /v1/api-keys", None).await.0.0] {
        assert!(!text.contains(&key), "{text}");
    }
    assert_eq!(api.ask(&format!("DELETE {path}"), None).await.status(), 204);
    assert_eq!(api.ask(&format!("GET {path}"), None).await.status(), 404);
}

#[tokio::test]
async fn a_prefix_that_several_keys_have_names_none() {
    let api = Api::start().await;
    // 17 digests have two that begin with the same of 16 digits.
    let mut seen = std::collections::HashMap::new();
    let mut shared = None;
    for number in 0..17 {
        let body = json!({ "consumer": format!("c{number}") });
        let made = api.ask("POST /v1/api-keys", Some(body)).await.json();
        let first = made["digest"].as_str().expect("a digest")[..1].to_owned();
        if seen.insert(first.clone(), number).is_some() {
            shared = Some(first);
        }
    }
    let shared = shared.expect("some two begin alike");
    let refused = api.ask(&format!("DELETE /v1/api-keys/{shared}"), None).await;
    assert_eq!(
        (refused.status(), refused.detail().starts_with("several API keys have this digest prefix")),
        (409, true)
    );
    assert_eq!(api.ask("GET /v1/api-keys/nothex", None).await.status(), 404);
}
