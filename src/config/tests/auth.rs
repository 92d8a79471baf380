//! `[auth.*]` and what routes say of access.

use super::{config, each_says};
use crate::auth::place::Place;
use crate::auth::{Anybody, Kind};

const FULL: &str = r#"
[auth.keys]
kind = "api-key"
in = ["header:X-Key", "bearer", "query:api_key"]
keys = { file = "/etc/keys.toml" }
pass = false

[auth.open]
kind = "anonymous"
consumer = "guest"
tier = "free"

[policy.p]
by = ["claim:plan"]
limit = "1/s"

[[route]]
to = "echo"
auth = ["keys", "open"]
headers = { set = { x-plan = "{claim:plan}" } }
"#;

#[test]
fn every_way_is_read_and_written() {
    let first = config(FULL);
    let Kind::ApiKey(keys) = &first.auth[0].kind else { panic!("{:?}", first.auth) };
    let places: Vec<String> = keys.places.iter().map(Place::to_string).collect();
    assert_eq!(places, ["header:x-key", "bearer", "query:api_key"]);
    assert!(!first.auth[0].pass && first.auth[1].pass);
    let guest = Anybody { consumer: Some("guest".to_owned()), tenant: None, tier: Some("free".to_owned()) };
    assert_eq!(first.auth[1].kind, Kind::Anonymous(guest));
    assert_eq!(first.routes[0].access.auth, ["keys", "open"]);
    let again = config(&first.effective());
    assert!(again.auth == first.auth && again.routes == first.routes, "{}", first.effective());
    assert_eq!(again.effective(), first.effective());
}

#[test]
fn ways_are_checked() {
    each_says(&[
        ("[auth.a]\npass = true", "a way to authenticate needs `kind`", "1:7", "kind = \"api-key\""),
        (
            "[auth.a]\nkind = \"api-kye\"",
            "`api-kye` is not a value of `kind`",
            "2:8",
            "did you mean `api-key`?",
        ),
        ("[auth.a]\nkind = \"api-key\"", "this way to authenticate needs `keys`", "1:7", "keys.toml"),
        ("[auth.a]\nkind = \"api-key\"\nkeys = {}", "`keys` needs `file`", "3:1", "keys.toml"),
        (
            "[auth.a]\nkind = \"api-key\"\nkeys = { file = \"k\" }\nin = [\"cookie:a\"]",
            "`cookie:a` is no place for a credential",
            "4:7",
            "query:<name>",
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
