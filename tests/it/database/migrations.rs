//! The tables come about once, and a program refuses those that are not its own.

use control::database::{Database, Error, NewOverride};

use super::lab::{Lab, alice, both, of_user};

both! {
    nodes_that_start_together_make_the_tables_once
    tables_of_a_newer_program_are_refused
    tables_of_another_migration_are_refused
    both_databases_have_the_same_columns
    rights_on_the_tables_are_enough_once_they_are_there
    who_only_reads_makes_nothing
}

async fn nodes_that_start_together_make_the_tables_once(lab: Lab) {
    let (one, two, three) =
        tokio::join!(Database::open(&lab.config), Database::open(&lab.config), Database::open(&lab.config));
    for database in [one, two, three] {
        let database = database.expect("it opens");
        database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
    }
    assert_eq!(lab.sql("SELECT version FROM control_version"), "3");
}

async fn who_only_reads_makes_nothing(lab: Lab) {
    let absent = Database::open_read_only(&lab.config).await.expect_err("nobody has made the tables");
    if lab.is_postgres() {
        assert!(matches!(absent, Error::Tables { .. }), "{absent:?}");
        assert_eq!(
            lab.sql("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"),
            "0"
        );
    }
    let database = lab.open().await;
    database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
    let there = database.state().await;
    // Beside a gateway, and after it.
    for _ in 0..2 {
        let reading = Database::open_read_only(&lab.config).await.expect("the tables are there");
        assert_eq!(reading.state().await, there);
    }
    drop(database);
    let reading = Database::open_read_only(&lab.config).await.expect("the tables are there");
    assert_eq!(reading.state().await, there);
    if !lab.is_postgres() {
        let refused = reading.add_override(&alice(), of_user("bob", 1)).await.expect_err("it only reads");
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
    }
}

async fn tables_of_a_newer_program_are_refused(lab: Lab) {
    drop(lab.open().await);
    lab.sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9, 'of a newer one', true, '', 0)",
    );
    let error = Database::open(&lab.config).await.expect_err("they are newer");
    assert!(matches!(error, Error::Newer { found: 9, known: 5, .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("of a newer gateway (migration 9; this one knows 5)"), "{said}");
    // Nothing has been touched, so the newer one goes on.
    lab.sql("DELETE FROM _sqlx_migrations WHERE version = 9");
    lab.open().await;
}

async fn tables_of_another_migration_are_refused(lab: Lab) {
    drop(lab.open().await);
    let other = if lab.is_postgres() { "'\\x00'" } else { "x'00'" };
    lab.sql(&format!("UPDATE _sqlx_migrations SET checksum = {other}"));
    let error = Database::open(&lab.config).await.expect_err("they are others");
    let said = error.to_string();
    assert!(
        matches!(error, Error::Tables { .. }) && said.contains("migration 5 is not this program's"),
        "{said}"
    );
}

async fn both_databases_have_the_same_columns(lab: Lab) {
    drop(lab.open().await);
    let columns = if lab.is_postgres() {
        "SELECT name FROM (SELECT table_name || '.' || column_name AS name FROM information_schema.columns \
         WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%') AS names ORDER BY name COLLATE \"C\""
    } else {
        "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' \
         AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
    };
    let found = lab.sql(columns);
    assert_eq!(found.lines().collect::<Vec<_>>(), COLUMNS.split_whitespace().collect::<Vec<_>>());
}

async fn rights_on_the_tables_are_enough_once_they_are_there(lab: Lab) {
    drop(lab.open().await);
    if !lab.is_postgres() {
        // SQLite has no rights below those of the file; a file that cannot be written is `faults_sqlite`'s.
        assert_eq!(lab.sql("PRAGMA journal_mode"), "wal");
        return;
    }
    let role = format!("{}_gateway", lab.sql("SELECT current_database()"));
    lab.sql(&format!("CREATE ROLE {role} LOGIN"));
    lab.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let mut weak = lab.config.clone();
    let control::database::config::Url::Postgres(url) = &mut weak.url else { panic!("it is PostgreSQL") };
    *url = url.replace("user=postgres", &format!("user={role}"));
    let refused = Database::open(&weak).await.expect_err("it may not even look");
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    lab.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"));
    let database = Database::open(&weak).await.expect("it need not make tables");
    database
        .add_override(&alice(), NewOverride { policy: None, ..of_user("ada", 1) })
        .await
        .expect("it is made");
}

const COLUMNS: &str = "
    api_keys.claims api_keys.consumer api_keys.created_at api_keys.created_by api_keys.digest api_keys.disabled
    api_keys.expires_at api_keys.tenant api_keys.tier api_keys.version
    audit_log.action audit_log.at audit_log.from_address audit_log.id audit_log.new audit_log.old
    audit_log.request_id audit_log.what audit_log.who
    changes.at changes.id changes.kind changes.version
    control_version.one control_version.version
    count_resets.created_at count_resets.created_by count_resets.id count_resets.policy count_resets.reason
    count_resets.tenant_id count_resets.units count_resets.user_id count_resets.version
    idempotency_keys.answer idempotency_keys.at idempotency_keys.key idempotency_keys.request idempotency_keys.who
    policies.document policies.id policies.updated_at policies.updated_by policies.version
    rate_limit_configs.algorithm rate_limit_configs.burst_multiplier rate_limit_configs.created_at
    rate_limit_configs.limit_value rate_limit_configs.resource rate_limit_configs.tier rate_limit_configs.updated_at
    rate_limit_configs.version rate_limit_configs.window_seconds
    rate_limit_events.count_at_decision rate_limit_events.decision rate_limit_events.id
    rate_limit_events.limit_applied rate_limit_events.node_id rate_limit_events.policy
    rate_limit_events.recorded_at rate_limit_events.request_id rate_limit_events.sample rate_limit_events.tenant_id
    rate_limit_events.tier rate_limit_events.user_id
    rate_limit_overrides.created_at rate_limit_overrides.created_by rate_limit_overrides.expires_at
    rate_limit_overrides.id rate_limit_overrides.override_type rate_limit_overrides.policy
    rate_limit_overrides.reason rate_limit_overrides.subject rate_limit_overrides.tenant_id rate_limit_overrides.user_id
    rate_limit_overrides.value rate_limit_overrides.version
    usage_batches.at usage_batches.id usage_minutes.admitted usage_minutes.consumer usage_minutes.denied
    usage_minutes.minute usage_minutes.policy usage_minutes.tenant usage_minutes.units
    user_rate_tiers.assigned_at user_rate_tiers.assigned_by user_rate_tiers.tier user_rate_tiers.user_id
    user_rate_tiers.version";
