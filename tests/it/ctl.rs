//! `sluicegate ctl` against real gateways: what it changes, what it prints, and how it fails.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::auth::keys::hashed;
use crate::support::gateway::binary;
use crate::support::{Directory, Gateway, eventually, text};

const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

[admin]
bind = "127.0.0.1:0"
token = "admin-1"
tokens = [
  { name = "reader", token = "read-1", role = "read" },
  { name = "alice", token = "operate-1", role = "operate" },
]

[policy.plans]
limit = { pro = "9/h", default = "9/h" }
by = ["header:x-user"]

[policy.calls]
limit = "2/h"
by = ["header:x-user"]

[[route]]
path = "/{*rest}"
limit = "calls"
respond = {}
"#;

/// Runs a command against a gateway, as the bearer of a token.
fn ctl(gateway: &Gateway, token: &str, arguments: &[&str]) -> Output {
    let url = format!("http://{}", gateway.listener("admin"));
    ctl_with(&url, token, arguments, "")
}

fn ctl_with(url: &str, token: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = binary();
    command.arg("ctl").args(["--url", url]).args(arguments).env("SLUICEGATE_TOKEN", token);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary under test can be started");
    // A command that reads nothing has closed it.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// What a command that succeeds prints.
fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// What a command that fails says.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr).to_owned()
}

/// The words of a table's lines.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn a_block_of_the_callers_own_address_needs_a_yes() {
    let gateway = Gateway::start(CONFIG);
    let add =
        ["block", "add", "--ip", "127.0.0.0/8", "--status", "429", "--for", "10m", "--reason", "a scan"];
    let said = refused(&ctl(&gateway, "operate-1", &add));
    assert!(said.contains("this blocks your own address 127.0.0.1: add --yes to block it"), "{said}");
    assert_eq!(gateway.get("/").status, 200);
    printed(&ctl(&gateway, "operate-1", &[&add[..], &["--yes"]].concat()));
    assert_eq!(gateway.get("/").status, 429);
    printed(&ctl(&gateway, "operate-1", &["block", "add", "--user", "eve", "--reason", "abuse"]));
    printed(&ctl(&gateway, "operate-1", &["unlimited", "add", "--tenant", "own", "--reason", "ours"]));
    let table = printed(&ctl(&gateway, "read-1", &["block", "list"]));
    let rows = words(&table);
    assert_eq!(rows[0], ["ID", "CONSUMER", "TENANT", "SUBJECT", "UNTIL", "BY", "REASON", "STATUS"]);
    assert_eq!(rows[1][1..], ["eve", "-", "-", "-", "alice", "abuse", "403"], "the newest first: {table}");
    assert_eq!((rows.len(), rows[2][3], rows[2][5]), (3, "ip=127.0.0.0/8", "alice"), "{table}");
    for other in ["override", "unlimited"] {
        let said = refused(&ctl(&gateway, "operate-1", &[other, "delete", rows[2][0]]));
        assert!(said.contains(&format!("use `sluicegate ctl block delete {}`", rows[2][0])), "{said}");
    }
    assert_eq!(printed(&ctl(&gateway, "operate-1", &["block", "delete", rows[2][0]])), "deleted\n");
    assert_eq!(gateway.get("/").status, 200);
    let exempt = printed(&ctl(&gateway, "read-1", &["unlimited", "list"]));
    assert_eq!(words(&exempt)[1][1..], ["-", "own", "-", "-", "alice", "ours"], "{exempt}");
}

#[test]
fn an_exemption_of_every_client_needs_a_yes() {
    let gateway = Gateway::start(CONFIG);
    let add = ["unlimited", "add", "--ip", "0.0.0.0/0", "--for", "10m", "--reason", "a load test"];
    let said = refused(&ctl(&gateway, "operate-1", &add));
    assert!(said.contains("exempts every client from all limits: add --yes"), "{said}");
    assert_eq!(printed(&ctl(&gateway, "operate-1", &["unlimited", "list"])), "no exemptions\n");
    printed(&ctl(&gateway, "operate-1", &[&add[..], &["--yes"]].concat()));
}

