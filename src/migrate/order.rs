//! Rules of which the first that fits decides, brought to routes of which the most specific one does.

use super::draft::{Draft, Route};

/// Adds routes that were rules in this order. One that an earlier rule leaves nothing to is left out, as it never was
/// reached. For requests of an earlier rule that a more specific, later one would take now, the earlier one gets a route
/// of its own that is more specific still.
pub(super) fn add_in_order(draft: &mut Draft, rules: Vec<(Route, String)>) {
    let mut placed: Vec<(usize, Route)> = Vec::new();
    for (rank, (route, what)) in rules.into_iter().enumerate() {
        if let Some((_, first)) = placed.iter().find(|(_, first)| covers(first, &route)) {
            let why = format!("it was never reached: `{}` takes these requests before it", first.path);
            draft.notes.left_out(&route.place, &what, why);
            continue;
        }
        draft.add_route(route.clone(), &what);
        keep_earlier(draft, &mut placed, rank, &route, &what);
        placed.push((rank, route));
    }
}

/// Adds a route for what every earlier rule shares with a later one that goes before it now.
fn keep_earlier(draft: &mut Draft, placed: &mut Vec<(usize, Route)>, rank: usize, later: &Route, what: &str) {
    let earlier: Vec<(usize, Route)> = placed.iter().filter(|(other, _)| *other < rank).cloned().collect();
    for (other, first) in earlier.into_iter().filter(|(_, first)| overtakes(later, first)) {
        if placed.len() >= ROUTES_MAX {
            let why = format!(
                "requests that `{}` takes too come here now, because this is more specific",
                first.path
            );
            draft.notes.differs(&later.place, what, why);
            return;
        }
        let shared = shared(&first, later);
        let is_known = placed
            .iter()
            .any(|(before, known)| *before <= other && covers(known, &shared) && known.ties(&shared));
        if is_known || draft.routes.iter().any(|known| known.ties(&shared)) {
            continue;
        }
        draft.add_route(shared.clone(), what);
        keep_earlier(draft, placed, other, &shared, what);
        placed.push((other, shared));
    }
}

/// The requests that two routes share, with what the first one does.
fn shared(first: &Route, later: &Route) -> Route {
    let mut shared = first.clone();
    shared.name.clear();
    if covers_hosts(&first.hosts, &later.hosts) {
        shared.hosts.clone_from(&later.hosts);
    }
    if covers_path(&first.path, &later.path) {
        shared.path.clone_from(&later.path);
    }
    if first.methods.is_empty() {
        shared.methods.clone_from(&later.methods);
    } else if !later.methods.is_empty() {
        shared.methods.retain(|method| later.methods.contains(method));
    }
    let more = later.headers.iter().filter(|(name, _)| !first.headers.iter().any(|(known, _)| known == name));
    shared.headers.extend(more.cloned().collect::<Vec<_>>());
    shared
}

/// Whether every request of `other` is one of `route`.
fn covers(route: &Route, other: &Route) -> bool {
    let methods = route.methods.is_empty()
        || !other.methods.is_empty() && other.methods.iter().all(|method| route.methods.contains(method));
    let headers = route.headers.iter().all(|asked| {
        other.headers.iter().any(|(name, value)| *name == asked.0 && (asked.1.is_none() || *value == asked.1))
    });
    methods && headers && covers_hosts(&route.hosts, &other.hosts) && covers_path(&route.path, &other.path)
}

/// Whether some request is for both, and goes to the later one although the earlier one was asked first.
fn overtakes(later: &Route, earlier: &Route) -> bool {
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
    let covers = |host: &String, other: &String| {
        host == other || host.strip_prefix('*').is_some_and(|end| other.ends_with(end) && !end.is_empty())
    };
    hosts.is_empty()
        || !others.is_empty() && others.iter().all(|other| hosts.iter().any(|host| covers(host, other)))
}

/// Whether every path of one pattern is one of another.
pub(super) fn covers_path(path: &str, other: &str) -> bool {
    match path.strip_suffix("{*rest}") {
        Some(begin) => {
            format!("{}/", other.trim_end_matches("{*rest}").trim_end_matches('/')).starts_with(begin)
        }
        None => path.trim_end_matches('/') == other.trim_end_matches('/'),
    }
}

/// Rules that overlap in every way would make as many routes as there are sets of them.
const ROUTES_MAX: usize = 1_000;
