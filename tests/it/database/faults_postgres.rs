//! PostgreSQL in trouble: restarted, killed, frozen, read-only, behind a wrong password. No call hangs, and each says the
//! truth about what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use control::database::config::{Config, Password, Url};
use control::database::{CALL_MAX, Database, Error, Expect, OverrideRow, PolicyRow};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor};
use tokio::task::JoinSet;

use super::killed::{self, Writer};
use super::lab::{Lab, alice, config, of_user, runtime};
use crate::support::postgres::Postgres;
use crate::support::redis::free_port;
use crate::support::{Directory, tls};

#[test]
fn a_restart_costs_calls_while_it_lasts_and_none_after() {
    let mut server = Postgres::start();
    runtime().block_on(async {
        let database = open(&server).await;
        add(&database).await.expect("it is made");
        server.stop();
        server.restart();
        // Connections that were open are known to be dead before they are used.
        add(&database).await.expect("the next call works");
        server.stop();
        let began = Instant::now();
        let down = add(&database).await.expect_err("it is down");
        assert!(matches!(down, Error::Unreachable { .. }), "{down:?}");
        assert!(began.elapsed() < within(), "{:?}", began.elapsed());
        server.restart();
        let made = add(&database).await.expect("it is back");
        assert_eq!(made.version, 3);
    });
}

#[test]
fn a_server_that_hangs_hangs_nobody() {
    let server = Postgres::start();
    runtime().block_on(async {
        let database = open(&server).await;
        add(&database).await.expect("it is made");
        server.signal_all("STOP");
        // More calls than there are connections, some of which wait for one.
        let mut calls = JoinSet::new();
        for number in 0..12 {
            let database = database.clone();
            calls.spawn(async move {
                let began = Instant::now();
                let error = match number % 3 {
                    0 => add(&database).await.map(drop),
                    1 => database.version().await.map(drop),
                    _ => database.changes_since(0, None).await.map(drop),
                };
                (error.expect_err("nothing answers"), began.elapsed())
            });
        }
        for (error, took) in calls.join_all().await {
            assert!(error.is_outage() && took < within(), "{error:?} after {took:?}");
        }
        server.signal_all("CONT");
        // None of the calls wrote: they did not get as far as a commit.
        let made = add(&database).await.expect("it goes on");
        assert_eq!(made.version, 2);
    });
}

