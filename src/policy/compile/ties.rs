//! Routes between which a request could not choose.
//!
//! Two routes of one leaf tie where some request satisfies both, neither is more specific by its method or number of
//! headers, and no third route is more specific for all those requests.

use std::collections::{HashMap, HashSet};

use http::HeaderName;

use super::errors::CompileErrors;
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::matching::tree::Tree;
use crate::route::{HeaderMatch, Route};

/// Reports each route that ties with an earlier one, once.
pub(super) fn check(tree: &mut Tree, routes: &[Option<Route>], errors: &mut CompileErrors) {
    let mut reported = HashSet::new();
    for leaf in tree.leaves() {
        let leaf: Vec<&Route> = leaf.iter().filter_map(|id| routes[id.index()].as_ref()).collect();
        let mut earlier = EarlierRoutes::default();
        for (position, later) in leaf.iter().enumerate() {
            let tied = earlier.may_tie(later).into_iter().map(|position| leaf[position]).find(|earlier| {
                ties(earlier, later) && !leaf.iter().any(|third| resolves(third, earlier, later))
            });
            earlier.add(position, later);
            let Some(earlier) = tied else { continue };
            if reported.insert(later.id) {
                let problem = DefinitionProblem::Tie {
                    name: later.name.to_string(),
                    other: earlier.id.index(),
                    other_name: earlier.name.to_string(),
                    method_any: later.methods.is_any(),
                };
                errors.at(DefinitionPlace::Route(later.id)).add("path", problem);
            }
        }
    }
}

/// The routes of a leaf so far, by the headers they ask for, so that of many that differ in the value of one header
/// none need be compared with all others.
#[derive(Default)]
struct EarlierRoutes<'r> {
    groups: Vec<HeaderGroup<'r>>,
}

struct HeaderGroup<'r> {
    names: Names<'r>,
    routes: Vec<usize>,
    /// Those by the values they ask for, in the order of the names.
    by_values: HashMap<Values<'r>, Vec<usize>>,
}

/// Each header, and whether its value is asked for; sorted.
type Names<'r> = Vec<(&'r HeaderName, bool)>;

/// The values, in the order of the names.
type Values<'r> = Vec<Option<&'r [u8]>>;

impl<'r> EarlierRoutes<'r> {
    fn add(&mut self, position: usize, route: &'r Route) {
        let (names, values) = headers_of(route);
        let group = match self.groups.iter().position(|group| group.names == names) {
            Some(group) => &mut self.groups[group],
            None => {
                self.groups.push(HeaderGroup { names, routes: Vec::new(), by_values: HashMap::new() });
                self.groups.last_mut().expect("one was pushed")
            }
        };
        group.routes.push(position);
        group.by_values.entry(values).or_default().push(position);
    }

    /// Positions of those that a route may tie with, in their order.
    fn may_tie(&self, route: &Route) -> Vec<usize> {
        let (names, values) = headers_of(route);
        let mut found = Vec::new();
        for group in &self.groups {
            // Where two ask for the same headers, only the same values count, because no request satisfies both
            // otherwise.
            let routes = match group.names == names {
                true => group.by_values.get(&values),
                false => Some(&group.routes).filter(|_| group.names.len() == names.len()),
            };
            found.extend(routes.into_iter().flatten().copied());
        }
        found.sort_unstable();
        found
    }
}

/// The headers a route asks for, and their values, sorted by name.
fn headers_of(route: &Route) -> (Names<'_>, Values<'_>) {
    let mut headers: Vec<&HeaderMatch> = route.headers.iter().collect();
    headers.sort_by(|left, right| left.name.as_str().cmp(right.name.as_str()));
    headers.iter().map(|header| ((&header.name, header.value.is_some()), header.value.as_deref())).unzip()
}

fn ties(left: &Route, right: &Route) -> bool {
    let agree = |header: &HeaderMatch| right.headers.iter().all(|other| header.agrees_with(other));
    left.headers.len() == right.headers.len()
        && left.methods.ties(&right.methods)
        && left.headers.iter().all(agree)
}

/// Whether `third` answers every request over which the other two tie.
fn resolves(third: &Route, left: &Route, right: &Route) -> bool {
    let asked = || left.headers.iter().chain(&right.headers);
    third.headers.len() > left.headers.len()
        && third.methods.covers(&left.methods, &right.methods)
        && third.headers.iter().all(|header| asked().any(|asked| header.follows_from(asked)))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::super::{CompileOptions, plant, routes};
    use super::*;
    use crate::definition;
    use crate::error::DefinitionPlace;

    /// A route of the one path that asks for some of three headers, with one of two values or any.
    fn route() -> impl Strategy<Value = definition::RouteDefinition> {
        let asked = prop::sample::select(vec![None, Some(None), Some(Some("1")), Some(Some("2"))]);
        let methods = prop::sample::subsequence(vec![Method::GET, Method::HEAD, Method::PUT], 0..=2);
        (prop::array::uniform3(asked), methods).prop_map(|(asked, methods)| {
            let headers = ["x-a", "x-b", "x-c"].into_iter().zip(asked).filter_map(|(name, asked)| {
                let value = asked?.map(str::to_owned);
                Some(definition::HeaderMatchDefinition { name: HeaderName::from_static(name), value })
            });
            let headers = headers.collect();
            definition::RouteDefinition {
                headers,
                methods,
                ..definition::RouteDefinition::new(String::new(), "/".to_owned())
            }
        })
    }

    proptest! {
        #[test]
        fn the_ties_are_those_that_comparing_every_pair_finds(mut written in prop::collection::vec(route(), 0..12)) {
            for (route, number) in written.iter_mut().zip(0..) {
                route.name = format!("r{number}");
            }
            let options = CompileOptions { salt: [0; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
            let mut errors = CompileErrors::default();
            let compiled = routes::compile(&written, &[], &options, &mut errors);
            let (_, mut tree) = plant(&compiled);
            check(&mut tree, &compiled, &mut errors);
            let found: Vec<_> = errors.found.into_iter().map(|error| (error.place, error.problem)).collect();

            let all: Vec<&Route> = compiled.iter().flatten().collect();
            let expected = all.iter().enumerate().filter_map(|(position, later)| {
                let tied = |earlier: &&&Route| {
                    ties(earlier, later) && !all.iter().any(|third| resolves(third, earlier, later))
                };
                let earlier = all[..position].iter().find(tied)?;
                let problem = DefinitionProblem::Tie {
                    name: later.name.to_string(),
                    other: earlier.id.index(),
                    other_name: earlier.name.to_string(),
                    method_any: later.methods.is_any(),
                };
                Some((DefinitionPlace::Route(later.id), problem))
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
