//! [`Condition`]: the state of a shard, as its answers and errors tell, in one word for logs and metrics.

use redis::{RedisError, ServerErrorKind};

/// The state of a shard, as its last answer or error shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It has not been connected to yet.
    #[default]
    Unknown,
    /// It answers, and charges go through.
    Up,
    /// It cannot be connected to, or its connection broke.
    Unreachable,
    /// It accepts connections and answers nothing.
    Silent,
    /// It is loading its data set after a start.
    Loading,
    /// It is a read-only replica, so no charge goes through.
    Replica,
    /// It is blocked by a script of another application that does not end.
    Busy,
    /// Its memory is full and it refuses writes.
    Full,
    /// The login is wrong, or its ACL user lacks a right that charges need.
    Refusing,
    /// No node of the cluster has the slot of these keys.
    Uncovered,
    /// Another error; the log has it.
    Failing,
}

impl Condition {
    /// Whether it can be reached and takes no charges, of which it does not recover by itself.
    pub(super) fn refuses(self) -> bool {
        use Condition as C;
        matches!(self, C::Replica | C::Full | C::Refusing | C::Uncovered | C::Failing)
    }

    /// The state of the whole shard that an error shows; `None` if the error concerns one call or key.
    pub(super) fn of(error: &RedisError) -> Option<Condition> {
        if error.is_connection_dropped() || error.is_connection_refusal() || error.is_io_error() {
            return Some(Condition::Unreachable);
        }
        // The crate has a kind of its own for a refused login, which carries no error code.
        if error.kind() == redis::ErrorKind::AuthenticationFailed {
            return Some(Condition::Refusing);
        }
        let text = || error.detail().and_then(Condition::of_text);
        error.code().and_then(Condition::of_code).or_else(text)
    }

    /// The same for the text of an error that a script has caught. Redis 6 puts the script's line before the code.
    pub(super) fn of_text(text: &str) -> Option<Condition> {
        let words = text.split(|sign: char| !sign.is_ascii_uppercase());
        let is_refused = || MISSING_RIGHTS.iter().any(|said| text.contains(said));
        let refusing = || is_refused().then_some(Condition::Refusing);
        words.filter(|word| word.len() > 2).find_map(Condition::of_code).or_else(refusing)
    }

    /// The state that the error of a question about the topology shows: who answers it with an error is there.
    pub(super) fn of_answer(why: &str) -> Condition {
        let known = || match () {
            () if why.contains("AuthenticationFailed") => Condition::Refusing,
            () if NO_TOPOLOGY.iter().any(|said| why.contains(said)) => Condition::Failing,
            () => Condition::Unreachable,
        };
        Condition::of_text(why).unwrap_or_else(known)
    }

    /// What an operator has to correct, of a server that answers and refuses; `None` if it does not answer, or is over
    /// without anybody's help.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Condition::Replica => {
                "it is a read-only replica: unless a failover is under way, name the primary in `url` of [redis]"
            }
            Condition::Full => "its memory is full: raise its `maxmemory`",
            Condition::Busy => "a script blocks it: end that by SCRIPT KILL or FUNCTION KILL",
            Condition::Uncovered => "unless a failover is under way, bring back the nodes of its slots",
            Condition::Refusing => {
                "it refuses the login or a command: correct the user and password in `url` of [redis], or the user's \
                 rights in Redis"
            }
            Condition::Failing => {
                "correct what its error says: in Redis, or `url`, `ca` or `topology` of [redis]"
            }
            _ => return None,
        })
    }

    /// What to correct if nothing usable was heard from a server, by the text of the error, which is all that questions
    /// about a topology leave of it; `None` if that does not tell.
    pub fn remedy_unreached(why: &str) -> Option<&'static str> {
        let says = |part| why.contains(part);
        Some(match () {
            () if says("failed to lookup") => "its name has no address: correct `url` of [redis], or DNS",
            () if says("TLS handshake") => {
                "if it does not speak TLS, write `redis://`; otherwise name its TLS port"
            }
            () if says("closed the connection at the login") => {
                "it may not be a Redis server, it may require `rediss://`, or it is shutting down"
            }
            () => return None,
        })
    }

    fn of_code(code: &str) -> Option<Condition> {
        Some(match code {
            "LOADING" => Condition::Loading,
            "READONLY" | "MASTERDOWN" => Condition::Replica,
            "BUSY" | "UNKILLABLE" => Condition::Busy,
            "OOM" => Condition::Full,
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Condition::Refusing,
            "CLUSTERDOWN" => Condition::Uncovered,
            "MISCONF" | "NOREPLICAS" => Condition::Failing,
            _ => return None,
        })
    }

    /// The word for logs, metrics and the admin listener.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Unknown => "unknown",
            Condition::Up => "up",
            Condition::Unreachable => "unreachable",
            Condition::Silent => "silent",
            Condition::Loading => "loading",
            Condition::Replica => "replica",
            Condition::Busy => "busy",
            Condition::Full => "full",
            Condition::Refusing => "refusing",
            Condition::Uncovered => "uncovered",
            Condition::Failing => "failing",
        }
    }

    /// Whether operators should know of it.
    pub(super) fn is_trouble(self) -> bool {
        !matches!(self, Condition::Unknown | Condition::Up)
    }

    /// Whether another server may have become the primary, so that the topology should be asked again.
    pub(super) fn is_worth_looking_elsewhere(self) -> bool {
        matches!(self, Condition::Replica | Condition::Loading)
    }
}

