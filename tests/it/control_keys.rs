//! API keys of the database over real gateways: made, disabled, expired and deleted while traffic runs.

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::postgres::Postgres;
use crate::support::{Directory, Gateway, Response, eventually, run, text};

/// Keys of the database alone, and on one route beside those of a file.
const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

[admin]
bind = "127.0.0.1:0"
tokens = [
  { name = "reader", token = "read-1", role = "read" },
  { name = "carol", token = "admin-1", role = "admin" },
]

[auth.keys]
kind = "api-key"
keys = "database"

[auth.both]
kind = "api-key"
keys = { file = "keys.toml", database = true }

[tier.free]
limit = "100/h"

[tier.pro]
limit = "1_000/h"

[policy.calls]
limit = "tier"
by = ["consumer"]
default-tier = "free"

[[route]]
path = "/both"
auth = "both"
respond = { body = "{consumer}" }

[[route]]
path = "/{*rest}"
auth = "keys"
limit = "calls"
respond = { body = "{consumer} {tenant} {tier} {claim:roles}" }
"#;

struct Node(Gateway);

impl Node {
    fn start() -> Node {
        Node::start_in(Directory::new(), "sqlite:state.db")
    }

    fn start_in(directory: Directory, url: &str) -> Node {
        directory.write("keys.toml", hashed("of-the-file", &["--consumer", "filed"]));
        let copy = directory.join("control.json").display().to_string();
        let database = format!("url = {url:?}\ncopy = {copy:?}");
        Node(Gateway::start_in(directory, &CONFIG.replace("url = \"sqlite:state.db\"", &database)))
    }

    fn get(&self, key: &str, path: &str) -> Response {
        self.0.client().request("GET", path, &[&format!("X-Api-Key: {key}")], "")
    }

    /// Whom a key identifies.
    fn caller(&self, key: &str) -> Option<String> {
        let answer = self.get(key, "/");
        (answer.status == 200).then(|| text(&answer.body))
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask("admin-1", method, path, &[], body)
    }

    /// Makes a key; the key and where it is.
    fn make(&self, body: &Value) -> (String, String) {
        let made = self.ask("POST", "/v1/api-keys", body);
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        let text = |name: &str| made[name].as_str().expect("a text").to_owned();
        (text("key"), format!("/v1/api-keys/{}", &text("digest")[..16]))
    }

    /// Why a request to this path was refused, as the log has it.
    fn cause(&self, path: &str) -> String {
        let line = self.0.logged_where("a cause", |line| line["path"] == path && !line["cause"].is_null());
        line["cause"].as_str().expect("a text").to_owned()
    }
}

#[test]
fn a_key_is_in_force_with_its_answer_and_identifies_its_consumer() {
    let node = Node::start();
    assert_eq!(node.get("unheard-of", "/unknown").status, 401);
    assert_eq!(node.cause("/unknown"), "api-key-unknown");
    let (key, _) = node.make(&json!({
        "consumer": "ann", "tenant": "acme", "tier": "pro", "claims": { "roles": ["ops", "dev"] },
    }));
    assert_eq!(node.caller(&key).as_deref(), Some("ann acme pro ops,dev"));
    let limit = node.get(&key, "/").header("ratelimit-policy").expect("it is limited").to_owned();
    assert_eq!(limit, "\"calls-pro\";q=1000;w=3600");
    let (other, _) = node.make(&json!({ "consumer": "bob" }));
    assert_eq!(node.caller(&other).as_deref().map(str::trim_end), Some("bob"));
    let explained =
        node.ask("GET", &format!("/v1/explain?url=/&header=X-Api-Key:{key}"), &Value::Null).json();
    assert!(explained["identity"].to_string().contains("ann"), "{explained}");
    for line in node.0.access_log() {
        assert!(!line.to_string().contains(&key), "{line}");
    }
}

#[test]
fn one_that_is_disabled_is_refused_from_the_answer_on_over_open_connections_too() {
    let node = Node::start();
    let (key, place) = node.make(&json!({ "consumer": "ann" }));
    let field = format!("X-Api-Key: {key}");
    let mut open = node.0.client();
    assert_eq!(open.request("GET", "/", &[&field], "").status, 200);
    assert_eq!(node.ask("PATCH", &place, &json!({ "disabled": true })).status, 200);
    assert_eq!(open.request("GET", "/disabled", &[&field], "").status, 401);
    assert_eq!(node.cause("/disabled"), "api-key-disabled");
    assert_eq!(node.get(&key, "/both").status, 401);
    assert_eq!(node.ask("PATCH", &place, &json!({ "disabled": false })).status, 200);
    assert_eq!(open.request("GET", "/", &[&field], "").status, 200);
    assert_eq!(node.ask("DELETE", &place, &Value::Null).status, 204);
    assert_eq!(open.request("GET", "/deleted", &[&field], "").status, 401);
    assert_eq!(node.cause("/deleted"), "api-key-unknown");
}

#[test]
fn one_ends_by_itself_and_is_refused_with_the_cause() {
    let node = Node::start();
    let (key, _) = node.make(&json!({ "consumer": "ann", "duration": "1s" }));
    assert!(node.caller(&key).is_some());
    eventually("it has ended", || (node.get(&key, "/both").status == 401).then_some(()));
    assert_eq!(node.get(&key, "/expired").status, 401);
    assert_eq!(node.cause("/expired"), "api-key-expired");
}

