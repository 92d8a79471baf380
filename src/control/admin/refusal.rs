//! Why the admin listener refuses a request: status, message and fields. No other file picks the status of a refusal.

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{ALLOW, ETAG, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use super::access::AdminRole;
use super::api::{At, Flaw, etag};
use super::reply::{FaultLocation, RequestFault};
use super::{explain, reply};
use crate::database;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AdminRefusal {
    /// The message does not repeat the host, because the client chose it.
    #[error(
        "without a token this listener answers only to loopback hosts: add the host to `hosts` of [admin]"
    )]
    WrongHost,
    /// Refused, because a hop before this one may have checked the other value.
    #[error("`Authorization` was sent more than once")]
    TwoAuthorizations,
    #[error("no such endpoint: GET / lists all endpoints")]
    NoSuchPage,
    #[error(
        "this endpoint needs a token of [admin], or a client certificate that it lists: send `Authorization: Bearer …`"
    )]
    NoToken,
    #[error("this token is invalid: send one of [admin], or ask the gateway's operators")]
    WrongToken,
    #[error("this token has expired: ask the gateway's operators for another")]
    TokenExpired,
    #[error("the client certificate of this connection has expired: connect with a new one")]
    CertificateExpired,
    /// A change, asked of a listener without tokens.
    #[error(
        "changes need a token: set `token` of [admin] and send it as a bearer token. Most of them also need [database]"
    )]
    ReadOnly,
    #[error("this needs the role `{}`, and these credentials have `{}`", needs.word(), has.word())]
    RoleTooLow { has: AdminRole, needs: AdminRole },
    /// The method is none that reads; with the value of `Allow`.
    #[error("this endpoint is read-only")]
    OnlyRead(HeaderValue),
    /// The path has no such method; with the value of `Allow`.
    #[error("this endpoint does not allow the method: the header `Allow` lists those that it does")]
    Method(HeaderValue),
    /// A change of the whole list, whose rows are written one by one; with what to send, and the value of `Allow`.
    #[error("this endpoint is a list: {0}")]
    OneByOne(&'static str, HeaderValue),
    #[error("too many admin requests at once: try again")]
    Busy,
    #[error("too many live pages are open: close one, or try again in 10 s")]
    TooManyStreams,
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
    #[error("the path must have one value for each dimension of the policy, in the order of its `by`")]
    NoSuchKey,
    /// A body, a query or header fields that cannot be read.
    #[error("{}", details(.0))]
    Invalid(Vec<Flaw>),
    /// Values that can be read and do not fit what is there by now.
    #[error("{}", details(.0))]
    Unusable(Vec<Flaw>),
    #[error("the body must be JSON: send `Content-Type: application/json`, as `curl --json` does")]
    ContentType,
    #[error(
        "this gateway has no database to keep changes in: add `[database]` with `url = \"sqlite:state.db\"` to gateway.toml and start it again"
    )]
    NoDatabase,
    #[error(
        "the database is a file of this machine, and limits are shared through Redis: other nodes would not get the change. Use PostgreSQL, or add `single-node = true` to [database] if there are no other nodes"
    )]
    OneNodeOnly,
    #[error(
        "this gateway does not record usage by the minute: add `[database]` with `url = \"sqlite:state.db\"` to \
         gateway.toml, with `usage-rows` above 0, and start it again"
    )]
    NoMinutes,
    #[error("the database is unavailable: the log says why")]
    NotReached,
    #[error("{0}")]
    NotFound(&'static str),
    /// A name that is not in force, and those that are.
    #[error("{0}")]
    UnknownName(String),
    #[error("several API keys have this digest prefix: write a longer one")]
    Ambiguous,
    #[error("the system's random number generator failed: no API key was created")]
    NoRandomness,
    #[error("Redis does not answer, so present usage is unknown: nothing was granted, try again")]
    NoRedis,
    #[error("the counts changed at the same time: nothing was granted, try again")]
    Overtaken,
    /// With the present version, if there is a row.
    #[error("{}", changed(.0))]
    Changed(Option<i64>),
    #[error("this `Idempotency-Key` was used for another request: use a new one")]
    KeyReused,
    #[error(transparent)]
    Database(database::Error),
}

impl From<database::Error> for AdminRefusal {
    fn from(error: database::Error) -> AdminRefusal {
        match error {
            database::Error::Conflict { version } => AdminRefusal::Changed(version),
            database::Error::KeyReused => AdminRefusal::KeyReused,
            database::Error::NotFound => AdminRefusal::NotFound("there is no such row"),
            other => {
                tracing::warn!(error = %other, "admin request failed: the database returned an error");
                AdminRefusal::Database(other)
            }
        }
    }
}

impl AdminRefusal {
    /// A failed change of a row, which may not be there.
    pub(super) fn of_row(error: database::Error, not_found: AdminRefusal) -> AdminRefusal {
        if error == database::Error::NotFound { not_found } else { error.into() }
    }

    /// A value of one field of the body that can be read and does not fit what is there by now.
    pub(super) fn in_field(name: &str, detail: impl Into<String>) -> AdminRefusal {
        AdminRefusal::Unusable(vec![Flaw::in_body(name, detail)])
    }

    /// The same without places, because the body was read in other words than those it was written in.
    pub(super) fn of_whole(mut self) -> AdminRefusal {
        if let AdminRefusal::Invalid(flaws) = &mut self {
            flaws.iter_mut().for_each(|flaw| flaw.at = At::Body(String::new()));
        }
        self
    }
}