#[test]
fn answers_are_true_when_the_server_is_killed_among_writers() {
    let mut server = Postgres::start();
    let url = server.url("postgres");
    let made = Arc::new(AtomicUsize::new(0));
    let (writers, told) = (Arc::clone(&made), url.clone());
    let writing = thread::spawn(move || {
        runtime().block_on(async move {
            let database = Database::open(&of(&told)).await.expect("it opens");
            let mut tasks = JoinSet::new();
            for writer in 0..4 {
                let (database, made) = (database.clone(), Arc::clone(&writers));
                tasks.spawn(async move {
                    let mut answers = Vec::new();
                    for number in 0..2_000 {
                        let user = format!("u{writer}-{number}");
                        let answer = database.add_override(&alice(), of_user(&user, 1)).await;
                        made.fetch_add(usize::from(answer.is_ok()), Ordering::SeqCst);
                        let is_over = answer.is_err();
                        answers.push((user, answer));
                        if is_over {
                            break;
                        }
                    }
                    answers
                });
            }
            tasks.join_all().await.concat()
        })
    });
    crate::support::eventually("some are made", || (made.load(Ordering::SeqCst) > 40).then_some(()));
    server.kill();
    server.restart();
    let answers: Vec<(String, Result<OverrideRow, Error>)> = writing.join().expect("no writer panicked");
    let runtime = runtime();
    let database = runtime.block_on(Database::open(&of(&url))).expect("it opens again");
    let rows = runtime.block_on(killed::every_override(&database));
    let mut failed = 0;
    for (user, answer) in &answers {
        let row = rows.iter().find(|row| row.user_id.as_ref() == Some(user));
        match answer {
            Ok(made) => assert_eq!(row, Some(made), "{user} was told to be there"),
            Err(Error::Unknown { .. }) => failed += 1,
            Err(error) => {
                assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
                assert_eq!(row, None, "{user} was told not to be there: {error}");
                failed += 1;
            }
        }
    }
    let ids: Vec<String> =
        answers.iter().filter_map(|(_, answer)| Some(answer.as_ref().ok()?.id.clone())).collect();
    runtime.block_on(killed::is_consistent(&database, &ids));
    assert!(failed <= 4 && ids.len() > 40, "{failed} failed of {}", answers.len());
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_out() {
    let lab = Lab::postgres();
    let url = lab.config.url.clone();
    lab.run(async |lab: Lab| {
        let database = lab.open().await;
        add(&database).await.expect("it is made");
        let relay = super::relay::Relay::start(&url);
        let cut = Database::open(&relay.config).await.expect("it opens");
        relay.cut_at_commit(true);
        let made = add(&cut).await.expect("it was written, which the audit log says");
        assert_eq!(database.row::<OverrideRow>(&made.id).await, Ok(Some(made)));
        relay.cut_at_commit(false);
        let lost = add(&cut).await.expect_err("the commit never arrived");
        assert!(
            matches!(&lost, Error::Unreachable { reason, .. } if reason.contains("nothing was written")),
            "{lost:?}"
        );
        assert_eq!(database.version().await, Ok(2));
        relay.stop();
        assert!(add(&cut).await.expect_err("the way is cut").is_outage());
    });
}

#[test]
fn a_node_that_is_stopped_while_it_writes_does_not_stop_the_others() {
    Lab::postgres().run(async |lab: Lab| {
        let (stopped, other) = (lab.open().await, lab.open().await);
        let by = alice();
        let mut half = Box::pin(stopped.add_override(&by, of_user("ada", 1)));
        // It goes on until it holds the row that all writers wait for; there the server keeps it, so that nothing depends
        // on who is faster. It stands still from then on.
        lab.sql("CREATE SEQUENCE seen");
        lab.sql(
            "CREATE FUNCTION until_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             WHILE NOT (SELECT is_called FROM seen) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END $$",
        );
        lab.sql("CREATE TRIGGER until_seen AFTER UPDATE ON control_version FOR EACH ROW EXECUTE FUNCTION until_seen()");
        let holds = |state: &str| {
            lab.sql(&format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND state = '{state}' AND backend_xid IS NOT NULL"
            )) == "1"
        };
        while !holds("active") {
            tokio::select! {
                biased;
                done = &mut half => panic!("it was too fast: {done:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        lab.sql("SELECT nextval('seen')");
        while !holds("idle in transaction") {}
        let began = Instant::now();
        let waited = add(&other).await.expect_err("another holds the row");
        assert!(matches!(waited, Error::Unreachable { .. }), "{waited:?}");
        assert!(began.elapsed() < within(), "{:?}", began.elapsed());
        // Readers do not wait, and the server ends the transaction of the one that stands still.
        assert_eq!(other.version().await, Ok(0));
        let made = loop {
            match add(&other).await {
                Ok(made) => break made,
                Err(error) => assert!(began.elapsed() < Duration::from_secs(15), "{error:?}"),
            }
        };
        assert_eq!(made.version, 1);
        let late = half.await.expect_err("its transaction was ended");
        assert!(matches!(late, Error::Unreachable { .. }), "{late:?}");
        assert_eq!(other.version().await, Ok(1));
    });
}

#[test]
fn a_password_is_nowhere_to_be_seen() {
    let server = Postgres::shared();
    let name = server.database();
    let password = "hunter2 @:/%41?#'";
    server.sql(&name, &format!("CREATE ROLE {name}_login LOGIN PASSWORD '{}'", password.replace('\'', "''")));
    server.sql(
        &name,
        &format!("GRANT ALL ON DATABASE {name} TO {name}_login; GRANT ALL ON SCHEMA public TO {name}_login"),
    );
    let port = server.port();
    let config = |url: String, password: Option<&str>| Config {
        password: password.map(|password| Password(password.to_owned())),
        ..Config::new(Url::postgres(&url).expect("it is a URL"))
    };
    let url = |login: &str| format!("postgres://{name}_login{login}@127.0.0.1:{port}/{name}");
    runtime().block_on(async {
        // As it stands in a key of its own, and percent-encoded in the URL.
        Database::open(&config(url(""), Some(password))).await.expect("it is right");
        let encoded = ":hunter2%20%40%3A%2F%2541%3F%23%27";
        Database::open(&config(url(encoded), None)).await.expect("it is right");
        for wrong in [config(url(":hunter3"), None), config(url(":hunter2"), Some("hunter3"))] {
            let error = Database::open(&wrong).await.expect_err("it is wrong");
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            let said = format!("{error} {error:?} {wrong:?} {}", wrong.url);
            assert!(said.contains("password authentication failed") && !said.contains("hunter"), "{said}");
        }
        let absent = format!("postgres://{name}_login:x@127.0.0.1:{port}/absent?sslmode=disable");
        let absent = Database::open(&config(absent, Some(password))).await.expect_err("there is none");
        assert!(matches!(&absent, Error::Refused { reason, .. } if reason.contains("absent")), "{absent:?}");
    });
}

#[test]
fn a_server_proves_its_name_or_gets_no_password() {
    let (server, directory) = (Postgres::start(), Directory::new());
    server.sql("postgres", "CREATE ROLE gw LOGIN PASSWORD 'hunter2'; GRANT ALL ON SCHEMA public TO gw");
    let (right, key, _) = tls::pair(&["localhost"]);
    let (other, ..) = tls::pair(&["localhost"]);
    let right_file = directory.write("right.pem", &right).display().to_string();
    let other_file = directory.write("other.pem", other).display().to_string();
    let port = server.port();
    let url =
        |host: &str, rest: &str| of(&format!("postgres://gw:hunter2@{host}:{port}/postgres?sslmode={rest}"));
    let runtime = runtime();
    let said = |config: &Config| {
        let error = runtime.block_on(Database::open(config)).expect_err("it is not trusted");
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        error.to_string()
    };
    // A server without TLS is not spoken to in the clear instead.
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(said(&url("localhost", mode)).contains("TLS"));
    }
    server.certify(&right, &key);
    let trusting = url("localhost", &format!("verify-full&sslrootcert={right_file}"));
    runtime.block_on(async {
        let database = Database::open(&trusting).await.expect("it is trusted");
        let is_tls =
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'gw'";
        assert_eq!((server.sql("postgres", is_tls).as_str(), database.version().await), ("t", Ok(0)));
    });
    assert!(
        said(&url("localhost", &format!("verify-full&sslrootcert={other_file}"))).contains("certificate")
    );
    assert!(
        said(&url("127.0.0.1", &format!("verify-full&sslrootcert={right_file}"))).contains("certificate")
    );
    // Without a file those are trusted that browsers trust.
    assert!(said(&url("localhost", "verify-full")).contains("certificate"));
}

#[test]
fn a_port_nobody_listens_on_is_known_at_once() {
    let url = format!("postgres://gw:hunter2@127.0.0.1:{}/limits", free_port());
    let began = Instant::now();
    let error = runtime().block_on(Database::open(&of(&url))).expect_err("nobody listens");
    let said = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }) && said.contains("refused"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(said.contains("postgres://127.0.0.1:") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_server_that_can_only_be_read_is_named_and_left_for_another() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        let made = add(&database).await.expect("it is made");
        let name = lab.sql("SELECT current_database()");
        lab.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        // As after a failover: new connections find a standby.
        lab.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        let refused = add(&database).await.expect_err("it can only be read");
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
        assert_eq!(database.row::<OverrideRow>(&made.id).await, Ok(Some(made)));
        // A node that starts reads it, too.
        assert_eq!(lab.open().await.version().await, Ok(1));
        let refused = add(&database).await.expect_err("it still can only be read");
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
        lab.sql(&format!(
            "BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"
        ));
        // Connections that could only read are not used again.
        assert_eq!(add(&database).await.map(|made| made.version), Ok(2));
    });
}

