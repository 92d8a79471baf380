//! What policies limit: a subject, which has dimensions by name. It need not be an HTTP request.

use std::net::IpAddr;

use base::identity::Identity;
use http::HeaderName;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use smallvec::SmallVec;

use crate::counting::rules::PolicyRules;
use crate::definition::Dimension;

/// The encoded values of one subject; the same for every window of a policy.
pub type Encoded = SmallVec<[u8; 128]>;

/// Something that policies decide about.
pub trait Subject {
    /// Appends the value of a dimension; nothing if it has none. Returns `false` if it has several that differ, none of
    /// which may count.
    fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool;

    /// Whether a value of a dimension is what is looked for: of several that differ any, because nobody knows which of them the
    /// upstream reads.
    fn any(&self, dimension: &Dimension, is_it: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut value = Encoded::new();
        self.write(dimension, &mut value);
        !value.is_empty() && is_it(&value)
    }

    /// The client's address: its value of [`Dimension::Ip`], and what counts if Redis is down and a policy admits
    /// everybody.
    fn address(&self) -> IpAddr;

    /// The same if it is the client's; `None` if it only stands in for one that nobody has named.
    fn known_address(&self) -> Option<IpAddr> {
        Some(self.address())
    }

    /// Who it is; `None` if nothing is said of that.
    fn identity(&self) -> Option<&Identity> {
        None
    }

    /// The tier whose windows apply.
    fn tier(&self) -> Option<&str> {
        self.identity()?.tier.as_deref()
    }

    /// The name of the client, as authenticated.
    fn consumer(&self) -> Option<&str> {
        self.identity()?.consumer.as_deref()
    }

    /// The tenant whose keys may have a shard of their own.
    fn tenant(&self) -> Option<&str> {
        self.identity()?.tenant.as_deref()
    }

    /// Units that a policy with these rules charges it; 0: the policy does not apply.
    fn cost(&self, rules: &PolicyRules) -> u64;

    /// Appends that by which a policy with these rules recognises a retry; `false`: nothing does.
    fn write_idempotency_key(&self, _rules: &PolicyRules, _out: &mut Encoded) -> bool {
        false
    }
}

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
