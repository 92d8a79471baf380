//! What a configuration would have done with the requests of an access log.
//!
//! Lines of logs become requests (`format`, one file a format), are brought into the order of their times (`logs`,
//! `order`), and are played through the gateway's own routing and limiter, whose clock is the log's (`world`). What came of
//! it is counted in bounded memory (`outcome_counts`, `tally`) and handed out as one report. It reads no clock and prints nothing.
//!
//! Nothing that a line does not say is guessed: what a policy counts by and lines do not have is counted and reported.

mod differences;
mod fleet_simulation;
pub mod format;
mod logs;
mod minutes;
mod options;
mod order;
mod outcome_counts;
mod redis;
pub mod report;
pub mod request;
mod source;
pub mod suggest;
mod tally;

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use config::LoadedConfig;
use differences::{Caller, Differences};
use fleet_simulation::Simulation;
use logs::{Logs, ScheduledRequest};
pub use options::{Options, Spread};
use report::ReplayReport;
pub use source::Unreadable;

/// Plays logs through a configuration, and through another one that it is compared with.
///
/// # Errors
/// If a log cannot be read.
pub fn replay(
    options: &Options,
    candidate: LoadedConfig,
    against: Option<LoadedConfig>,
) -> Result<ReplayReport, Unreadable> {
    let mut logs = Logs::open(options)?;
    let mut candidate = Simulation::new(candidate, options.nodes);
    let mut other = against.map(|loaded| (Simulation::new(loaded, options.nodes), Differences::default()));
    while let Some(ScheduledRequest { turn, request, .. }) = logs.request() {
        let node = match options.spread {
            Spread::Turns => ((logs.span().requests - 1) % u64::from(options.nodes)) as usize,
            Spread::Address => (hash(&Caller::address_of(&request)) % u64::from(options.nodes)) as usize,
        };
        let outcome = candidate.play(&request, turn, node);
        if let Some((other, differences)) = &mut other {
            let before = other.play(&request, turn, node);
            let route = || candidate.route_of(&request).unwrap_or_default().to_owned();
            differences.add(&request, candidate.naming(), outcome, before, route);
        }
    }
    Ok(ReplayReport::new(options, logs.read(), &logs.span(), &candidate, other.as_ref()))
}

/// The same in each replay, so that the same log is spread alike.
fn hash(value: &impl Hash) -> u64 {
    let mut state = SipHasher13::new();
    value.hash(&mut state);
    state.finish()
}

#[cfg(test)]
mod tests;
