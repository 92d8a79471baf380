//! The report of a replay as one page: tables, and charts in SVG. It has no script, loads nothing, and escapes every value.

use std::fmt::Write;

use super::text::{
    OF_WHICH, counted, date, minute_shown, notes, notes_of_log, overflowed, share, title, worst_minute,
};
use base::words;
use policy::response::body::push_html;
use replay::report::{
    CallerReport, DifferencesReport, LogReport, MinuteReport, PolicyReport, ReplayReport, WorldReport,
};

pub fn page(report: &ReplayReport) -> String {
    let mut page = String::from(HEAD);
    page += "<h1>Replay</h1>\n";
    report.logs.iter().for_each(|log| page += &read(log));
    if let Some((first, last)) = report.first.zip(report.last) {
        let _ = writeln!(
            page,
            "<p>{} from {} to {}, {} of them answered 429; {}.</p>",
            counted(report.candidate.requests, "request", "requests"),
            date(first),
            date(last),
            report.answered_429,
            nodes(report)
        );
    }
    page += &world("Candidate", &report.candidate);
    if let (Some(against), Some(differences)) = (&report.against, &report.differences) {
        page += &differing(differences);
        page += &world("Against", against);
    }
    page + "</body>\n</html>\n"
}

fn nodes(report: &ReplayReport) -> String {
    match (report.nodes, report.candidate.fleet) {
        (1, _) => "one node".to_owned(),
        (nodes, true) => format!("{nodes} nodes, spread by {}, share limits", report.spread),
        (nodes, false) => format!("{nodes} nodes, spread by {}, each counts on its own", report.spread),
    }
}

fn read(log: &LogReport) -> String {
    let lines = counted(log.lines, "line", "lines");
    let mut notes = vec![lines, log.format.unwrap_or("unknown format").to_owned()];
    if log.unreadable > 0 {
        notes.push(format!("{} unreadable", log.unreadable));
    }
    notes.extend(notes_of_log(log));
    notes.extend(log.ended_early.iter().map(|why| format!("ended early: {}", escaped(why))));
    format!("<p><b>{}</b>: {}</p>\n", escaped(&log.name), notes.join("; "))
}

fn world(title: &str, world: &WorldReport) -> String {
    let mut page = format!(
        "<h2>{title}</h2>\n<p>{} admitted, <b>{} denied</b> ({} of all requests), {} without a limit, {} matching no route, {} \
         before limits.</p>\n",
        world.admitted,
        world.denied,
        share(world.denied, world.requests),
        world.unlimited,
        world.no_route,
        world.before_limits
    );
    if world.overflow_decisions > 0 {
        let _ = writeln!(page, "<p>{}.</p>", overflowed(world.overflow_decisions));
    }
    page += &over_time(&world.minutes);
    if let Some(minute) = &world.worst_minute {
        let _ = writeln!(page, "<p>The worst minute: {}.</p>", worst_minute(minute));
    }
    let _ = write!(page, "<table>\n<caption>{OF_WHICH}</caption>\n");
    page += "<tr><th>Policy<th>Limit<th>By<th>Admitted<th>Denied<th>Share<th><th>Keys<th>Hit<th>Worst minute</tr>\n";
    world.policies.iter().for_each(|policy| page += &row(policy));
    page += "</table>\n";
    world.policies.iter().for_each(|policy| page += &details(policy));
    page
}

fn row(policy: &PolicyReport) -> String {
    let refused = policy.refused();
    let about = if policy.keys_exact { "" } else { "~" };
    format!(
        "<tr><td>{}<td>{}<td>{}<td class=n>{}<td class=n>{refused}<td class=n>{}<td>{}<td class=n>{about}{}<td class=n>{about}{}<td>{}</tr>\n",
        escaped(&title(policy)),
        escaped(&policy.limit),
        escaped(&policy.by.join(", ")),
        policy.admitted,
        share(refused, policy.admitted + refused),
        bar(refused, policy.admitted + refused),
        policy.keys,
        policy.keys_denied,
        policy.worst_minute.as_ref().map_or("-".to_owned(), minute_shown),
    )
}

fn details(policy: &PolicyReport) -> String {
    let notes = notes(policy);
    if policy.worst_callers.is_empty() && notes.is_empty() {
        return String::new();
    }
    let notes: String = notes.iter().map(|note| format!("<p>{}</p>\n", escaped(note))).collect();
    format!("<h3>{}</h3>\n{notes}{}", escaped(&policy.policy), callers(&policy.worst_callers))
}

fn differing(differences: &DifferencesReport) -> String {
    let mut page = format!(
        "<h2>Differences</h2>\n<p><b>{}</b> denied by --config alone, <b>{}</b> by --against alone, {} by both, {} by neither.</p>\n",
        differences.newly_denied, differences.newly_admitted, differences.both_deny, differences.both_admit
    );
    if !differences.routes.is_empty() {
        page += "<table>\n<tr><th>Route<th>Newly denied<th>Newly admitted</tr>\n";
        for route in &differences.routes {
            let _ = writeln!(
                page,
                "<tr><td>{}<td class=n>{}<td class=n>{}</tr>",
                escaped(&route.route),
                route.newly_denied,
                route.newly_admitted
            );
        }
        page += "</table>\n";
    }
    for (title, who) in [
        ("Newly denied", &differences.newly_denied_callers),
        ("Newly admitted", &differences.newly_admitted_callers),
    ] {
        if !who.is_empty() {
            let _ = write!(page, "<h3>{title}</h3>\n{}", callers(who));
        }
    }
    page
}

