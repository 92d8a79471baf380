//! What an operator is told of a TCP address that cannot be bound: the cause in words first, then what to do.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use crate::sockets::neighbour;

/// What helps if another gateway has the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing but what helps against every other program.
    None,
    ReusePort,
    /// This process starts, and may be meant to replace the other.
    ReusePortOrUpgrade,
}

/// The error with its cause in words, where the system's own are not enough.
pub(crate) fn explained(error: anyhow::Error, addr: SocketAddr, remedy: Remedy) -> anyhow::Error {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<Error>()).map(Error::kind);
    let why = match kind {
        Some(ErrorKind::PermissionDenied) if addr.port() < UNPRIVILEGED => {
            "permission denied: ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()
        }
        Some(ErrorKind::AddrNotAvailable) => {
            "this machine does not have that address: write one of its own, or `[::]` for all".to_owned()
        }
        Some(ErrorKind::AddrInUse) => in_use(addr, remedy),
        _ => return error,
    };
    let why = anyhow::anyhow!(why);
    match error.downcast_ref::<Error>() {
        Some(_) => why,
        // Without the system's own words, but with what says which listener it is.
        None => why.context(error.to_string()),
    }
}

fn in_use(addr: SocketAddr, remedy: Remedy) -> String {
    let Some(other) = neighbour::on(addr) else {
        return format!("another process listens there: {CHOOSE}");
    };
    let share = "to share the address, write `reuse-port = true`";
    match remedy {
        Remedy::ReusePort if other.is_gateway() => format!("{other} listens there: {CHOOSE}; {share}"),
        Remedy::ReusePortOrUpgrade if other.is_gateway() => {
            format!("{other} listens there: {CHOOSE}; to replace it, run `sluicegate upgrade`; {share}")
        }
        _ => format!("{other} listens there: {CHOOSE}"),
    }
}

const CHOOSE: &str = "stop it or choose another port";
/// Ports below belong to root and to who has the capability, unless the system says otherwise.
const UNPRIVILEGED: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: ErrorKind, addr: &str) -> String {
        explained(Error::from(kind).into(), addr.parse().expect("an address"), Remedy::ReusePort).to_string()
    }

    #[test]
    fn the_cause_is_said_in_words_and_sharing_only_where_it_helps() {
        let said = told(ErrorKind::PermissionDenied, "127.0.0.1:80");
        assert_eq!(said, "permission denied: ports below 1024 need CAP_NET_BIND_SERVICE");
        assert_eq!(told(ErrorKind::PermissionDenied, "127.0.0.1:8080"), "permission denied");
        let said = told(ErrorKind::AddrNotAvailable, "203.0.113.1:8080");
        assert_eq!(said, "this machine does not have that address: write one of its own, or `[::]` for all");
        let said = told(ErrorKind::AddrInUse, "127.0.0.1:1");
        assert_eq!(said, "another process listens there: stop it or choose another port");
    }
}