#[test]
fn a_node_that_is_killed_leaves_all_of_a_change_or_nothing() {
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let mut told = Vec::new();
    for round in 1..=3 {
        let mut writer = Writer::start("database::faults_sqlite::writes_until_it_is_killed", &url);
        told.extend(writer.told(15 * round));
        told.extend(writer.kill());
        runtime().block_on(async {
            let database = Database::open(&of(&url)).await.expect("it opens");
            // Waits for what the dead node may still have in its last packets.
            database
                .put_policy(&alice(), "p", serde_json::json!(round), Expect::Anything)
                .await
                .expect("it is made");
            database.delete::<PolicyRow>(&alice(), "p", Expect::Anything).await.expect("it is there");
        });
    }
    runtime().block_on(async {
        let database = Database::open(&of(&url)).await.expect("it opens");
        let rows = killed::every_override(&database).await;
        for id in &told {
            assert!(rows.iter().any(|row| row.id == *id), "{id} was told and is not there");
        }
        assert_eq!(database.version().await, Ok(rows.len() as i64 + 6), "each version has its change");
    });
}

#[test]
fn a_table_that_somebody_dropped_is_named() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        lab.sql("DROP TABLE rate_limit_overrides");
        let error = add(&database).await.expect_err("it is gone");
        assert!(
            matches!(&error, Error::Tables { reason, .. } if reason.contains("rate_limit_overrides")),
            "{error:?}"
        );
        assert_eq!(database.version().await, Ok(0));
    });
}

