//! Bodies of requests, and the role for changes. The tests bring a table of endpoints of their own, whose bodies are
//! small.

use axum::routing::{get, post};
use bytes::Bytes;
use http::Method;

use super::*;
use crate::admin::api::endpoint::EndpointMethod;
use crate::admin::gate::{OpenTo, Permit};

#[tokio::test]
async fn a_body_is_read_to_its_bound() {
    let admin = Admin::of(table(), Some("secret"), AdminLimits::default());
    let mut client = admin.connect().await;
    client.request("POST /told", &format!("{TOKEN}content-length: 8\r\n")).await;
    client.send("12345678").await;
    assert_eq!(client.answer().await.body(), "12345678");
    client.request("POST /told", &format!("{TOKEN}transfer-encoding: chunked\r\n")).await;
    client.send("4\r\n1234\r\n1\r\n5\r\n0\r\n\r\n").await;
    assert_eq!(client.answer().await.body(), "12345", "on the same connection");
    client.request("POST /told", &format!("{TOKEN}expect: 100-continue\r\ncontent-length: 2\r\n")).await;
    assert_eq!(client.answer().await.first_line(), "HTTP/1.1 100 Continue");
    client.send("12").await;
    assert_eq!(client.answer().await.body(), "12");
    assert_eq!(client.ask("POST /told", TOKEN).await.body(), "", "no body is an empty one");

    client.request("POST /told", &format!("{TOKEN}expect: 100-continue\r\ncontent-length: 9\r\n")).await;
    let refused = client.answer().await;
    assert_eq!(refused.first_line(), "HTTP/1.1 413 Payload Too Large", "before it is sent");
    assert!(refused.has_header("connection: close") && client.closes().await);
    let mut client = admin.connect().await;
    client.request("POST /told", &format!("{TOKEN}transfer-encoding: chunked\r\n")).await;
    client.send("4\r\n1234\r\n5\r\n12345\r\n").await;
    assert_eq!(client.answer().await.first_line(), "HTTP/1.1 413 Payload Too Large");
    assert!(client.closes().await);
    let mut client = admin.connect().await;
    client.request("POST /told", &format!("{TOKEN}transfer-encoding: chunked\r\n")).await;
    client.send("no size\r\n").await;
    assert_eq!(client.answer().await.first_line(), "HTTP/1.1 400 Bad Request");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let admin = Admin::of(table(), Some("secret"), AdminLimits { body: SHORT, ..AdminLimits::default() });
    let mut client = admin.connect().await;
    client.request("POST /told", &format!("{TOKEN}content-length: 8\r\n")).await;
    client.send("1234").await;
    assert_eq!(client.answer().await.first_line(), "HTTP/1.1 408 Request Timeout");
    assert!(client.closes().await);
}

#[tokio::test]
async fn the_answer_arrives_even_if_the_body_is_not_read() {
    let admin = Admin::start(None, AdminLimits::default());
    for (request, status) in [("GET /healthz", "200 OK"), ("POST /config", "405 Method Not Allowed")] {
        let mut client = admin.connect().await;
        // More than the kernel and hyper take in while nobody reads.
        client.request(request, "content-length: 900000\r\n").await;
        client.send(&"x".repeat(900_000)).await;
        let answer = client.answer().await;
        assert_eq!(answer.first_line(), format!("HTTP/1.1 {status}"));
        assert!(answer.has_header("connection: close"));
        assert!(client.closes().await, "in order, not by a reset");
    }
}

#[tokio::test]
async fn a_change_needs_its_role_and_its_method() {
    let admin = Admin::of(table(), Some("secret"), AdminLimits::default());
    // A client that may not see it does not learn its methods.
    for method in ["GET", "POST", "DELETE"] {
        let refused = admin.ask(&format!("{method} /told"), "").await;
        assert_eq!(refused.first_line(), "HTTP/1.1 401 Unauthorized", "{method}");
        assert!(!refused.0.contains("allow:"), "{}", refused.0);
    }
    assert_eq!(admin.ask("GET /told", TOKEN).await.body(), "read");
    assert_eq!(admin.ask("POST /told", TOKEN).await.first_line(), "HTTP/1.1 200 OK");
    let refused = admin.ask("DELETE /told", TOKEN).await;
    assert_eq!(refused.first_line(), "HTTP/1.1 405 Method Not Allowed");
    assert!(refused.has_header("allow: GET, HEAD, POST"), "{}", refused.0);

    // Without a token, over TCP: a client is a viewer.
    let open = Admin::of(table(), None, AdminLimits::default());
    assert_eq!(open.ask("GET /told", "").await.body(), "read");
    let refused = open.ask("POST /told", "").await;
    assert_eq!(refused.first_line(), "HTTP/1.1 403 Forbidden");
    assert!(refused.body().contains("set `token` of [admin]"), "{}", refused.body());
}

fn table() -> Vec<AdminEndpoint> {
    let operation = |method, role, body_bytes_max, handler| EndpointMethod {
        permit: Permit { method, role, open_to: OpenTo::Nobody, is_stream: false, body_bytes_max },
        handler,
    };
    vec![AdminEndpoint {
        shown: "/told",
        paths: vec!["/told"],
        about: "what it is told",
        operations: vec![
            operation(Method::GET, AdminRole::Read, 0, get(async || "read")),
            operation(Method::POST, AdminRole::Admin, 8, post(async |body: Bytes| body)),
        ],
        instead: None,
    }]
}

const TOKEN: &str = "authorization: Bearer secret\r\n";
