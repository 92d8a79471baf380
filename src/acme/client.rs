//! The client that orders are made with, which notes how long an authority asks to wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient, Problem};

use crate::fetch;

/// The client of one keeper.
#[derive(Clone)]
pub(super) struct Client {
    inner: fetch::Client,
    asked: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    pub(super) fn new(inner: fetch::Client) -> Client {
        Client { inner, asked: Arc::default() }
    }

    /// How long the authority has asked to wait in the last error that named a time.
    pub(super) fn take_asked(&self) -> Option<Duration> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.clone();
        let method = request.method().clone();
        Box::pin(async move {
            let answered = client.inner.ask(request, ANSWER_WITHIN).await;
            let answer = answered.map_err(|error| instant_acme::Error::Other(error.into()))?;
            if answer.status().is_client_error() || answer.status().is_server_error() {
                let asked = retry_after(answer.headers());
                *client.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
            if let Some(refused) = Refused::find(&method, &answer) {
                return Err(instant_acme::Error::Other(refused.into()));
            }
            Ok(BytesResponse::from(answer.map(Full::new)))
        })
    }
}

/// An answer without what was asked for, whose status the protocol's client would not look at.
#[derive(Debug, thiserror::Error)]
#[error("the authority answers {status}{}{}", if detail.is_empty() { "" } else { ": " }, detail)]
struct Refused {
    status: StatusCode,
    /// What the authority says of it, shortened; may be empty.
    detail: String,
}

impl Refused {
    /// The protocol's client reads problems of what it posts, to which it may have an answer. What it gets it takes for what
    /// it asked for, and a body that is no problem for a broken one.
    fn find(method: &Method, answer: &Response<Bytes>) -> Option<Refused> {
        let status = answer.status();
        let problem: Option<Problem> = serde_json::from_slice(answer.body()).ok();
        let is_known = match *method {
            Method::POST => {
                let is_error = status.is_client_error() || status.is_server_error();
                !is_error || problem.as_ref().is_some_and(|it| it.r#type.is_some() || it.detail.is_some())
            }
            _ => status.is_success(),
        };
        let detail = problem.and_then(|problem| problem.detail).unwrap_or_default();
        let detail = detail.chars().take(DETAIL_CHARS_MAX).filter(|it| !it.is_control()).collect();
        (!is_known).then_some(Refused { status, detail })
    }
}

/// Only in seconds: that is what authorities write, and a date would be compared with a clock that may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// What the log has of a problem's detail.
const DETAIL_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_protocol_s_client_would_not_read_is_refused_here() {
        let problem = r#"{"type":"urn:ietf:params:acme:error:badNonce","detail":"old"}"#;
        for (method, status, body, said) in [
            (Method::GET, 200, "{}", None),
            (Method::HEAD, 204, "", None),
            (Method::GET, 500, problem, Some("the authority answers 500 Internal Server Error: old")),
            (Method::GET, 404, "<html>", Some("the authority answers 404 Not Found")),
            (Method::GET, 301, "", Some("the authority answers 301 Moved Permanently")),
            (Method::HEAD, 503, "", Some("the authority answers 503 Service Unavailable")),
            (Method::POST, 201, "{}", None),
            (Method::POST, 400, problem, None),
            (Method::POST, 502, "<html>", Some("the authority answers 502 Bad Gateway")),
            (Method::POST, 500, "{}", Some("the authority answers 500 Internal Server Error")),
        ] {
            let answer = Response::builder().status(status).body(Bytes::from_static(body.as_bytes()));
            let found = Refused::find(&method, &answer.expect("it has a status"));
            assert_eq!(found.map(|found| found.to_string()).as_deref(), said, "{method} {status} {body}");
        }
    }
}