fn changed(version: &Option<i64>) -> &'static str {
    match version {
        Some(_) => "it has changed since it was read: read it again and send its new `ETag`",
        None => "it does not exist: send `If-None-Match: *` to create it",
    }
}

fn details(flaws: &[Flaw]) -> String {
    flaws.iter().map(|flaw| flaw.detail.as_str()).collect::<Vec<_>>().join("; ")
}

impl AdminRefusal {
    /// The status, and the field that tells a client what to do about it.
    fn answer(&self) -> (StatusCode, Option<(HeaderName, HeaderValue)>) {
        let asks = |scheme| Some((WWW_AUTHENTICATE, HeaderValue::from_static(scheme)));
        let again = |seconds: u16| Some((RETRY_AFTER, seconds.into()));
        match self {
            AdminRefusal::WrongHost => (StatusCode::MISDIRECTED_REQUEST, None),
            AdminRefusal::TwoAuthorizations
            | AdminRefusal::BodyBroken
            | AdminRefusal::Explain(_)
            | AdminRefusal::Encoding
            | AdminRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, None),
            AdminRefusal::NoSuchPage
            | AdminRefusal::NoSuchKey
            | AdminRefusal::NotFound(_)
            | AdminRefusal::UnknownName(_) => (StatusCode::NOT_FOUND, None),
            AdminRefusal::NoToken | AdminRefusal::CertificateExpired => {
                (StatusCode::UNAUTHORIZED, asks("Bearer"))
            }
            // RFC 6750 section 3.1: the error for a token that has expired, or is invalid for other reasons.
            AdminRefusal::WrongToken | AdminRefusal::TokenExpired => {
                (StatusCode::UNAUTHORIZED, asks("Bearer error=\"invalid_token\""))
            }
            AdminRefusal::ReadOnly | AdminRefusal::RoleTooLow { .. } => (StatusCode::FORBIDDEN, None),
            AdminRefusal::OnlyRead(allow)
            | AdminRefusal::Method(allow)
            | AdminRefusal::OneByOne(_, allow) => {
                (StatusCode::METHOD_NOT_ALLOWED, Some((ALLOW, allow.clone())))
            }
            AdminRefusal::Busy
            | AdminRefusal::NotReached
            | AdminRefusal::NoRedis
            | AdminRefusal::Overtaken => (StatusCode::SERVICE_UNAVAILABLE, again(1)),
            // Later, because places come free when somebody closes a page, which may take a while.
            AdminRefusal::TooManyStreams => (StatusCode::SERVICE_UNAVAILABLE, again(10)),
            AdminRefusal::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, None),
            AdminRefusal::NoDatabase | AdminRefusal::NoMinutes => (StatusCode::NOT_IMPLEMENTED, None),
            AdminRefusal::OneNodeOnly | AdminRefusal::Ambiguous => (StatusCode::CONFLICT, None),
            AdminRefusal::NoRandomness => (StatusCode::INTERNAL_SERVER_ERROR, None),
            AdminRefusal::Changed(version) => {
                (StatusCode::PRECONDITION_FAILED, version.map(|version| (ETAG, etag(version))))
            }
            AdminRefusal::Unusable(_) | AdminRefusal::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, None),
            AdminRefusal::Database(error) => {
                let (status, after) = of_database(error);
                (status, after.and_then(again))
            }
            AdminRefusal::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, None),
            AdminRefusal::BodyTooLate => (StatusCode::REQUEST_TIMEOUT, None),
        }
    }

    /// The places of what is wrong, as the examples of RFC 9457 section 3 have them.
    fn places(&self) -> Vec<RequestFault> {
        let (AdminRefusal::Invalid(flaws) | AdminRefusal::Unusable(flaws)) = self else { return Vec::new() };
        let place = |Flaw { at, detail }: &Flaw| {
            let at = match at {
                At::Body(pointer) => {
                    FaultLocation { pointer: Some(format!("#{pointer}")), ..FaultLocation::default() }
                }
                At::Parameter(name) => {
                    FaultLocation { parameter: Some(name.clone()), ..FaultLocation::default() }
                }
                At::Header(name) => FaultLocation { header: Some(name), ..FaultLocation::default() },
            };
            RequestFault { detail: detail.clone(), at }
        };
        flaws.iter().map(place).collect()
    }
}

impl IntoResponse for AdminRefusal {
    fn into_response(self) -> Response<Body> {
        let (status, field) = self.answer();
        let mut response = reply::problem(status, self.to_string(), self.places());
        if let Some((name, value)) = field {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The status of a failed call of the database, and after how many seconds it may be worth another try.
fn of_database(error: &database::Error) -> (StatusCode, Option<u16>) {
    use database::Error;
    match error {
        Error::NotFound => (StatusCode::NOT_FOUND, None),
        Error::Conflict { .. } => (StatusCode::PRECONDITION_FAILED, None),
        Error::KeyReused | Error::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, None),
        Error::Unreachable { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
        // No time for another try, because the change may be there: a client sends its `Idempotency-Key` again, or
        // looks first.
        Error::Unknown { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
        // Much later, because an operator must act, which takes a while.
        Error::ReadOnly { .. }
        | Error::Full { .. }
        | Error::Refused { .. }
        | Error::Corrupt { .. }
        | Error::Newer { .. }
        | Error::Tables { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(30)),
        Error::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, None),
    }
}
