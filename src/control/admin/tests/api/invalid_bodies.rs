//! Bodies that cannot be read, and databases that are not there.

use axum::response::IntoResponse;

use super::*;
use crate::admin::refusal::AdminRefusal;

#[tokio::test]
async fn everything_wrong_in_a_body_is_said_with_its_place() {
    let api = Api::start().await;
    let body = json!({
        "userid": "acme", "override-type": "relative", "value": "5", "reason": "a\nb", "duration-minutes": 1.5,
    });
    let refused = api.ask("POST /v1/overrides", Some(body)).await;
    assert_eq!((refused.status(), refused.header("content-type")), (400, Some("application/problem+json")));
    let errors = refused.json()["errors"].clone();
    let places: Vec<&str> =
        errors.as_array().expect("a list").iter().filter_map(|one| one["pointer"].as_str()).collect();
    assert_eq!(
        places,
        ["#", "#/duration-minutes", "#/override-type", "#/reason", "#/value", "#/userid"],
        "{errors}"
    );
    assert_eq!(errors[5]["detail"], "unknown field `userid`: did you mean `user-id`?");
    assert_eq!(api.ask("GET /v1/audit", None).await.json(), json!({ "items": [] }));
}

#[tokio::test]
async fn a_limit_of_a_tier_that_is_refused_is_named_with_what_to_write() {
    let api = Api::start().await;
    for (body, place, said) in [
        (json!({ "limit": "" }), "#/limit", "`limit` must not be empty"),
        (
            json!({ "limit": "100" }),
            "#/limit",
            "`limit` is invalid: the period of the limit is missing: write it as",
        ),
        (
            json!({ "limit": "5/s by ip" }),
            "#/limit",
            "`limit` must be one limit over a period, such as `100/m`, without `by`",
        ),
        (json!({ "limit": "5/s", "burst-multiplier": 2 }), "#/limit", "`limit` cannot be combined with"),
        (
            json!({ "limit-value": 5 }),
            "#/window-seconds",
            "`window-seconds` is missing: write it, or `limit`",
        ),
        (json!({}), "#/limit-value", "`limit-value` is missing: write it, or `limit`"),
    ] {
        let refused = api.ask("PUT /v1/tiers/pro/calls", Some(body)).await;
        let error = refused.json()["errors"][0].clone();
        assert_eq!(error["pointer"], place, "{error}");
        assert!(error["detail"].as_str().is_some_and(|detail| detail.starts_with(said)), "{said}: {error}");
    }
}