/// Whether an error says that a slot is on another node or moving there.
pub(super) fn is_elsewhere(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), redis::ErrorKind::Server(Moved | Ask | TryAgain))
}

/// Texts of the error for a right that is missing inside a script. Redis 7 has no error code for it, and later versions
/// and Valkey use another text.
const MISSING_RIGHTS: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// Texts of the errors of a server that is neither a cluster's node nor a sentinel.
const NO_TOPOLOGY: [&str; 2] = ["cluster support disabled", "unknown command"];

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::global::connection::ConnectError;

    #[test]
    fn a_server_that_answers_refuses_and_one_that_does_not_is_away() {
        for (why, condition) in [
            ("\"ERR\": This instance has cluster support disabled", Condition::Failing),
            ("\"ERR\": unknown command 'SENTINEL'", Condition::Failing),
            ("\"NOAUTH\": Authentication required.", Condition::Refusing),
            ("Password authentication failed - AuthenticationFailed", Condition::Refusing),
        ] {
            assert_eq!(Condition::of_answer(why), condition, "{why}");
            assert!(condition.remedy().is_some_and(|said| said.contains("[redis]")), "{why}");
        }
        let away = Condition::of_answer("Connection refused (os error 111)");
        assert_eq!((away, away.remedy()), (Condition::Unreachable, None));
        for (error, remedy) in [
            (
                io::Error::other("failed to lookup address information: Name or service not known").into(),
                Some("has no address"),
            ),
            (ConnectError::Handshake, Some("write `redis://`")),
            (ConnectError::Closed(io::Error::from(io::ErrorKind::BrokenPipe).into()), Some("not be a Redis")),
            (ConnectError::Timeout(Duration::from_millis(300)), None),
            (io::Error::from(io::ErrorKind::ConnectionRefused).into(), None),
        ] {
            let said = Condition::remedy_unreached(&error.to_string());
            assert_eq!(said.is_some(), remedy.is_some(), "{error}");
            assert!(said.unwrap_or_default().contains(remedy.unwrap_or_default()), "{error}");
            assert_eq!(error.condition().remedy(), None, "{error}");
        }
        assert!(Condition::Replica.remedy().is_some_and(|said| said.contains("name the primary")));
        assert!(Condition::Full.remedy().is_some_and(|said| said.contains("`maxmemory`")));
        assert!(Condition::Busy.remedy().is_some_and(|said| said.contains("SCRIPT KILL")));
        assert!(Condition::Uncovered.remedy().is_some_and(|said| said.contains("slots")));
        assert_eq!(Condition::Loading.remedy(), None);
    }

    #[test]
    fn a_caught_error_says_what_the_server_is() {
        let said = |text| Condition::of_text(text);
        assert_eq!(said("READONLY You can't write against a read only replica"), Some(Condition::Replica));
        assert_eq!(said("@user_script: 12: -OOM command not allowed"), Some(Condition::Full));
        let unable = "ERR The user executing the script can't run this command or subcommand";
        assert_eq!(said(unable), Some(Condition::Refusing));
        let unable = "ACL failure in script: User gw has no permissions to run the 'mget' command";
        assert_eq!(said(unable), Some(Condition::Refusing));
        assert_eq!(said("WRONGTYPE Operation against a key holding the wrong kind of value"), None);
        assert_eq!(said("user_script:3: attempt to index a nil value"), None);
    }
}
