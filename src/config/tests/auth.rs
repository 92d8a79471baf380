//! `[auth.*]` and what routes say of access.

use std::path::PathBuf;

use super::{config, each_says, reads_the_same};
use auth::credential_source::CredentialSource;
use auth::keys::ApiKeySource;
use auth::{AnonymousIdentity, MethodKind};

pub(super) const FULL: &str = r#"
[auth.keys]
kind = "api-key"
in = ["header:X-Key", "bearer", "query:api_key"]
keys = { file = "/etc/keys.toml" }
pass = false

[auth.open]
kind = "anonymous"
consumer = "guest"
tier = "free"

[auth.tokens]
kind = "jwt"
in = ["bearer", "header:x-token"]
jwks = "https://id.example.com:8443/keys?a=b"
tls = { ca = "/etc/ca.pem", sni = "id.internal", verify = true }
fetch = { every = "10m", pause = "1m", timeout = "2s" }
algorithms = ["ES256", "PS384", "EdDSA"]
issuer = ["https://id.example.com/"]
audience = "api"
typ = "at+jwt"
leeway = "10s"
required = ["exp", "jti"]
consumer = "claim:client_id"
tenant = "claim:org.id"
tier = "claim:plan"

[auth.shared]
kind = "jwt"
secret = "${SECRET}"
algorithms = ["HS256"]
audience = "api"

[auth.file]
kind = "jwt"
keys = { file = "/etc/jwks.json" }
algorithms = ["RS256"]
audience = "api"

[auth.staff]
kind = "mtls"
consumer = "san:email"
tenant = "subject:o"
tier = "internal"

[auth.people]
kind = "basic"
users = { file = "/etc/users.toml" }
keep = "5m"

[listener.edge]
bind = "127.0.0.1:0"
certs = [{ cert = "/a.pem", key = "/a.key" }]
client-ca = "/ca.pem"
client-cert = "ask"
client-crl = "/crl.pem"
allow = ["10.0.0.0/8"]
deny = ["10.1.0.0/16", "10.2.3.4"]

[policy.p]
by = ["claim:plan"]
limit = "1/s"

[[route]]
to = "echo"
auth = ["keys", "open"]
headers = { set = { x-plan = "{claim:plan}" } }
allow = ["192.0.2.0/24"]
deny = ["192.0.2.7"]
require = { consumers = "ann", tenants = ["acme"], tiers = ["pro", "free"], claims = { role = ["a", "b"], "x.y" = "z" } }
cors = { origins = ["https://App.example.com", "https://*.example.org"], methods = ["GET"], headers = ["X-A"], expose = ["x-b"], credentials = true, max-age = "1h" }

[[route]]
path = "/open"
to = "echo"
cors = { origins = ["*"] }
"#;

#[test]
fn keys_come_from_a_file_a_database_or_both() {
    let (file, both) = ("{ file = \"/etc/keys.toml\" }", "{ file = \"/etc/keys.toml\", database = true }");
    let path = PathBuf::from("/etc/keys.toml");
    for (written, source, shown) in [
        (file, ApiKeySource::File(path.clone()), file),
        ("\"database\"", ApiKeySource::Database, "\"database\""),
        ("{ database = true }", ApiKeySource::Database, "\"database\""),
        (both, ApiKeySource::Both(path), both),
    ] {
        let text =
            format!("[database]\nurl = \"sqlite:a.db\"\n[auth.keys]\nkind = \"api-key\"\nkeys = {written}");
        let first = config(&text);
        assert!(
            matches!(&first.auth[0].kind, MethodKind::ApiKey(keys) if keys.source == source),
            "{written}"
        );
        assert!(first.effective().contains(&format!("\nkeys = {shown}\n")), "{}", first.effective());
        assert_eq!(config(&first.effective()).auth, first.auth);
    }
}

#[test]
fn every_way_is_read_and_written() {
    let first = config(FULL);
    let MethodKind::ApiKey(keys) = &first.auth[0].kind else { panic!("{:?}", first.auth) };
    let places: Vec<String> = keys.places.iter().map(CredentialSource::to_string).collect();
    assert_eq!(places, ["header:x-key", "bearer", "query:api_key"]);
    assert!(!first.auth[0].pass && first.auth[1].pass);
    let guest =
        AnonymousIdentity { consumer: Some("guest".to_owned()), tenant: None, tier: Some("free".to_owned()) };
    assert_eq!(first.auth[1].kind, MethodKind::Anonymous(guest));
    let access = &first.routes[0].access;
    assert_eq!(access.auth, ["keys", "open"]);
    let require = access.require.as_ref().expect("it is written");
    assert_eq!(
        (&require.consumers[..], &require.claims[0].1[..]),
        (&["ann".to_owned()][..], &["a", "b"].map(str::to_owned)[..])
    );
    assert_eq!(access.cors.as_ref().expect("it is written").origins[0], "https://app.example.com");
    assert!(reads_the_same(&first), "{}", first.page());
    assert!(!first.effective().contains("hunter2") && !format!("{first:?}").contains("hunter2"));
}

