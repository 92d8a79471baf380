//! Reads the first bytes of a request's body before a connection to the upstream is taken for it, so that a client that
//! sends slowly does not hold a connection meanwhile (slow POST).
//!
//! A body that comes with its head, as most do, passes through without a copy, a timer or a count.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Version};
use http_body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::proxy::context::RequestContext;
use crate::proxy::request::buffered_body::BufferBudget;
use crate::proxy::request::request_body::{Error, RequestBody};
use crate::service::refusal::Refusal;
use policy::json::{JsonFields, JsonPath};
use upstream::Upstream;

/// Why a request ends while its body is gathered.
#[derive(Debug)]
pub enum GatherFailure {
    /// The body broke off, or is too large.
    Body(Error),
    /// Nothing came for `body_stall`.
    Stalled,
    /// The memory for gathered bodies is used up.
    NoRoom,
}

/// Reads the first bytes of `body`, or all of it if it is small. A body that takes long may go on earlier: then the
/// result is a permit to hold a connection although the client is slow, of which each upstream has few.
///
/// # Errors
/// If the body breaks off, stalls, or finds no room.
pub async fn gather(
    context: &mut RequestContext,
    body: &mut RequestBody,
    upstream: &Upstream,
) -> Result<Option<OwnedSemaphorePermit>, GatherFailure> {
    let max = upstream.config.uploads.gather_bytes;
    let RequestBody::Streaming(handle) = &mut *body else { return Ok(None) };
    if max == 0 {
        return Ok(None);
    }
    let room = Arc::clone(&context.services.shared.gathered);
    let at_once = poll_fn(|cx| Poll::Ready(handle.body().poll_gather(max, &room, cx))).await;
    match at_once {
        Poll::Ready(gathered) if handle.body().is_gathered(max) => {
            gathered.map(|()| None).map_err(GatherFailure::Body)
        }
        Poll::Ready(Err(error)) => Err(GatherFailure::Body(error)),
        // Boxed, because timers are large, and few bodies wait.
        Poll::Ready(Ok(())) | Poll::Pending => Box::pin(wait(context, body, upstream, &room)).await,
    }
}

/// Reads the fields that the policies of a route ask for from the beginning of `body`, which is then sent as it came. A
/// body in a coding has none.
///
/// # Errors
/// If the body breaks off, stalls, or finds no room.
pub async fn fields(
    context: &mut RequestContext,
    body: &mut RequestBody,
    headers: &HeaderMap,
    paths: &Arc<[JsonPath]>,
) -> Result<JsonFields, GatherFailure> {
    let RequestBody::Streaming(handle) = body else { return Ok(JsonFields::default()) };
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Ok(JsonFields::default());
    }
    let room = Arc::clone(&context.services.shared.gathered);
    let stall = stall_of(context);
    let at_once = poll_fn(|cx| Poll::Ready(handle.body().poll_gather(FIELDS_BYTES, &room, cx))).await;
    if let Poll::Ready(gathered) = at_once {
        gathered.map_err(GatherFailure::Body)?;
    }
    // Over HTTP/2 each step has its deadline.
    let step_bytes = if stall == Duration::MAX { FIELDS_BYTES } else { STEP_BYTES };
    let mut target = 0;
    while !handle.body().is_gathered(FIELDS_BYTES) {
        target = FIELDS_BYTES.min(target + step_bytes);
        let step = poll_fn(|cx| handle.body().poll_gather(target, &room, cx));
        timeout(stall, step).await.map_err(|_| GatherFailure::Stalled)?.map_err(GatherFailure::Body)?;
        if !handle.body().is_gathered(target) {
            return Err(GatherFailure::NoRoom);
        }
    }
    let streaming = handle.body();
    Ok(JsonFields::read(paths, streaming.pieces(FIELDS_BYTES)))
}

/// How long a body may stand still. Over HTTP/1.1 the connection's timer watches for stalls. Over HTTP/2 it cannot,
/// because other streams move meanwhile.
fn stall_of(context: &RequestContext) -> Duration {
    match context.facts.version {
        Version::HTTP_2 => context.conn.config.timeouts.body_stall,
        _ => Duration::MAX,
    }
}

/// What a request is told whose body ended early.
pub fn refusal(context: &RequestContext, ended: GatherFailure) -> Refusal {
    match ended {
        GatherFailure::Stalled => Refusal::BodySlow,
        GatherFailure::NoRoom => Refusal::Overloaded,
        GatherFailure::Body(error) => {
            tracing::debug!(%error, "request body ended early");
            body_fault(context).unwrap_or(Refusal::ClientGone)
        }
    }
}

/// The refusal for the request's body, if that failed.
pub fn body_fault(context: &RequestContext) -> Option<Refusal> {
    let upload = context.outcome.upload.as_ref()?;
    if upload.too_large.get() {
        return Some(Refusal::BodyTooLarge);
    }
    let fault = || context.conn.activity.body_fault.get().map_or(Refusal::ClientGone, Refusal::Framing);
    upload.broken.get().then(fault)
}

/// Gathers a body that does not come at once.
async fn wait(
    context: &mut RequestContext,
    body: &mut RequestBody,
    upstream: &Upstream,
    room: &Arc<BufferBudget>,
) -> Result<Option<OwnedSemaphorePermit>, GatherFailure> {
    let max = upstream.config.uploads.gather_bytes;
    let is_small = body.size_hint().upper().is_some_and(|length| length <= max as u64);
    let early = if is_small { SMALL_EARLY_AFTER } else { EARLY_AFTER };
    let stall = stall_of(context);
    let RequestBody::Streaming(handle) = body else { return Ok(None) };
    let gathered = async {
        let mut target = 0;
        while !handle.body().is_gathered(max) {
            target = max.min(target + STEP_BYTES);
            let step = poll_fn(|cx| handle.body().poll_gather(target, room, cx));
            timeout(stall, step).await.map_err(|_| GatherFailure::Stalled)?.map_err(GatherFailure::Body)?;
            if !handle.body().is_gathered(target) {
                // No room for more: what has come goes on if a permit is free soon.
                let permit = timeout(NO_ROOM_WAIT, Arc::clone(&upstream.early).acquire_owned()).await;
                return permit.ok().and_then(Result::ok).map(Some).ok_or(GatherFailure::NoRoom);
            }
        }
        Ok(None)
    };
    let result = tokio::select! {
        biased;
        gathered = gathered => gathered,
        permit = early_permit(&upstream.early, early) => Ok(Some(permit)),
    };
    context.attempts.steps.gather = context.elapsed_ns();
    result
}

/// A permit to go on before enough is gathered: not before `after`, and only when one is free. It is tried periodically
/// instead of waited for in the semaphore's queue, because a body that has gathered enough meanwhile needs none.
async fn early_permit(early: &Arc<Semaphore>, after: Duration) -> OwnedSemaphorePermit {
    sleep(after).await;
    loop {
        if let Ok(permit) = Arc::clone(early).try_acquire_owned() {
            return permit;
        }
        sleep(EARLY_AFTER).await;
    }
}

/// As much of a request's body as fields are looked for in.
const FIELDS_BYTES: usize = 64 * 1024;
/// Over HTTP/2, a body must bring at least this much within each `body_stall`.
const STEP_BYTES: usize = 1024;
/// When a body of known, small length may go on although it is not whole.
const SMALL_EARLY_AFTER: Duration = Duration::from_secs(10);
/// When any other body may: soon, because its client may be waiting for an answer to the first piece.
const EARLY_AFTER: Duration = Duration::from_secs(1);
/// How long a body waits to go on if there is no room to gather more of it.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);