#[test]
fn an_error_names_options_and_the_file_of_a_token() {
    let gateway = Gateway::start(CONFIG);
    let put = ["tier", "put", "pro", "calls", "--limit", "0", "--window", "60"];
    let said = refused(&ctl(&gateway, "admin-1", &put));
    assert!(said.contains("`--limit` must be") && !said.contains("limit-value"), "{said}");
    for (arguments, option) in [
        (["--user", "ann", "--value", "9999999999999999"], "`--value` must be a whole number from 0"),
        (["--user", "ann", "--times", "0"], "`--times` must be above 0"),
        (["--user", "", "--value", "5"], "`--user` must have 1 to"),
    ] {
        let add = [&["override", "add", "--reason", "a test"][..], &arguments].concat();
        let said = refused(&ctl(&gateway, "operate-1", &add));
        assert!(said.contains(option) && !said.contains("user-id"), "{said}");
    }
    let add = ["block", "add", "--reason", "a test", "--subject", "consumer=ann"];
    let said = refused(&ctl(&gateway, "operate-1", &add));
    assert!(said.ends_with("write it as `--user`\n"), "{said}");
    let directory = Directory::new();
    directory.write("empty", "\n");
    let path = directory.join("empty").display().to_string();
    let said = refused(&ctl(&gateway, "", &["--token-file", &path, "audit"]));
    assert!(said.contains("empty is empty: write the token into it"), "{said}");
}

#[test]
fn an_override_is_made_listed_and_deleted_by_command() {
    let gateway = Gateway::start(CONFIG);
    let add =
        ["override", "add", "--user", "ann", "--value", "50", "--for", "10m", "--reason", "a migration"];
    let dry = printed(&ctl(&gateway, "operate-1", &[&add[..], &["--dry-run", "--json"]].concat()));
    let dry: Value = serde_json::from_str(&dry).expect("it is JSON");
    assert_eq!((&dry["dry-run"], &dry["new"]["value"]), (&true.into(), &50.into()), "{dry}");
    assert_eq!(printed(&ctl(&gateway, "operate-1", &["override", "list"])), "no overrides\n");

    let made = printed(&ctl(&gateway, "operate-1", &add));
    let row = words(&made);
    let id = row.iter().find(|line| line[0] == "id").expect("it has an id")[1].to_owned();
    assert!(row.contains(&vec!["user-id", "ann"]) && row.contains(&vec!["created-by", "alice"]), "{made}");
    let table = printed(&ctl(&gateway, "read-1", &["override", "list", "--user", "ann"]));
    let lines = words(&table);
    assert_eq!(
        lines[0],
        ["ID", "CONSUMER", "TENANT", "SUBJECT", "POLICY", "TYPE", "VALUE", "UNTIL", "BY", "REASON"]
    );
    assert_eq!(lines[1][..7], [&*id, "ann", "-", "-", "-", "absolute", "50"]);
    assert_eq!(lines[1][8..], ["alice", "a", "migration"]);

    assert_eq!(printed(&ctl(&gateway, "operate-1", &["override", "delete", &id])), "deleted\n");
    assert!(refused(&ctl(&gateway, "operate-1", &["override", "delete", &id])).contains("answers 404: "));
    let audit = printed(&ctl(&gateway, "read-1", &["audit", "--who", "alice"]));
    let actions: Vec<&str> = words(&audit)[1..].iter().map(|line| line[3]).collect();
    assert_eq!(actions, ["delete", "create"], "{audit}");
}

#[test]
fn a_policy_is_put_as_it_stands_in_gateway_toml() {
    let gateway = Gateway::start(CONFIG);
    let url = format!("http://{}", gateway.listener("admin"));
    let put = |name: &str, more: &[&str], document: &str| {
        let arguments = [&["policy", "put", name, "-"], more].concat();
        ctl_with(&url, "admin-1", &arguments, document)
    };
    let limit = || {
        let answer = gateway.client().request("GET", "/", &["X-User: a"], "");
        answer.header("ratelimit-policy").expect("it is shown").to_owned()
    };
    assert_eq!(limit(), "\"calls\";q=2;w=3600");
    let document = "[policy.calls]\nlimit = \"7/m\"\nby = [\"header:x-user\"]\n";
    let row = printed(&put("calls", &["--if-version", "0"], document));
    let version = words(&row).iter().find(|line| line[0] == "version").expect("it has one")[1].to_owned();
    assert_eq!(limit(), "\"calls\";q=7;w=60");
    // Somebody else was first.
    let said = refused(&put("calls", &["--if-version", "0"], document));
    assert!(
        said.contains("answers 412: ") && said.contains(&format!("write --if-version {version}")),
        "{said}"
    );
    let said =
        refused(&put("unheard", &["--if-version", "9"], "limit = \"7/m\"\nby = [\"header:x-user\"]\n"));
    assert!(
        said.contains("answers 412: ") && said.contains("it does not exist: --if-version 0 creates it"),
        "{said}"
    );
    let refusals = || gateway.stderr().iter().filter(|line| line.contains("admin change refused")).count();
    eventually("both are told", || (refusals() == 2).then_some(()));
    let said = refused(&put("calls", &[], "limit = \"7/fortnight\"\nby = [\"header:x-user\"]\n"));
    assert!(said.contains("fortnight"), "{said}");
    let said = refused(&put("calls", &[], "limit = "));
    assert!(said.starts_with("sluicegate: - is not a valid policy: "), "{said}");
    printed(&put("calls", &["--if-version", &version], "{\"limit\": \"9/m\", \"by\": [\"header:x-user\"]}"));
    assert_eq!(limit(), "\"calls\";q=9;w=60");
    assert_eq!(words(&printed(&ctl(&gateway, "read-1", &["policy", "list"])))[1][0], "calls");
    assert_eq!(printed(&ctl(&gateway, "admin-1", &["policy", "delete", "calls"])), "deleted\n");
    assert_eq!(limit(), "\"calls\";q=2;w=3600");
}

