//! Reads a request's body as a whole, within a size and a deadline. Operations that take no body leave it unread.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time;

use super::refusal::AdminRefusal;

pub(super) async fn read(body: Body, bytes_max: usize, deadline: Duration) -> Result<Bytes, AdminRefusal> {
    // Checked before the first poll, because that makes hyper send 100 Continue and the client its body.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(AdminRefusal::BodyTooLarge(bytes_max));
    }
    match time::timeout(deadline, Limited::new(body, bytes_max).collect()).await {
        Err(_) => Err(AdminRefusal::BodyTooLate),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(AdminRefusal::BodyTooLarge(bytes_max)),
        Ok(Err(_)) => Err(AdminRefusal::BodyBroken),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
