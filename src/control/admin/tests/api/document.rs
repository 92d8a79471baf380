//! The OpenAPI document says what the endpoints take and answer.

use std::collections::BTreeSet;

use super::*;
use crate::admin::api::document::document;

/// The schema of this name, with those that it refers to.
fn schema(name: &str) -> jsonschema::Validator {
    let mut schema = json!({ "$ref": format!("#/components/schemas/{name}") });
    schema["components"] = document()["components"].clone();
    jsonschema::validator_for(&schema).expect("it is a schema")
}

#[track_caller]
fn matches(name: &str, value: &Value) {
    let faults: Vec<String> = schema(name).iter_errors(value).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{name}: {faults:?} in {value}");
}

#[test]
fn it_has_every_operation_of_the_control_plane_and_no_other() {
    let document = document();
    let paths = document["paths"].as_object().expect("an object");
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().expect("an object").keys().map(|method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let served = routes::control().into_iter().filter(|endpoint| endpoint.shown != "/v1/openapi.json");
    let served: BTreeSet<(String, String)> = served
        .flat_map(|endpoint| {
            let methods = endpoint.operations.iter().map(|operation| operation.permit.method.to_string());
            methods.map(|method| (endpoint.shown.to_owned(), method)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(described, served);
    let said = document["info"]["description"].as_str().expect("a text");
    let all = routes::endpoints().into_iter().map(|endpoint| endpoint.shown);
    for path in all.filter(|path| path.starts_with("/v1/") && *path != "/v1/openapi.json") {
        assert!(
            paths.contains_key(path) != said.contains(path),
            "{path} is described, or said to be left out"
        );
    }
}

#[tokio::test]
async fn bodies_have_the_fields_that_are_read() {
    let api = Api::start().await;
    let key = api.ask("POST /v1/api-keys", Some(json!({ "consumer": "a" }))).await.json();
    let patch = format!("PATCH /v1/api-keys/{}", key["digest"].as_str().expect("a digest"));
    for (request, name) in [
        ("POST /v1/overrides", "OverrideBody"),
        ("POST /api/v1/rate-limits/overrides", "SnakeOverrideBody"),
        ("PUT /v1/tiers/a/b", "TierLimitBody"),
        ("PUT /v1/limits/a/p", "LimitBody"),
        ("POST /v1/is-allowed", "IsAllowedBody"),
        ("POST /v1/usage/consumer/a/reset", "ResetBody"),
        ("POST /v1/usage/tenant/a/grant", "GrantBody"),
        ("PUT /v1/consumers/a/tier", "AssignmentBody"),
        ("POST /v1/api-keys", "ApiKeyBody"),
        (patch.as_str(), "ApiKeyChangeBody"),
    ] {
        let refused = api.ask(request, Some(json!({ "qqqqqqqqqqqqqqqqqq": 1 }))).await.json();
        let errors = refused["errors"].as_array().expect("a list");
        let hint = errors.iter().find_map(|one| one["detail"].as_str()?.split_once("it takes "));
        let (_, hint) = hint.unwrap_or_else(|| panic!("{request}: {refused}"));
        let read: BTreeSet<&str> = hint.split('`').skip(1).step_by(2).collect();
        let document = document();
        let schema = &document["components"]["schemas"][name];
        assert_eq!(schema["additionalProperties"], false, "{name}");
        let described: BTreeSet<&str> =
            schema["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(described, read, "{name}");
        let missing = errors.iter().filter(|one| {
            one["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("is missing: ") && one["pointer"] != "#")
        });
        let missing: BTreeSet<&str> =
            missing.filter_map(|one| one["pointer"].as_str()?.strip_prefix("#/")).collect();
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(required, missing, "{name}");
    }
}

#[tokio::test]
async fn bodies_that_are_taken_match_it_and_those_that_are_refused_do_not() {
    let api = Api::start().await;
    let with = |name: &str, value: Value| {
        let mut body = of_acme();
        body[name] = value;
        body
    };
    for (body, is_taken) in [
        (of_acme(), true),
        (with("user-id", Value::Null), false),
        (with("tenant-id", json!("t")), true),
        (with("value", json!(0.5)), false),
        (with("value", json!(0)), false),
        (with("value", json!(600.0)), true),
        (with("override-type", json!("relative")), false),
        (with("reason", json!("")), false),
        (with("reason", json!("a\u{0}")), false),
        (with("reason", json!("é".repeat(4_096))), true),
        (with("reason", json!("é".repeat(4_097))), false),
        (with("duration", json!("1h30m")), true),
        (with("duration", json!("")), false),
        (with("duration", json!("0s")), false),
        (with("duration-minutes", json!(1)), false),
        (with("duration-minutes", Value::Null), true),
        (with("other", json!(1)), false),
    ] {
        let status = api.ask("POST /v1/overrides", Some(body.clone())).await.status();
        assert_eq!(status, if is_taken { 201 } else { 400 }, "{body}");
        assert_eq!(schema("OverrideBody").is_valid(&body), is_taken, "{body}");
    }
}

#[tokio::test]
async fn checks_and_flat_policies_that_are_taken_match_it_and_those_that_are_refused_do_not() {
    let api = Api::start().await;
    let check = json!({ "policy": "p", "key": "a" });
    for (body, is_taken) in [
        (check.clone(), true),
        (json!({ "policy": "p", "dimensions": { "consumer": "a" }, "cost": 3, "dry": true }), true),
        (json!({ "policy": "p", "checks": null, "all_or_nothing": null }), true),
        (json!({ "checks": [check, check] }), true),
        (json!({ "checks": [check], "all_or_nothing": true }), true),
        (json!({ "checks": [check], "key": null }), false),
        (json!({ "policy": null }), false),
        (json!({ "policy": "p", "all_or_nothing": true }), false),
        (json!({ "checks": [check], "key": "a" }), false),
        (json!({ "checks": [] }), false),
        (json!({ "checks": [{ "policy": "p", "kee": "a" }] }), false),
        (json!({ "policy": "p", "key": "a", "dimensions": { "consumer": "a" } }), false),
        (json!({ "policy": "p", "dimensions": { "consumer": "" } }), false),
        (json!({ "policy": "p", "cost": 0 }), false),
    ] {
        let status = api.ask("POST /v1/limits:check", Some(body.clone())).await.status();
        assert_eq!(status, if is_taken { 200 } else { 400 }, "{body}");
        assert_eq!(schema("CheckBody").is_valid(&body), is_taken, "{body}");
    }
    for (more, is_taken) in [
        (json!({}), true),
        (json!({ "keyType": "userId:endpoint", "failMode": "CLOSED", "localQuotaFraction": 0 }), true),
        (json!({ "localQuotaFraction": 0.5 }), false),
        (json!({ "keyType": "user" }), false),
        (json!({ "failMode": "open" }), false),
        (json!({ "rate": 1 }), false),
        (json!({ "ratePerSec": null }), false),
    ] {
        let mut body = json!({ "keyType": "userId", "ratePerSec": 1 });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let status = api.ask("PUT /v1/policies/a", Some(body.clone())).await.status();
        assert_eq!(status, if is_taken { 200 } else { 400 }, "{body}");
        assert_eq!(schema("FlatPolicy").is_valid(&body), is_taken, "{body}");
    }
}

#[tokio::test]
async fn answers_are_as_it_says() {
    let api = Api::start().await;
    let made = api.ask("POST /v1/overrides", Some(of_acme())).await.json();
    matches("Override", &made);
    matches("Page_Override", &api.ask("GET /v1/overrides?limit=1", None).await.json());
    matches("DryRun", &api.ask("POST /v1/overrides?dry-run=true", Some(of_acme())).await.json());
    let snake = json!({
        "user_id": "a", "override_type": "absolute", "value": 1, "duration_minutes": 1, "reason": "x",
    });
    matches("SnakeOverrideMade", &api.ask("POST /api/v1/rate-limits/overrides", Some(snake)).await.json());
    matches("Page_SnakeOverride", &api.ask("GET /api/v1/rate-limits/overrides", None).await.json());
    let id = made["id"].as_str().expect("an id");
    let delete = format!("DELETE /api/v1/rate-limits/overrides/{id}");
    matches("SnakeOverrideDeletion", &api.ask(&format!("{delete}?dry-run=true"), None).await.json());
    matches("SnakeOverrideDeletion", &api.ask(&delete, None).await.json());
    let tier = Some(json!({ "limit-value": 1, "window-seconds": 1, "algorithm": "token-bucket" }));
    matches("TierLimitPut", &api.ask("PUT /v1/tiers/a/b", tier.clone()).await.json());
    matches("TierLimitPut", &api.ask("PUT /v1/tiers/a/b?dry-run=true", tier).await.json());
    matches("Page_TierLimit", &api.ask("GET /v1/tiers", None).await.json());
    matches(
        "AssignmentPut",
        &api.ask("PUT /v1/consumers/a/tier", Some(json!({ "tier": "pro" }))).await.json(),
    );
    let key = api.ask("POST /v1/api-keys", Some(json!({ "consumer": "a" }))).await.json();
    matches("ApiKeyMade", &key);
    let patch = format!("PATCH /v1/api-keys/{}", key["digest"].as_str().expect("a digest"));
    matches("ApiKeyPatched", &api.ask(&patch, Some(json!({ "disabled": true }))).await.json());
    matches("Page_ApiKey", &api.ask("GET /v1/api-keys", None).await.json());
    matches("Page_AuditEntry", &api.ask("GET /v1/audit", None).await.json());
    let limit = Some(json!({ "limit": 5, "reason": "x" }));
    matches("LimitPut", &api.ask("PUT /v1/limits/a/p?dry-run=true", limit.clone()).await.json());
    matches("LimitPut", &api.ask("PUT /v1/limits/a/p", limit).await.json());
    matches("Limit", &api.ask("GET /v1/limits/a/p", None).await.json());
    let reset = json!({ "policy": "p", "reason": "x" });
    matches("ResetPosted", &api.ask("POST /v1/usage/consumer/a/reset", Some(reset.clone())).await.json());
    let grant = json!({ "policy": "p", "reason": "x", "units": 3 });
    matches("ResetPosted", &api.ask("POST /v1/usage/tenant/a/grant", Some(grant.clone())).await.json());
    matches("DryRun", &api.ask("POST /v1/usage/tenant/a/grant?dry-run=true", Some(grant)).await.json());
    matches("UsagePage", &api.ask("GET /v1/usage/consumer/a", None).await.json());
    let hot_keys = api.ask("GET /v1/hot-keys?policy=p&minutes=2&limit=3", None).await.json();
    matches("HotKeys", &hot_keys);
    let shown = &hot_keys["items"][0];
    assert_eq!((&shown["key"], &shown["shard"]), (&"consumer=ann".into(), &"b".into()), "{hot_keys}");
    let of_fleet = &hot_keys["fleet"]["items"][0];
    assert_eq!((&of_fleet["key"], &of_fleet["requests-per-second"]), (&"everybody".into(), &75.0.into()));
    for wrong in ["minutes=61", "minutes=0", "limit=21", "key=a"] {
        let asked = api.ask(&format!("GET /v1/hot-keys?{wrong}"), None).await;
        assert_eq!(asked.status(), 400, "{wrong}");
    }
    let by_minute = api.ask("GET /v1/usage/consumer/a?minutes=3", None).await.json();
    matches("UsagePage", &by_minute);
    let minute = json!([{ "at": "1970-01-01T00:00:00.000000Z", "admitted": 2, "denied": 1, "units": 3 }]);
    assert_eq!((&by_minute["items"][0]["minutes"], &by_minute["others"]), (&minute, &minute), "{by_minute}");
    for (minutes, status) in [("0", 400), ("1441", 400), ("1440", 200)] {
        let asked = api.ask(&format!("GET /v1/usage/tenant/a?minutes={minutes}"), None).await;
        assert_eq!(asked.status(), status, "{minutes}");
    }
    let check = json!({ "policy": "p", "key": "a" });
    matches("CheckAnswer", &api.ask("POST /v1/limits:check", Some(check.clone())).await.json());
    matches(
        "CheckAnswer",
        &api.ask("POST /v1/limits:check", Some(json!({ "checks": [check] }))).await.json(),
    );
    matches(
        "IsAllowed",
        &api.ask("POST /v1/is-allowed", Some(json!({ "policyId": "p", "key": "a" }))).await.json(),
    );
    matches("Problem", &api.ask("POST /v1/overrides", Some(json!({}))).await.json());
    matches("Problem", &api.ask("GET /v1/overrides/x", None).await.json());
    let document = api.ask("GET /v1/openapi.json", None).await.json();
    assert_eq!((document["openapi"].as_str(), &document), (Some("3.1.0"), &super::document::document()));
}