/// Advice about the file of SQLite would be no help.
#[test]
fn an_internal_error_of_the_server_is_no_damaged_file() {
    Lab::postgres().run(async |lab: Lab| {
        let database = lab.open().await;
        lab.sql(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'cache lookup failed' USING ERRCODE = 'XX000'; END $$",
        );
        lab.sql("CREATE TRIGGER fails BEFORE INSERT ON rate_limit_overrides FOR EACH ROW EXECUTE FUNCTION fails()");
        let said = add(&database).await.expect_err("it fails").to_string();
        assert!(said.ends_with(": cache lookup failed"), "{said}");
    });
}

#[test]
fn connections_that_the_server_has_no_room_for_are_an_outage() {
    let server = Postgres::start();
    runtime().block_on(async {
        let database = open(&server).await;
        server.sql("postgres", "CREATE ROLE gw LOGIN CONNECTION LIMIT 1");
        server.sql("postgres", "GRANT ALL ON ALL TABLES IN SCHEMA public TO gw");
        let url = server.url("postgres").replace("user=postgres", "user=gw");
        let options: PgConnectOptions = url.parse().expect("it is a URL");
        let mut other = options.connect().await.expect("there is room for one");
        let crowded = Database::open(&of(&url)).await.expect_err("there is no room");
        assert!(matches!(crowded, Error::Unreachable { .. }), "{crowded:?}");
        other.execute("SELECT 1").await.expect("it is open");
        assert_eq!(database.version().await, Ok(0));
    });
}

async fn add(database: &Database) -> Result<OverrideRow, Error> {
    database.add_override(&alice(), of_user("ada", 1)).await
}

async fn open(server: &Postgres) -> Database {
    Database::open(&of(&server.url("postgres"))).await.expect("it opens")
}

fn of(url: &str) -> Config {
    config(Url::postgres(url).expect("it is a URL"))
}

/// The bound of a call, and what a busy machine adds.
fn within() -> Duration {
    CALL_MAX + Duration::from_secs(1)
}
