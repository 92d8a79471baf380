//! The keys of `[auth.*]`, by its `kind`.

use std::time::Duration;

use ::auth::mtls::CertificateName;

use super::KeyDefault::{Means, Needs, Required, Value};
use super::Kind::{Any, Bool, Path, Secret, Table, Text, Texts, Time, Word, Words};
use super::upstream::TLS;
use super::{MS, Section, ZERO, sections, words};

/// The values of `kind`, and the keys of each.
pub const KINDS: &[(&str, &Section)] =
    &[("anonymous", &ANONYMOUS), ("api-key", &API_KEY), ("jwt", &JWT), ("mtls", &MTLS), ("basic", &BASIC)];
/// The shortest accepted pause between two fetches, so that no configuration floods an issuer.
const PAUSE_MIN: Duration = Duration::from_secs(1);

sections! {
    AUTH = "[auth.<name>]", "auth" {
        "kind": Words(|| words(KINDS)), Required;
        "pass": Bool, Value("true");
    }
    API_KEY = "[auth.<name>]", "auth api-key" + AUTH {
        "keys": Any(&[Word("database"), Table(&KEYS)]), Needs(
            "this authentication method needs `keys`",
            "write `keys = { file = \"keys.toml\" }`, or `keys = \"database\"`",
        );
        "in": Texts, Value("[\"header:x-api-key\", \"bearer\"]");
    }
    KEYS = "`keys`", "auth api-key.keys" {
        "file": Path;
        "database": Bool, Value("false");
    }
    JWT = "[auth.<name>]", "auth jwt" + AUTH {
        "jwks": Text;
        "keys": Table(&FILE);
        "secret": Secret;
        "algorithms": Texts, Needs(
            "tokens need `algorithms`: the signatures that are accepted",
            "write `algorithms = [\"ES256\"]`, or `[\"HS256\"]` for a `secret`",
        );
        "issuer": Texts, Means("any");
        "audience": Texts, Means("any, with a warning");
        "typ": Text, Means("any");
        "required": Texts, Value("[\"exp\"]");
        "leeway": Time(ZERO), Value("5s");
        "consumer": Text, Value("claim:sub");
        "tenant": Text;
        "tier": Text;
        "in": Texts, Value("[\"bearer\"]");
        "tls": Table(&TLS), Means("the system's CAs");
        "fetch": Table(&FETCH), Means("its defaults");
    }
    FETCH = "`fetch`", "auth jwt.fetch" {
        "every": Time(PAUSE_MIN), Value("5m");
        "pause": Time(PAUSE_MIN), Value("30s");
        "timeout": Time(MS), Value("5s");
    }
    MTLS = "[auth.<name>]", "auth mtls" + AUTH {
        "consumer": Words(|| words(&CertificateName::ALL)), Needs(
            "certificates need `consumer`: which of their names is the consumer",
            "write `consumer = \"san:email\"`",
        );
        "tenant": Words(|| words(&CertificateName::ALL));
        "tier": Text;
    }
    BASIC = "[auth.<name>]", "auth basic" + AUTH {
        "users": Table(&FILE),
            Needs("this authentication method needs `users`", "write `users = { file = \"users.toml\" }`");
        "keep": Time(ZERO), Value("1m");
    }
    ANONYMOUS = "[auth.<name>]", "auth anonymous" + AUTH {
        "consumer": Text;
        "tenant": Text;
        "tier": Text;
    }
    FILE = "`<key>`", "auth jwt.keys" {
        "file": Path, Required;
    }
}
