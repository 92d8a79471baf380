//! Rules of which the first that fits decides, brought to routes of which the most specific one does.

use super::draft::{Draft, Route, shape};

/// Adds routes that were rules in this order. One that an earlier rule leaves nothing to is left out, because it never
/// was reached. For requests of an earlier rule that a more specific, later one would take now, the earlier one gets a
/// route of its own that is more specific still.
pub(super) fn add_in_order(draft: &mut Draft, rules: Vec<(Route, String)>) {
    let mut placed: RankedRoutes = Vec::new();
    let shown: Vec<String> = rules.iter().map(|(_, what)| what.clone()).collect();
    for (rank, (route, what)) in rules.into_iter().enumerate() {
        if let Some((before, first)) = placed.iter().find(|(_, first)| covers(first, &route)) {
            // Nothing to say of an alternative of the same rule.
            if first.place != route.place || shown[*before] != what {
                let why = format!("it is never reached: `{}` takes its requests first", first.path);
                draft.notes.left_out(&route.place, &what, why);
            }
            continue;
        }
        for part in beside(&placed, route) {
            place(draft, &mut placed, (rank, part), &what, overtakes);
        }
    }
}

/// What the routes before it leave of a route that shares hosts or methods with them.
fn beside(placed: &RankedRoutes, route: Route) -> Vec<Route> {
    let mut parts = vec![route];
    for (_, first) in placed {
        let rest = |part: Route| {
            if !first.ties(&part) || !covers_fields(first, &part) {
                return vec![part];
            }
            let (mut hosts, mut methods) = (part.clone(), part);
            hosts.hosts.retain(|host| !first.hosts.contains(host));
            methods.hosts.retain(|host| first.hosts.contains(host));
            methods.methods.retain(|method| !first.methods.contains(method));
            let hosts = Some(hosts).filter(|part| !part.hosts.is_empty());
            hosts.into_iter().chain(Some(methods).filter(|part| !part.methods.is_empty())).collect()
        };
        parts = parts.into_iter().flat_map(rest).collect();
    }
    parts
}

/// Adds routes whose order decides only where they ask for different fields, all of which a request may have.
pub(super) fn add_by_fields(draft: &mut Draft, routes: Vec<(Route, String)>) {
    let mut placed: RankedRoutes = Vec::new();
    for (rank, (route, what)) in routes.into_iter().enumerate() {
        place(draft, &mut placed, (rank, route), &what, |later, first| first.meets(later));
    }
}

/// Routes that were added, each with the rank of the rule that it is of.
type RankedRoutes = Vec<(usize, Route)>;

/// Adds a route, and routes for what it shares with those that go before it or after it by their ranks alone.
fn place(
    draft: &mut Draft,
    placed: &mut RankedRoutes,
    (rank, mut route): (usize, Route),
    what: &str,
    goes_before: fn(&Route, &Route) -> bool,
) {
    if !can_be_told(placed, &route) {
        let why = "headers cannot separate its requests from those of earlier rules: it is closed (501) for all headers";
        draft.notes.left_out(&route.place, what, why);
        route.headers.clear();
        route.close();
        draft.routes.iter_mut().filter(|known| known.ties(&route)).for_each(Route::close);
    }
    draft.add_route(route.clone(), what);
    let earlier = placed.iter().filter(|(other, first)| *other < rank && goes_before(&route, first));
    let later = placed.iter().filter(|(other, last)| *other >= rank && route.meets(last));
    let mut both: Vec<(usize, Route, String)> = Vec::new();
    both.extend(
        earlier.filter_map(|(other, first)| Some((*other, shared(first, &route)?, first.path.clone()))),
    );
    both.extend(later.filter_map(|(_, last)| Some((rank, shared(&route, last)?, route.path.clone()))));
    for (rank, shared, first) in both {
        if placed.len() >= ROUTES_MAX {
            too_many(draft, &mut route, what, &first, &shared);
            break;
        }
        let is_known = placed
            .iter()
            .any(|(before, known)| *before <= rank && covers(known, &shared) && known.ties(&shared));
        if is_known || draft.routes.iter().any(|known| known.ties(&shared) && !known.meets(&shared)) {
            continue;
        }
        place(draft, placed, (rank, shared), what, goes_before);
    }
    placed.push((rank, route));
}

/// Whether routes can say which of a request's fields decides: not if one asks for a value where an earlier route asks
/// for another part of the same field, nor where there would be too many sets of fields.
fn can_be_told(placed: &RankedRoutes, route: &Route) -> bool {
    let is_unclear = |first: &Route| first.ties(route) && !first.meets(route) && !covers_fields(first, route);
    let has_fields =
        |first: &Route| !first.headers.is_empty() && first.path == route.path && first.hosts == route.hosts;
    let sets = placed.iter().filter(|(_, first)| has_fields(first)).count();
    !placed.iter().any(|(_, first)| is_unclear(first)) && (sets == 0 || placed.len() + sets < ROUTES_MAX)
}

/// Says that an earlier rule, `first`, has no route for what it shares with a later one. If it may refuse requests, the
/// later one is closed.
fn too_many(draft: &mut Draft, later: &mut Route, what: &str, first: &str, shared: &Route) {
    let forwards = |(key, _): &(&str, String)| !REFUSING.contains(key);
    if shared.limits.is_empty() && shared.keys.iter().all(forwards) {
        let why =
            format!("requests that `{first}` also matches go to this route now, because it is more specific");
        return draft.notes.differs(&later.place, what, why);
    }
    let why = format!(
        "requests that `{first}` matches first would go to this route, because it is more specific: it is closed (501)"
    );
    draft.notes.left_out(&later.place, what, why);
    let same = |known: &&mut Route| known.ties(later) && !known.meets(later);
    draft.routes.iter_mut().filter(same).for_each(Route::close);
    later.close();
}

