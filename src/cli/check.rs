//! `sluicegate check`: reports that a configuration is valid, or everything that is wrong with it.
//!
//! It reads certificates, authorities, keys and users as `run` does, but it opens no port, writes no file and fetches no
//! keys from token issuers. If Redis can be reached, it measures the round trip.

use std::io::{self, Write};
use std::path::Path;

use app::prepare;
use config::limits::limit_text;
use config::{Config, RowDocument};
use control::database::Error as DatabaseError;
use control::database::config::{Config as Database, Url};
use limit::{Algorithm, Quota, WhenDown};
use limiter::global;
use limiter::global::Condition;
use limiter::global::config::deadline_of;
use observe::record::Sink;
use policy::definition::PolicyDefinition;
use rustix::fs::Access;

/// What to check, and what to print.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Print the whole configuration with every default, secrets masked
    #[arg(long)]
    pub effective: bool,
    /// Include the policies and the tier table of the database, which take precedence over the file
    #[arg(long)]
    pub database: bool,
}

/// Checks the configuration in `path` and returns the exit code: 0 or [`EXIT_CONFIG`].
///
/// Errors and warnings go to `errors`. `out` gets a summary, or with `effective` the whole configuration with every
/// default, which is a gateway.toml that lacks only the secrets.
///
/// `descriptors` is the limit of file descriptors that `run` would have.
///
/// # Errors
/// If the database cannot be read, or nothing can be written.
pub fn check(
    path: &Path,
    Arguments { effective, database }: Arguments,
    descriptors: u64,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    let read = |rows: &[RowDocument]| config::Files::read(path).with(rows).and_then(prepare);
    // The files must stand alone, too, because a start and a reload take no policy from the database that is not there
    // yet.
    let alone = read(&[]);
    let rows = match &alone {
        Ok(prepared) if database => rows(path, &prepared.loaded.config, errors)?,
        _ => Vec::new(),
    };
    let loaded = match if rows.is_empty() { alone } else { read(&rows) } {
        Ok(prepared) => prepared.loaded,
        Err(found) => {
            let noun = if found.count() == 1 { "error" } else { "errors" };
            writeln!(errors, "{found}\n\n{}: {} {noun}", path.display(), found.count())?;
            return Ok(EXIT_CONFIG);
        }
    };
    if !loaded.report.is_empty() {
        writeln!(errors, "{}\n", loaded.report)?;
    }
    let config = loaded.config;
    if let Some(warning) = app::sockets::descriptors::warning(&config, descriptors) {
        writeln!(errors, "warning: {warning}\n")?;
    }
    let logs = [&config.access_log.to, &config.decisions.to].into_iter();
    for warning in logs.filter_map(log_that_cannot_be_opened) {
        writeln!(errors, "warning: {warning}\n")?;
    }
    if let Some(warning) = config.database.as_ref().and_then(file_that_cannot_be_written) {
        writeln!(errors, "warning: {warning}\n")?;
    }
    if effective {
        out.write_all(config.effective().as_bytes())?;
    } else {
        let domains = match config.domains.len() {
            0 => String::new(),
            count => format!(", {}", counted(count, "domain", "domains")),
        };
        writeln!(
            out,
            "configuration is valid: {}, {}, {}, {}{domains}",
            counted(config.listeners.len(), "listener", "listeners"),
            counted(config.upstreams.len(), "upstream", "upstreams"),
            counted(config.policies.len(), "policy", "policies"),
            counted(config.routes.len(), "route", "routes"),
        )?;
        show_worst_periods(&config, out)?;
        if let Some(redis) = &config.redis {
            show_sharing(&config, out)?;
            show_round_trips(redis, out, errors)?;
        }
    }
    Ok(0)
}

/// Why a log's file cannot be opened. It is no error, because it may be otherwise where the gateway runs.
fn log_that_cannot_be_opened(sink: &Sink) -> Option<String> {
    let Sink::File(path) = sink else { return None };
    if path.is_dir() {
        return Some(format!("the log {} is a directory: name a file in it", path.display()));
    }
    let directory = path.parent().filter(|directory| !directory.is_dir())?.display();
    Some(format!("the directory {directory} of a log does not exist here: create it where the gateway runs"))
}

