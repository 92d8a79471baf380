//! The OpenAPI document says what the endpoints take and answer.

use std::collections::BTreeSet;

use super::*;
use crate::admin::api::document::{document, endpoints};

/// A schema, with those that it refers to.
fn schema(of: &Value) -> jsonschema::Validator {
    let mut schema = of.clone();
    schema["components"] = document()["components"].clone();
    jsonschema::validator_for(&schema).expect("it is a schema")
}

/// The operation that a request is for.
fn operation(request: &str) -> &'static Value {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let path: Vec<&str> = path.split('?').next().expect("a path").split('/').collect();
    let fits = |(known, _): &(&String, &Value)| {
        let known: Vec<&str> = known.split('/').collect();
        known.len() == path.len()
            && known.iter().zip(&path).all(|(known, part)| known.starts_with('{') || known == part)
    };
    let found = document()["paths"].as_object().expect("an object").iter().find(fits);
    &found.unwrap_or_else(|| panic!("{request} is not described")).1[method.to_lowercase()]
}

#[track_caller]
fn matches(of: &Value, value: &Value) {
    let faults: Vec<String> = schema(of).iter_errors(value).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{of}: {faults:?} in {value}");
}

/// Asks, and compares the answer with what its operation says of it.
async fn asked(api: &Api, request: &str, body: Option<Value>) -> Value {
    let said = api.ask(request, body).await;
    let responses = &operation(request)["responses"];
    let status = said.status();
    if status == 204 {
        assert!(responses.get("204").is_some(), "{request}");
        return Value::Null;
    }
    let of = responses.get(status.to_string()).unwrap_or(&responses["default"]);
    let media = of["content"].as_object().expect("a body").iter().next().expect("a type");
    assert_eq!(said.header("content-type"), Some(media.0.as_str()), "{request}");
    matches(&media.1["schema"], &said.json());
    said.json()
}

fn body_of(request: &str) -> &'static Value {
    &operation(request)["requestBody"]["content"]["application/json"]
}

/// Words with which a description goes on with what stands before it, which who generates a client does not see.
const FRAGMENTS: [&str; 8] = ["As", "At", "By", "In", "Since", "To", "Which", "Whose"];

#[test]
fn no_description_is_a_fragment() {
    let (mut left, mut seen) = (vec![document()], 0);
    while let Some(value) = left.pop() {
        if let Some(text) = value.get("description").and_then(Value::as_str) {
            let words: Vec<&str> = text.split(' ').collect();
            assert!(words.len() > 1 && !FRAGMENTS.contains(&words[0]), "{text}");
            seen += 1;
        }
        left.extend(value.as_object().into_iter().flat_map(serde_json::Map::values));
        left.extend(value.as_array().into_iter().flatten());
    }
    assert!(seen > 300, "{seen}");
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
    let served = endpoints().into_iter().filter(|endpoint| endpoint.shown != "/v1/openapi.json");
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
    for request in [
        "POST /v1/overrides",
        "POST /api/v1/rate-limits/overrides",
        "PUT /v1/tiers/a/b",
        "PUT /v1/limits/a/p",
        "POST /v1/is-allowed",
        "POST /v1/usage/consumer/a/reset",
        "POST /v1/usage/tenant/a/grant",
        "PUT /v1/consumers/a/tier",
        "POST /v1/api-keys",
        patch.as_str(),
    ] {
        let name = body_of(request)["schema"]["$ref"].as_str().expect("a reference");
        let schema = document().pointer(&name[1..]).expect("it is there");
        let refused = api.ask(request, Some(json!({ "qqqqqqqqqqqqqqqqqq": 1 }))).await.json();
        let errors = refused["errors"].as_array().expect("a list");
        let hint = errors.iter().find_map(|one| one["detail"].as_str()?.split_once("it takes "));
        let (_, hint) = hint.unwrap_or_else(|| panic!("{request}: {refused}"));
        let read: BTreeSet<&str> = hint.split('`').skip(1).step_by(2).collect();
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
        (with("value", json!(0)), true),
        (with("value", json!(-1)), false),
        (with("value", Value::Null), false),
        (with("value", json!(600.0)), true),
        (with("override-type", json!("block")), false),
        (with("override-type", json!("unlimited")), false),
        (with("subject", json!("ip=192.0.2.1")), false),
        (json!({ "subject": "ip=192.0.2.1", "override-type": "block", "reason": "x" }), true),
        (json!({ "user-id": "a", "override-type": "block", "value": 429, "reason": "x" }), true),
        (json!({ "user-id": "a", "override-type": "unlimited", "policy": "p", "reason": "x" }), false),
        (json!({ "tenant-id": "a", "override-type": "unlimited", "value": null, "reason": "x" }), true),
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
        assert_eq!(schema(&body_of("POST /v1/overrides")["schema"]).is_valid(&body), is_taken, "{body}");
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
        (json!({ "checks": [check], "key": null }), true),
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
        assert_eq!(schema(&body_of("POST /v1/limits:check")["schema"]).is_valid(&body), is_taken, "{body}");
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
        assert_eq!(
            schema(&json!({ "$ref": "#/components/schemas/FlatPolicy" })).is_valid(&body),
            is_taken,
            "{body}"
        );
    }
}

