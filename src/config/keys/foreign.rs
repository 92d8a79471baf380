//! Keys that people bring along from other programs: section, words in lower case with `-`, key and hint, in `foreign.txt`.

use super::policy::POLICY;
use super::process::{LIMITS, ROOT};
use super::route::ROUTE;

/// The key that is meant by another in the section with this heading, and what to write.
pub(crate) fn foreign_key(heading: &str, key: &str) -> Option<(&'static str, &'static str)> {
    let key = key.to_ascii_lowercase().replace('_', "-");
    if heading == ROOT.heading && ROUTE.key(&key).is_some() {
        return Some(("route", "it is a key of a route: write `[[route]]` above it"));
    }
    if [ROUTE.heading, LIMITS.heading].contains(&heading) && POLICY.key(&key).is_some() {
        return Some((
            "limit",
            "it is a key of a policy: write it in `[policy.NAME]`, and `limit = \"NAME\"` at the route",
        ));
    }
    include_str!("foreign.txt").lines().find_map(|line| {
        let (words, rest) = line.strip_prefix(heading)?.strip_prefix(" | ")?.split_once(" | ")?;
        words.split(' ').any(|word| word == key).then(|| rest.split_once(" | ")).flatten()
    })
}
