//! SQLite in trouble: files that are damaged, disks that are full or read-only, processes that are killed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use control::database::config::Url;
use control::database::{Database, Error, Expect};
use sqlx::Executor;
use sqlx::sqlite::SqliteConnectOptions;

use super::killed::{self, Writer};
use super::lab::{Lab, alice, config, of_user, runtime, sqlite};
use super::own_process;
use crate::support::{Directory, eventually, text};

#[test]
fn the_files_are_this_users_alone() {
    Lab::sqlite().run(async |lab: Lab| {
        let database = lab.open().await;
        database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
        let Url::Sqlite(file) = &lab.config.url else { panic!("it is SQLite") };
        for end in ["", "-wal", "-shm"] {
            let path = PathBuf::from(format!("{}{end}", file.display()));
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600, "{end}");
        }
    });
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let directory = Directory::new();
    let file = directory.write("state.db", "not a database. ".repeat(600));
    refused_as_corrupt(&directory, &file);
}

#[test]
fn a_damaged_file_is_refused_and_left_alone() {
    let directory = Directory::new();
    let file = directory.join("state.db");
    runtime().block_on(async {
        let database = open(&file).await.expect("it opens");
        for number in 0..60 {
            database.add_override(&alice(), of_user(&format!("u{number}"), 1)).await.expect("it is made");
        }
    });
    eventually("its connections are closed", || (!file.with_extension("db-wal").exists()).then_some(()));
    let whole = fs::read(&file).expect("it is there");
    for damage in ["overwritten", "cut"] {
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        match damage {
            "cut" => bytes.truncate(middle),
            _ => bytes[middle..].fill(0xff),
        }
        fs::write(&file, bytes).expect("it is ours");
        refused_as_corrupt(&directory, &file);
    }
    fs::write(&file, whole).expect("it is ours");
    runtime().block_on(async { open(&file).await.expect("a backup is taken as it is") });
}

#[track_caller]
fn refused_as_corrupt(directory: &Directory, file: &Path) {
    let before = fs::read(file).expect("it is there");
    let error = runtime().block_on(open(file)).expect_err("it is damaged");
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains(&file.display().to_string()) && said.contains("put a backup in its place"),
        "{said}"
    );
    assert!(fs::read(file).expect("it is there") == before, "the file was changed");
    let files = fs::read_dir(directory.join("")).expect("it is there").filter_map(Result::ok);
    let names: Vec<_> = files.map(|entry| entry.file_name()).collect();
    assert!(names.iter().all(|name| name.to_string_lossy().starts_with("state.db")), "{names:?}");
}

#[test]
fn a_full_disk_is_named_and_ends_with_its_cause() {
    on_a_disk("mount -t tmpfs -o size=1m tmpfs \"$1\"", "fills_its_disk", &Directory::new());
}

#[test]
#[ignore = "it needs the disk that another test makes"]
fn fills_its_disk() {
    let disk = own_process::place();
    runtime().block_on(async {
        let database = open(&disk.join("state.db")).await.expect("it opens");
        let made = database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
        let fill = disk.join("fill");
        fs::write(&fill, vec![0; 2 << 20]).expect_err("the disk is smaller");
        let full = at_last_fails(&database).await;
        assert!(matches!(&full, Error::Full { place } if place.contains("state.db")), "{full:?}");
        assert!(full.to_string().contains("is full: free space"), "{full}");
        let listed = killed::every_override(&database).await;
        let version = database.version().await.expect("it is read");
        assert!(listed.contains(&made) && listed.len() as i64 == version, "all or nothing is there");
        fs::remove_file(&fill).expect("it is there");
        let made = database.add_override(&alice(), of_user("ada", 1)).await.expect("there is room");
        assert_eq!(made.version, version + 1);
    });
}

/// Writes until the last room in the files themselves is used up.
async fn at_last_fails(database: &Database) -> Error {
    for _ in 0..500 {
        if let Err(error) = database.add_override(&alice(), of_user("ada", 1)).await {
            return error;
        }
    }
    panic!("a full disk took 500 changes");
}

#[test]
fn no_database_begins_on_a_full_disk() {
    on_a_disk("mount -t tmpfs -o size=64k tmpfs \"$1\"", "begins_on_a_full_disk", &Directory::new());
}