#[test]
fn the_database_goes_before_a_file_and_neither_hides_the_other() {
    let node = Node::start();
    let (key, _) = node.make(&json!({ "consumer": "ann" }));
    let caller = |key: &str| text(&node.get(key, "/both").body);
    assert_eq!((caller(&key), caller("of-the-file")), ("ann".to_owned(), "filed".to_owned()));
    assert_eq!(node.get("of-the-file", "/").status, 401, "that method has no file");
    // The file's table is read again, and a reload makes methods anew: the database's keys stay.
    node.0.write("keys.toml", hashed("another", &["--consumer", "other"]));
    eventually("the file is read again", || (caller("another") == "other").then_some(()));
    assert_eq!(caller(&key), "ann");
    let config = std::fs::read_to_string(node.0.file("gateway.toml")).expect("it is there");
    let config = config.replace("[auth.both]\n", "[auth.both]\nin = [\"header:x-api-key\"]\n");
    std::fs::write(node.0.file("gateway.toml"), config).expect("written");
    node.0.signal("HUP");
    eventually("it is reloaded", || {
        node.0.stderr().iter().any(|line| line.contains("reloaded")).then_some(())
    });
    assert_eq!((caller(&key), caller("another")), ("ann".to_owned(), "other".to_owned()));
}

#[test]
fn a_key_made_at_one_node_is_known_at_the_others_and_without_the_database_from_the_start() {
    let mut server = Postgres::start();
    let url = server.url(&server.database());
    let nodes: Vec<Node> = (0..2).map(|_| Node::start_in(Directory::new(), &url)).collect();
    let (key, _) = nodes[0].make(&json!({ "consumer": "ann" }));
    let (ended, place) = nodes[0].make(&json!({ "consumer": "bob" }));
    eventually("it is known", || nodes[1].caller(&ended));
    assert_eq!(nodes[0].ask("PATCH", &place, &json!({ "disabled": true })).status, 200);
    eventually("it is refused everywhere", || nodes[1].caller(&ended).is_none().then_some(()));
    let copy = nodes[1].0.file("control.json");
    let kept = Directory::new();
    eventually("it is kept on disk", || {
        let content = std::fs::read_to_string(&copy).ok()?;
        (content.contains("\"ann\"") && content.contains("\"disabled\":true")).then_some(())
    });
    let content = std::fs::read_to_string(&copy).expect("it was written whole");
    assert!(!content.contains(&key), "only digests are kept");
    std::fs::write(kept.join("control.json"), content).expect("written");
    server.stop();
    assert!(nodes[0].caller(&key).is_some() && nodes[0].caller(&ended).is_none());
    let late = Node::start_in(kept, &url);
    assert_eq!((late.get(&key, "/").status, late.get(&ended, "/").status), (200, 401));
    // A node that has never learned which keys there are cannot say that one is wrong.
    let blank = Node::start_in(Directory::new(), &url);
    assert_eq!((blank.get(&key, "/").status, blank.get("of-the-file", "/both").status), (503, 200));
    assert_eq!(blank.cause("/"), "api-keys-unread");
    server.restart();
    eventually("it catches up", || blank.caller(&key));
    eventually("each worker knows", || (blank.get(&ended, "/").status == 401).then_some(()));
}

/// However soon after a change: the next start may find no database.
#[test]
fn a_node_that_stops_leaves_what_was_in_force_on_disk() {
    let server = Postgres::shared();
    let mut node = Node::start_in(Directory::new(), &server.url(&server.database()));
    let (_, place) = node.make(&json!({ "consumer": "ann" }));
    let copy = node.0.file("control.json");
    eventually("it is kept on disk", || copy.exists().then_some(()));
    assert_eq!(node.ask("PATCH", &place, &json!({ "disabled": true })).status, 200);
    node.0.signal("TERM");
    assert!(node.0.wait().success());
    let content = std::fs::read_to_string(&copy).expect("it was written whole");
    assert!(content.contains("\"disabled\":true"), "{content}");
}

#[test]
fn a_backup_that_was_put_back_is_noticed() {
    let node = Node::start();
    let (first, _) = node.make(&json!({ "consumer": "ann" }));
    let sqlite = |command: &str| {
        let file = node.0.file("state.db").display().to_string();
        let done = run("sqlite3", &["-cmd", ".timeout 5000", &file, command]);
        assert!(done.status.success() && done.stderr.is_empty(), "{}", text(&done.stderr));
    };
    let backup = node.0.file("backup.db").display().to_string();
    sqlite(&format!(".backup {backup}"));
    let (second, _) = node.make(&json!({ "consumer": "bob" }));
    assert!(node.caller(&second).is_some());
    sqlite(&format!(".restore {backup}"));
    // The version that the second one had is another's now.
    let (third, _) = node.make(&json!({ "consumer": "eve" }));
    eventually("it is known", || (node.get(&third, "/both").status == 200).then_some(()));
    let statuses = || (node.get(&first, "/").status, node.get(&second, "/").status);
    eventually("the other history is forgotten", || (statuses() == (200, 401)).then_some(()));
}
