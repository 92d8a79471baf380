//! The client that orders are made with, which notes what an authority answers and how long it asks to wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Collected, Full};
use instant_acme::{BodyWrapper, BytesResponse, HttpClient, Problem};

use net::fetch;

#[derive(Clone)]
pub(super) struct AcmeClient {
    inner: fetch::FetchClient,
    noted: Arc<Mutex<AnswerNotes>>,
}

#[derive(Debug, Default)]
struct AnswerNotes {
    /// How long the authority asks to wait.
    wait: Option<Duration>,
    last: Option<AcmeAnswer>,
}

/// An answer. It is noted, because the protocol's client tells neither what it had asked nor the status.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{method} {url} answers {status}")]
pub(super) struct AcmeAnswer {
    method: Method,
    /// Without its query, because that may be a secret.
    url: String,
    pub(super) status: StatusCode,
}

impl AcmeClient {
    pub(super) fn new(inner: fetch::FetchClient) -> AcmeClient {
        AcmeClient { inner, noted: Arc::default() }
    }

    /// How long the authority has asked to wait in the last error that named a time.
    pub(super) fn take_asked(&self) -> Option<Duration> {
        self.noted().wait.take()
    }

    /// The last answer; none if the last question had none.
    pub(super) fn last(&self) -> Option<AcmeAnswer> {
        self.noted().last.clone()
    }

    fn noted(&self) -> MutexGuard<'_, AnswerNotes> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.clone();
        let (method, url) = (request.method().clone(), shown(request.uri()));
        Box::pin(async move {
            client.noted().last = None;
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_or_else(|never| match never {}, Collected::to_bytes);
            let answered = client.inner.ask(Request::from_parts(head, Full::new(body)), ANSWER_WITHIN).await;
            let silence = |source| AcmeSilence { method: method.clone(), url: url.clone(), source };
            let answer = answered.map_err(|source| instant_acme::Error::Other(silence(source).into()))?;
            let status = answer.status();
            if status.is_client_error() || status.is_server_error() {
                client.noted().wait = retry_after(answer.headers());
            }
            let answered = AcmeAnswer { method, url, status };
            client.noted().last = Some(answered.clone());
            if let Some(refused) = AcmeRefusal::find(answered, &answer) {
                return Err(instant_acme::Error::Other(refused.into()));
            }
            Ok(BytesResponse::from(answer.map(Full::new)))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{method} {url}: {source}")]
struct AcmeSilence {
    method: Method,
    url: String,
    source: fetch::Error,
}

/// An answer without what was asked for, whose status the protocol's client would not look at.
#[derive(Debug, thiserror::Error)]
#[error("{answered}{}{}", if detail.is_empty() { "" } else { ": " }, detail)]
struct AcmeRefusal {
    answered: AcmeAnswer,
    /// What the authority says of it, shortened; may be empty.
    detail: String,
}

impl AcmeRefusal {
    /// The protocol's client reads problem documents only in responses to a POST. It takes the body of a failed GET for the
    /// document, and an error body that is no problem document for a broken one.
    fn find(answered: AcmeAnswer, answer: &Response<Bytes>) -> Option<AcmeRefusal> {
        let status = answered.status;
        let problem: Option<Problem> = serde_json::from_slice(answer.body()).ok();
        let is_known = match answered.method {
            Method::POST => {
                let is_error = status.is_client_error() || status.is_server_error();
                !is_error || problem.as_ref().is_some_and(|it| it.r#type.is_some() || it.detail.is_some())
            }
            _ => status.is_success(),
        };
        let detail = problem.and_then(|problem| problem.detail).unwrap_or_default();
        let detail = detail.chars().take(DETAIL_CHARS_MAX).collect();
        (!is_known).then_some(AcmeRefusal { answered, detail })
    }
}

/// A URL without what may be a secret of it.
fn shown(url: &Uri) -> String {
    let (scheme, authority) = (url.scheme_str().unwrap_or_default(), url.authority());
    let host = authority.map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    format!("{scheme}://{}{}", host.unwrap_or_default(), url.path())
}

/// Only in seconds, because that is what authorities write, and a date would be compared with a clock that may be
/// wrong.
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
            (Method::GET, 500, problem, Some("500 Internal Server Error: old")),
            (Method::GET, 404, "<html>", Some("404 Not Found")),
            (Method::GET, 301, "", Some("301 Moved Permanently")),
            (Method::HEAD, 503, "", Some("503 Service Unavailable")),
            (Method::POST, 201, "{}", None),
            (Method::POST, 400, problem, None),
            (Method::POST, 502, "<html>", Some("502 Bad Gateway")),
            (Method::POST, 500, "{}", Some("500 Internal Server Error")),
        ] {
            let answer = Response::builder().status(status).body(Bytes::from_static(body.as_bytes()));
            let answer = answer.expect("it has a status");
            let url = shown(&Uri::from_static("https://a:b@ca.example:8443/new?key=c"));
            let answered = AcmeAnswer { method: method.clone(), url, status: answer.status() };
            let found = AcmeRefusal::find(answered, &answer);
            let said = said.map(|said| format!("{method} https://ca.example:8443/new answers {said}"));
            assert_eq!(found.map(|found| found.to_string()), said, "{method} {status} {body}");
        }
    }
}
