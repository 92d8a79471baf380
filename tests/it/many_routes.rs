//! Configurations of many routes, each with a limit of its own: how long they take to load.

use std::fmt::Write;

use crate::support::{Directory, run, text};

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

/// Far below what one file may hold.
const ROUTES_A_FILE: usize = 20_000;
