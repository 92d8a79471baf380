//! `If-Match` and `If-None-Match`: no update is lost.

use super::*;

#[tokio::test]
async fn a_row_is_changed_only_at_the_version_that_its_client_has_read() {
    let api = Api::start().await;
    let limit = |units: u64| Some(json!({ "limit-value": units, "window-seconds": 60 }));
    let none = "if-none-match: *\r\n";
    let made = api.ask_with("PUT /v1/tiers/pro/search", none, limit(60)).await;
    assert_eq!(made.status(), 200, "{}", made.0.0);
    let tag = made.header("etag").expect("it has a tag").to_owned();
    let again = api.ask_with("PUT /v1/tiers/pro/search", none, limit(61)).await;
    assert_eq!((again.status(), again.header("etag")), (412, Some(tag.as_str())));

    let matching = format!("if-match: {tag}\r\n");
    let changed = api.ask_with("PUT /v1/tiers/pro/search", &matching, limit(62)).await;
    assert_eq!(changed.status(), 200);
    for request in ["PUT", "DELETE"] {
        let body = (request == "PUT").then(|| limit(63)).flatten();
        let late = api.ask_with(&format!("{request} /v1/tiers/pro/search"), &matching, body.clone()).await;
        assert_eq!((late.status(), late.header("etag")), (412, changed.header("etag")), "{request}");
        let dry = format!("{request} /v1/tiers/pro/search?dry-run=true");
        assert_eq!(api.ask_with(&dry, &matching, body).await.status(), 412, "{request}");
    }
    let shown = api.ask("GET /v1/tiers/pro/search", None).await;
    assert_eq!(
        (shown.json()["limit-value"].clone(), shown.header("etag")),
        (json!(62), changed.header("etag"))
    );

    let missing = api.ask_with("PUT /v1/tiers/free/search", "if-match: *\r\n", limit(1)).await;
    assert_eq!((missing.status(), missing.header("etag")), (412, None));
    let matching = format!("if-match: {}\r\n", changed.header("etag").expect("it has a tag"));
    assert_eq!(api.ask_with("DELETE /v1/tiers/pro/search", &matching, None).await.status(), 204);
    let refused = api.ask_with("DELETE /v1/tiers/pro/search", "if-match: \"1\", \"2\"\r\n", None).await;
    assert_eq!(
        refused.json()["errors"],
        json!([{ "header": "if-match", "detail": "`if-match` must be one tag, the value of `ETag`" }])
    );
}

#[tokio::test]
async fn an_override_and_a_key_are_guarded_too() {
    let api = Api::start().await;
    let made = api.ask("POST /v1/overrides", Some(of_acme())).await;
    let other = "if-match: \"99\"\r\n";
    let request = format!("DELETE /v1/overrides/{}", made.json()["id"].as_str().expect("an id"));
    assert_eq!(api.ask_with(&request, other, None).await.status(), 412);
    let key = api.ask("POST /v1/api-keys", Some(json!({ "consumer": "acme" }))).await.json();
    let path = format!("/v1/api-keys/{}", key["digest"].as_str().expect("a digest"));
    let disable = Some(json!({ "disabled": true }));
    assert_eq!(api.ask_with(&format!("PATCH {path}"), other, disable).await.status(), 412);
    assert_eq!(api.ask_with(&format!("DELETE {path}"), other, None).await.status(), 412);
}
