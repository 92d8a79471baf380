//! Configurations of many routes, each with a limit of its own: how long they take to load, and that nothing else has
//! to wait for it.

use std::fmt::Write;

use crate::support::gateway::{binary, complete};
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, run, stdout_of, text};

/// Writes a configuration of so many routes into files of a size that is read.
fn write_routes(directory: &Directory, routes: usize) {
    for (file, first) in (0..routes).step_by(ROUTES_A_FILE).enumerate() {
        let mut written = String::new();
        for number in first..routes.min(first + ROUTES_A_FILE) {
            // A limit by a parameter and one by the caller: what is checked against all routes that use them.
            writeln!(
                written,
                "[[route]]\npath = \"/r{number}/{{id}}\"\nto = \"echo\"\nlimit = [\"9/m by ip\", \"99/m by param:id\"]"
            )
            .expect("a string takes everything");
        }
        directory.write(&format!("routes{file}.toml"), written);
    }
    directory.write("gateway.toml", "include = [\"routes*.toml\"]\n");
}

/// What `check` says of so many routes, and the seconds of processor that it took.
fn checked(routes: usize) -> (String, f64) {
    let directory = Directory::new();
    write_routes(&directory, routes);
    let command = format!(
        "{} check --config {}; times",
        env!("CARGO_BIN_EXE_sluicegate"),
        directory.join("gateway.toml").display()
    );
    let output = run("sh", &["-c", &command]);
    let said = text(&output.stdout);
    // `times` ends with what the children took: "0m1.230000s 0m0.120000s".
    let last = said.lines().last().unwrap_or_default().to_owned();
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').expect("minutes and seconds");
        minutes.parse::<f64>().expect("a number") * 60.0 + seconds.parse::<f64>().expect("a number")
    };
    (said + &text(&output.stderr), last.split(' ').map(seconds).sum())
}

#[test]
fn the_time_to_load_grows_with_the_routes_and_no_faster() {
    let (few, many) = (4_000, 40_000);
    let (_, of_few) = checked(few);
    let (said, of_many) = checked(many);
    // More policies than 16 bits can count.
    assert!(said.contains("80000 policies, 40000 routes"), "{said}");
    // Were it to grow with the square, a hundred times as long.
    assert!(of_many < 30.0 * of_few.max(0.05), "{few} routes: {of_few} s, {many}: {of_many} s");
}

/// An issuer that takes questions and never answers.
fn mute() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {}
    })
}

fn asking(issuer: &Upstream) -> String {
    format!(
        "[auth.jwt]\nkind = \"jwt\"\njwks = \"http://{}/keys\"\nalgorithms = [\"ES256\"]\nissuer = \"me\"\n\
         audience = \"api\"\nconsumer = \"claim:sub\"\n[[route]]\npath = \"/\"\nauth = \"jwt\"\nto = \"echo\"\n",
        issuer.addr()
    )
}

#[test]
fn a_signal_to_stop_is_heard_during_a_reload() {
    let (issuer, directory) = (mute(), Directory::new());
    let mut gateway = Gateway::start("[[route]]\npath = \"/\"\nto = \"echo\"\n");
    let config = complete(&asking(&issuer), &directory);
    gateway.write("gateway.toml", config);
    gateway.signal("HUP");
    eventually("the reload waits for the issuer", || (issuer.connections() > 0).then_some(()));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let said = gateway.stderr().join("\n");
    assert!(said.contains("draining") && !said.contains("reloaded"), "{said}");
}

#[test]
fn a_signal_to_stop_is_heard_during_the_start() {
    let (issuer, directory) = (mute(), Directory::new());
    let config = complete(&asking(&issuer), &directory);
    let file = directory.write("gateway.toml", config);
    let mut command = binary();
    command.args(["run", "--config"]).arg(file).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the binary under test can be started");
    eventually("the start waits for the issuer", || (issuer.connections() > 0).then_some(()));
    stdout_of("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().expect("it is a child of ours");
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("sluicegate: ready"), "{said}");
}

/// Far below what one file may hold.
const ROUTES_A_FILE: usize = 20_000;
