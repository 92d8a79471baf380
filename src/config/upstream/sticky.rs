//! `sticky = { cookie, secret, ... }` of `[upstream.*]`.

use crate::keys::upstream::SITES;
use crate::load::text::Text;
use crate::reader::Value;
use base::secret::Secret;
use upstream::config::{SameSite, StickyConfig};

/// Reads the table. `None` if it has no cookie or no secret.
pub(crate) fn read(value: &Value<'_>) -> Option<StickyConfig> {
    let table = value.table()?;
    let (cookie, secret) = (table.value("cookie"), table.value("secret"));
    let name = cookie.as_ref().and_then(|cookie| name(&cookie.text()?));
    let secret = secret.map(|value| value.text());
    let mut sticky = StickyConfig::new(name.unwrap_or_default());
    if let Some(Some(text)) = secret {
        sticky.secret = Secret(self::secret(&text));
    }
    table.duration_if("max-age", &mut sticky.max_age);
    table.word("same-site", &SITES, &mut sticky.same_site);
    table.boolean("secure", &mut sticky.is_secure);
    if let Some(path) = table.value("path").and_then(|value| value.text()) {
        if !path.text.starts_with('/') || !path.text.bytes().all(is_path_byte) {
            path.wrong(format!("{} is not the path of a cookie", path.shown()), "write it like `/app`");
        } else {
            sticky.path.clone_from(&path.text);
        }
    }
    // Always secure then, because browsers drop a cookie with `SameSite=None` without `Secure`.
    sticky.is_secure |= sticky.same_site == SameSite::None;
    if let Some(cookie) = &cookie {
        prefix(cookie, &sticky);
    }
    (!sticky.cookie.is_empty() && !sticky.secret.0.is_empty()).then_some(sticky)
}

/// A name that every client takes for one (RFC 6265 section 4.1.1).
fn name(text: &Text<'_>) -> Option<String> {
    // Read as the name of a header field, because that is a token, as the name of a cookie is.
    let is_name = text.text.parse::<http::HeaderName>().is_ok();
    if !is_name {
        text.wrong(format!("{} is not the name of a cookie", text.shown()), "write it like `server`");
    }
    is_name.then(|| text.text.clone())
}

/// Browsers take a cookie with such a name only if the rest is as the name promises (RFC 6265bis section 4.1.3).
fn prefix(cookie: &Value<'_>, sticky: &StickyConfig) {
    let begins = |prefix: &str| {
        sticky.cookie.get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix))
    };
    if (begins("__Host-") || begins("__Secure-")) && !sticky.is_secure {
        cookie.wrong("browsers drop a cookie of this name that is not secure", "add `secure = true`");
    } else if begins("__Host-") && sticky.path != "/" {
        cookie.wrong("browsers drop a cookie of this name that has a path", "leave `path` out");
    }
}

/// A secret, of which it is said if it is written in the file or can be guessed.
pub(crate) fn secret(text: &Text<'_>) -> String {
    if text.text.is_empty() {
        text.empty_secret();
        return String::new();
    }
    if !text.has_reference {
        text.warn("`secret` is written in plain text", WRITE_SECRET);
    }
    if text.text.len() < SECRET_BYTES_MIN {
        text.warn(
            format!("`secret` has fewer than {SECRET_BYTES_MIN} bytes, so it can be guessed"),
            "make one: `openssl rand -base64 32`",
        );
    }
    text.text.clone()
}

fn is_path_byte(byte: u8) -> bool {
    (byte.is_ascii_graphic() || byte == b' ') && byte != b';'
}

const SECRET_BYTES_MIN: usize = 32;
const WRITE_SECRET: &str = "keep it out of the file: `secret = \"${NAME}\"` or `\"${file:/path}\"`";