/// Why this user cannot write the file of a database in SQLite, or its directory, because there are files beside it. As
/// with logs it may be another user where the gateway runs.
fn file_that_cannot_be_written(database: &Database) -> Option<String> {
    let Url::Sqlite(file) = &database.url else { return None };
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.exists() {
        return Some(format!("create the directory {}, which [database] needs", directory.display()));
    }
    let why = |(path, is_its_kind): (&Path, bool)| match (path.display(), is_its_kind) {
        (path, false) => Some(format!("{path} is the wrong kind of file: correct `url` of [database]")),
        (shown, true) if path.exists() && rustix::fs::access(path, Access::WRITE_OK).is_err() => {
            Some(format!("this user cannot write {shown}, which [database] needs"))
        }
        _ => None,
    };
    [(directory, directory.is_dir()), (file, !file.exists() || file.is_file())].into_iter().find_map(why)
}

fn rows(path: &Path, config: &Config, errors: &mut dyn Write) -> anyhow::Result<Vec<RowDocument>> {
    let Some(database) = &config.database else {
        anyhow::bail!("--database needs [database], which {} does not have", path.display());
    };
    if let Url::Sqlite(file) = &database.url
        && !file.exists()
    {
        let file = file.display();
        writeln!(
            errors,
            "warning: {file} does not exist yet: a start creates it; the check ran without it\n"
        )?;
        return Ok(Vec::new());
    }
    app::rows_of(database).map_err(|error| match error.downcast_ref() {
        Some(DatabaseError::Tables { .. }) => {
            anyhow::anyhow!("{error}; if that is refused, make its role the owner of the database")
        }
        _ => error,
    })
}

/// Prints the round trip to each server of Redis, and warns if it is longer than the deadline of a decision.
fn show_round_trips(redis: &global::Config, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<()> {
    // An unreachable Redis is no error, because `check` often runs where only the file is. Errors in the file were
    // reported above.
    let measured = match app::measure_from_outside(redis) {
        Ok(measured) => measured,
        Err(error) => {
            writeln!(out, "  Redis: {error:#}")?;
            return Ok(());
        }
    };
    if measured.round_trips.is_empty() {
        let servers = redis.topology.servers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (condition, why) = measured.trouble.unwrap_or((Condition::Unknown, "no answer".to_owned()));
        let (what, remedy) = match condition.remedy() {
            Some(remedy) => ("refuses calls", remedy),
            None => ("cannot be reached from here", remedy_here(condition, &why)),
        };
        writeln!(errors, "warning: Redis at {servers} {what} ({why}): {remedy}\n")?;
    }
    for (server, round_trip) in measured.round_trips {
        let deadline = redis.deadline.unwrap_or_else(|| deadline_of(round_trip, round_trip));
        let [takes_ms, waits_ms] = [round_trip, deadline].map(|time| time.as_secs_f64() * 1e3);
        let by = if redis.deadline.is_some() { "`deadline`" } else { "by default" };
        writeln!(
            out,
            "  redis {server}: a round trip takes {takes_ms:.2} ms; a request waits at most {waits_ms:.1} ms ({by})"
        )?;
        if round_trip > deadline {
            // Half as much again, because some round trips are slower than the one measured. A second is the longest
            // that can be written.
            let enough_ms = (takes_ms * 1.5).ceil().min(1e3);
            writeln!(
                errors,
                "warning: a round trip to redis {server} takes {takes_ms:.1} ms, longer than `deadline` of [redis] \
                 ({waits_ms:.0} ms), so requests are decided before Redis answers and are charged afterwards; write \
                 deadline = \"{enough_ms:.0}ms\"\n"
            )?;
        }
    }
    Ok(())
}

/// What to do about a server of Redis that cannot be reached from here, though it may be from elsewhere.
fn remedy_here(condition: Condition, why: &str) -> &'static str {
    Condition::remedy_unreached(why).unwrap_or(match condition {
        Condition::Silent => "run `check` closer to it, or where the gateway runs",
        _ => "start it, or run check where the gateway runs",
    })
}

/// Prints for every window with a period how many units one key may spend in a period, and why.
fn show_worst_periods(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    let windows = config.policies.iter().flat_map(|policy| {
        let worst = |window: &Quota| window.worst_period();
        policy.windows.iter().enumerate().filter_map(move |it| Some((policy, it, worst(it.1)?)))
    });
    for (policy, (number, window), (units, why)) in windows {
        let limit = shown(policy, number);
        writeln!(out, "limit {} {limit}: at most {units} in one period ({why})", policy.name)?;
        if window.is_bare_bucket() {
            writeln!(out, "  to admit fewer: {}", admits_fewer(window))?;
        }
    }
    Ok(())
}

