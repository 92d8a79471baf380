//! Sends copies of requests to another upstream and throws the answers away, so that a new version meets real requests.
//!
//! A copy never slows the request it is of: a task of its own sends it, once, without a retry, and only if few others are on
//! their way and memory is not short. Nothing of the request waits for that task. Copies on their way outlive their requests
//! and a reload; when the worker ends they are given up, so that a mirror cannot hold up a stop.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HOST, TE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body;
use tokio::time::timeout_at;

use super::context::RequestContext;
use super::headers;
use super::request::body_copy::{BodyCopy, CopyFailure};
use super::request::request_body::RequestBody;
use super::services::Services;
use super::snapshot::WorkerView;
use crate::service::overload::PressureStep;
use base::clock;
use metrics::MirrorOutcome;
use policy::UpstreamId;
use policy::destination::Mirror;
use upstream::balance::ServerPreference;
use upstream::config::{HostHeader, HttpVersion, UpstreamTimeouts};
use upstream::error::{SendError, UnsentRequest};
use upstream::pool::Terms;
use upstream::request::RequestHead;
use upstream::{Checkout, Pool};

/// Copies this request if it is its turn. `head` is what the first upstream is sent. A body is copied on its way there, and
/// the copy is sent when it is whole, so that the body is not read any faster for it.
pub fn copy(
    mirror: &Mirror,
    context: &RequestContext,
    head: &RequestHead,
    body: &mut RequestBody,
    wants_trailers: bool,
) {
    let (view, services) = (&context.view, &context.services);
    if !mirror.is_chosen(view.turns[mirror.id].next()) {
        return;
    }
    if body.size_hint().lower() > mirror.body_bytes_max as u64 {
        return count(view, services, mirror.upstream, MirrorOutcome::TooLarge);
    }
    if services.shared.overload.step() >= PressureStep::NoKeepAlive {
        return count(view, services, mirror.upstream, MirrorOutcome::TooMany);
    }
    let head = RequestHead {
        method: head.method.clone(),
        target: head.target.clone(),
        headers: marked(
            head.headers.clone(),
            view.pools[mirror.upstream].upstream.config.http,
            wants_trailers,
        ),
        traceparent: head.traceparent,
    };
    let copy =
        MirrorCopy { view: Rc::clone(view), services: Rc::clone(services), upstream: mirror.upstream, head };
    let RequestBody::Streaming(handle) = body else { return copy.send(RequestBody::Empty) };
    let end = move |copied| match copied {
        Ok(copied) => copy.send(RequestBody::Copied(Box::new(copied))),
        Err(lost) => copy.count(match lost {
            CopyFailure::TooLarge => MirrorOutcome::TooLarge,
            CopyFailure::NoRoom => MirrorOutcome::TooMany,
            CopyFailure::Incomplete => MirrorOutcome::Incomplete,
        }),
    };
    handle.body().copy_to(BodyCopy::new(mirror.body_bytes_max, &services.shared.copies, end));
}

/// The fields for a copy, in the protocol of the mirror. As Envoy does, its host says that it is one, so that nobody takes it
/// for the request itself.
fn marked(mut headers: HeaderMap, http: HttpVersion, wants_trailers: bool) -> HeaderMap {
    headers.remove(TE);
    match http {
        HttpVersion::H1 => headers::join_cookies(&mut headers),
        HttpVersion::H2 if wants_trailers => _ = headers.insert(TE, HeaderValue::from_static("trailers")),
        HttpVersion::H2 => {}
    }
    if let Some(host) = headers.get(HOST).and_then(|host| shadow(host.to_str().ok()?)) {
        headers.insert(HOST, host);
    }
    headers
}

/// `api.example.com-shadow:8080` for `api.example.com:8080`. An address in brackets stays as it is, because with
/// anything behind the bracket it would be none.
fn shadow(host: &str) -> Option<HeaderValue> {
    if host.is_empty() || host.starts_with('[') {
        return None;
    }
    let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
    HeaderValue::try_from(format!("{name}{SHADOW}{port}")).ok()
}

/// A copy that is to be sent.
struct MirrorCopy {
    view: Rc<WorkerView>,
    services: Rc<Services>,
    upstream: UpstreamId,
    head: RequestHead,
}

impl MirrorCopy {
    /// Sends it in a task of its own, which nobody waits for.
    fn send(mut self, body: RequestBody) {
        // One more than copies, because the services have one themselves.
        if Rc::strong_count(&self.services.mirrored) > COPIES_MAX {
            return self.count(MirrorOutcome::TooMany);
        }
        let place = Rc::clone(&self.services.mirrored);
        tokio::task::spawn_local(async move {
            let result = self.exchange(body).await;
            self.count(result);
            drop(place);
        });
    }