#[tokio::test]
async fn answers_are_as_it_says() {
    let api = Api::start().await;
    let id = asked(&api, "POST /v1/overrides", Some(of_acme())).await["id"].clone();
    let snake = json!({
        "user_id": "a", "override_type": "absolute", "value": 1, "duration_minutes": 1, "reason": "x",
    });
    asked(&api, "POST /api/v1/rate-limits/overrides", Some(snake)).await;
    let key = asked(&api, "POST /v1/api-keys", Some(json!({ "consumer": "a" }))).await["digest"].clone();
    let (id, key) = (id.as_str().expect("an id"), key.as_str().expect("a digest"));
    let tier = json!({ "limit-value": 1, "window-seconds": 1, "algorithm": "token-bucket" });
    let limit = json!({ "limit": 5, "reason": "x" });
    let reset = json!({ "policy": "p", "reason": "x" });
    let grant = json!({ "policy": "p", "reason": "x", "units": 3 });
    let check = json!({ "policy": "p", "key": "a" });
    for (request, body) in [
        ("GET /v1/overrides?limit=1".to_owned(), None),
        (format!("GET /v1/overrides/{id}"), None),
        ("POST /v1/overrides?dry-run=true".to_owned(), Some(of_acme())),
        ("GET /api/v1/rate-limits/overrides".to_owned(), None),
        (format!("DELETE /api/v1/rate-limits/overrides/{id}?dry-run=true"), None),
        (format!("DELETE /api/v1/rate-limits/overrides/{id}"), None),
        ("PUT /v1/tiers/a/b".to_owned(), Some(tier.clone())),
        ("PUT /v1/tiers/a/b?dry-run=true".to_owned(), Some(tier)),
        ("GET /v1/tiers".to_owned(), None),
        ("PUT /v1/consumers/a/tier".to_owned(), Some(json!({ "tier": "pro" }))),
        (format!("PATCH /v1/api-keys/{key}"), Some(json!({ "disabled": true }))),
        ("GET /v1/api-keys".to_owned(), None),
        ("GET /v1/audit".to_owned(), None),
        ("PUT /v1/limits/a/p?dry-run=true".to_owned(), Some(limit.clone())),
        ("PUT /v1/limits/a/p".to_owned(), Some(limit)),
        ("GET /v1/limits/a/p".to_owned(), None),
        ("POST /v1/usage/consumer/a/reset".to_owned(), Some(reset)),
        ("POST /v1/usage/tenant/a/grant".to_owned(), Some(grant.clone())),
        ("POST /v1/usage/tenant/a/grant?dry-run=true".to_owned(), Some(grant)),
        ("GET /v1/usage/consumer/a".to_owned(), None),
        ("POST /v1/limits:check".to_owned(), Some(check.clone())),
        ("POST /v1/limits:check".to_owned(), Some(json!({ "checks": [check] }))),
        ("POST /v1/limits:check".to_owned(), Some(json!({ "policy": "q" }))),
        ("POST /v1/is-allowed".to_owned(), Some(json!({ "policyId": "p", "key": "a" }))),
        ("GET /v1/why/a".to_owned(), None),
        ("GET /v1/decisions".to_owned(), None),
        ("POST /v1/overrides".to_owned(), Some(json!({}))),
        ("GET /v1/overrides/x".to_owned(), None),
        ("GET /v1/overrides?x=1".to_owned(), None),
    ] {
        asked(&api, &request, body).await;
    }
    let hot_keys = asked(&api, "GET /v1/hot-keys?policy=p&minutes=2&limit=3", None).await;
    let shown = &hot_keys["items"][0];
    assert_eq!((&shown["key"], &shown["shard"]), (&"consumer=ann".into(), &"b".into()), "{hot_keys}");
    let of_fleet = &hot_keys["fleet"]["items"][0];
    assert_eq!((&of_fleet["key"], &of_fleet["requests-per-second"]), (&"everybody".into(), &75.0.into()));
    for wrong in ["minutes=61", "minutes=0", "limit=21", "key=a"] {
        let asked = api.ask(&format!("GET /v1/hot-keys?{wrong}"), None).await;
        assert_eq!(asked.status(), 400, "{wrong}");
    }
    let by_minute = asked(&api, "GET /v1/usage/consumer/a?minutes=3", None).await;
    let minute = json!([{ "at": "1970-01-01T00:00:00.000000Z", "admitted": 2, "denied": 1, "units": 3 }]);
    assert_eq!((&by_minute["items"][0]["minutes"], &by_minute["others"]), (&minute, &minute), "{by_minute}");
    for (minutes, status) in [("0", 400), ("1441", 400), ("1440", 200)] {
        let asked = api.ask(&format!("GET /v1/usage/tenant/a?minutes={minutes}"), None).await;
        assert_eq!(asked.status(), status, "{minutes}");
    }
    let told = api.ask("GET /v1/openapi.json", None).await.json();
    assert_eq!((told["openapi"].as_str(), &told), (Some("3.1.0"), document()));
}

