//! The report of a replay as people read it.

use std::fmt::Write;

use crate::columns::aligned;
use base::words::plain;
use replay::report::{
    CallerReport, DifferencesReport, LogReport, MinuteReport, PolicyReport, ReplayReport, WorldReport,
};

pub fn shown(report: &ReplayReport) -> String {
    let mut text = String::new();
    for log in &report.logs {
        text += &read(log);
    }
    text += &played(report);
    text += &world(&report.candidate);
    if let (Some(against), Some(differences)) = (&report.against, &report.differences) {
        text += &format!("\nagainst: {}", world(against));
        text += &differing(differences);
    }
    text
}

/// What was read of a log: `access.log: 1000000 lines (sluicegate)`, and what was wrong with them.
pub fn read(log: &LogReport) -> String {
    let format = log.format.unwrap_or("unknown format");
    let mut text = format!("{}: {} ({format})\n", plain(&log.name), counted(log.lines, "line", "lines"));
    for note in notes_of_log(log) {
        let _ = writeln!(text, "  {note}");
    }
    if log.unreadable > 0 {
        let _ = writeln!(text, "  {} that cannot be read:", log.unreadable);
    }
    for example in &log.examples {
        let _ = writeln!(text, "    line {}: {}", example.line, example.why);
    }
    if let Some(why) = &log.ended_early {
        let _ = writeln!(text, "  it ended early: {}", plain(why));
    }
    text
}

/// What is said of a log's lines beside those that are none.
pub fn notes_of_log(log: &LogReport) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: u64, one: &str, many: &str, what: &str| {
        if count > 0 {
            notes.push(format!("{}{what}", counted(count, one, many)));
        }
    };
    note(log.without_request, "line", "lines", " without a request");
    note(log.late, "line", "lines", " out of order, played at the time of the lines around");
    note(log.strays, "line", "lines", " with an implausible time, played at the time of the lines around");
    note(log.set_back, "time", "times", " the log's clock jumped back; the replay's clock does not");
    note(log.pauses, "pause", "pauses", " of more than an hour");
    if log.newest_first {
        notes.push(
            "the log is newest first: reverse it (`tac`), otherwise most lines are played at a wrong time"
                .to_owned(),
        );
    }
    notes
}

/// `1000000 requests from … to …, 12 of them answered 429; over 3 nodes, …`
fn played(report: &ReplayReport) -> String {
    let Some((first, last)) = report.first.zip(report.last) else { return "no requests\n".to_owned() };
    let requests = report.candidate.requests;
    let mut text = format!(
        "{} from {} to {}, {} of them answered 429\n",
        counted(requests, "request", "requests"),
        date(first),
        date(last),
        report.answered_429
    );
    if report.no_host > 0 && report.candidate.no_route > 0 {
        let _ =
            writeln!(text, "{} without a host: no route with `host` takes them; see --host", report.no_host);
    }
    if report.candidate.no_address > 0 {
        let _ = writeln!(
            text,
            "{} without a client address: all count as one client",
            report.candidate.no_address
        );
    }
    if report.candidate.overflow_decisions > 0 {
        let _ = writeln!(text, "{}", overflowed(report.candidate.overflow_decisions));
    }
    if report.nodes > 1 {
        let how = match report.candidate.fleet {
            true => "which share limits through leases; Redis answers at once",
            false => "each counts on its own, because there is no [redis]",
        };
        let _ = writeln!(text, "over {} nodes, spread by {}, {how}", report.nodes, report.spread);
    }
    text
}

