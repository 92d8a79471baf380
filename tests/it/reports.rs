//! Messages to operators: every error at once and no other, warnings, and which routes are nearest to a request.

use std::fmt::Write;
use std::process::Output;

use crate::support::gateway::binary;
use crate::support::{Directory, Gateway, stdout_of, text};

fn run_on(arguments: &[&str], config: &str) -> Output {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", config);
    binary().args(arguments).arg("--config").arg(file).output().expect("the binary under test can be started")
}

#[test]
fn every_error_is_reported_at_once_and_no_other() {
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
fn a_file_with_nothing_in_it_is_refused_and_an_included_one_draws_a_warning() {
    for (command, nothing) in [("check", ""), ("check", "\n"), ("run", ""), ("run", "# to = \"echo\"\n")] {
        let output = run_on(&[command], nothing);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains("error: the file has no keys") && said.contains("gateway.toml:1:1"), "{said}");
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

/// A configuration of so many routes under 100 paths, and one that takes POST only.
fn routes(count: usize) -> String {
    let mut config = String::from(
        "[[route]]\nname = \"near\"\npath = \"/svc7/order\"\nmethods = [\"POST\"]\nto = \"echo\"\n",
    );
    for number in 1..count {
        let path = format!("/svc{}/r{number}/{{id}}", number % 100);
        writeln!(config, "[[route]]\nname = \"r{number}\"\npath = \"{path}\"\nto = \"echo\"")
            .expect("it grows");
    }
    config
}

#[test]
fn explain_names_the_ten_nearest_of_many_routes() {
    let config = routes(10_000);
    let gateway = Gateway::start(&config);
    let file = gateway.file("gateway.toml").display().to_string();
    let explain = |more: &[&str]| {
        let arguments = [&["explain", "--config", &file, "GET"], more].concat();
        stdout_of(env!("CARGO_BIN_EXE_sluicegate"), &arguments)
    };
    let named = |said: &str| -> Vec<String> {
        let lines = said.lines().filter_map(|line| line.strip_prefix("not "));
        lines.map(|line| line.trim_start().to_owned()).collect()
    };
    // Nobody answers: what has the path comes first, then those under the same first segment that look most alike.
    let said = explain(&["/svc7/order"]);
    let near = named(&said);
    assert_eq!(near.len(), 11, "{said}");
    assert_eq!(near[0], "near: is for other methods");
    assert!(
        near[1..10].iter().all(|line| line.ends_with("07: has another path") || line.starts_with("r7:")),
        "{said}"
    );
    assert_eq!(near[10], "9990 more routes; --all shows them");
    let said = explain(&["/SVC7/R107/x"]);
    assert_eq!(named(&said)[0], "r107: differs in case", "{said}");
    // One that answers is beside the ten.
    let said = explain(&["/svc8/r108/x"]);
    assert!(said.contains("\nroute    r108: goes to"), "{said}");
    assert_eq!(named(&said).len(), 11, "{said}");
    assert!(said.contains("9989 more routes"), "{said}");
    assert_eq!(named(&explain(&["/svc7/order", "--all"])).len(), 10_000);
    // The admin listener says the same.
    let shown = gateway.admin("/v1/explain?url=/svc7/order").json();
    assert_eq!((shown["considered"].as_array().map(Vec::len), &shown["hidden"]), (Some(10), &9_990.into()));
    let shown = gateway.admin("/v1/explain?url=/svc7/order&all=true").json();
    assert_eq!((shown["considered"].as_array().map(Vec::len), &shown["hidden"]), (Some(10_000), &0.into()));
    // And so does the file alone.
    let said = text(
        &run_on(&["explain", "GET", "/svc7/order"], &format!("{config}\n[admin]\nbind = \"127.0.0.1:1\"\n"))
            .stdout,
    );
    assert_eq!(named(&said).len(), 11, "{said}");
    let few = text(
        &run_on(&["explain", "GET", "/none"], &format!("{}\n[admin]\nbind = \"127.0.0.1:1\"\n", routes(10)))
            .stdout,
    );
    assert!(named(&few).len() == 10 && !few.contains("more"), "{few}");
}
