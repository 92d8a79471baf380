//! What operators are told: every error at once and no other, and warnings.

use std::process::Output;

use crate::support::gateway::binary;
use crate::support::{Directory, text};

fn run_on(arguments: &[&str], config: &str) -> Output {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", config);
    binary().args(arguments).arg("--config").arg(file).output().expect("the binary under test can be started")
}

#[test]
fn every_error_is_told_at_once_and_no_other() {
    let config = r#"workrs = 3
[[route]]
path = "a"
to = "echo"
limit = "5/m by ip"
[[route]]
path = "b"
to = "echo"
limit = "5/m by ip"
[[route]]
path = 7
to = "echo"
[[route]]
name = "7"
path = "/e"
to = "echo"
[[route]]
name = "8"
path = "/f"
host = "a..b"
to = "echo"
[[route]]
path = "/c/*"
to = "echo"
[[route]]
path = "/d/{a}{b}"
to = "echo"
[[route]]
path = "/g"
to = "echo"
headers = { set = { x = "{nobody}" } }
[policy.p]
by = ["ip", "ip"]
limit = "5/s"
cost = { default = 9 }
"#;
    let output = run_on(&["check"], config);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    let wrong =
        ["1:1", "3:8", "7:8", "11:8", "14:8", "18:8", "20:8", "23:8", "26:8", "31:19", "33:13", "35:20"];
    for place in wrong {
        assert!(said.contains(&format!("gateway.toml:{place}\n")), "{place} is not in\n{said}");
    }
    assert!(said.trim_end().ends_with(&format!("{} errors", wrong.len())), "{said}");
}

#[test]
fn a_file_with_nothing_in_it_draws_a_warning() {
    for nothing in ["", "\n", "# to = \"echo\"\n"] {
        let output = run_on(&["check"], nothing);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("there is nothing in this file") && said.contains("gateway.toml:1:1"),
            "{said}"
        );
    }
    let directory = Directory::new();
    directory.write("more.toml", "# later\n");
    let file = directory
        .write("gateway.toml", "include = [\"more.toml\"]\n[[route]]\npath = \"/\"\nto = \"echo\"\n");
    let output = binary().args(["check", "--config"]).arg(file).output().expect("the binary can be started");
    let said = text(&output.stderr);
    assert!(said.contains("more.toml:1:1") && !said.contains("gateway.toml:1:1"), "{said}");
    let whole = run_on(&["check"], "[[route]]\npath = \"/\"\nto = \"echo\"\n");
    assert_eq!(text(&whole.stderr), "");
}
