//! Overrides in both forms, from being made to being deleted.

use super::*;

#[tokio::test]
async fn an_override_is_made_shown_listed_and_deleted() {
    let api = Api::start().await;
    let made = api.ask("POST /v1/overrides", Some(of_acme())).await;
    assert_eq!(made.status(), 201, "{}", made.0.0);
    let row = made.json();
    let id = row["id"].as_str().expect("it has an id");
    assert_eq!(made.header("location"), Some(format!("/v1/overrides/{id}").as_str()));
    assert_eq!(made.header("etag"), Some(format!("\"{}\"", row["version"]).as_str()));
    assert_eq!(
        (&row["user-id"], &row["override-type"], &row["value"], &row["created-by"]),
        (&json!("acme"), &json!("absolute"), &json!(600), &json!("admin"))
    );
    let end: database::Time = row["expires-at"].as_str().expect("it ends").parse().expect("a time");
    let start: database::Time = row["created-at"].as_str().expect("it is there").parse().expect("a time");
    assert!((599..=600).contains(&((end.0 - start.0) / 1_000_000)), "{row}");

    let shown = api.ask(&format!("GET /v1/overrides/{id}"), None).await;
    assert_eq!((shown.status(), shown.json(), shown.header("etag")), (200, row.clone(), made.header("etag")));
    let list = api.ask("GET /v1/overrides?user-id=acme", None).await.json();
    assert_eq!(list, json!({ "items": [row] }));
    assert_eq!(api.ask("GET /v1/overrides?user-id=other", None).await.json(), json!({ "items": [] }));

    let deleted = api.ask(&format!("DELETE /v1/overrides/{id}"), None).await;
    assert_eq!((deleted.status(), deleted.0.body()), (204, ""));
    for request in ["GET", "DELETE"] {
        let gone = api.ask(&format!("{request} /v1/overrides/{id}"), None).await;
        let said = format!(
            "there is no override, block or exemption `{id}`: `sluicegate ctl override list`, `block list` and `unlimited list` show them"
        );
        assert_eq!((gone.status(), gone.detail()), (404, said));
    }
    assert_eq!(*api.woken.lock().expect("no panic"), 2, "the follower is woken by each change");
}

#[tokio::test]
async fn whoever_changes_a_limit_a_second_time_is_told_of_the_first() {
    let api = Api::start().await;
    let first = api.ask("POST /v1/overrides", Some(of_acme())).await.json();
    assert_eq!(first.get("hint"), None, "{first}");
    let second = api.ask("POST /v1/overrides", Some(of_acme())).await.json();
    let said =
        format!("override `{}` does not apply while this one lasts", first["id"].as_str().expect("an id"));
    assert!(second["hint"].as_str().is_some_and(|hint| hint.starts_with(&said)), "{second}");
    let mut other = of_acme();
    other["user-id"] = "other".into();
    let other = api.ask("POST /v1/overrides", Some(other)).await.json();
    assert_eq!(other.get("hint"), None, "{other}");
}

#[tokio::test]
async fn the_largest_limit_that_the_document_names_is_taken() {
    let api = Api::start().await;
    let document = crate::admin::api::document::document();
    let named =
        &document["components"]["schemas"]["OverrideBody"]["allOf"][1]["oneOf"][0]["properties"]["value"];
    let largest = named["maximum"].as_u64().expect("it is named");
    for (value, status) in [(largest, 201), (largest + 1, 400)] {
        let mut body = of_acme();
        body["value"] = value.into();
        assert_eq!(api.ask("POST /v1/overrides", Some(body)).await.status(), status, "{value}");
    }
}