/// Who was met most, with a bar for each.
fn callers(callers: &[CallerReport]) -> String {
    let most = callers.first().map_or(0, |caller| caller.count);
    let row = |it: &CallerReport| {
        format!("<tr><td>{}<td class=n>{}<td>{}</tr>\n", escaped(&it.caller), it.count, bar(it.count, most))
    };
    let rows: String = callers.iter().map(row).collect();
    if rows.is_empty() { rows } else { format!("<table>\n{rows}</table>\n") }
}

/// A part of a whole as a bar.
fn bar(part: u64, whole: u64) -> String {
    let width = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * BAR_WIDTH };
    format!(
        "<svg width=\"{BAR_WIDTH}\" height=\"10\" role=\"img\"><rect class=w width=\"{BAR_WIDTH}\" height=\"10\"/><rect class=d width=\"{width:.1}\" height=\"10\"/></svg>"
    )
}

/// Requests and refusals over time: columns of equal length, each of one or several minutes.
fn over_time(minutes: &[MinuteReport]) -> String {
    let Some((first, last)) = minutes.first().zip(minutes.last()) else { return String::new() };
    let minutes_each = ((last.begins - first.begins) / 60 + 1).div_ceil(COLUMNS_MAX);
    let columns = ((last.begins - first.begins) / 60 / minutes_each + 1) as usize;
    let mut counts = vec![(0u64, 0u64); columns];
    for minute in minutes {
        let column = &mut counts[((minute.begins - first.begins) / 60 / minutes_each) as usize];
        (column.0, column.1) = (column.0 + minute.requests, column.1 + minute.denied);
    }
    let most = counts.iter().map(|(requests, _)| *requests).max().unwrap_or(0).max(1);
    let width = CHART_WIDTH / columns as f64;
    let mut chart = format!(
        "<svg class=chart viewBox=\"0 0 {CHART_WIDTH} {}\" role=\"img\" aria-label=\"requests and refusals over time\">\n",
        CHART_HEIGHT + 20.0
    );
    for (column, (requests, denied)) in counts.iter().enumerate().filter(|(_, (requests, _))| *requests > 0) {
        let begins = first.begins + column as u64 * minutes_each * 60;
        let x = column as f64 * width;
        let height = |count: u64| count as f64 / most as f64 * CHART_HEIGHT;
        let (all, refused) = (height(*requests), height(*denied));
        let _ = writeln!(
            chart,
            "<g><title>{}: {denied} of {requests}</title><rect class=a x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{all:.1}\"/><rect class=d x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{refused:.1}\"/></g>",
            date(begins),
            CHART_HEIGHT - all,
            CHART_HEIGHT - refused
        );
    }
    let _ = write!(
        chart,
        "<text x=\"0\" y=\"{0}\">{1}</text><text x=\"{CHART_WIDTH}\" y=\"{0}\" text-anchor=\"end\">{2}</text>\n</svg>\n<p class=key><span class=a></span> requests <span class=d></span> denied; a column is {minutes_each} min, the highest {most} requests</p>\n",
        CHART_HEIGHT + 15.0,
        date(first.begins),
        date(last.begins)
    );
    chart
}

/// Text that may stand anywhere in a page.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    push_html(&words::plain(text), &mut escaped);
    escaped
}

const CHART_WIDTH: f64 = 960.0;
const CHART_HEIGHT: f64 = 160.0;
const BAR_WIDTH: f64 = 120.0;
/// Columns of a chart.
const COLUMNS_MAX: u64 = 480;
const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<title>Replay</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #d7dce1; vertical-align: top }
td { overflow-wrap: anywhere }
.n { text-align: right; font-variant-numeric: tabular-nums }
.chart { width: 100%; font-size: 11px }
rect.a, span.a { fill: #9db4c8; background: #9db4c8 }
rect.d, span.d { fill: #c2410c; background: #c2410c }
rect.w { fill: #e6eaee }
.key span { display: inline-block; width: .8em; height: .8em }
@media (prefers-color-scheme: dark) { body { color: #e6eaee; background: #14181d } th, td { border-color: #39424c } rect.w { fill: #39424c } svg text { fill: #e6eaee } }
</style>
</head>
<body>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_breaks_out_of_its_place() {
        assert_eq!(
            escaped("<a href='x'>&\"\u{1b}\u{202e}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn a_chart_has_a_bounded_number_of_columns() {
        let minute = |minute: u64| MinuteReport { begins: minute * 60, requests: 10, denied: 1 };
        let chart = over_time(&(0..40_000).map(minute).collect::<Vec<_>>());
        assert_eq!(chart.matches("<g>").count(), 40_000usize.div_ceil(84));
        assert!(chart.contains("a column is 84 min, the highest 840 requests"), "{chart}");
        assert_eq!(over_time(&[]), "");
        let alone = over_time(&[minute(5)]);
        assert!(alone.contains("1970-01-01 00:05 UTC: 1 of 10") && alone.matches("<g>").count() == 1);
    }
}
