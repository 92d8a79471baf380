//! `sluicegate suggest`: limits that fit an access log, as a part of a gateway.toml.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::bail;

use super::check::EXIT_CONFIG;
use super::replay::{self, Logs, text};
use ::replay::suggest::{Error, FitReport, SuggestOptions, SuggestedWindow, Suggestion, suggest};
use base::units;
use policy::counting::shorthand;
use policy::definition::Dimension;

/// Which logs, and what for. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    logs: Logs,
    /// What counts as a client: dimensions as in a policy's `by`, such as "consumer" or "ip, route"; can be repeated.
    /// Default: "ip" and "consumer"
    #[arg(long, value_name = "DIMENSIONS", value_parser = by)]
    by: Vec<By>,
    /// Separate limits for each route of the configuration
    #[arg(long)]
    per_route: bool,
    /// About how many clients each window may refuse at least once, as a share
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = units::share_ppm)]
    refuse: u32,
}

#[derive(Clone, Debug)]
struct By(Vec<Dimension>);

fn by(text: &str) -> Result<By, String> {
    let limit = shorthand::parse(&format!("1/s by {text}"))
        .map_err(|shorthand::Error { problem, .. }| format!("{problem}: {}", problem.hint()))?;
    Ok(By(limit.by))
}

/// Prints a part of a gateway.toml on `out` and returns the exit code: 0, 1 if nothing can be read, 3 if a log ended
/// early or has no line that can be read, or [`EXIT_CONFIG`].
pub fn run(
    arguments: &Arguments,
    config: &Path,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    let by: Vec<Vec<Dimension>> = match arguments.by.is_empty() {
        true => vec![vec![Dimension::Ip], vec![Dimension::Consumer]],
        false => arguments.by.iter().map(|by| by.0.clone()).collect(),
    };
    let is_of_routes = |by: &Dimension| matches!(by, Dimension::Route | Dimension::Param(_));
    let routes = match arguments.per_route || by.iter().flatten().any(is_of_routes) {
        false => None,
        true => match config::load(config) {
            Ok(loaded) => Some(loaded.config),
            Err(found) => {
                writeln!(errors, "{found}")?;
                return Ok(EXIT_CONFIG);
            }
        },
    };
    let options = match arguments.logs.options() {
        Ok(options) => options,
        Err(why) => bail!(why),
    };
    let asked = SuggestOptions { by, per_route: arguments.per_route, refuse_ppm: arguments.refuse };
    let suggested = match suggest(&options, &asked, routes) {
        Ok(suggested) => suggested,
        Err(Error::Routes(found)) => {
            writeln!(errors, "{found}")?;
            return Ok(EXIT_CONFIG);
        }
        Err(Error::Log(error)) => return Err(error.into()),
    };
    if !replay::is_readable(&suggested.logs, errors)? {
        return Ok(1);
    }
    out.write_all(shown(&suggested, arguments.refuse).as_bytes())?;
    Ok(replay::exit_code(&suggested.logs, errors)?)
}

fn shown(suggested: &FitReport, refuse_ppm: u32) -> String {
    let mut shown = String::new();
    for log in &suggested.logs {
        text::read(log).lines().for_each(|line| _ = writeln!(shown, "# {line}"));
    }
    let _ = writeln!(
        shown,
        "# {} over {}; each window is chosen to refuse about {} of the keys",
        requests(suggested.requests),
        span(suggested.span_ns),
        units::show_share(refuse_ppm)
    );
    if suggested.span_ns < SPAN_NS_MIN {
        shown += "# this log is too short to suggest limits from: use one of a day or more\n";
    }
    if suggested.left_out > 0 {
        let _ = writeln!(
            shown,
            "# {} of keys beyond the first million are not counted",
            requests(suggested.left_out)
        );
    }
    let mut names = Vec::new();
    for suggestion in &suggested.policies {
        shown += &policy(suggestion, &mut names);
    }
    shown
}

