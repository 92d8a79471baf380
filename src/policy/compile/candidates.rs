//! Candidates beside the policies that they are to replace, and every mistake in that. Without candidates it does nothing.

use std::collections::HashMap;

use super::errors::CompileErrors;
use crate::counting::Policy;
use crate::counting::candidate::CandidateOf;
use crate::definition;
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::route::RouteId;
use limit::{PolicyId, Trial};

/// Joins each candidate with its policy.
pub(super) fn join(
    definitions: &[definition::PolicyDefinition],
    routes: &[definition::RouteDefinition],
    policies: &mut [Option<Policy>],
    errors: &mut CompileErrors,
) {
    if definitions.iter().all(|policy| policy.replaces.is_none()) {
        return;
    }
    let by_name: HashMap<&str, PolicyId> =
        definitions.iter().map(|policy| policy.name.as_str()).zip((0..).map(PolicyId::new)).collect();
    let mut candidates: HashMap<PolicyId, PolicyId> = HashMap::new();
    for (policy, id) in definitions.iter().zip((0..).map(PolicyId::new)) {
        let errors = &mut errors.at(DefinitionPlace::Policy(id));
        let Some(replaces) = &policy.replaces else { continue };
        match replaced(id, definitions, &by_name, &candidates) {
            Err(problem) => errors.add("replaces", problem),
            Ok(replaced) => {
                candidates.insert(replaced, id);
                link(policies, (id, replaced), replaces);
            }
        }
        if policy.shadow && replaces.rollout_ppm > 0 {
            errors.add("rollout", DefinitionProblem::RolloutOfShadow);
        }
    }
    check_routes(definitions, routes, (&by_name, &candidates), errors);
}

fn replaced(
    id: PolicyId,
    definitions: &[definition::PolicyDefinition],
    by_name: &HashMap<&str, PolicyId>,
    candidates: &HashMap<PolicyId, PolicyId>,
) -> Result<PolicyId, DefinitionProblem> {
    let candidate = &definitions[id.index()];
    let name = candidate.replaces.as_ref().map_or("", |replaces| replaces.policy.as_str());
    let Some(&replaced) = by_name.get(name) else {
        return Err(DefinitionProblem::UnknownPolicy { name: name.to_owned() });
    };
    if replaced == id {
        return Err(DefinitionProblem::ReplacesItself);
    }
    let live = &definitions[replaced.index()];
    if let Some(other) = &live.replaces {
        return Err(DefinitionProblem::CandidateOfCandidate {
            name: name.to_owned(),
            replaces: other.policy.clone(),
        });
    }
    if let Some(other) = candidates.get(&replaced) {
        let other = definitions[other.index()].name.clone();
        return Err(DefinitionProblem::TwoCandidates { name: name.to_owned(), other });
    }
    if candidate.by != live.by {
        return Err(DefinitionProblem::CandidateCountsBy { name: name.to_owned() });
    }
    Ok(replaced)
}

fn link(
    policies: &mut [Option<Policy>],
    (candidate, replaced): (PolicyId, PolicyId),
    replaces: &definition::CandidateDefinition,
) {
    let is_compiled = |policy: PolicyId| policies[policy.index()].is_some();
    let (has_candidate, has_replaced) = (is_compiled(candidate), is_compiled(replaced));
    if let Some(policy) = policies[candidate.index()].as_mut().filter(|_| has_replaced) {
        let of = (replaced, replaces.policy.as_str());
        policy.replaces = Some(Box::new(CandidateOf::new(&policy.name, of, replaces.rollout_ppm)));
    }
    if let Some(policy) = policies[replaced.index()].as_mut().filter(|_| has_candidate) {
        policy.tried = Some(candidate);
    }
}

/// A route names the policies in force, and not so many that are tried, because a request could not tell more of them
/// apart.
fn check_routes(
    definitions: &[definition::PolicyDefinition],
    routes: &[definition::RouteDefinition],
    (by_name, candidates): (&HashMap<&str, PolicyId>, &HashMap<PolicyId, PolicyId>),
    errors: &mut CompileErrors,
) {
    for (route, id) in routes.iter().zip((0..).map(RouteId::new)) {
        let (mut tried, errors) = (0, &mut errors.at(DefinitionPlace::Route(id)));
        for (number, name) in route.limits.iter().enumerate() {
            let Some(policy) = by_name.get(name.as_str()) else { continue };
            let replaces = definitions[policy.index()].replaces.as_ref();
            // Another finding tells of one that replaces no policy.
            if let Some(replaces) = replaces.filter(|it| by_name.contains_key(it.policy.as_str())) {
                let problem = DefinitionProblem::RouteNamesCandidate {
                    name: name.clone(),
                    replaces: replaces.policy.clone(),
                };
                errors.add(format!("limit[{number}]"), problem);
            }
            tried += usize::from(candidates.contains_key(policy));
            if tried == Trial::MAX + 1 {
                let problem = DefinitionProblem::TooMany {
                    what: "policies of one route that have a candidate",
                    max: Trial::MAX,
                };
                errors.add(format!("limit[{number}]"), problem);
            }
        }
    }
}

pub(super) fn with_candidates<'p>(
    own: &'p [PolicyId],
    policies: &'p [Policy],
) -> impl Iterator<Item = &'p Policy> {
    own.iter().flat_map(|id| {
        let policy = &policies[id.index()];
        [Some(policy), policy.tried.map(|tried| &policies[tried.index()])].into_iter().flatten()
    })
}
