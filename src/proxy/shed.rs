//! What requests give up as memory runs out; [`Overload`] says when.

use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};

use crate::service::conn::Conn;
use crate::service::overload::{Overload, Step};
use crate::service::refusal::Refusal;

/// Refuses a request if requests are given up.
pub fn admit(overload: &Overload) -> Result<(), Refusal> {
    if overload.step() >= Step::NoRequests { Err(Refusal::Overloaded) } else { Ok(()) }
}

/// Lets a connection end with this answer if keep-alive is given up.
pub fn shed<B>(overload: &Overload, conn: &Conn, version: Version, response: &mut Response<B>) {
    if overload.step() == Step::Normal {
        return;
    }
    if version == Version::HTTP_2 {
        conn.leaving.set(true);
    } else if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // A connection that is switched is not kept for another request, and needs its own `Connection`.
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");
