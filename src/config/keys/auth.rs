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
    AUTH = "[auth.<name>]" {
        /// what a client presents; [anonymous](#anonymous-clients): nothing
        "kind": Words(|| words(KINDS)), Required;
        /// whether the upstream sees the credential. `false` removes it from the request; limits can still count by it
        "pass": Bool, Value("true");
    }
    API_KEY = "[auth.<name>]" + AUTH {
        /// `{ file = "keys.toml" }`, or `"database"` for the keys of [`/v1/api-keys`](../../control-api-keys.md),
        /// which needs [`[database]`](database.md)
        "keys": Any(&[Word("database"), Table(&KEYS)]), Needs(
            "this authentication method needs `keys`",
            "write `keys = { file = \"keys.toml\" }`, or `keys = \"database\"`",
        );
        /// where a request carries its key: `header:<name>`, `bearer` (`Authorization: Bearer`), `query:<name>`
        "in": Texts, Value("[\"header:x-api-key\", \"bearer\"]");
    }
    KEYS = "`keys`" {
        /// a file of keys; watched
        "file": Path;
        /// whether keys of the database are accepted, too
        "database": Bool, Value("false");
    }
    JWT = "[auth.<name>]" + AUTH {
        /// the URL of the issuer's keys: `https`, or `http` to an address of this machine
        "jwks": Text;
        /// a file with a JWK set, a JWK, or public keys in PEM
        "keys": Table(&FILE);
        /// the secret shared with the issuer, for HS256 (at least 32 bytes), HS384 (48), HS512 (64)
        "secret": Secret;
        /// any of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`, `HS256`, `HS384`,
        /// `HS512`
        "algorithms": Texts, Needs(
            "tokens need `algorithms`: the signatures that are accepted",
            "write `algorithms = [\"ES256\"]`, or `[\"HS256\"]` for a `secret`",
        );
        /// accepted values of `iss`
        "issuer": Texts, Means("any");
        /// accepted values; `aud` must contain one of them
        "audience": Texts, Means("any, with a warning");
        /// the required `typ` of the token's header, such as `"at+jwt"`
        "typ": Text, Means("any");
        /// claims that must be present
        "required": Texts, Value("[\"exp\"]");
        /// how far clocks may differ when `exp`, `nbf` and `iat` are checked; `iat` may not lie in the future
        "leeway": Time(ZERO), Value("5s");
        /// the claim that names the consumer: a string, or a whole number
        "consumer": Text, Value("claim:sub");
        /// the claim that names the tenant, as for `consumer`
        "tenant": Text;
        /// the claim that names the tier, as for `consumer`
        "tier": Text;
        /// where a request carries its token: `header:<name>`, `bearer`, `query:<name>`
        "in": Texts, Value("[\"bearer\"]");
        /// for `jwks`: how the issuer is verified, as for an [upstream](upstream.md#tls). Files are read at each fetch
        "tls": Table(&TLS), Means("the system's CAs");
        /// for `jwks`: when keys are fetched
        "fetch": Table(&FETCH), Means("its defaults");
    }
    FETCH = "`fetch`" {
        /// the time between regular fetches
        "every": Time(PAUSE_MIN), Value("5m");
        /// the shortest time between two fetches, even if tokens name unknown keys
        "pause": Time(PAUSE_MIN), Value("30s");
        /// time limit for a whole fetch
        "timeout": Time(MS), Value("5s");
    }
    MTLS = "[auth.<name>]" + AUTH {
        /// the certificate field that names the consumer, such as `san:email`; the first of several values counts
        "consumer": Words(|| words(&CertificateName::ALL)), Needs(
            "certificates need `consumer`: which of their names is the consumer",
            "write `consumer = \"san:email\"`",
        );
        /// the certificate field that names the tenant
        "tenant": Words(|| words(&CertificateName::ALL));
        /// the tier of all these clients
        "tier": Text;
    }
    BASIC = "[auth.<name>]" + AUTH {
        /// the users: `{ file = "users.toml" }`
        "users": Table(&FILE),
            Needs("this authentication method needs `users`", "write `users = { file = \"users.toml\" }`");
        /// how long a verified password is remembered
        "keep": Time(ZERO), Value("1m");
    }
    ANONYMOUS = "[auth.<name>]" + AUTH {
        /// the consumer of all anonymous clients
        "consumer": Text;
        /// the tenant of all anonymous clients
        "tenant": Text;
        /// the tier of all anonymous clients
        "tier": Text;
    }
    FILE = "`<key>`" {
        /// the file; watched
        "file": Path, Required;
    }
}
