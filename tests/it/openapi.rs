//! The admin API answers as its OpenAPI document says, whatever is sent: requests made from the document, valid and broken,
//! by Schemathesis with all of its checks.

use std::path::Path;
use std::process::Command;

use crate::support::python::interpreter;
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
limit = "2/h"
by = ["consumer"]

[[route]]
path = "/{*rest}"
limit = "calls"
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
