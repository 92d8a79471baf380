//! Errors in definitions, with index and key, so that `config` can point at the line. It knows no files.

use super::matching::domain::definition::DomainId;
use super::matching::{domain, host, pattern};
use super::route::RouteId;
use super::template;
use limit::PolicyId;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Error {
    pub place: DefinitionPlace,
    /// The key of the definition as gateway.toml spells it: `limit[1]`, `response-headers.set`. Numbers are indices into
    /// the definition's lists.
    pub key: String,
    pub problem: DefinitionProblem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionPlace {
    Route(RouteId),
    Policy(PolicyId),
    Domain(DomainId),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionProblem {
    #[error("the name is empty")]
    EmptyName,
    #[error("the name `{name}` is used twice")]
    DuplicateName { name: String, other: usize },
    #[error(transparent)]
    Host(#[from] host::Error),
    #[error(
        "a header condition matches one exact value; write `host = \"*.example.com\"` on the route itself"
    )]
    HostWildcard,
    #[error(transparent)]
    Pattern(#[from] pattern::Error),
    #[error(transparent)]
    Template(#[from] template::Error),
    #[error("the route needs two values of `{name}` at once, so it never matches; leave one out")]
    HeaderNeverMatches { name: String },
    #[error(
        "the routes `{name}` and `{other_name}` match the same requests, and neither is more specific; {}",
        remedy(*.method_any)
    )]
    Tie {
        name: String,
        other: usize,
        other_name: String,
        /// Neither lists methods.
        method_any: bool,
    },
    #[error("no policy is called `{name}`")]
    UnknownPolicy { name: String },
    #[error("a policy cannot replace itself")]
    ReplacesItself,
    #[error(
        "`{name}` is itself a candidate, of `{replaces}`; write `replaces = \"{replaces}\"`, or finish that trial first"
    )]
    CandidateOfCandidate { name: String, replaces: String },
    #[error("`{name}` has the candidate `{other}` already; try one after the other")]
    TwoCandidates { name: String, other: String },
    #[error(
        "a candidate must count by the dimensions of `{name}`, in their order; leave `by` out, or try other \
         dimensions as a separate policy with `shadow = true`"
    )]
    CandidateCountsBy { name: String },
    #[error("a candidate in shadow never refuses, so it has no `rollout`; leave `rollout` or `shadow` out")]
    RolloutOfShadow,
    #[error(
        "`{name}` replaces `{replaces}`; name only `{replaces}`, and `{name}` is checked for the same requests"
    )]
    RouteNamesCandidate { name: String, replaces: String },
    #[error("the policy `{name}` is named twice; it would be charged twice")]
    PolicyTwice { name: String },
    #[error("no upstream is called `{name}`")]
    UnknownUpstream { name: String },
    #[error("the route names the upstream `{name}` twice; give it one weight")]
    UpstreamTwice { name: String },
    #[error("`{name}` is an upstream of this route; mirror to another upstream")]
    MirrorIsUpstream { name: String },
    #[error("all weights are 0; give one of the upstreams a `weight` from 1")]
    NoWeight,
    #[error("the route's path has no parameter `{name}`")]
    ParamNotInPath { name: String },
    #[error("no `[auth.<name>]` is called `{name}`")]
    UnknownAuth { name: String },
    #[error("`{name}` frames messages, so only the gateway may set it")]
    FramingHeader { name: String },
    #[error("no route with this policy has a parameter `{name}` in its path: write one like `/{{{name}}}`")]
    ParamNowhere { name: String },
    #[error("`by` names the dimension twice: name it once")]
    DimensionTwice,
    #[error(
        "a request that costs {cost} units is never admitted by a window of {capacity}; lower the cost or raise the limit or burst"
    )]
    CostAboveCapacity {
        cost: u64,
        /// Units that the smallest window holds: its burst, or its limit if it has no bucket.
        capacity: u64,
    },
    #[error("another rule sets the cost of the same requests; leave one out")]
    CostTwice { other: usize },
    #[error(
        "`{name}` counts by `{dimension}`, and only descriptors have entries: count by `consumer`, `ip` or a \
         header on routes, and map entries to it by `dimensions` in the rule of `[rls]`"
    )]
    EntryOnRoute { name: String, dimension: String },
    #[error("a rule needs `entries`; write `entries = {{ remote_address = \"*\" }}`")]
    NoEntries,
    #[error(
        "more than {max} entries need a fixed order: write `entries = [{{ a = \"*\" }}, {{ b = \"*\" }}]`"
    )]
    UnorderedEntries { max: usize },
    #[error("another rule matches the same descriptors; leave one out")]
    RuleTwice { other: usize },
    #[error("`{name}` is the rule's own name; a rule cannot replace itself")]
    InsteadOfItself { name: String },
    #[error("no rule of this domain has the name `{name}`{hint}")]
    UnknownRule { name: String, hint: String },
    #[error(transparent)]
    Given(#[from] domain::descriptor_template::Error),
    #[error("the rule has no entry `{key}`{hint}")]
    UnknownEntry { key: String, hint: String },
    #[error("`{policy}` counts by `entry:{key}`, and the rule has no entry `{key}`{hint}")]
    EntryNotInRule { policy: String, key: String, hint: String },
    #[error(
        "`{policy}` counts by `{dimension}`, to which the rule maps no entry; write which entry holds it, for example \
         `dimensions = {{ consumer = \"{{user_id}}\" }}`"
    )]
    DimensionNotGiven { policy: String, dimension: String },
    #[error("no policy of the rule counts by `{dimension}`")]
    GivenInVain { dimension: String },
    #[error(
        "`{name}` counts requests in flight or lets them wait, which a descriptor cannot: its check is answered \
         yes or no at once, and the proxy does not report when its request ends"
    )]
    EndlessDescriptor { name: String },
    #[error("there are more than {max} {what}")]
    TooMany { what: &'static str, max: usize },
}

fn remedy(method_any: bool) -> &'static str {
    if method_any {
        "give one of them another host, path, `methods`, or one more header"
    } else {
        "give one of them another host, path or method, or one more header"
    }
}
