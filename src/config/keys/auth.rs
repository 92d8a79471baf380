//! The keys of `[auth.*]`, by its `kind`.

use std::time::Duration;

use ::auth::mtls::CertificateName;

use super::Kind::{Any, Bool, Path, Secret, Table, Text, Texts, Time, Word, Words};
use super::Unwritten::{Means, Needs, Required, Value};
use super::upstream::TLS;
use super::{MS, Section, ZERO, sections, words};

/// The values of `kind`, and the keys of each.
pub const KINDS: &[(&str, &Section)] =
    &[("anonymous", &ANONYMOUS), ("api-key", &API_KEY), ("jwt", &JWT), ("mtls", &MTLS), ("basic", &BASIC)];
/// The shortest accepted pause between two fetches, so that no configuration floods an issuer.
const PAUSE_MIN: Duration = Duration::from_secs(1);

sections! {
    AUTH = "[auth.<name>]" {
        /// `"api-key"`, `"jwt"`, `"mtls"`, `"basic"` or `"anonymous"`
        "kind": Words(|| words(KINDS)), Required;
        /// whether the upstream sees the credential; with `false` its header, `Authorization` or query parameter is
        /// taken out. Limits by that header still see it
        "pass": Bool, Value("true");
    }
    API_KEY = "[auth.<name>]" + AUTH {
        /// where the keys are: `{ file = "keys.toml" }`; `"database"`: those of
        /// [`/v1/api-keys`](control.md#api-keys), which needs [`[database]`](#database)
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
        /// whether the keys of the database are taken, too
        "database": Bool, Value("false");
    }
    JWT = "[auth.<name>]" + AUTH {
        /// where the issuer publishes its keys: `https`, or `http` on this machine by address
        "jwks": Text;
        /// a JWK set, a JWK, or public keys in PEM
        "keys": Table(&FILE);
        /// shared with the issuer, for HS256 (32 bytes at least), HS384 (48), HS512 (64)
        "secret": Secret;
        /// of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`, `HS256`, `HS384`,
        /// `HS512`
        "algorithms": Texts, Needs(
            "tokens need `algorithms`: the signatures that are accepted",
            "write `algorithms = [\"ES256\"]`",
        );
        /// what `iss` must be one of
        "issuer": Texts, Means("any");
        /// what `aud` must hold one of
        "audience": Texts, Means("any, with a warning");
        /// what the header's `typ` must be, as in `"at+jwt"`
        "typ": Text, Means("any");
        /// claims that must be there
        "required": Texts, Value("[\"exp\"]");
        /// how far clocks may differ: for `exp`, `nbf`, and `iat`, which may not lie in the future
        "leeway": Time(ZERO), Value("5s");
        /// the claims that say so: a text, or a whole number, which is taken in its digits
        "consumer": Text, Value("claim:sub");
        /// the claim that says the tenant, as `consumer` has it
        "tenant": Text;
        /// the claim that says the tier, as `consumer` has it
        "tier": Text;
        /// where a request carries its token: `header:<name>`, `bearer`, `query:<name>`
        "in": Texts, Value("[\"bearer\"]");
        /// of `jwks`: whom the issuer is checked by and what it is shown, as of an [upstream](#upstreamname). Its
        /// files are read at each fetch
        "tls": Table(&TLS), Means("the system's authorities");
        /// of `jwks`: when keys are fetched
        "fetch": Table(&FETCH);
    }
    FETCH = "`fetch`" {
        /// from one fetch to the next
        "every": Time(PAUSE_MIN), Value("5m");
        /// none comes within this of the last, whatever tokens say
        "pause": Time(PAUSE_MIN), Value("30s");
        /// for the whole of a fetch
        "timeout": Time(MS), Value("5s");
    }
    MTLS = "[auth.<name>]" + AUTH {
        /// which name of a certificate is the consumer: `san:email`, `san:dns`, `san:uri`, `subject:cn`,
        /// `subject:o`, `subject:ou`; the first of several
        "consumer": Words(|| words(&CertificateName::ALL)), Needs(
            "certificates need `consumer`: which of their names is the consumer",
            "write `consumer = \"san:email\"`",
        );
        /// which name of a certificate is the tenant
        "tenant": Words(|| words(&CertificateName::ALL));
        /// the tier of all of them
        "tier": Text;
    }
    BASIC = "[auth.<name>]" + AUTH {
        /// the users: `users = { file = "users.toml" }`
        "users": Table(&FILE),
            Needs("this authentication method needs `users`", "write `users = { file = \"users.toml\" }`");
        /// how long a password that proved right is believed without another look
        "keep": Time(ZERO), Value("1m");
    }
    ANONYMOUS = "[auth.<name>]" + AUTH {
        /// the consumer of all of them
        "consumer": Text;
        /// the tenant of all of them
        "tenant": Text;
        /// the tier of all of them
        "tier": Text;
    }
    FILE = "`<key>`" {
        /// the file; watched
        "file": Path, Required;
    }
}