#[tokio::test]
async fn only_json_of_a_bounded_size_is_taken() {
    let api = Api::start().await;
    let ask = async |headers: &str, body: &str| {
        let mut client = api.admin.connect().await;
        let token = "authorization: Bearer admin\r\n";
        client
            .request("POST /v1/overrides", &format!("{token}{headers}content-length: {}\r\n", body.len()))
            .await;
        client.send(body).await;
        ApiAnswer(client.answer().await)
    };
    let json = "content-type: application/json; charset=utf-8\r\n";
    for (headers, body, status) in [
        (json, of_acme().to_string(), 201),
        ("", of_acme().to_string(), 415),
        ("content-type: application/x-www-form-urlencoded\r\n", of_acme().to_string(), 415),
        (json, String::new(), 400),
        (json, "[]".to_owned(), 400),
        (json, r#"{"user-id":"a","user-id":"b"}"#.to_owned(), 400),
        (json, "[".repeat(10_000), 400),
        (json, format!("{}{}", " ".repeat(900_000), of_acme()), 201),
    ] {
        let said = ask(headers, &body).await;
        assert_eq!(said.status(), status, "{headers}: {}", said.0.0);
    }
    let mut client = api.admin.connect().await;
    let fields = format!("authorization: Bearer admin\r\n{json}content-length: 1048577\r\n");
    client.request("POST /v1/overrides", &fields).await;
    assert_eq!(client.answer().await.first_line(), "HTTP/1.1 413 Payload Too Large");
}

#[tokio::test]
async fn without_a_database_lists_are_empty_and_changes_say_what_to_write() {
    let admin = admin_with(None);
    for page in ["/v1/overrides", "/v1/tiers", "/v1/api-keys", "/v1/audit", "/api/v1/rate-limits/overrides"] {
        let said = ask(&admin, "read", &format!("GET {page}"), "", None).await;
        let empty = json!({ "items": [], "without-database": true });
        assert_eq!((said.status(), said.json()), (200, empty), "{page}");
    }
    assert_eq!(ask(&admin, "read", "GET /v1/overrides/x", "", None).await.status(), 404);
    for request in ["POST /v1/overrides", "PUT /v1/tiers/a/b", "DELETE /v1/overrides/x"] {
        let body = (!request.starts_with("DELETE")).then(of_acme);
        let refused = ask(&admin, "admin", request, "", body).await;
        assert_eq!(refused.status(), 501, "{request}");
        assert!(refused.detail().contains("add `[database]` with `url = \"sqlite:state.db\"`"));
    }
}

#[tokio::test]
async fn a_file_that_no_other_node_has_is_not_written() {
    let admin = admin_with(Some(ControlPlane {
        database: Box::new(|| panic!("it is not asked for")),
        writes: Writes::OneNodeOnly,
        changed: Box::new(|| {}),
        applied: Box::new(|_| Box::pin(std::future::ready(true))),
        check: Box::new(|_| Box::pin(std::future::ready(Ok(())))),
        sentence: Box::new(String::new),
        stuck: Box::new(|| None),
        minutes: None,
    }));
    let refused = ask(&admin, "admin", "POST /v1/overrides", "", Some(of_acme())).await;
    assert_eq!(refused.status(), 409);
    assert!(refused.detail().contains("single-node = true"), "{}", refused.detail());
}

#[tokio::test]
async fn a_database_that_is_gone_is_503_with_when_to_ask_again() {
    let admin = admin_with(Some(ControlPlane {
        database: Box::new(|| None),
        writes: Writes::Allowed,
        changed: Box::new(|| {}),
        applied: Box::new(|_| Box::pin(std::future::ready(true))),
        check: Box::new(|_| Box::pin(std::future::ready(Ok(())))),
        sentence: Box::new(String::new),
        stuck: Box::new(|| None),
        minutes: None,
    }));
    for (request, body) in [("GET /v1/overrides", None), ("POST /v1/overrides", Some(of_acme()))] {
        let refused = ask(&admin, "admin", request, "", body).await;
        assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")), "{request}");
    }
}

#[test]
fn each_fault_of_the_database_has_its_status() {
    use database::Error;
    let place = Arc::<str>::from("sqlite:state.db");
    let reason = || "because".to_owned();
    for (error, status, after) in [
        (Error::NotFound, 404, None),
        (Error::Conflict { version: Some(7) }, 412, None),
        (Error::KeyReused, 422, None),
        (Error::Invalid(reason()), 422, None),
        (Error::Unreachable { place: Arc::clone(&place), reason: reason() }, 503, Some("1")),
        // Nobody knows whether it was done, so it is not asked to be done again.
        (Error::Unknown { place: Arc::clone(&place) }, 504, None),
        (Error::ReadOnly { place: Arc::clone(&place), reason: reason() }, 503, Some("30")),
        (Error::Full { place: Arc::clone(&place) }, 503, Some("30")),
        (Error::Corrupt { place: Arc::clone(&place), reason: reason() }, 503, Some("30")),
        (Error::Failed { place, reason: reason() }, 500, None),
    ] {
        let answer = AdminRefusal::from(error.clone()).into_response();
        let said = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        assert_eq!((answer.status().as_u16(), said), (status, after), "{error:?}");
    }
}

#[tokio::test]
async fn a_list_that_lacks_a_method_says_what_to_send() {
    let api = Api::start().await;
    let refused = api.ask("POST /v1/policies", Some(json!({}))).await;
    let said = "this endpoint is a list: create or replace a policy with `PUT /v1/policies/{name}`";
    assert_eq!((refused.status(), refused.detail()), (405, said.to_owned()));
    assert_eq!(refused.header("allow"), Some("GET, HEAD"));
    let refused = api.ask("DELETE /v1/tiers", None).await;
    assert!(refused.detail().contains("`PUT /v1/tiers/{tier}/{resource}`"), "{}", refused.detail());
}