/// How a limit of a long period is written so that less than a full bucket and its refill may pass in one.
fn admits_fewer(bucket: &Quota) -> String {
    let (limit, period_ns) = (bucket.limit(), bucket.period_ns());
    let (period, calendar) = match (period_ns.get() / DAY_NS, period_ns.get() % DAY_NS) {
        (1, 0) => ("day", Some("day")),
        (7, 0) => ("period", Some("week")),
        (28..=31, 0) => ("period", Some("month")),
        (365..=366, 0) => ("period", Some("year")),
        (0, HOUR_NS) => ("hour", None),
        _ => ("period", None),
    };
    let burst = (limit.get() > 1).then(|| format!("a `burst` below {limit}"));
    let sliding = Quota::new(Algorithm::SlidingWindow, limit, period_ns, limit);
    let holds = match sliding.worst_period() {
        Some((units, _)) if units == limit.get() => "",
        _ => ", unless they come in bursts",
    };
    let sliding = format!(
        "`algorithm = \"sliding-window\"` in `[policy.NAME]`, at most {limit} in any {period}{holds}"
    );
    let calendar = calendar.map(|unit| {
        format!("the window of the calendar `{limit}/{unit}`, {limit} from one reset to the next")
    });
    burst.into_iter().chain([sliding]).chain(calendar).collect::<Vec<_>>().join("; or ")
}

fn shown(policy: &PolicyDefinition, number: usize) -> String {
    let limit = limit_text::show_window(&policy.windows[number]);
    policy.part_of(number).map_or(limit.clone(), |part| format!("{limit} of tier {}", part.name))
}

/// Prints for every window how much more than that a fleet may admit, with Redis and without it.
fn show_sharing(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    if config.policies.iter().any(|policy| !policy.windows.is_empty()) {
        writeln!(out, "if {FLEET_NODES} nodes share Redis, one key may exceed its limit in one period by:")?;
    }
    for policy in &config.policies {
        for (number, window) in policy.windows.iter().enumerate() {
            let sharing = policy.sharing(number);
            let (with, without) = sharing.worst_overshoot(window, FLEET_NODES);
            let more = |units: f64| match units > 0.0 {
                true => format!("at most {} more", units.ceil()),
                false => "none".to_owned(),
            };
            let with = match sharing.is_exact() {
                true => "none, because Redis decides each request".to_owned(),
                false => more(with),
            };
            let without = match sharing.when_down {
                WhenDown::Local => match window.spenders(FLEET_NODES) {
                    FLEET_NODES => more(without),
                    few => format!("{}, because only {few} of the nodes admit a given key", more(without)),
                },
                WhenDown::Allow => "up to ten times the limit for each client address and node".to_owned(),
                WhenDown::Deny => "none, because nothing is admitted".to_owned(),
            };
            let limit = shown(policy, number);
            writeln!(
                out,
                "  {} {limit}\n    with Redis: {with}\n    while Redis is down: {without}",
                policy.name
            )?;
        }
    }
    Ok(())
}