/// As [`both`], with the fields that either asks for.
pub(super) fn shared(first: &Route, later: &Route) -> Option<Route> {
    let mut shared = both(first, later)?;
    let more = later.headers.iter().filter(|(name, _)| !first.headers.iter().any(|(known, _)| known == name));
    shared.headers.extend(more.cloned());
    Some(shared)
}

/// The requests that two routes share, with what the first one does; `None` if they share none. Of the second one fields
/// do not count.
pub(super) fn both(first: &Route, second: &Route) -> Option<Route> {
    let mut both = first.clone();
    both.name.clear();
    both.path = match (covers_path(&first.path, &second.path), covers_path(&second.path, &first.path)) {
        (true, _) => second.path.clone(),
        (false, true) => first.path.clone(),
        (false, false) if shape(&first.path) == shape(&second.path) => first.path.clone(),
        (false, false) => return None,
    };
    let narrower = |one: &[String], other: &[String]| -> Vec<String> {
        let is_in = |host: &&String| {
            other.iter().any(|wider| covers_hosts(std::slice::from_ref(wider), std::slice::from_ref(*host)))
        };
        one.iter().filter(is_in).cloned().collect()
    };
    if first.hosts.is_empty() {
        both.hosts.clone_from(&second.hosts);
    } else if !second.hosts.is_empty() {
        both.hosts = narrower(&first.hosts, &second.hosts);
        let more = narrower(&second.hosts, &first.hosts);
        both.hosts.extend(more.into_iter().filter(|host| !first.hosts.contains(host)));
    }
    if first.methods.is_empty() {
        both.methods.clone_from(&second.methods);
    } else if !second.methods.is_empty() {
        both.methods.retain(|method| second.methods.contains(method));
    }
    let is_none = |first: &[String], both: &[String]| !first.is_empty() && both.is_empty();
    (!is_none(&first.hosts, &both.hosts) && !is_none(&first.methods, &both.methods)).then_some(both)
}

/// Whether every request of `other` is one of `route`.
pub(super) fn covers(route: &Route, other: &Route) -> bool {
    let methods = route.methods.is_empty()
        || !other.methods.is_empty() && other.methods.iter().all(|method| route.methods.contains(method));
    methods
        && covers_fields(route, other)
        && covers_hosts(&route.hosts, &other.hosts)
        && covers_path(&route.path, &other.path)
}

/// Whether every request with the fields of `other` has those of `route`.
fn covers_fields(route: &Route, other: &Route) -> bool {
    route.headers.iter().all(|asked| {
        other.headers.iter().any(|(name, value)| *name == asked.0 && (asked.1.is_none() || *value == asked.1))
    })
}

/// Whether some request is for both, and goes to the later one although the earlier one was asked first.
fn overtakes(later: &Route, earlier: &Route) -> bool {
    if earlier.meets(later) {
        return true;
    }
    let hosts = covers_hosts(&earlier.hosts, &later.hosts) || covers_hosts(&later.hosts, &earlier.hosts);
    let paths = covers_path(&earlier.path, &later.path) || covers_path(&later.path, &earlier.path);
    let methods = later.methods.is_empty()
        || earlier.methods.is_empty()
        || later.methods.iter().any(|method| earlier.methods.contains(method));
    if !hosts || !paths || !methods || later.contradicts(earlier) {
        return false;
    }
    let by_host = covers_hosts(&earlier.hosts, &later.hosts);
    let by_path = covers_path(&earlier.path, &later.path);
    match (same(&later.hosts, &earlier.hosts), later.path == earlier.path) {
        (false, _) => by_host,
        (true, false) => by_path,
        (true, true) => match (later.methods.is_empty(), earlier.methods.is_empty()) {
            (false, true) => true,
            (true, false) => false,
            _ => later.headers.len() > earlier.headers.len(),
        },
    }
}

fn same(left: &[String], right: &[String]) -> bool {
    covers_hosts(left, right) && covers_hosts(right, left)
}

fn covers_hosts(hosts: &[String], others: &[String]) -> bool {
    hosts.is_empty()
        || !others.is_empty() && others.iter().all(|other| hosts.iter().any(|host| covers_host(host, other)))
}

/// Whether every request for one host, or what a wildcard means, is one of another.
pub(super) fn covers_host(host: &str, other: &str) -> bool {
    host == other || host.strip_prefix('*').is_some_and(|end| other.ends_with(end) && !end.is_empty())
}

/// Whether every path of one pattern is one of another.
pub(super) fn covers_path(path: &str, other: &str) -> bool {
    match path.strip_suffix("{*rest}") {
        Some(begin) => match other.strip_suffix("{*rest}") {
            Some(other) => other.starts_with(begin),
            None => format!("{}/", other.trim_end_matches('/')).starts_with(begin),
        },
        None => path.trim_end_matches('/') == other.trim_end_matches('/'),
    }
}

/// Keys of routes by which requests may be refused, or not forwarded.
const REFUSING: &[&str] = &["respond", "redirect", "allow", "deny", "auth", "require", "max-body"];
/// Rules that overlap in every way would make as many routes as there are sets of them.
const ROUTES_MAX: usize = 1_000;
