//! The one form of a credential in a header, so that who spells it in another way has no other key.

use http::HeaderName;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};

use crate::keys::subject::Encoded;

/// Appends the value of a header. A credential is read as authentication reads it (RFC 9110 section 11.4): the case of its
/// scheme says nothing, and neither does the blank around what follows.
pub(crate) fn push_value(name: &HeaderName, value: &[u8], out: &mut Encoded) {
    if ![AUTHORIZATION, PROXY_AUTHORIZATION].contains(name) {
        return out.extend_from_slice(value);
    }
    let value = value.trim_ascii();
    let Some(at) = value.iter().position(u8::is_ascii_whitespace) else {
        return out.extend_from_slice(value);
    };
    let (scheme, rest) = value.split_at(at);
    out.extend(scheme.iter().map(u8::to_ascii_lowercase));
    out.push(b' ');
    out.extend_from_slice(rest.trim_ascii());
}
