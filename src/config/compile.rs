//! Compiles routes and policies into their table, and reports at its place what is wrong with them only together, such as
//! two routes that tie.
//!
//! The table's keys are not salted here: the process that serves requests has its own salt ([`RouteTable::salted`]).

use base::words::did_you_mean;
use policy::definition::PolicyDefinition;
use policy::error::{DefinitionPlace, DefinitionProblem, Error};
use policy::table::translated;
use policy::{CompileOptions, RouteTable};

use super::load::report::{DefinitionSpans, Finding, Subject, error_in, quoted};
use super::settings::Config;

/// Compiles the routes and policies of a configuration.
///
/// # Errors
/// Everything that is wrong with them. If parts of the configuration could not be read, only errors that do not depend on
/// other parts: a route may name just the policy that could not be read.
pub(super) fn compile(
    config: &Config,
    places: &DefinitionSpans,
    could_not_be_read: bool,
) -> Result<RouteTable, Vec<Finding>> {
    let is_worth_telling = |error: &&Error| {
        !could_not_be_read
            || match dependence(&error.problem) {
                Prerequisite::None => true,
                Prerequisite::Definition => !places.is_flawed(subject(error.place)),
                Prerequisite::Others => false,
            }
    };
    table(config).map_err(|errors| {
        let errors = errors.iter().filter(is_worth_telling);
        errors.map(|error| finding(config, error, places)).collect()
    })
}

fn subject(place: DefinitionPlace) -> Subject {
    match place {
        DefinitionPlace::Route(route) => Subject::Route(route.index()),
        DefinitionPlace::Policy(policy) => Subject::Policy(policy.index()),
        DefinitionPlace::Domain(domain) => Subject::Domain(domain.index()),
    }
}

fn table(config: &Config) -> Result<RouteTable, Vec<Error>> {
    let upstreams: Vec<String> = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
    let auth: Vec<String> = config.auth.iter().map(|auth| auth.name.clone()).collect();
    let ipv6_prefix = config.client_ip.ipv6_prefix;
    let options = CompileOptions { salt: [0; 16], ipv6_prefix, upstreams: &upstreams, auth: &auth };
    let hashed: Vec<_> = config.upstreams.iter().map(|upstream| upstream.balance.dimension()).collect();
    let table = RouteTable::with_domains(&config.routes, &config.policies, &config.domains, &options)?;
    Ok(translated(table.hashed(&hashed, ipv6_prefix), &config.client_ip.nat64))
}

/// What must have been read without error for a problem to be real, rather than a consequence of another error.
enum Prerequisite {
    None,
    /// The rest of its definition: defaults replace values that could not be read.
    Definition,
    Others,
}

fn dependence(problem: &DefinitionProblem) -> Prerequisite {
    match problem {
        DefinitionProblem::EmptyName
        | DefinitionProblem::HostWildcard
        | DefinitionProblem::Pattern(_)
        | DefinitionProblem::HeaderNeverMatches { .. }
        | DefinitionProblem::FramingHeader { .. }
        | DefinitionProblem::NoWeight
        | DefinitionProblem::CostAboveCapacity { .. }
        | DefinitionProblem::CostTwice { .. }
        | DefinitionProblem::ReplacesItself
        | DefinitionProblem::RolloutOfShadow
        | DefinitionProblem::UnorderedEntries { .. }
        | DefinitionProblem::InsteadOfItself { .. }
        | DefinitionProblem::Given(_)
        | DefinitionProblem::TooMany { .. } => Prerequisite::None,
        // The whole definition, because indices count only what could be read, and templates name parameters of the
        // path.
        DefinitionProblem::Host(_)
        | DefinitionProblem::Template(_)
        | DefinitionProblem::DimensionTwice
        | DefinitionProblem::NoEntries
        | DefinitionProblem::RuleTwice { .. }
        | DefinitionProblem::UnknownRule { .. }
        | DefinitionProblem::UnknownEntry { .. }
        | DefinitionProblem::ParamNotInPath { .. } => Prerequisite::Definition,
        // Whatever concerns several definitions.
        _ => Prerequisite::Others,
    }
}

fn finding(config: &Config, error: &Error, places: &DefinitionSpans) -> Finding {
    let Error { place, key, problem } = error;
    let subject = subject(*place);
    let other = match (subject, problem) {
        (
            Subject::Route(_),
            DefinitionProblem::Tie { other, .. } | DefinitionProblem::DuplicateName { other, .. },
        ) => Some(Subject::Route(*other)),
        (Subject::Policy(_), DefinitionProblem::DuplicateName { other, .. }) => Some(Subject::Policy(*other)),
        (Subject::Domain(_), DefinitionProblem::DuplicateName { other, .. }) => Some(Subject::Domain(*other)),
        (Subject::Domain(_), DefinitionProblem::RuleTwice { .. }) => Some(subject),
        _ => None,
    };
    let other_key = match problem {
        DefinitionProblem::RuleTwice { other } => format!("descriptors[{other}].entries"),
        _ => key.clone(),
    };
    let hint = match (subject, problem) {
        (Subject::Policy(index), DefinitionProblem::CostAboveCapacity { capacity, .. }) => {
            config.policies.get(index).map(|policy| of_tier(policy, *capacity)).unwrap_or_default()
        }
        (_, DefinitionProblem::UnknownPolicy { name }) => {
            // Without the policy that names it.
            let others = config.policies.iter().enumerate().filter(|(it, _)| subject != Subject::Policy(*it));
            let names: Vec<&str> = others.map(|(_, policy)| policy.name.as_str()).collect();
            did_you_mean(name, &names).unwrap_or_else(|| "write the name of a `[policy.<name>]`".to_owned())
        }
        _ => String::new(),
    };
    let said = problem.to_string();
    // What to do stands last, and not within what is quoted.
    let parts = said.rsplit_once("; ").filter(|(what, _)| what.matches('`').count() % 2 == 0);
    let (what, hint) = parts.filter(|_| hint.is_empty()).unwrap_or((&said, &hint));
    let finding = error_in(config, places, subject, key, what, hint);
    match other.and_then(|other| places.find(other, &other_key)) {
        Some(place) => finding.beside(place, "the other"),
        None => finding,
    }
}

/// Says whose window holds no more than this if the policy's windows depend on the tier, because it may stand
/// elsewhere.
fn of_tier(policy: &PolicyDefinition, capacity: u64) -> String {
    let smallest = policy.windows.iter().position(|window| window.capacity() == capacity);
    let Some(part) = smallest.and_then(|window| policy.part_of(window)) else { return String::new() };
    let from = part.origin.sentence().map(|from| format!(", {from}")).unwrap_or_default();
    format!("the limit of the tier {}{from}", quoted(&part.name))
}
