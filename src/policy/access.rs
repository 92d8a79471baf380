//! Who may use a route, compiled: how callers are recognised. It names the ways by index; what they are is not its
//! concern.

/// Who may use a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Indices of the ways to authenticate, in the order they are tried. Empty: none is asked for.
    pub auth: Box<[u16]>,
}
