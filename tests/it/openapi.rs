//! The admin API answers as its OpenAPI document says, whatever is sent: requests made from the document, valid and broken,
//! by Schemathesis with all of its checks; and a generated client can call all of it.

use std::path::Path;
use std::process::Command;

use crate::support::python::{self, interpreter};
use crate::support::{Client, Directory, Gateway, text};

const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

[admin]
bind = "127.0.0.1:0"
tokens = [{ name = "carol", token = "admin-1", role = "admin" }]

[tier.pro]
limit = "100/m"

[policy.calls]
limit = "200/h"
by = ["consumer"]

[policy.few]
limit = "2/h"
by = ["ip"]

[[route]]
path = "/{*rest}"
limit = ["calls", "few"]
respond = {}
"#;

#[test]
fn no_request_that_the_document_can_be_made_into_is_answered_otherwise() {
    // The document has `now`, which it takes only so.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" --test-time", env!("CARGO_BIN_EXE_sluicegate")]);
    let gateway = Gateway::start_by(command, Directory::new(), CONFIG);
    let admin = gateway.listener("admin");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let output = Command::new("timeout")
        .arg("120")
        .arg(interpreter())
        .args(["-c", "from schemathesis.cli import schemathesis; schemathesis()"])
        .arg("--config-file")
        .arg(folder.join("openapi.toml"))
        .args(["run", &format!("http://{admin}/v1/openapi.json")])
        .args(["--header", "Authorization: Bearer admin-1", "--checks", "all", "--max-time", "45"])
        .args(["--seed", "1", "--generation-database", "none", "--no-color", "--continue-on-failure"])
        .current_dir(gateway.file(""))
        .envs([("SCHEMATHESIS_HOOKS", "openapi_hooks"), ("PYTHONDONTWRITEBYTECODE", "1")])
        .env("PYTHONPATH", folder.join("peers"))
        .output()
        .expect("timeout is part of coreutils");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let number = |line: &str| line.trim().split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let cases = said.lines().filter(|line| line.contains(" generated")).find_map(number);
    assert!(cases.is_some_and(|cases| cases > 300), "{said}");
    let health = Client::connect(admin).request("GET", "/readyz?verbose", &[], "");
    assert_eq!(health.status, 200, "{health:?}");
    let faults = ["panicked", "ERROR"];
    let stderr = gateway.stderr();
    let fault = stderr.iter().find(|line| faults.iter().any(|fault| line.contains(fault)));
    assert_eq!(fault, None);
}

#[test]
fn a_generated_client_calls_every_operation() {
    let gateway = Gateway::start_in(Directory::new(), CONFIG);
    let mut client = Client::connect(gateway.listener("plain"));
    let refused = (0..3).map(|_| client.get("/")).find(|answer| answer.status == 429).expect("two an hour");
    let id = refused.header("x-request-id").expect("each has an id").to_owned();
    let folder = gateway.file("client");
    std::fs::create_dir(&folder).expect("made");
    let admin = gateway.listener("admin").to_string();
    let folder = folder.to_str().expect("the path is text");
    let said = python::client("openapi_client.py", &[&admin, "admin-1", &id, folder]);
    assert_eq!(said.trim(), "37 calls");
}