fn world(world: &WorldReport) -> String {
    let share = share(world.denied, world.requests);
    let mut text =
        format!("{} admitted, {} denied ({share} of all requests)\n", world.admitted, world.denied);
    let others = [
        (world.unlimited, "on routes without a limit"),
        (world.no_route, "matching no route"),
        (world.before_limits, "refused or answered before limits are checked"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let others = others.collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        text += &format!("in addition: {others}\n");
    }
    if let Some(minute) = &world.worst_minute {
        text += &format!("the worst minute: {}\n", worst_minute(minute));
    }
    text += "\n";
    if world.policies.is_empty() {
        return text + "the configuration has no policies\n";
    }
    text += OF_WHICH;
    text.push('\n');
    let headings = ["POLICY", "LIMIT", "BY", "ADMITTED", "DENIED", "SHARE", "KEYS", "HIT", "WORST MINUTE"];
    let rows = world.policies.iter().map(row);
    text += &aligned([headings.map(str::to_owned).to_vec()].into_iter().chain(rows).collect());
    for policy in &world.policies {
        text += &details(policy);
    }
    text
}

/// The table of limits was full.
pub fn overflowed(decisions: u64) -> String {
    format!(
        "{} on a bucket that several keys shared, because the table of keys was full: raise `memory` of [limits], \
         otherwise clients are refused for each other's requests",
        counted(decisions, "decision", "decisions")
    )
}

/// A policy's name, and what it is.
pub fn title(policy: &PolicyReport) -> String {
    match (&policy.replaces, policy.shadow) {
        (Some(of), _) => format!("{} (for {of})", policy.policy),
        (None, true) => format!("{} (shadow)", policy.policy),
        (None, false) => policy.policy.clone(),
    }
}

fn row(policy: &PolicyReport) -> Vec<String> {
    let refused = policy.refused();
    let about = if policy.keys_exact { "" } else { "~" };
    vec![
        plain(&title(policy)),
        policy.limit.clone(),
        if policy.by.is_empty() { "-".to_owned() } else { policy.by.join(", ") },
        policy.admitted.to_string(),
        refused.to_string(),
        share(refused, policy.admitted + refused),
        format!("{about}{}", policy.keys),
        format!("{about}{}", policy.keys_denied),
        policy.worst_minute.as_ref().map_or("-".to_owned(), minute_shown),
    ]
}

/// Who was refused most, and what is not known.
fn details(policy: &PolicyReport) -> String {
    let notes = notes(policy);
    if policy.worst_callers.is_empty() && notes.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", plain(&policy.policy));
    for note in notes {
        text += &format!("  {note}\n");
    }
    text + &callers(&policy.worst_callers, policy.worst_callers_error)
}

/// What is not known of a policy's requests, and what refused them but its windows.
pub fn notes(policy: &PolicyReport) -> Vec<String> {
    let lacking = policy.no_value.iter();
    let mut notes: Vec<String> =
        lacking.map(|it| format!("{} had no value for {}", lines(it.requests), it.dimension)).collect();
    let mut note = |count: u64, before: &str, one: &str, many: &str| {
        if count > 0 {
            notes.push(format!("{before}{} {}", lines(count), if count == 1 { one } else { many }));
        }
    };
    note(policy.unknown_costs, "the costs of ", "are not in the log", "are not in the log");
    note(policy.no_duration, "", "has no duration", "have no duration");
    note(policy.penalised, "", "was refused by its penalty", "were refused by its penalty");
    note(
        policy.missing,
        "",
        "was refused because it lacks a dimension",
        "were refused because they lack a dimension",
    );
    notes
}

fn callers(callers: &[CallerReport], error: u64) -> String {
    let about = if error > 0 { format!(", or up to {error} more") } else { String::new() };
    let rows =
        callers.iter().map(|it| vec![format!("  {}", it.count), format!("{}{about}", plain(&it.caller))]);
    aligned(rows.collect())
}

fn differing(differences: &DifferencesReport) -> String {
    let mut text = format!(
        "\ndifferences\n  {} denied by --config alone\n  {} denied by --against alone\n  {} denied by both\n  {} denied by \
         neither\n",
        differences.newly_denied, differences.newly_admitted, differences.both_deny, differences.both_admit
    );
    if !differences.routes.is_empty() {
        let headings = ["  ROUTE", "NEWLY DENIED", "NEWLY ADMITTED"].map(str::to_owned).to_vec();
        let rows = differences.routes.iter().map(|route| {
            let name = if route.route.is_empty() { "-" } else { &route.route };
            vec![
                format!("  {}", plain(name)),
                route.newly_denied.to_string(),
                route.newly_admitted.to_string(),
            ]
        });
        text += &format!("\n{}", aligned([headings].into_iter().chain(rows).collect()));
    }
    for (what, who) in [
        ("newly denied", &differences.newly_denied_callers),
        ("newly admitted", &differences.newly_admitted_callers),
    ] {
        if !who.is_empty() {
            text += &format!("\n{what}\n{}", callers(who, 0));
        }
    }
    text
}

/// `2026-11-20 10:07 UTC, 120 of its 600 requests denied`
pub fn worst_minute(minute: &MinuteReport) -> String {
    let requests = counted(minute.requests, "request", "requests");
    format!("{}, {} of its {requests} denied", date(minute.begins), minute.denied)
}

/// `2026-11-20 10:07 UTC, 120 of 600`
pub fn minute_shown(minute: &MinuteReport) -> String {
    format!("{}, {} of {}", date(minute.begins), minute.denied, minute.requests)
}

/// What a policy's shares are of, because another policy, or none, decides about the other requests.
pub const OF_WHICH: &str = "of the requests that each policy decided:";

/// Seconds since 1970 as `2026-11-20 10:07 UTC`.
pub fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|it| time::OffsetDateTime::from_unix_timestamp(it).ok());
    let Some(time) = time else { return "-".to_owned() };
    format!("{} {:02}:{:02} UTC", time.date(), time.hour(), time.minute())
}

/// A part of a whole in percent.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.2}%", part as f64 * 100.0 / whole as f64)
}

fn lines(count: u64) -> String {
    counted(count, "line", "lines")
}

/// A number with what it counts.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
