//! The name of this node: the machine's.

/// The name that logs and traces call this node by.
pub(super) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