    async fn exchange(&mut self, body: RequestBody) -> MirrorOutcome {
        // Renewed, because servers may have left their name while the body was on its way.
        let view = self.services.renewed(&self.view).unwrap_or_else(|| Rc::clone(&self.view));
        let pool = &view.pools[self.upstream];
        let (timeouts, wait) = (&pool.upstream.config.timeouts, pool.upstream.config.connections.wait);
        let ends = clock::instant() + timeouts.total.unwrap_or_else(|| longest(timeouts, wait));
        match timeout_at(ends.into(), exchange(pool, &mut self.head, body, ends)).await {
            Ok(true) => MirrorOutcome::Answered,
            Ok(false) | Err(_) => MirrorOutcome::Failed,
        }
    }

    fn count(&self, result: MirrorOutcome) {
        count(&self.view, &self.services, self.upstream, result);
    }
}

/// How long a copy takes at most if each of its steps takes as long as it may.
fn longest(timeouts: &UpstreamTimeouts, wait: Duration) -> Duration {
    // Where an answer may stand still for ever, a copy's may for as long as it may by default.
    wait + timeouts.connect + timeouts.response + timeouts.stall.min(UpstreamTimeouts::default().stall)
}

/// Sends a copy and reads its answer away; whether there was one.
async fn exchange(
    pool: &Rc<Pool<RequestBody>>,
    head: &mut RequestHead,
    body: RequestBody,
    ends: Instant,
) -> bool {
    let upstream = &pool.upstream;
    let acquired =
        pool.acquire(ServerPreference::default(), Terms::default(), clock::instant(), Some(ends)).await;
    let mut checkout = match acquired {
        Ok(checkout) => checkout,
        Err(error) => {
            tracing::debug!(upstream = %upstream.config.name, %error, "connecting to the mirror failed");
            return false;
        }
    };
    let names_server = upstream.config.host == HostHeader::Server || !head.headers.contains_key(HOST);
    if names_server && let Ok(host) = HeaderValue::from_str(checkout.host()) {
        head.headers.insert(HOST, host);
    }
    let (server, sent_at) = (checkout.server, clock::instant());
    let sent = checkout.send(head, body, ends.min(sent_at + upstream.config.timeouts.response)).await;
    match &sent {
        Ok(status) if !status.is_server_error() => {
            let first_byte = clock::instant().saturating_duration_since(sent_at);
            pool.succeeded(server, first_byte.as_nanos() as u64);
        }
        // Not counted, because the server had closed a connection that was idle, which says nothing of it.
        Err(SendError::Broken { unsent: UnsentRequest::Request(_), .. }) => {}
        _ => pool.failed(server, clock::now_ns()),
    }
    // Not after a switch of protocols, because what follows is no answer.
    sent.is_ok_and(|status| status != StatusCode::SWITCHING_PROTOCOLS) && read_away(checkout).await
}

/// Reads an answer's body, so that its connection can be used again; of a long one no more than a new connection would cost.
/// Whether it did not break off.
async fn read_away(mut checkout: Checkout<RequestBody>) -> bool {
    let mut left = ANSWER_BYTES_MAX;
    if checkout.take_whole().is_none() {
        while let Some(frame) = poll_fn(|cx| checkout.poll_frame(cx)).await {
            let Ok(frame) = frame else { return false };
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return true;
            }
        }
    }
    checkout.finish(clock::instant());
    true
}

fn count(view: &WorkerView, services: &Services, upstream: UpstreamId, result: MirrorOutcome) {
    view.snapshot.series.upstreams[upstream].mirrored(&services.metrics, result);
}

/// Copies that one worker has on their way at once.
const COPIES_MAX: usize = 256;
/// So much of an answer is read, bytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
const SHADOW: &str = "-shadow";

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    #[test]
    fn the_host_of_a_copy_says_that_it_is_one() {
        for (host, expected) in [
            ("api.example.com", Some("api.example.com-shadow")),
            ("api.example.com:8080", Some("api.example.com-shadow:8080")),
            ("10.0.0.1:80", Some("10.0.0.1-shadow:80")),
            ("[::1]:80", None),
            ("", None),
        ] {
            let shown = shadow(host);
            assert_eq!(shown.as_ref().map(|shown| shown.to_str().expect("it is text")), expected);
        }
    }

    #[test]
    fn fields_are_those_of_the_mirrors_own_protocol() {
        let fields = [(TE, "trailers"), (COOKIE, "a=1"), (COOKIE, "b=2")];
        let fields = || -> HeaderMap {
            fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
        };
        let h1 = marked(fields(), HttpVersion::H1, true);
        assert_eq!((h1.get(TE), h1[COOKIE].as_bytes()), (None, &b"a=1; b=2"[..]));
        assert_eq!(marked(fields(), HttpVersion::H2, true)[TE], "trailers");
        assert!(!marked(fields(), HttpVersion::H2, false).contains_key(TE));
    }
}
