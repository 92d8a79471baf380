//! Sheds requests and keep-alive as memory runs out. [`Overload`] decides when; `server::accept` sheds connections.

use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};

use crate::service::conn::Conn;
use crate::service::overload::{Overload, PressureStep};
use crate::service::refusal::Refusal;

/// Refuses a request if memory is so short that requests are shed.
pub fn admit(overload: &Overload) -> Result<(), Refusal> {
    if overload.step() >= PressureStep::NoRequests { Err(Refusal::Overloaded) } else { Ok(()) }
}

/// Ends a connection with this answer if memory is short, because idle connections hold memory, or if this
/// process is to be left for another.
pub fn shed<B>(overload: &Overload, conn: &Conn, version: Version, response: &mut Response<B>) {
    if overload.step() < PressureStep::NoKeepAlive && !conn.drain.wants_last_answers() {
        return;
    }
    if version == Version::HTTP_2 {
        conn.leaving.set(true);
    } else if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Not on a 101, because it needs its own `Connection: upgrade`, and its connection serves no further request
        // anyway.
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");
