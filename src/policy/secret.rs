//! Names whose values are credentials, wherever they stand: in gateway.toml, in a request, in a key.

/// Whether a value under this key or header name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// How names of secrets end, in lower case.
pub const SECRET_ENDINGS: [&str; 7] =
    ["token", "secret", "password", "passwd", "api-key", "api_key", "authorization"];

/// Replaces a secret in everything that is shown.
pub const MASK: &str = "********";