#[tokio::test]
async fn a_limit_may_be_0_and_a_factor_may_not() {
    let api = Api::start().await;
    let with = |kind: &str| {
        let mut body = of_acme();
        (body["override-type"], body["value"]) = (kind.into(), 0.into());
        body
    };
    let made = api.ask("POST /v1/overrides", Some(with("absolute"))).await;
    assert_eq!((made.status(), &made.json()["value"]), (201, &json!(0)));
    let put = api.ask("PUT /v1/limits/a/p", Some(json!({ "limit": 0, "reason": "x" }))).await;
    assert_eq!((put.status(), &put.json()["limit"]), (200, &json!(0)));
    let refused = api.ask("POST /v1/overrides", Some(with("multiplicative"))).await;
    let detail = refused.detail();
    assert_eq!((refused.status(), detail.contains("to refuse every request")), (400, true), "{detail}");
}

#[tokio::test]
async fn who_blocks_in_vain_is_told_what_to_write() {
    let api = Api::start().await;
    let subject = |subject: &str| json!({ "subject": subject, "override-type": "block", "reason": "x" });
    let with = |more: Value| {
        let mut body = subject("ip=192.0.2.1");
        let more = more.as_object().expect("an object").clone();
        more.into_iter().for_each(|(name, value)| body[name] = value);
        body
    };
    for (body, status, said) in [
        (subject("ip=192.0.2"), 422, "write one, for example `203.0.113.0/24`"),
        (subject("ip=192.0.2.1/24"), 422, "write `192.0.2.0/24`"),
        (subject("ip=2001:db8:64::/96"), 422, "`nat64` turns them into IPv4 addresses"),
        (subject("192.0.2.1"), 422, "such as `ip=203.0.113.0/24`"),
        (subject("colour=red"), 422, "`colour` is not a dimension: "),
        (subject("consumer=ann"), 422, "as `user-id`"),
        (with(json!({ "user-id": "ann" })), 400, "`subject` and `user-id` exclude each other"),
        (with(json!({ "policy": "p" })), 400, "`block` is for all policies"),
        (with(json!({ "value": 404 })), 400, "must be 403 or 429"),
        (with(json!({ "reason": null })), 400, "`reason`"),
        (with(json!({ "override-type": "unlimited", "value": 1 })), 400, "`unlimited` has no `value`"),
        (with(json!({ "override-type": "absolute", "value": 1 })), 400, "only `block` and `unlimited`"),
        (with(json!({ "override-type": "multiplicative" })), 400, "`value` is missing"),
        (with(json!({ "subject": null })), 400, "the target is missing: write exactly one of"),
    ] {
        let refused = api.ask("POST /v1/overrides", Some(body.clone())).await;
        let detail = refused.detail();
        assert_eq!((refused.status(), detail.contains(said)), (status, true), "{body}: {detail}");
    }
    let made = api.ask("POST /v1/overrides", Some(subject("ip=::ffff:192.0.2.1"))).await.json();
    assert_eq!((&made["subject"], &made["value"]), (&json!("ip=192.0.2.1"), &json!(403)), "{made}");
    let unlimited = with(json!({ "override-type": "unlimited" }));
    let made = api.ask("POST /v1/overrides?dry-run=true", Some(unlimited)).await.json();
    assert_eq!((&made["new"]["override-type"], &made["new"]["value"]), (&json!("unlimited"), &Value::Null));
}

#[tokio::test]
async fn the_snake_case_form_answers_as_its_clients_expect() {
    let api = Api::start().await;
    let new = json!({
        "user_id": null, "tenant_id": "acme", "override_type": "multiplicative", "value": 2.5,
        "duration_minutes": 30, "reason": "launch",
    });
    let made = api.ask("POST /api/v1/rate-limits/overrides", Some(new)).await;
    let names: Vec<String> = made.json().as_object().expect("an object").keys().cloned().collect();
    assert_eq!((made.status(), names), (201, vec!["expires_at".to_owned(), "id".to_owned()]));
    let id = made.json()["id"].as_str().expect("it has an id").to_owned();
    let shown = api.ask(&format!("GET /api/v1/rate-limits/overrides/{id}"), None).await.json();
    assert_eq!((&shown["tenant_id"], &shown["value"]), (&json!("acme"), &json!(2.5)));
    let list = api.ask("GET /api/v1/rate-limits/overrides?tenant_id=acme", None).await.json();
    assert_eq!(list["items"], json!([shown]));

    let nobody = json!({ "override_type": "absolute", "value": 1, "duration_minutes": 1, "reason": "x" });
    let refused = api.ask("POST /api/v1/rate-limits/overrides", Some(nobody)).await;
    assert_eq!((refused.status(), refused.detail()), (400, "Must specify user_id or tenant_id".to_owned()));
    let request = format!("DELETE /api/v1/rate-limits/overrides/{id}");
    let deleted = api.ask(&request, None).await;
    assert_eq!((deleted.status(), deleted.json()), (200, json!({ "status": "deleted" })));
    let gone = api.ask(&request, None).await;
    assert_eq!((gone.status(), gone.detail()), (404, "Override not found".to_owned()));
}

