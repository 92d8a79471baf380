//! Follows an answer of the admin listener that does not end.

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use crate::admin_client::AdminClient;
use net::any_stream::AnyStream;

impl AdminClient {
    /// Asks for an answer that does not end, and hands over each piece of it until `each` returns `false`.
    ///
    /// # Errors
    /// If there is no answer in time, or a refusal: its reason.
    pub(super) fn follow(&self, target: &str, each: &mut dyn FnMut(&[u8]) -> bool) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let request = self.request(&Method::GET, target, String::new())?;
        runtime.block_on(async {
            let begun = timeout(self.within, async { begin(self.connect().await?, request).await });
            let begun = begun.await.unwrap_or_else(|_| bail!("no answer within {:?}", self.within));
            let begun = begun.map_err(|error| self.place.unanswered(error))?;
            let mut body =
                begun.map_err(|(status, problem)| anyhow!(self.place.refusal(status, &problem)))?;
            // A deadline for each piece, because the server sends something each second.
            while let Some(frame) =
                timeout(self.within, body.frame()).await.context("the gateway stopped sending events")?
            {
                if frame?.data_ref().is_some_and(|piece| !each(piece)) {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Sends a request over a connection that ends with the answer, and returns the body of a good one, or what another says.
async fn begin(
    stream: AnyStream,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Result<Incoming, (StatusCode, Value)>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Its handle is not kept, because it ends with the runtime, which is this answer's own.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(Ok(answer.into_body()));
    }
    let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    Ok(Err((status, serde_json::from_slice(&body).unwrap_or_default())))
}

const REFUSAL_BYTES_MAX: usize = 64 * 1024;
