//! The client that orders are made with, which notes how long an authority asks to wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request};
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};

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
        Box::pin(async move {
            let answered = client.inner.ask(request, ANSWER_WITHIN).await;
            let answer = answered.map_err(|error| instant_acme::Error::Other(error.into()))?;
            if answer.status().is_client_error() || answer.status().is_server_error() {
                let asked = retry_after(answer.headers());
                *client.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
            Ok(BytesResponse::from(answer.map(Full::new)))
        })
    }
}

/// Only in seconds: that is what authorities write, and a date would be compared with a clock that may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