#[test]
fn tiers_are_assigned_and_keys_are_made_and_disabled_by_command() {
    let gateway = Gateway::start(CONFIG);
    let ctl = |arguments: &[&str]| ctl(&gateway, "admin-1", arguments);
    assert!(printed(&ctl(&["tier", "assign", "a/b c", "pro"])).contains("a/b c"));
    assert!(words(&printed(&ctl(&["tier", "of", "a/b c"]))).contains(&vec!["tier", "pro"]));
    assert_eq!(printed(&ctl(&["tier", "unassign", "a/b c"])), "unassigned\n");

    let made = printed(&ctl(&["key", "add", "ann", "--tier", "pro", "--claim", "plan=gold", "--for", "90d"]));
    let row = words(&made);
    let of = |name: &str| row.iter().find(|line| line[0] == name).expect("it is there")[1];
    assert!(of("key").starts_with("sg_") && of("claims.plan") == "gold", "{made}");
    let digest = of("digest").to_owned();
    assert!(words(&printed(&ctl(&["key", "disable", &digest]))).contains(&vec!["disabled", "true"]));
    let table = printed(&ctl(&["key", "list", "--consumer", "ann"]));
    assert_eq!(words(&table)[1][..5], [&*digest, "ann", "-", "pro", "true"]);
    assert!(!table.contains("sg_"), "{table}");
}

#[test]
fn a_new_tier_and_one_that_consumers_still_have_are_said() {
    let gateway = Gateway::start(CONFIG);
    let ctl = |arguments: &[&str]| printed(&ctl(&gateway, "admin-1", arguments));
    let put = |tier: &str| ctl(&["tier", "put", tier, "plans", "--limit", "5", "--window", "60"]);
    assert!(!put("pro").contains("hint"), "it was there");
    let said = put("prro");
    assert!(said.contains("this tier is new") && said.contains("did you mean `pro`?"), "{said}");
    assert!(!put("prro").contains("hint"), "it is there");
    ctl(&["tier", "assign", "ann", "prro"]);
    ctl(&["key", "add", "bob", "--tier", "prro"]);
    assert_eq!(ctl(&["tier", "delete", "pro", "plans"]), "deleted\n", "gateway.toml has it, too");
    let said = ctl(&["tier", "delete", "prro", "plans"]);
    assert!(
        said.starts_with("deleted\nhint") && said.contains("still have it, such as ann, bob: "),
        "{said}"
    );
}

#[test]
fn what_was_spent_is_shown_given_back_and_reset_by_command() {
    let config = CONFIG.replace("by = [\"header:x-user\"]", "by = [\"consumer\"]");
    let directory = Directory::new();
    directory.write("keys.toml", hashed("ann", &["--consumer", "ann"]));
    let config = config.replace("limit = \"calls\"", "limit = \"calls\"\nauth = \"keys\"")
        + "[auth.keys]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n";
    let gateway = Gateway::start_in(directory, &config);
    let ctl = |arguments: &[&str]| ctl(&gateway, "operate-1", arguments);
    let ask = || gateway.client().request("GET", "/", &["X-Api-Key: ann"], "").status;
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    let used = || {
        let table = printed(&ctl(&["usage", "consumer", "ann"]));
        let lines: Vec<Vec<String>> =
            words(&table).iter().map(|line| line.iter().map(|&word| word.to_owned()).collect()).collect();
        assert_eq!(lines[0][..6], ["POLICY", "WINDOW", "LIMIT", "USED", "LEASED", "LEFT"]);
        (lines[1][0].clone(), lines[1][3].clone(), lines[1][5].clone())
    };
    let row = |used: &str, left: &str| ("calls".to_owned(), used.to_owned(), left.to_owned());
    assert_eq!(used(), row("2", "0"));
    let check = |more: &[&str]| printed(&ctl(&[&["check", "calls", "ann"], more].concat()));
    assert!(words(&check(&[])).contains(&vec!["allowed", "false"]));
    let grant = ["grant", "consumer", "ann", "--policy", "calls", "--units", "1", "--reason", "sorry"];
    printed(&ctl(&grant));
    assert_eq!(used(), row("1", "1"));
    assert!(words(&check(&["--spend"])).contains(&vec!["allowed", "true"]));
    assert_eq!(ask(), 429);
    printed(&ctl(&["reset", "consumer", "ann", "--reason", "a new day"]));
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    printed(&ctl(&["limit", "put", "ann", "calls", "50", "--reason", "a customer"]));
    assert!(words(&printed(&ctl(&["limit", "show", "ann", "calls"]))).contains(&vec!["limit", "50"]));
    assert_eq!(printed(&ctl(&["limit", "delete", "ann", "calls"])), "deleted\n");
}