#[test]
fn ways_are_checked() {
    each_says(&[
        ("[auth.a]\npass = true", "an authentication method needs `kind`", "1:7", "kind = \"api-key\""),
        // Nothing of the route, because one that names it is not to blame.
        (
            "[auth.a]\npass = true\n[[route]]\nto = \"echo\"\nauth = \"a\"",
            "an authentication method needs `kind`",
            "1:7",
            "kind = \"api-key\"",
        ),
        (
            "[auth.a]\nkind = \"api-kye\"",
            "`api-kye` is not a value of `kind`",
            "2:8",
            "did you mean `api-key`?",
        ),
        ("[auth.a]\nkind = \"api-key\"", "this authentication method needs `keys`", "1:7", "keys.toml"),
        ("[auth.a]\nkind = \"api-key\"\nkeys = {}", "`keys` needs `file`", "3:1", "keys.toml"),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = \"databse\"",
            "keys cannot be read from `databse`",
            "3:8",
            "keys = \"database\"",
        ),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = \"database\"",
            "`keys = \"database\"` needs [database]",
            "3:8",
            "write `[database]`",
        ),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = { file = \"k\", database = true }",
            "`keys = \"database\"` needs [database]",
            "3:8",
            "write `[database]`",
        ),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = { file = \"k\", databse = true }",
            "unknown key `databse` in `keys`",
            "3:22",
            "did you mean `database`?",
        ),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = { file = \"k\" }\nin = [\"cookie:a\"]",
            "a credential cannot be read from `cookie:a`",
            "4:7",
            "query:<name>",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\njwks = \"https://a/\"",
            "tokens need `algorithms`: the signatures that are accepted",
            "1:7",
            "algorithms = [\"ES256\"]",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\njwks = \"https://a/\"\nalgorithms = [\"none\"]",
            "the gateway cannot verify signatures of the algorithm `none`",
            "5:15",
            "`ES256`, `ES384` or `EdDSA`",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\njwks = \"https://a/\"\nalgorithms = [\"ES256\", \"ES512\"]",
            "the gateway cannot verify signatures of the algorithm `ES512`",
            "5:24",
            "`ES256`, `ES384` or `EdDSA`",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]",
            "tokens need exactly one of `jwks`, `keys` and `secret`",
            "1:7",
            "jwks = ",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"https://a/\"\nkeys = \"k\"",
            "tokens need exactly one of `jwks`, `keys` and `secret`",
            "1:7",
            "keep one of them, and remove the rest",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"http://id.example.com/\"",
            "the keys come over plain http, so anyone on the network path can replace them",
            "5:8",
            "write `https://`",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"http://127.0.0.1/\"\ntls = {}",
            "`tls` needs an https URL in `jwks`",
            "6:1",
            "https://",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\nkeys = { file = \"a\" }\ntls = {}",
            "`tls` needs `jwks`",
            "6:1",
            "",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"https://a:hunter2@b/\"",
            "`jwks` cannot hold a user name or a password",
            "5:8",
            "",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"https://a/\"\nfetch = { pause = \"10ms\" }",
            "`pause` is too short",
            "6:19",
            "1s",
        ),
        (
            "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"https://a/\"\nconsumer = \"sub\"",
            "`sub` is not a claim",
            "6:12",
            "claim:sub",
        ),
        (
            "[auth.a]\nkind = \"mtls\"",
            "certificates need `consumer`: which of their names is the consumer",
            "1:7",
            "san:email",
        ),
        ("[auth.a]\nkind = \"basic\"", "this authentication method needs `users`", "1:7", "users.toml"),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nclient-cert = \"ask\"",
            "`client-cert` needs `client-ca`",
            "3:1",
            "add `client-ca = \"ca.pem\"`, the authorities of clients",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nclient-ca = \"a.pem\"",
            "`client-ca` needs `certs`",
            "3:1",
            "add `certs`: clients can show certificates only over TLS",
        ),
        ("[[route]]\nto = \"echo\"\ndeny = []", "`deny` is empty", "3:8", "leave it out"),
        (
            "[[route]]\nto = \"echo\"\nallow = [\"a\"]",
            "`a` is not an address or a range",
            "3:10",
            "10.0.0.0/8",
        ),
        (
            "[[route]]\nto = \"echo\"\nrequire = { tiers = [\"a\"] }",
            "`require` needs `auth`: it identifies clients",
            "3:1",
            "name an `[auth.<name>]`",
        ),
        (
            "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"echo\"\nauth = \"a\"\nrequire = {}",
            "`require` is empty",
            "6:11",
            "leave it out",
        ),
        (
            "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"echo\"\nauth = \"a\"\nrequire = { tenant = \"b\" }",
            "unknown key `tenant` in `require`",
            "6:13",
            "did you mean `tenants`?",
        ),
        (
            "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"echo\"\nauth = \"a\"\nrequire = { tiers = [], tenants = \"b\" }",
            "`tiers` is empty",
            "6:21",
            "leave it out",
        ),
        ("[[route]]\nto = \"echo\"\ncors = {}", "`cors` needs `origins`", "3:1", "https://app.example.com"),
        (
            "[[route]]\nto = \"echo\"\ncors = { origins = [\"https://a/\"] }",
            "`https://a/` is not an origin",
            "3:21",
            "https://*.example.com",
        ),
        (
            "[[route]]\nto = \"echo\"\ncors = { origins = [\"*\"], credentials = true }",
            "`credentials` with `*` would let every web site act as its visitors",
            "3:41",
            "name the allowed origins",
        ),
        ("[auth.a]\nkind = \"anonymous\"\nkeys = 1", "unknown key `keys` in [auth.a]", "3:1", "it takes"),
        ("[[route]]\nto = \"echo\"\nauth = []", "`auth` is empty", "3:8", "leave it out"),
        (
            "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"echo\"\nauth = [\"a\", \"a\"]",
            "`a` is named twice",
            "5:14",
            "name it once",
        ),
    ]);
}

#[test]
fn what_lets_too_many_in_draws_a_warning() {
    let text = "[auth.a]\nkind = \"jwt\"\nalgorithms = [\"HS256\"]\nsecret = \"hunter2\"";
    let said = super::load(&[text]).expect("it is valid").report.to_string();
    assert!(
        said.contains("without `audience`") && said.contains("`secret` is written in plain text"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
}
