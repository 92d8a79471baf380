//! Roles of the admin listener's clients, and how a request proves its role.
//!
//! It knows no paths. Which role an operation needs stands in the table of `routes.rs`.

use aws_lc_rs::constant_time;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::refusal::Refusal;

/// What a client may do. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May read `/healthz` and `/readyz`. Orchestrators and load balancers must always get those, and seldom have a token.
    #[default]
    Probe,
    /// May read every page.
    Viewer,
    /// May also change things.
    Admin,
}

/// The rules for clients of the admin listener.
#[derive(Clone, Default)]
pub struct Access {
    /// The bearer token that makes a client an [`Role::Admin`]. Never logged.
    pub token: Option<String>,
    /// The role of every client if no token is set. If one is set, a client without it is a [`Role::Probe`].
    pub without_token: Role,
    /// Hosts that requests may name beside loopback's. `None`: any.
    pub hosts: Option<Vec<String>>,
}

impl Access {
    /// Refuses a request whose credentials do not give it this role.
    pub(super) fn check(&self, needed: Role, headers: &HeaderMap) -> Result<(), Refusal> {
        let proven = match &self.token {
            _ if needed == Role::Probe => return Ok(()),
            None => self.without_token,
            Some(token) => proven(headers, token).ok_or(Refusal::NoToken)?,
        };
        if proven >= needed { Ok(()) } else { Err(Refusal::RoleTooLow) }
    }
}

/// The role that a request's token proves.
fn proven(headers: &HeaderMap, token: &str) -> Option<Role> {
    let given = bearer(headers)?;
    // Constant time, so that a client cannot guess the token byte by byte from how long the comparison takes.
    constant_time::verify_slices_are_equal(given, token.as_bytes()).is_ok().then_some(Role::Admin)
}

/// The token of `Authorization: Bearer …` (RFC 6750); the scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token)
}

const BEARER: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_gives_every_role_and_without_it_a_client_is_a_probe() {
        let access = Access { token: Some("secret".to_owned()), without_token: Role::Admin, hosts: None };
        for (given, is_good) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secreT", false),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("Basic secret", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(given))]);
            assert_eq!(access.check(Role::Probe, &headers), Ok(()), "{given}");
            for role in [Role::Viewer, Role::Admin] {
                let expected = if is_good { Ok(()) } else { Err(Refusal::NoToken) };
                assert_eq!(access.check(role, &headers), expected, "{given} as {role:?}");
            }
        }
    }

    #[test]
    fn without_a_configured_token_every_client_has_the_listeners_role() {
        let access = |without_token| Access { token: None, without_token, hosts: None };
        for (is, needed, expected) in [
            (Role::Probe, Role::Probe, Ok(())),
            (Role::Probe, Role::Viewer, Err(Refusal::RoleTooLow)),
            (Role::Viewer, Role::Viewer, Ok(())),
            (Role::Viewer, Role::Admin, Err(Refusal::RoleTooLow)),
            (Role::Admin, Role::Admin, Ok(())),
        ] {
            assert_eq!(access(is).check(needed, &HeaderMap::new()), expected, "{is:?} as {needed:?}");
        }
    }
}