#[test]
fn all_pages_of_a_list_are_read() {
    let gateway = Gateway::start(CONFIG);
    for number in 0..103 {
        let user = format!("user-{number}");
        let add = ["override", "add", "--user", &user, "--times", "2.5", "--reason", "many"];
        printed(&ctl(&gateway, "operate-1", &add));
    }
    let all = printed(&ctl(&gateway, "read-1", &["override", "list", "--json"]));
    let all: Value = serde_json::from_str(&all).expect("it is JSON");
    assert_eq!((all["items"].as_array().map(Vec::len), all.get("next")), (Some(103), None));
    let some = printed(&ctl(&gateway, "read-1", &["override", "list", "--limit", "3"]));
    assert_eq!(words(&some).len(), 5, "{some}");
    assert!(some.ends_with("more rows exist: raise --limit\n"), "{some}");
}

#[test]
fn whoever_may_not_is_told_what_to_do() {
    let gateway = Gateway::start(CONFIG);
    let add = ["override", "add", "--user", "ann", "--value", "50", "--reason", "r"];
    for (token, status) in [("", "answers 401: "), ("wrong", "answers 401: "), ("read-1", "answers 403: ")] {
        let said = refused(&ctl(&gateway, token, &add));
        assert!(said.contains(status) && said.contains("SLUICEGATE_TOKEN"), "{said}");
    }
    let said = refused(&ctl(&gateway, "operate-1", &[&add[..7], &["\u{7}"]].concat()));
    assert!(said.contains("answers 400: `--reason` "), "{said}");
    let said =
        refused(&ctl_with(&format!("https://{}", gateway.listener("admin")), "admin-1", &["audit"], ""));
    assert!(said.ends_with("): write http://\n"), "{said}");
    let long = ["override", "add", "--user", "a", "--value", "1", "--for", "400d", "--reason", "r"];
    let said = ctl(&gateway, "operate-1", &long);
    assert!(text(&said.stderr).contains("`366d` at most"), "{}", text(&said.stderr));
    // What it does not understand is wrong usage, and asks nobody.
    for wrong in [
        &["override", "add", "--value", "1", "--reason", "r"][..],
        &["override", "add", "--user", "a", "--reason", "r"],
        &["override", "add", "--user", "a", "--value", "1", "--times", "2", "--reason", "r"],
        &["override"],
    ] {
        assert_eq!(ctl(&gateway, "operate-1", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn nobody_who_answers_is_an_error_that_names_the_address() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it has one");
    let said = refused(&ctl_with(&format!("http://{gone}"), "t", &["audit"], ""));
    assert!(
        said.contains(&format!(
            "no gateway answers on {gone} (Connection refused (os error 111)): start it,"
        )),
        "{said}"
    );
    let mut command = binary();
    let output =
        command.args(["--config", "/nowhere/gateway.toml", "ctl", "audit"]).output().expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.starts_with("error: cannot read /nowhere/gateway.toml"), "{said}");
    assert!(said.ends_with("name the gateway with --url, and its token with SLUICEGATE_TOKEN\n"), "{said}");
    let said = refused(&ctl_with("unix:/nowhere/admin.sock", "t", &["audit"], ""));
    assert!(said.contains("no gateway answers on unix:/nowhere/admin.sock"), "{said}");
}

#[test]
fn the_listener_and_the_admin_s_own_token_are_found_in_gateway_toml() {
    let directory = Directory::new();
    let socket = directory.join("admin.sock").display().to_string();
    let config = CONFIG.replace("127.0.0.1:0", &format!("unix:{socket}"));
    let file = directory.join("gateway.toml");
    let gateway = Gateway::start_in(directory, &config);
    let run = || {
        let mut command = binary();
        command.env_remove("SLUICEGATE_TOKEN").arg("--config").arg(&file);
        command.args(["ctl", "tier", "assign", "ann", "pro"]).output().expect("it can be started")
    };
    printed(&run());
    let audit = printed(&ctl_with(&format!("unix:{socket}"), "read-1", &["audit"], ""));
    // Not by the name of a token that somebody else has.
    assert_eq!(words(&audit)[1][1], "token", "{audit}");
    drop(gateway);
}
