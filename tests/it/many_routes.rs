//! Configurations of many routes, each with a limit of its own: how long they take to load, and that nothing else has
//! to wait for it.

use crate::support::gateway::{binary, complete};
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, run, stdout_of, text};

/// Writes a configuration of so many routes into files of a size that is read.
fn write_routes(directory: &Directory, routes: usize, route: fn(usize) -> String) {
    for (file, first) in (0..routes).step_by(ROUTES_A_FILE).enumerate() {
        let written: String = (first..routes.min(first + ROUTES_A_FILE)).map(route).collect();
        directory.write(&format!("routes{file}.toml"), written);
    }
    directory.write("gateway.toml", "include = [\"routes*.toml\"]\n");
}

/// A route with a limit by a parameter and one by the consumer: both are checked against all routes that use them.
fn limited(number: usize) -> String {
    format!(
        "[[route]]\npath = \"/r{number}/{{id}}\"\nto = \"echo\"\nlimit = [\"9/m by ip\", \"99/m by param:id\"]\n"
    )
}

/// A route of the same path as all others, for one tenant: what is checked for ties with them.
fn of_tenant(number: usize) -> String {
    format!(
        "[[route]]\nname = \"r{number}\"\npath = \"/\"\nmatch = {{ header = {{ x-tenant = \"t{number}\" }} }}\nto = \"echo\"\n"
    )
}

/// What `check` says of so many routes, and the seconds of processor that it took.
fn checked(routes: usize, route: fn(usize) -> String) -> (String, f64) {
    let directory = Directory::new();
    write_routes(&directory, routes, route);
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
    // In the one case there are more policies than 16 bits can count.
    for (route, loaded) in
        [(limited as fn(usize) -> String, "80000 policies, 40000 routes"), (of_tenant, "40000 routes")]
    {
        let (_, of_few) = checked(few, route);
        let (said, of_many) = checked(many, route);
        assert!(said.contains(loaded), "{said}");
        // Were it to grow with the square, a hundred times as long.
        assert!(of_many < 30.0 * of_few.max(0.05), "{few} routes: {of_few} s, {many}: {of_many} s; {loaded}");
    }
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