#[test]
#[ignore = "it needs the disk that another test makes"]
fn begins_on_a_full_disk() {
    let disk = own_process::place();
    fs::write(disk.join("fill"), vec![0; 1 << 20]).expect_err("the disk is smaller");
    let error = runtime().block_on(open(&disk.join("state.db"))).expect_err("there is no room");
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
}

#[test]
fn a_disk_that_cannot_be_written_is_named() {
    let directory = Directory::new();
    let inside = directory.join("disk");
    fs::create_dir(&inside).expect("it is ours");
    runtime().block_on(async {
        let database = open(&inside.join("state.db")).await.expect("it opens");
        database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
    });
    eventually("its connections are closed", || (!inside.join("state.db-wal").exists()).then_some(()));
    let how = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
    on_a_disk(how, "opens_what_cannot_be_written", &directory);
}

#[test]
#[ignore = "it needs the disk that another test makes"]
fn opens_what_cannot_be_written() {
    for file in ["state.db", "new.db", "absent/state.db"] {
        let error =
            runtime().block_on(open(&own_process::place().join(file))).expect_err("nothing can be written");
        assert!(matches!(error, Error::ReadOnly { .. }), "{file}: {error:?}");
        assert!(error.to_string().contains("cannot be opened or written"), "{error}");
    }
}

/// Runs a test of this file in a process that has a disk of its own, at `disk` in the directory.
#[track_caller]
fn on_a_disk(how: &str, test: &str, directory: &Directory) {
    let inside = directory.join("disk");
    fs::create_dir_all(&inside).expect("it is ours");
    let script = format!("{how} && shift && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script, "sh"]).arg(&inside);
    let name = format!("database::faults_sqlite::{test}");
    let mut command = own_process::run_by(command, &name, &inside.display().to_string());
    let output = command.output().expect("unshare is part of util-linux");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn another_process_that_writes_is_waited_for_and_not_for_ever() {
    Lab::sqlite().run(async |lab: Lab| {
        let database = lab.open().await;
        let Url::Sqlite(file) = &lab.config.url else { panic!("it is SQLite") };
        let options = SqliteConnectOptions::new().filename(file);
        let mut other = sqlx::ConnectOptions::connect(&options).await.expect("it opens");
        other.execute("BEGIN IMMEDIATE").await.expect("nobody else writes");
        let began = Instant::now();
        let by = alice();
        let write = database.add_override(&by, of_user("ada", 1));
        // Readers go on meanwhile, on the one thread of this runtime.
        let reads = async {
            for _ in 0..50 {
                assert_eq!(database.version().await, Ok(0));
            }
            began.elapsed()
        };
        let (write, read) = tokio::join!(write, reads);
        assert!(
            matches!(&write, Err(Error::Unreachable { reason, .. }) if reason.contains("another process has locked it")),
            "{write:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(read < Duration::from_secs(2), "readers took {read:?}");
        let write = database.put_policy(&by, "p", serde_json::json!(1), Expect::Anything);
        let (write, _) = tokio::join!(write, async { other.execute("COMMIT").await.expect("it is open") });
        assert_eq!(write.map(|row| row.version), Ok(1));
    });
}

#[test]
fn a_process_that_is_killed_leaves_all_of_a_change_or_nothing() {
    let directory = Directory::new();
    let file = directory.join("state.db");
    let url = format!("sqlite:{}", file.display());
    let mut told = Vec::new();
    for round in 1..=4 {
        let mut writer = Writer::start("database::faults_sqlite::writes_until_it_is_killed", &url);
        told.extend(writer.told(15 * round));
        told.extend(writer.kill());
        runtime().block_on(async {
            let database = open(&file).await.expect("it opens again");
            killed::is_consistent(&database, &told).await;
        });
    }
    assert_eq!(sqlite(&file, "PRAGMA integrity_check"), "ok");
}

/// The other side of the test above.
#[test]
#[ignore = "it is killed by another test"]
fn writes_until_it_is_killed() {
    runtime().block_on(killed::write_for_ever());
}

async fn open(file: &Path) -> Result<Database, Error> {
    Database::open(&config(Url::Sqlite(file.to_owned()))).await
}
