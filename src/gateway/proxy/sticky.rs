//! Clients that stay at a server by a cookie: reading it from requests, and giving it with answers.

use std::time::Instant;

use http::HeaderMap;
use http::header::SET_COOKIE;

use super::request::request_body::RequestBody;
use super::snapshot::WorkerView;
use policy::UpstreamId;
use policy::destination::UpstreamChoice;
use upstream::sticky::StickyCookies;
use upstream::{Pool, ServerIndex};

/// The server that a request's cookie names. Almost no upstream has such cookies: then it is one look.
pub fn named(pool: &Pool<RequestBody>, headers: &HeaderMap) -> Option<ServerIndex> {
    pool.upstream.sticky.as_ref()?.named(headers)
}

/// The upstream among several whose server a request's cookie names, if that server may be used. Also one without a
/// weight, because a client that has begun there may end there.
pub fn upstream(
    view: &WorkerView,
    choice: &UpstreamChoice,
    headers: &HeaderMap,
    now: Instant,
) -> Option<UpstreamId> {
    let mut upstreams = choice.parts.iter().map(|part| part.upstream);
    upstreams.find(|upstream| {
        let pool = &view.pools[*upstream];
        named(pool, headers).is_some_and(|server| pool.is_usable(server, now))
    })
}

/// The field that keeps a client at the server that has answered, unless its cookie named that one already.
pub fn keep(
    sticky: &StickyCookies,
    named: Option<ServerIndex>,
    server: ServerIndex,
    tls: bool,
    headers: &mut HeaderMap,
) {
    if named != Some(server) {
        headers.append(SET_COOKIE, sticky.field(server, tls));
    }
}