#[test]
fn answers_of_one_operation_can_be_told_apart() {
    let schema =
        |request: &str| &operation(request)["responses"]["200"]["content"]["application/json"]["schema"];
    for request in ["DELETE /v1/tiers/a/b", "DELETE /v1/policies/a"] {
        let said = schema(request);
        matches(said, &json!({ "in-force": true, "hint": "no tier `a` is in force any more" }));
        matches(said, &json!({ "in-force": false, "in-force-error": "a file cannot be read" }));
        matches(said, &json!({ "dry-run": true, "old": { "tier": "a" }, "new": null }));
    }
    let verdicts = schema("POST /v1/limits:check");
    let (_, name) = verdicts["$ref"].as_str().and_then(|name| name.split_once('#')).expect("a reference");
    let first = &document().pointer(name).expect("it is there")["anyOf"][0];
    assert_eq!(first["$ref"], "#/components/schemas/CheckVerdicts", "generators try the first that fits");
}

#[tokio::test]
async fn every_operation_has_examples_which_are_as_it_says() {
    let api = Api::start().await;
    let paths = document()["paths"].as_object().expect("an object");
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("an object") {
            let said = format!("{method} {path}");
            let media = operation["responses"].as_object().expect("an object").values();
            let media = media.chain([&operation["requestBody"]]).filter_map(|of| of["content"].as_object());
            for media in media.flat_map(|content| content.values()) {
                assert!(!media["example"].is_null(), "{said}");
                matches(&media["schema"], &media["example"]);
            }
            for parameter in operation["parameters"].as_array().expect("a list") {
                matches(&parameter["schema"], &parameter["example"]);
            }
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            if body.is_object() && method == "post" {
                let path = path.replace("{kind}", "tenant").replace("{id}", "a");
                let mut body = body.clone();
                for name in ["policy", "policyId"] {
                    body.get_mut(name).into_iter().for_each(|policy| *policy = "p".into());
                }
                let said = api.ask(&format!("POST {path}"), Some(body)).await;
                assert!(matches!(said.status(), 200 | 201), "{path}: {}", said.0.0);
            }
        }
    }
}
