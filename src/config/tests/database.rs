//! `[database]`: files of SQLite, servers of PostgreSQL, and their passwords, which nothing shows.

use std::path::Path;

use super::{config, each_says, load, reads_the_same};
use control::database::config::{Password, Url};

#[test]
fn every_database_is_read_and_written_without_its_password() {
    for database in [
        "url = \"sqlite:/var/lib/sluicegate/state.db\"",
        "url = \"sqlite:state.db\"\nsingle-node = true",
        "url = \"postgres://db\"",
        "url = \"postgres://gw:${SECRET}@db:5433/limits?sslmode=verify-full&sslrootcert=/etc/ca.pem\"",
        "url = \"postgresql:///limits?host=/run/postgresql&user=gw\"\npassword = \"${SECRET}\"",
    ] {
        let first = config(&format!("[database]\n{database}"));
        assert!(reads_the_same(&first), "{}", first.page());
        assert!(!first.effective().contains("hunter2") && !format!("{first:?}").contains("hunter2"));
    }
    assert_eq!(config("route = []").database, None);
    let database = config("[database]\nurl = \"sqlite:a/state.db\"").database.expect("it is there");
    let Url::Sqlite(path) = &database.url else { panic!("it is a file") };
    assert!(path.is_absolute() && path.ends_with(Path::new("a/state.db")), "{}", path.display());
    assert!(!database.single_node);
    let text = "[database]\nurl = \"postgres://gw@db\"\npassword = \"a@b:/%41${SECRET}\"";
    let password = config(text).database.and_then(|database| database.password);
    assert_eq!(password, Some(Password("a@b:/%41hunter2".to_owned())));
}

#[test]
fn mistakes_are_told_without_quoting_a_password() {
    each_says(&[
        ("[database]", "`[database]` needs `url`", "1:2", "`url = \"sqlite:state.db\"`"),
        (
            "[database]\nurl = \"sqlite:\"",
            "`url` does not name the file of the database",
            "2:7",
            "`sqlite:state.db`",
        ),
        (
            "[database]\nurl = \"sqlite::memory:\"",
            "`url` does not name the file of the database",
            "2:7",
            "the path behind",
        ),
        (
            "[database]\nurl = \"sqlite:///a.db\"",
            "`url` does not name the file of the database",
            "2:7",
            "the path behind",
        ),
        (
            "[database]\nurl = \"state.db\"",
            "`url` is neither a file of SQLite nor a server of PostgreSQL",
            "2:7",
            "write `sqlite:PATH`",
        ),
        (
            "[database]\nurl = \"mysql://gw:hunter2@db/x\"",
            "`url` is neither a file of SQLite nor a server of PostgreSQL",
            "2:7",
            "mysql:********@db",
        ),
        (
            "[database]\nurl = \"postgres://db:x/y\"",
            "`url` is not a valid URL of PostgreSQL",
            "2:7",
            "`postgres://user@host:5432/name`",
        ),
        (
            "[database]\nurl = \"postgres://db/y?sslmod=require\"",
            "`url` has the parameter `sslmod`, which is not known",
            "2:7",
            "did you mean `sslmode`?",
        ),
        (
            "[database]\nurl = \"postgres://db/y?sslmode=verify-ful\"",
            "`url` has an `sslmode` that is not known",
            "2:7",
            "write `disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`",
        ),
        (
            "[database]\nurl = \"postgres://db/y?password=x\"",
            "`url` has its password in a parameter",
            "2:7",
            "`password = ",
        ),
        (
            "[database]\nurl = \"postgres://gw:****@db/y\"",
            "the password of `url` is only asterisks, the mask that `check --effective` and `/config` print for a secret",
            "2:7",
            "write the secret itself",
        ),
        (
            "[database]\nurl = \"sqlite:a.db\"\npassword = \"x\"",
            "`password` has no effect on SQLite",
            "3:12",
            "remove it",
        ),
        (
            "[database]\nurl = \"postgres://a:${SECRET}@b\"\npassword = \"${SECRET}\"",
            "`url` has a password, too",
            "3:12",
            "keep one of the two",
        ),
        (
            "[database]\nurl = \"sqlite:a.db\"\nsingle_node = true",
            "unknown key `single_node` in [database]",
            "3:1",
            "`single-node`",
        ),
    ]);
}

#[test]
fn a_file_beside_redis_is_warned_of() {
    let redis = "[redis]\nurl = \"redis://a\"\n";
    for (text, is_warned) in [
        ("[database]\nurl = \"sqlite:a.db\"", true),
        ("[database]\nurl = \"sqlite:a.db\"\nsingle-node = true", false),
        ("[database]\nurl = \"postgres://a\"", false),
    ] {
        let loaded = load(&[&format!("{redis}{text}")]).expect("it is valid");
        let said = loaded.report.to_string();
        assert_eq!(said.contains("their own SQLite file"), is_warned, "{said}");
    }
    let loaded = load(&["[database]\nurl = \"postgres://gw:hunter2@b\""]).expect("it is valid");
    let said = loaded.report.to_string();
    assert!(said.contains("a password is written in plain text") && !said.contains("hunter2"), "{said}");
}