#[tokio::test]
async fn an_override_ends_by_one_of_three_fields_or_never() {
    let api = Api::start().await;
    let with = |more: &[(&str, Value)]| {
        let mut body = json!({ "user-id": "a", "override-type": "absolute", "value": 1, "reason": "x" });
        more.iter().for_each(|(name, value)| body[*name] = value.clone());
        body
    };
    let minutes = |row: &Value| {
        let time = |name: &str| {
            row[name].as_str().and_then(|text| text.parse::<database::Time>().ok()).expect("a time").0
        };
        (time("expires-at") - time("created-at") + 30_000_000) / 60_000_000
    };
    for (more, expected) in [("duration", json!("1h30m"), 90), ("duration-minutes", json!(45), 45)]
        .map(|(name, value, minutes)| (vec![(name, value)], minutes))
    {
        let made = api.ask("POST /v1/overrides", Some(with(&more))).await.json();
        assert_eq!(minutes(&made), expected, "{more:?}");
    }
    let at = with(&[("expires-at", json!("2999-01-01T02:00:00+02:00"))]);
    let made = api.ask("POST /v1/overrides", Some(at)).await.json();
    assert_eq!(made["expires-at"], "2999-01-01T00:00:00.000000Z");
    let never = api.ask("POST /v1/overrides", Some(with(&[]))).await.json();
    assert_eq!(never["expires-at"], Value::Null);
    for (more, status, said) in [
        (vec![("duration", json!("10m")), ("duration-minutes", json!(1))], 400, "exclude each other"),
        (vec![("expires-at", json!("2001-01-01T00:00:00Z"))], 422, "`expires-at` has passed"),
        (vec![("expires-at", json!("tomorrow"))], 400, "`expires-at` is not a date and time such as"),
        (vec![("duration", json!("10"))], 400, "`duration` is not a duration"),
        (vec![("duration-minutes", json!(0))], 400, "must be a whole number from 1 to 527040"),
    ] {
        let refused = api.ask("POST /v1/overrides", Some(with(&more))).await;
        assert_eq!(refused.status(), status, "{more:?}");
        assert!(refused.detail().contains(said), "{more:?}: {}", refused.detail());
    }
}

#[tokio::test]
async fn pages_of_overrides_follow_each_other() {
    let api = Api::start().await;
    for number in 0..5 {
        let mut body = of_acme();
        body["reason"] = format!("number {number}").into();
        assert_eq!(api.ask("POST /v1/overrides", Some(body)).await.status(), 201);
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = api.ask(&format!("GET /v1/overrides?limit=2{after}"), None).await.json();
        let items = page["items"].as_array().expect("a list");
        seen.extend(items.iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted(), "the oldest first: {seen:?}");
    let refused = api.ask("GET /v1/overrides?limit=0&afer=x", None).await;
    assert_eq!(refused.status(), 400);
    let places = refused.json()["errors"].clone();
    assert_eq!(
        places,
        json!([
            { "parameter": "limit", "detail": "`limit` must be a whole number from 1 to 500" },
            { "parameter": "afer", "detail": "`afer` is unknown: did you mean `after`?" },
        ])
    );
}
