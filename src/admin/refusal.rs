//! Why the admin listener refuses a request: status, message and fields. No other file picks the status of a refusal.

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use super::{explain, reply};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The message does not repeat the host, which the client chose.
    #[error(
        "without a token this listener answers only to loopback hosts: add the host to `hosts` of [admin]"
    )]
    WrongHost,
    /// A hop before this one may have checked the other value.
    #[error("`Authorization` was sent more than once")]
    TwoAuthorizations,
    #[error("no such page; / lists them")]
    NoSuchPage,
    #[error("this page needs the admin token: send `Authorization: Bearer …`")]
    NoToken,
    #[error("this changes something: set `token` of [admin] and send it as a bearer token")]
    RoleTooLow,
    /// With the value of `Allow`.
    #[error("this page can only be read")]
    OnlyRead(HeaderValue),
    /// With the value of `Allow`.
    #[error("this page does not take the method: `Allow` names those it takes")]
    Method(HeaderValue),
    #[error("too many pages are being shown")]
    Busy,
    #[error("the body is larger than {0} bytes")]
    BodyTooLarge(usize),
    #[error("the body did not arrive in time")]
    BodyTooLate,
    #[error("the body is incomplete")]
    BodyBroken,
    #[error(transparent)]
    Explain(#[from] explain::Error),
    #[error("a value is not percent-encoded UTF-8")]
    Encoding,
    #[error("no such policy, or not exactly one value for each of its dimensions")]
    NoSuchKey,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Refusal::TwoAuthorizations | Refusal::BodyBroken | Refusal::Explain(_) | Refusal::Encoding => {
                StatusCode::BAD_REQUEST
            }
            Refusal::NoSuchPage | Refusal::NoSuchKey => StatusCode::NOT_FOUND,
            Refusal::NoToken => StatusCode::UNAUTHORIZED,
            Refusal::RoleTooLow => StatusCode::FORBIDDEN,
            Refusal::OnlyRead(_) | Refusal::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyTooLate => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// The field that tells a client what to do about it.
    fn field(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Refusal::NoToken => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Refusal::OnlyRead(allow) | Refusal::Method(allow) => Some((ALLOW, allow)),
            Refusal::Busy => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            Refusal::WrongHost
            | Refusal::TwoAuthorizations
            | Refusal::NoSuchPage
            | Refusal::RoleTooLow
            | Refusal::BodyTooLarge(_)
            | Refusal::BodyTooLate
            | Refusal::BodyBroken
            | Refusal::Explain(_)
            | Refusal::Encoding
            | Refusal::NoSuchKey => None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut response = reply::problem(self.status(), &self.to_string());
        if let Some((name, value)) = self.field() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
