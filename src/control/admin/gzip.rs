//! Compresses a long page for who takes gzip, as scrapers do: counts of ten thousand routes are megabytes.

use std::io::Write;

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response};

use policy::response::compress::{Coding, Compress};

/// Whether the client of this request likes gzip better than no coding.
pub(super) fn is_liked(headers: &HeaderMap) -> bool {
    let rules = Compress { codings: vec![(Coding::Gzip, 1)], ..Compress::default() };
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    rules.choose(lines).coding.is_some()
}

/// The page in gzip; as it is if it is short. It is done off the runtime, because it takes some milliseconds a
/// megabyte.
pub(super) async fn packed(page: Vec<u8>) -> (Vec<u8>, bool) {
    if page.len() < BYTES_MIN {
        return (page, false);
    }
    let pack = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(page.len() / 8), Compression::fast());
        let packed = encoder.write_all(&page).and_then(|()| encoder.finish());
        packed.map_or((page, false), |packed| (packed, true))
    });
    pack.await.unwrap_or_default()
}

/// Says which coding an answer has, and that others might get another one.
pub(super) fn mark(response: &mut Response<Body>, is_packed: bool) {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(Coding::Gzip.name()));
    }
}

const BYTES_MIN: usize = 4 * 1024;
