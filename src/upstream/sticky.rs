//! Sessions that stay at a server: a cookie says which one, signed so that no client can make one for a server of its choice.
//!
//! A cookie is nothing but the first half of an HMAC-SHA256 of the server's address under the upstream's secret. So it tells
//! nobody where the server is, needs no memory, and is the same in every worker, after a restart, and at every node that
//! has the secret.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};

use super::config::{self, SameSite};
use super::ids::ServerIndex;
use base::ids::IdVec;
use policy::cookie;

/// The cookies of an upstream's servers.
#[derive(Debug)]
pub struct StickyCookies {
    name: String,
    cookies: IdVec<ServerIndex, Cookie>,
}

#[derive(Debug)]
struct Cookie {
    value: String,
    /// The field that gives it to a client whose connection is in the clear.
    plain: HeaderValue,
    /// The same over TLS.
    secure: HeaderValue,
}

impl StickyCookies {
    /// The cookies of servers with these labels, over TLS or not.
    pub fn new(config: &config::StickyConfig, servers: &[(&str, bool)]) -> StickyCookies {
        let key = hmac::Key::new(hmac::HMAC_SHA256, config.secret.0.as_bytes());
        let cookies =
            servers.iter().map(|(label, tls)| Cookie::new(config, &value(&key, label, *tls))).collect();
        StickyCookies { name: config.cookie.clone(), cookies }
    }

    /// The server that a request's cookie names; `None` if it has no cookie of a server that there is.
    pub fn named(&self, headers: &HeaderMap) -> Option<ServerIndex> {
        // Several come from different paths or hosts; one of them may be ours.
        cookie::values(headers, &self.name).find_map(|value| self.server(value))
    }

    fn server(&self, value: &[u8]) -> Option<ServerIndex> {
        // In constant time: a client must not find the cookie of another server byte by byte.
        self.cookies.find_id(|cookie| verify_slices_are_equal(cookie.value.as_bytes(), value).is_ok())
    }

    /// The `Set-Cookie` that keeps a client at this server.
    pub fn field(&self, server: ServerIndex, tls: bool) -> HeaderValue {
        let cookie = &self.cookies[server];
        if tls { cookie.secure.clone() } else { cookie.plain.clone() }
    }
}

impl Cookie {
    fn new(config: &config::StickyConfig, value: &str) -> Cookie {
        let site = match config.same_site {
            SameSite::Lax => "Lax",
            SameSite::Strict => "Strict",
            SameSite::None => "None",
        };
        let mut field = format!("{}={value}; Path={}; HttpOnly; SameSite={site}", config.cookie, config.path);
        if let Some(max_age) = config.max_age {
            field.push_str(&format!("; Max-Age={}", max_age.as_secs()));
        }
        let secure = format!("{field}; Secure");
        let plain = if config.is_secure { secure.clone() } else { field };
        let parsed = |field: &str| HeaderValue::from_str(field).expect("config has checked name and path");
        Cookie { value: value.to_owned(), plain: parsed(&plain), secure: parsed(&secure) }
    }
}

fn value(key: &hmac::Key, label: &str, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let tag = hmac::sign(key, format!("server {scheme}://{label}").as_bytes());
    // Half of it, 128 bits, cannot be guessed either (RFC 2104 section 5).
    URL_SAFE_NO_PAD.encode(&tag.as_ref()[..VALUE_BYTES])
}

const VALUE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::COOKIE;

    use super::*;
    use base::secret::Secret;

    const FIRST: ServerIndex = ServerIndex::new(0);

    fn servers<'a>(labels: &[&'a str]) -> Vec<(&'a str, bool)> {
        labels.iter().map(|label| (*label, false)).collect()
    }

    fn config(secret: &str) -> config::StickyConfig {
        config::StickyConfig {
            secret: Secret(secret.to_owned()),
            ..config::StickyConfig::new("at".to_owned())
        }
    }

    fn named(sticky: &StickyCookies, cookies: &[&str]) -> Option<usize> {
        let field = |cookie: &&str| (COOKIE, HeaderValue::from_str(cookie).expect("a value"));
        sticky.named(&cookies.iter().map(field).collect()).map(ServerIndex::index)
    }

    #[test]
    fn a_cookie_names_its_server_wherever_that_stands_in_the_list() {
        let sticky = StickyCookies::new(&config("secret"), &servers(&["a", "b"]));
        let cookie = format!("at={}", sticky.cookies[ServerIndex::new(1)].value);
        assert_eq!(named(&sticky, &[&cookie]), Some(1));
        assert_eq!(named(&sticky, &["x=1", &format!("a=2; at=no;{cookie} ; b=3")]), Some(1));
        assert_eq!(
            named(&sticky, &[&format!("at=\"{}\"", sticky.cookies[ServerIndex::new(1)].value)]),
            Some(1)
        );
        let other = StickyCookies::new(&config("secret"), &servers(&["c", "b", "a"]));
        assert_eq!(named(&other, &[&cookie]), Some(1));
        let gone = StickyCookies::new(&config("secret"), &servers(&["c", "a"]));
        assert_eq!(named(&gone, &[&cookie]), None);
    }

    #[test]
    fn a_cookie_that_was_not_given_names_no_server() {
        let sticky = StickyCookies::new(&config("secret"), &servers(&["a", "b"]));
        let value = &sticky.cookies[FIRST].value;
        let other = StickyCookies::new(&config("another"), &servers(&["a", "b"]));
        for cookie in [
            format!("at={}", other.cookies[FIRST].value),
            format!("at={}", &value[1..]),
            format!("at={value}x"),
            format!("At={value}"),
            format!("xat={value}"),
            format!("at{value}"),
            "at=".to_owned(),
            "at=a".to_owned(),
            String::new(),
        ] {
            assert_eq!(named(&sticky, &[&cookie]), None, "{cookie}");
        }
    }

    #[test]
    fn fields_keep_scripts_and_other_sites_away_from_the_cookie() {
        let field = |config: config::StickyConfig, tls: bool| {
            let sticky = StickyCookies::new(&config, &servers(&["a"]));
            let field = sticky.field(FIRST, tls);
            field.to_str().expect("it is text").replace(&sticky.cookies[FIRST].value, "V")
        };
        assert_eq!(field(config("s"), false), "at=V; Path=/; HttpOnly; SameSite=Lax");
        assert_eq!(field(config("s"), true), "at=V; Path=/; HttpOnly; SameSite=Lax; Secure");
        let all = config::StickyConfig {
            max_age: Some(Duration::from_secs(3_600)),
            path: "/app".to_owned(),
            same_site: SameSite::None,
            is_secure: true,
            ..config("s")
        };
        assert_eq!(field(all, false), "at=V; Path=/app; HttpOnly; SameSite=None; Max-Age=3600; Secure");
    }
}