fn policy(suggestion: &Suggestion, names: &mut Vec<String>) -> String {
    let by: Vec<String> = suggestion.by.iter().map(ToString::to_string).collect();
    let who = if by.is_empty() { "no dimension".to_owned() } else { by.join(", ") };
    let mut shown = "\n".to_owned();
    if let Some(route) = &suggestion.route {
        let _ = writeln!(shown, "# route {}", base::words::plain(route));
    }
    if suggestion.lacking > 0 {
        let _ = writeln!(shown, "# {} without a value for {who}", requests(suggestion.lacking));
    }
    if suggestion.windows.is_empty() {
        return shown;
    }
    let _ = write!(
        shown,
        "# {} of {} by {who}; these windows refuse {}{} of the keys ({}) and ",
        requests(suggestion.requests),
        text::counted(suggestion.callers, "key", "keys"),
        if suggestion.refused_requests.is_some() { "" } else { "about " },
        suggestion.refused,
        text::share(suggestion.refused, suggestion.callers)
    );
    let _ = match suggestion.refused_requests {
        Some(refused) => {
            writeln!(shown, "{refused} of the requests ({})", text::share(refused, suggestion.requests))
        }
        None => writeln!(shown, "an unknown number of the requests: standard input cannot be read twice"),
    };
    let name = name(suggestion.route.as_deref(), &by, names);
    let by: Vec<String> = by.iter().map(|by| toml::Value::from(by.as_str()).to_string()).collect();
    let windows: Vec<String> = suggestion.windows.iter().map(window).collect();
    let _ = writeln!(shown, "[policy.{name}]\nby = [{}]\nlimit = [{}]", by.join(", "), windows.join(", "));
    let _ = writeln!(shown, "algorithm = \"sliding-window\"");
    let may_lack = |by: &Dimension| {
        !matches!(by, Dimension::Ip | Dimension::Route | Dimension::Method | Dimension::Param(_))
    };
    if suggestion.by.iter().any(may_lack) {
        let _ = writeln!(shown, "missing = \"skip\"");
    }
    shown
}

fn span(span_ns: u64) -> String {
    let seconds = span_ns / 1_000_000_000;
    match seconds {
        ..120 => text::counted(seconds, "second", "seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200.. => format!("{:.1} hours", span_ns as f64 / 3.6e12),
    }
}

fn requests(count: u64) -> String {
    text::counted(count, "request", "requests")
}

/// A name for the policy that no other one has, of letters that need no quotation marks.
fn name(route: Option<&str>, by: &[String], names: &mut Vec<String>) -> String {
    let who = if by.is_empty() { "all".to_owned() } else { by.join("-") };
    let words = route.map_or_else(|| format!("suggested-{who}"), |route| format!("suggested-{route}-{who}"));
    let plain = |one: char| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '-' };
    let mut name: String = words.chars().map(plain).take(NAME_CHARS_MAX).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name = name.trim_end_matches('-').to_owned();
    let mut unique = name.clone();
    let mut number = 1;
    while names.contains(&unique) {
        number += 1;
        unique = format!("{name}-{number}");
    }
    names.push(unique.clone());
    unique
}

fn window(window: &SuggestedWindow) -> String {
    let unit = match window.period_s {
        1 => "s",
        60 => "m",
        3_600 => "h",
        _ => "d",
    };
    format!("\"{}/{unit}\"", window.limit)
}

/// A log shorter than an hour says little about the requests of a day.
const SPAN_NS_MIN: u64 = 3_600_000_000_000;
const NAME_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_said_in_a_unit_that_fits() {
        let said = |seconds: u64| span(seconds * 1_000_000_000);
        assert_eq!([0, 1, 100].map(said), ["0 seconds", "1 second", "100 seconds"]);
        assert_eq!(
            [120, 7_199, 7_200, 100_000].map(said),
            ["2 minutes", "119 minutes", "2.0 hours", "27.8 hours"]
        );
    }
}
