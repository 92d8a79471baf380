//! Names whose values are credentials, wherever they stand: in gateway.toml, in a request, in a key, in a log.

/// Whether a value under this key or field name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || LAST_WORDS.contains(&last)
        || KEYS.contains(&name.as_str())
}

/// How names of secrets end, in lower case.
pub const SECRET_ENDINGS: [&str; 7] =
    ["token", "secret", "password", "passwd", "api-key", "api_key", "authorization"];

/// Last words of names of fields that hold a credential.
const LAST_WORDS: [&str; 11] = [
    "auth",
    "authentication",
    "apikey",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "session",
    "sessionid",
    "sid",
    "signature",
];

/// Whole names of fields whose key opens something, because many another key only names something (`cache-key`,
/// `idempotency-key`).
const KEYS: [&str; 12] = [
    "key",
    "x-key",
    "access-key",
    "x-access-key",
    "auth-key",
    "x-auth-key",
    "private-key",
    "x-private-key",
    "session-id",
    "x-session-id",
    "x-hub-signature-256",
    "x-otp",
];

/// Replaces a secret in everything that is shown.
pub const MASK: &str = "********";
