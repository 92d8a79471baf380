//! Bodies of requests: read as a whole, within a bound and a deadline, and only for operations that take one.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time;

use super::refusal::Refusal;

/// Reads a body of at most `bytes_max` bytes.
pub(super) async fn read(body: Body, bytes_max: usize, deadline: Duration) -> Result<Bytes, Refusal> {
    // Refused before its first byte, so that a client that waits for 100 Continue never sends it.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Refusal::BodyTooLarge(bytes_max));
    }
    match time::timeout(deadline, Limited::new(body, bytes_max).collect()).await {
        Err(_) => Err(Refusal::BodyTooLate),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge(bytes_max)),
        Ok(Err(_)) => Err(Refusal::BodyBroken),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
