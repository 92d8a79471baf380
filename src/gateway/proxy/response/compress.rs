//! Decides whether the answer to a request is compressed, and changes its fields accordingly. The rules and the choice of a
//! coding are `policy::response::compress`; the bytes are [`crate::proxy::response::compressed_body`].

use std::rc::Rc;
use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    Entry, IF_NONE_MATCH, IF_RANGE, RANGE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};

use crate::proxy::context::RequestContext;
use crate::proxy::response::body_decoder::codec_slot;
use crate::proxy::response::response_body::ResponseBody;
use crate::proxy::services::Services;
use crate::service::overload::PressureStep;
use policy::response::compress::{CodingChoice, Compress};

/// What a request to a route that compresses says of its answer. It is read before the request's fields go upstream.
pub struct CompressionTerms {
    rules: Arc<Compress>,
    choice: CodingChoice,
    is_head: bool,
    /// The entity tags that the client has answers of.
    known_tags: Vec<HeaderValue>,
    services: Rc<Services>,
}

impl CompressionTerms {
    /// What a request with these fields says. Boxed, so that requests of other routes stay as small as they are.
    pub fn of(rules: &Arc<Compress>, context: &RequestContext, headers: &HeaderMap) -> Box<CompressionTerms> {
        let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
        let mut choice = rules.choose(lines);
        // Not for HTTP/1.0, because its client would read to the end of the connection, and could not tell a whole
        // answer from half of one.
        let is_old = context.facts.version == Version::HTTP_10;
        if is_old || has(headers, &CACHE_CONTROL, NO_TRANSFORM) {
            choice.coding = None;
        }
        Box::new(CompressionTerms {
            rules: Arc::clone(rules),
            choice,
            is_head: context.facts.method == Method::HEAD,
            known_tags: headers.get_all(IF_NONE_MATCH).iter().cloned().collect(),
            services: Rc::clone(&context.services),
        })
    }

    /// Compresses an answer if the rules, its fields and its client allow it.
    pub fn apply(self, mut answer: Response<ResponseBody>) -> Response<ResponseBody> {
        let status = answer.status();
        if status == StatusCode::NOT_MODIFIED {
            self.match_tag(answer.headers_mut());
            return answer;
        }
        if status == StatusCode::PARTIAL_CONTENT {
            // The `Vary` that the whole answer would have (RFC 9110 section 15.3.7). What of that a part does not say, such as
            // the type behind `multipart/byteranges`, counts as if it were compressed.
            add_vary(answer.headers_mut());
            return answer;
        }
        if !self.may_change(&answer) {
            return answer;
        }
        add_vary(answer.headers_mut());
        let is_calm = self.services.shared.overload.step() < PressureStep::NoKeepAlive;
        let slot = codec_slot(&self.services.compressions).filter(|_| is_calm);
        let (Some(coding), Some(slot)) = (self.choice.coding, slot) else { return answer };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.0.name()));
        headers.remove(CONTENT_LENGTH);
        // Removed, because a range would be one of the compressed bytes, of which no two runs make the same.
        headers.remove(ACCEPT_RANGES);
        if let Entry::Occupied(mut tag) = headers.entry(ETAG)
            && let Some(weak) = weakened(tag.get())
        {
            tag.insert(weak);
        }
        answer.map(|body| body.compressed(coding, slot))
    }

    /// Whether this answer is sent in another coding to clients that accept one.
    fn may_change(&self, answer: &Response<ResponseBody>) -> bool {
        let (status, headers) = (answer.status(), answer.headers());
        let has_own_form = status.is_informational() || FORMLESS.contains(&status);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        !has_own_form
            && self.rules.takes(kind)
            // Not messages of gRPC, because they have a compression of their own.
            && !kind.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
            && (self.rules.set_cookie || !headers.contains_key(SET_COOKIE))
            && !BOUND.iter().any(|name| headers.contains_key(name))
            && !has(headers, &CACHE_CONTROL, NO_TRANSFORM)
            && self.is_long_enough(answer)
    }

    fn is_long_enough(&self, answer: &Response<ResponseBody>) -> bool {
        let written =
            answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = match written {
            None if self.is_head => None,
            written => written.or_else(|| http_body::Body::size_hint(answer.body()).exact()),
        };
        let least = if self.choice.insists { 1 } else { self.rules.min_bytes.max(1) };
        length.is_none_or(|length| length >= least)
    }

    /// A 304 has the tag and the `Vary` that the whole answer would have (RFC 9110 section 15.4.5). Whether that was
    /// compressed only the client's own tags tell.
    fn match_tag(&self, headers: &mut HeaderMap) {
        add_vary(headers);
        let Entry::Occupied(mut tag) = headers.entry(ETAG) else { return };
        let Some(weak) = weakened(tag.get()) else { return };
        let is_known = |tag: &HeaderValue| {
            let mut known =
                self.known_tags.iter().filter_map(|line| line.to_str().ok()).flat_map(|it| it.split(','));
            known.any(|known| known.trim().as_bytes() == tag.as_bytes())
        };
        if is_known(&weak) && !is_known(tag.get()) {
            tag.insert(weak);
        }
    }
}

/// Takes `Range` out of a request whose `If-Range` is a weak entity tag, which none matches (RFC 9110 section 13.1.5).
/// It is taken out because servers that compare weakly would take the tag of a compressed answer for theirs and send a
/// part of the plain bytes, which the client would append to compressed ones.
pub fn ignore_false_range(headers: &mut HeaderMap) {
    let is_weak = |tag: &HeaderValue| matches!(tag.as_bytes(), [b'W' | b'w', b'/', ..]);
    if headers.get_all(IF_RANGE).iter().any(is_weak) {
        headers.remove(IF_RANGE);
        headers.remove(RANGE);
    }
}

/// The weak form of a strong entity tag. It takes its place, because compressed bytes are not those that the tag was
/// made for (RFC 9110 section 8.8.1).
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    let tag = tag.as_bytes();
    tag.starts_with(b"\"").then(|| HeaderValue::from_bytes(&[b"W/", tag].concat()).ok()).flatten()
}

fn add_vary(headers: &mut HeaderMap) {
    if !has(headers, &VARY, "*") && !has(headers, &VARY, ACCEPT_ENCODING.as_str()) {
        headers.append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
}

/// Whether a list field has this item.
fn has(headers: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    let mut items =
        headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).flat_map(|it| it.split(','));
    items.any(|it| it.trim().eq_ignore_ascii_case(item))
}

/// Answers without content, and parts of one.
const FORMLESS: [StatusCode; 3] =
    [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::PARTIAL_CONTENT];
/// Fields that tie an answer to its very bytes: it has a coding already, is a part, or names a digest of them.
const BOUND: [HeaderName; 6] = [
    CONTENT_ENCODING,
    http::header::CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];
const NO_TRANSFORM: &str = "no-transform";
const GRPC: &str = "application/grpc";
