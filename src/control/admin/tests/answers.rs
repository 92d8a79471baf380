//! Answers of each page, by credentials, method and format.

use super::*;

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    assert_eq!(admin.ask("GET /healthz", "").await.first_line(), "HTTP/1.1 200 OK");
    let starting = admin.ask("GET /readyz", "").await;
    assert_eq!((starting.first_line(), starting.body()), ("HTTP/1.1 503 Service Unavailable", "starting\n"));
    admin.readiness.enter(ProcessPhase::Ready);
    assert_eq!(admin.ask("GET /readyz", "").await.body(), "ready\n");
    admin.readiness.enter(ProcessPhase::Draining);
    let draining = admin.ask("GET /readyz", "").await;
    assert_eq!((draining.first_line(), draining.body()), ("HTTP/1.1 503 Service Unavailable", "draining\n"));
}

#[tokio::test]
async fn everything_else_asks_for_the_token() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    for page in ["/", "/metrics", "/config", "/v1/explain?url=/a"] {
        let request = format!("GET {page}");
        for wrong in ["", "authorization: Bearer secreT\r\n", "authorization: Basic secret\r\n"] {
            let refused = admin.ask(&request, wrong).await;
            assert_eq!(refused.first_line(), "HTTP/1.1 401 Unauthorized", "{page} with {wrong}");
            let is_wrong = wrong.contains("Bearer");
            let error = if is_wrong { " error=\"invalid_token\"" } else { "" };
            assert!(refused.has_header(&format!("www-authenticate: Bearer{error}")), "{}", refused.0);
            assert_eq!(refused.body().contains("this token is invalid"), is_wrong, "{}", refused.0);
        }
        let shown = admin.ask(&request, "authorization: bearer secret\r\n").await;
        assert_eq!(shown.first_line(), "HTTP/1.1 200 OK", "{page}");
    }
}

#[tokio::test]
async fn pages_show_their_part_of_the_state() {
    let admin = Admin::start(None, AdminLimits::default());
    assert!(admin.ask("GET /", "").await.body().contains("/metrics"));
    assert_eq!(admin.ask("GET /config", "").await.body(), "workers = 2\n");
    let explained = admin.ask("GET /v1/explain?method=PUT&url=/a%3Fb&from=192.0.2.7&header=x-a:1", "").await;
    assert!(explained.has_header("content-type: application/json"));
    assert_eq!(explained.body(), r#"{"asked":"PUT /a?b from Some(192.0.2.7) with 1"}"#);
    let refused = admin.ask("GET /v1/explain?url=nowhere", "").await;
    assert_eq!(refused.first_line(), "HTTP/1.1 400 Bad Request");
    assert!(refused.has_header("content-type: application/problem+json"));
}

#[tokio::test]
async fn a_key_is_named_by_its_policy_and_its_values() {
    let admin = Admin::start(None, AdminLimits::default());
    let shown = admin.ask("GET /v1/keys/p/a%2Fb/192.0.2.7", "").await;
    assert!(shown.has_header("content-type: application/json"));
    assert_eq!(shown.body(), r#"{"key":["a/b", "192.0.2.7"]}"#);
    assert_eq!(admin.ask("GET /v1/keys/q/a", "").await.first_line(), "HTTP/1.1 404 Not Found");
    for broken in ["%FF", "%zz", "a%"] {
        let target = format!("GET /v1/keys/p/{broken}");
        assert_eq!(admin.ask(&target, "").await.first_line(), "HTTP/1.1 400 Bad Request", "{broken}");
    }
}

#[tokio::test]
async fn metrics_come_in_the_accepted_format() {
    let admin = Admin::start(None, AdminLimits::default());
    let plain = admin.ask("GET /metrics", "").await;
    assert!(plain.has_header("content-type: text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.body().contains("# TYPE sluicegate_config_reloads_total counter\n"));
    let open_metrics = admin.ask("GET /metrics", "accept: application/openmetrics-text\r\n").await;
    assert!(
        open_metrics.has_header("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open_metrics.body().ends_with("# EOF\n"));
}

#[tokio::test]
async fn only_reading_is_possible() {
    let admin = Admin::start(None, AdminLimits::default());
    let refused = admin.ask("POST /metrics", "content-length: 0\r\n").await;
    assert_eq!(refused.first_line(), "HTTP/1.1 405 Method Not Allowed");
    assert!(refused.has_header("allow: GET, HEAD"));
    assert_eq!(admin.ask("DELETE /nowhere", "").await.first_line(), "HTTP/1.1 404 Not Found");
    let head = admin.ask("HEAD /config", "").await;
    assert_eq!((head.first_line(), head.body()), ("HTTP/1.1 200 OK", ""));
    assert!(head.has_header("content-length: 12"));
}

#[tokio::test]
async fn two_authorizations_are_refused() {
    for token in [None, Some("secret")] {
        let admin = Admin::start(token, AdminLimits::default());
        let both = "authorization: Bearer secret\r\nauthorization: Bearer other\r\n";
        for page in ["/", "/config", "/healthz"] {
            let refused = admin.ask(&format!("GET {page}"), both).await;
            assert_eq!(refused.first_line(), "HTTP/1.1 400 Bad Request", "{page}");
        }
    }
}

#[tokio::test]
async fn every_answer_has_an_id_of_its_own() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    let mut seen = std::collections::HashSet::new();
    for page in ["/healthz", "/config", "/nowhere", "/healthz"] {
        let answer = admin.ask(&format!("GET {page}"), "x-request-id: mine\r\n").await;
        let id = answer.0.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("it has one");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        seen.insert(id.to_owned());
    }
    assert_eq!(seen.len(), 4);
}