/// The size of the fleet that the printed overshoot is computed for.
const FLEET_NODES: u32 = 100;
const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The exit code of an invalid configuration: `EX_CONFIG` of sysexits.h.
pub const EXIT_CONFIG: u8 = 78;
/// The exit code if something was left out or differs.
#[cfg(any(feature = "migrate", feature = "replay"))]
pub const EXIT_LEFT_OUT: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough descriptors for any configuration, so that no test sees the warning about them.
    const PLENTY: u64 = u64::MAX;

    const ALONE: Arguments = Arguments { effective: false, database: false };
    const EFFECTIVE: Arguments = Arguments { effective: true, ..ALONE };
    const WITH_ROWS: Arguments = Arguments { database: true, ..ALONE };

    /// Checks a file with this text and returns the exit code, the output and the errors.
    fn checked(name: &str, text: &str, arguments: Arguments) -> (u8, String, String) {
        let directory = std::env::temp_dir().join(format!("sluicegate-check-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let path = directory.join("gateway.toml");
        std::fs::write(&path, text).expect("the temporary directory is writable");
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let code =
            check(&path, arguments, PLENTY, &mut out, &mut errors).expect("writing to memory cannot fail");
        std::fs::remove_dir_all(&directory).expect("it was made above");
        let text =
            |bytes| String::from_utf8(bytes).expect("it is text").replace(&*path.to_string_lossy(), "FILE");
        (code, text(out), text(errors))
    }

    #[test]
    fn a_valid_file_is_counted() {
        let text = "[[route]]\npath = \"/a\"\nto = \"http://a\"\nlimit = \"1/s by ip\"";
        let summary = "configuration is valid: 1 listener, 1 upstream, 1 policy, 1 route\n\
                       limit route:/a 1/s burst 1: at most 2 in one period (a full bucket, and the units that refill)\n";
        assert_eq!(checked("valid", text, ALONE), (0, summary.to_owned(), String::new()));
    }

    #[test]
    fn ways_to_admit_fewer_fit_the_limit() {
        let sliding = "`algorithm = \"sliding-window\"` in `[policy.NAME]`, at most 1000 in any day, unless they come in bursts";
        let calendar = "the window of the calendar `1000/day`, 1000 from one reset to the next";
        for (limit, ways) in [
            ("1/h", "`algorithm = \"sliding-window\"` in `[policy.NAME]`, at most 1 in any hour".to_owned()),
            ("1/400d", "`algorithm = \"sliding-window\"` in `[policy.NAME]`, at most 1 in any period".to_owned()),
            (
                "2/h",
                "a `burst` below 2; or `algorithm = \"sliding-window\"` in `[policy.NAME]`, at most 2 in any hour"
                    .to_owned(),
            ),
            ("1000/d", format!("a `burst` below 1000; or {sliding}; or {calendar}")),
        ] {
            let text = format!("[[route]]\nto = \"http://a\"\nlimit = \"{limit} by ip\"");
            let (_, out, errors) = checked("fewer", &text, ALONE);
            assert!(out.ends_with(&format!("\n  to admit fewer: {ways}\n")), "{limit}: {out}{errors}");
        }
    }

    #[test]
    fn a_file_of_sqlite_that_cannot_be_written_draws_a_warning() {
        let own = std::env::temp_dir();
        let own = own.display();
        for (url, said) in [
            ("/nowhere/state.db".to_owned(), "create the directory /nowhere, which [database] needs"),
            (format!("{own}"), "is the wrong kind of file: correct `url` of [database]"),
            (format!("{own}/sluicegate-check-absent.db"), ""),
        ] {
            let (code, out, errors) =
                checked("sqlite", &format!("[database]\nurl = \"sqlite:{url}\""), ALONE);
            assert_eq!((code, out.starts_with("configuration is valid")), (0, true), "{url}");
            let warnings = errors.matches("[database]").count();
            assert_eq!(warnings, usize::from(!said.is_empty()), "{url}: {errors}");
            assert!(errors.contains(said), "{url}: {errors}");
        }
    }

    #[test]
    fn the_errors_of_the_file_come_before_those_of_its_database() {
        for wrong in [
            "[database]\nurl = \"postgres://h/d?sslmode=foo\"",
            "workrs = 2\n[database]\nurl = \"sqlite:/nowhere/state.db\"",
        ] {
            let (code, _, errors) = checked("rows", wrong, WITH_ROWS);
            assert_eq!(code, EXIT_CONFIG, "{errors}");
            assert!(errors.ends_with("FILE: 1 error\n"), "{errors}");
        }
        let absent = std::env::temp_dir().join("sluicegate-check-absent.db");
        let (code, _, errors) =
            checked("rows-absent", &format!("[database]\nurl = \"sqlite:{}\"", absent.display()), WITH_ROWS);
        assert_eq!(code, 0, "{errors}");
        assert!(
            errors.contains("does not exist yet: a start creates it; the check ran without it"),
            "{errors}"
        );
    }

    #[test]
    fn how_a_fleet_shares_each_tier_is_said() {
        let text = "[redis]\nurl = \"redis://127.0.0.1:1\"\n[policy.p]\nby = [\"ip\"]\n\
                    limit = { free = \"500/h\", strict = { limit = \"50/h\", overshoot = 0 } }";
        let (code, out, errors) = checked("tiers", text, ALONE);
        assert_eq!(code, 0);
        for line in [
            "if 100 nodes share Redis, one key may exceed its limit in one period by:\n  p 500/h burst 500 of tier free\n    with Redis: at most ",
            "limit p 50/h burst 50 of tier strict: at most 100 in one period (a full bucket, and the units that refill)\n",
            "  p 50/h burst 50 of tier strict\n    with Redis: none, because Redis decides each request\n    while Redis is down: none, because ",
        ] {
            assert!(out.contains(line), "{line} is missing from\n{out}");
        }
        let away = "warning: Redis at 127.0.0.1:1 cannot be reached from here (Connection refused (os error 111)): start it";
        assert!(errors.contains(away), "{errors}");
    }

    #[test]
    fn who_cannot_be_reached_is_nearer_elsewhere_or_has_not_started() {
        for (condition, why, remedy) in [
            (Condition::Silent, "connecting and the login took longer than 300ms: it is silent", "closer"),
            (Condition::Silent, "it does not answer the TLS handshake", "write `redis://`"),
            (Condition::Unreachable, "Connection refused (os error 111)", "start it"),
        ] {
            assert!(remedy_here(condition, why).contains(remedy), "{why}");
        }
    }

    #[test]
    fn a_wrong_file_shows_every_error_and_exits_78() {
        let (code, out, errors) = checked("wrong", "workrs = 2\nadmin = 1", ALONE);
        assert_eq!((code, out.as_str()), (78, ""));
        let expected = "error: unknown key `workrs` in the configuration\n --> FILE:1:1\n  |\n1 | workrs = 2\n  | ^^^^^^ did you mean `workers`?\n\n\
                    error: `admin` must be a table, not an integer\n --> FILE:2:9\n  |\n2 | admin = 1\n  |         ^ \
                    write `admin = { … }` with the keys that differ from their defaults\n\n\
                    FILE: 2 errors\n";
        assert_eq!(errors, expected);
    }

    #[test]
    fn errors_in_the_text_and_in_named_files_are_reported_together() {
        let text = "workrs = 2\n[redis]\nurl = \"rediss://a\"\nca = \"absent.pem\"\n\
                    [auth.a]\nkind = \"api-key\"\nkeys = { file = \"absent.toml\" }\n\
                    [auth.b]\nkind = \"jwt\"\nsecret = \"short\"\nalgorithms = [\"HS256\"]\n\
                    [upstream.u]\nservers = [\"https://a\"]\ntls = { ca = \"absent.pem\" }\n\
                    [[route]]\npath = \"/{\"\nto = \"u\"";
        let (code, _, errors) = checked("all", text, ALONE);
        assert_eq!(code, 78);
        for place in ["1:1", "4:6", "7:8", "10:10", "14:14", "16:8"] {
            assert!(errors.contains(&format!("--> FILE:{place}\n")), "{place} is missing from\n{errors}");
        }
        assert!(errors.contains("hash-key --new --consumer NAME >> /"), "{errors}");
        assert!(errors.contains("/absent.toml`"), "{errors}");
        assert!(errors.ends_with("FILE: 6 errors\n"), "{errors}");
    }

    #[test]
    fn a_file_of_keys_that_cannot_be_meant_draws_a_warning() {
        let keys = std::env::temp_dir().join(format!("sluicegate-check-{}-keys.toml", std::process::id()));
        let name = keys.display();
        let text = format!(
            "[auth.a]\nkind = \"api-key\"\nkeys = {{ file = \"{name}\" }}\n\
             [auth.b]\nkind = \"anonymous\"\ntier = \"por\"\n[tier.pro]\nlimit = \"9/s\"\n"
        );
        let entry = |tier| {
            let digest = auth::keys::written(b"a key");
            format!("[[key]]\ndigest = \"{digest}\"\nconsumer = \"ann\"\ntier = \"{tier}\"\n")
        };
        for (held, said) in [
            (String::new(), format!("{name} is empty: every client is refused\n --> FILE:3:8\n")),
            (entry("prp"), format!("{name}:4: {}\n --> FILE:3:8\n", config::NO_SUCH_TIER)),
            (entry("pro"), String::new()),
        ] {
            std::fs::write(&keys, &held).expect("the temporary directory is writable");
            let (code, _, errors) = checked("keys", &text, ALONE);
            assert_eq!(code, 0, "{errors}");
            assert!(errors.contains(&said), "{errors}");
            assert!(errors.contains(&format!("{}\n --> FILE:6:8\n", config::NO_SUCH_TIER)), "{errors}");
            let hints = errors.matches("did you mean `pro`?").count();
            assert_eq!(hints, 1 + usize::from(held.contains("prp")), "{errors}");
            assert!(!errors.contains("prp"), "what stands in a file of keys is not quoted: {errors}");
        }
        std::fs::write(&keys, "ann:$apr1$x$y=\n").expect("the temporary directory is writable");
        let (_, _, errors) = checked("keys", &text, ALONE);
        assert!(
            errors.contains(&format!("{name} is not a TOML file of keys or users\n --> FILE:3:8\n")),
            "{errors}"
        );
        assert!(errors.contains("as `sluicegate hash-key --new --consumer NAME` prints it"), "{errors}");
        std::fs::remove_file(&keys).expect("it was made above");
    }

    #[test]
    fn warnings_stay_out_of_the_effective_configuration() {
        let (code, out, errors) = checked("effective", "[admin]\ntoken = \"hunter2\"", EFFECTIVE);
        assert_eq!(code, 0);
        assert!(errors.starts_with("warning: `token` is written in plain text\n"), "{errors}");
        let filled = out.replace(config::MASK, "hunter3");
        assert_eq!(checked("again", &filled, EFFECTIVE).1, out);
        assert!(!out.contains("hunter2") && !errors.contains("hunter2"));
    }
}
