//! What endpoints need to ask and change counts, as `app` fills it in.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::refusal::AdminRefusal;
use super::state::Asked;
use crate::database::Time;
use base::words;
use limit::Quota;
use metrics::hot_keys;
use policy::definition::Dimension;
use policy::nat64::Nat64;
use policy::{Holder, Policy, SubjectValues};

#[derive(derive_more::Debug)]
#[debug("LimitCounts({takes_time})")]
pub struct LimitCounts {
    /// Decides checks, as requests are decided; if the second part is true, all of them are charged or none. Answers a
    /// verdict for each.
    pub check: Asked<(Vec<CheckQuestion>, bool), Vec<CheckVerdict>>,
    /// Whether a check may say at which time it is decided.
    pub takes_time: bool,
    /// What a consumer or a tenant has spent, a page of policies by name.
    pub usage: Asked<UsageQuestion, Vec<PolicyUsage>>,
    /// Carries over in Redis what a grant leaves spent.
    pub grant: Asked<UnitGrant, GrantOutcome>,
    /// Whether a policy of this name is in force, and counts by this dimension.
    pub counts_by: CountsBy,
    /// The translators whose clients count by their IPv4 addresses.
    pub nat64: Box<dyn Fn() -> Nat64 + Send + Sync>,
    /// Whether a consumer, of a tenant if one is named, or the tenant is `blocked` or `unlimited`, and by which override.
    pub standing: StandingReader,
    /// The names that are in force.
    pub names: Box<dyn Fn() -> NamesInForce + Send + Sync>,
    /// Says which keys use most of each policy. `None`: they are not watched.
    pub hot_keys: Option<Asked<hot_keys::HotKeyFilter, HotKeysShown>>,
}

pub type CountsBy = Box<dyn Fn(&str, &Dimension) -> bool + Send + Sync>;
pub type StandingReader = Box<dyn Fn(&str, Option<&str>) -> Vec<(&'static str, String)> + Send + Sync>;

impl LimitCounts {
    /// Refuses a name that is not in force, because it would be answered with nothing, which looks like an answer.
    pub(in crate::admin) fn must_know(
        &self,
        policy: Option<&str>,
        tier: Option<&str>,
    ) -> Result<(), AdminRefusal> {
        if policy.is_none() && tier.is_none() {
            return Ok(());
        }
        let names = (self.names)();
        for (kind, name, known) in [("policy", policy, &names.policies), ("tier", tier, &names.tiers)] {
            let is_unknown = |name: &&str| known.binary_search_by(|other| other.as_str().cmp(name)).is_err();
            if let Some(name) = name.filter(is_unknown) {
                return Err(AdminRefusal::UnknownName(words::unknown(kind, name, known)));
            }
        }
        Ok(())
    }

    /// Why a policy has no count of a holder: it is not in force, or does not count `by` that.
    pub(in crate::admin) fn uncounted(&self, policy: &str, by: &str) -> String {
        let policies = (self.names)().policies;
        match policies.iter().any(|known| known == policy) {
            true => format!("the policy `{policy}` does not count by {by}"),
            false => words::unknown("policy", policy, &policies),
        }
    }
}

/// Names that are in force, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesInForce {
    pub policies: Vec<String>,
    /// Tiers that a policy has windows for.
    pub tiers: Vec<String>,
}

/// The keys that use most of each policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotKeysShown {
    /// Whether there is the policy that was asked about.
    pub is_known: bool,
    pub own: Vec<hot_keys::HotKeyReport>,
    /// The names of their shards.
    pub shards: BTreeMap<hot_keys::ShardNumber, String>,
    /// How many nodes have told of the minutes that are over, and their keys together; `None`: there is no fleet, or Redis
    /// does not answer.
    pub fleet: Option<(usize, Vec<hot_keys::FleetRow>)>,
}

/// A question what has been spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuestion {
    pub holder: Holder,
    /// The only policy that is asked about.
    pub policy: Option<String>,
    /// The tenant that a consumer acts for.
    pub tenant: Option<String>,
    /// The tier that a credential would name.
    pub tier: Option<String>,
    /// By the name of a policy the window that it was last seen to decide about the holder by: its tier, if nothing else
    /// says which.
    pub seen: BTreeMap<String, SeenWindow>,
    /// Policies whose names come behind this one.
    pub after: Option<String>,
    pub limit: usize,
}

/// A window that was seen to decide about a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWindow {
    /// Its name in `RateLimit`.
    pub label: String,
    /// The day on which the holder's own months begin.
    pub anchor: Option<u64>,
}

/// How much of one policy has been used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PolicyUsage {
    /// The policy's name.
    pub policy: String,
    /// What it counts by.
    pub by: Vec<String>,
    /// Whether it is counted and never refuses.
    #[serde(rename = "shadow")]
    pub is_shadow: bool,
    /// The policy that it is a candidate for.
    pub replaces: Option<String>,
    /// The tier whose windows are shown, if they depend on it.
    pub tier: Option<TierShown>,
    /// Whether clients may have months of their own, by a claim that only their requests show.
    #[serde(skip)]
    pub has_own_months: bool,
    /// The penalty that is in force, as the node that answers knows it, if the policy has a rule for penalties.
    #[serde(serialize_with = "in_force")]
    pub penalty: Option<PenaltyShown>,
    /// Ids of overrides that match and give way to the one in force, each with the reason.
    #[serde(skip)]
    pub outranked: Vec<(String, &'static str)>,
    /// The policy's windows. `null`: it counts by more than what was asked about, so there are many counts.
    pub windows: Option<Vec<WindowUsage>>,
}

/// A penalty that is over is none.
fn in_force<S: Serializer>(penalty: &Option<PenaltyShown>, serializer: S) -> Result<S::Ok, S::Error> {
    penalty.as_ref().filter(|penalty| penalty.ends_at.is_some()).serialize(serializer)
}

impl PolicyUsage {
    /// Of a policy whose windows are not known.
    pub fn of(policy: &Policy) -> PolicyUsage {
        PolicyUsage {
            policy: policy.name.to_string(),
            by: policy.by.iter().map(ToString::to_string).collect(),
            is_shadow: policy.shadow,
            replaces: policy.replaces().map(|replaces| replaces.name.to_string()),
            tier: None,
            has_own_months: policy.anchor_claim.is_some(),
            penalty: None,
            outranked: Vec::new(),
            windows: None,
        }
    }
}

/// A tier, and how it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TierShown {
    /// The tier's name.
    pub name: String,
    /// How it is known that the holder has this tier.
    pub from: TierFrom,
}

/// How the tier of a holder is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierFrom {
    /// It was assigned to the consumer.
    Assigned,
    /// The request to this endpoint names it.
    Asked,
    /// A decision about a request of the holder.
    Decision,
    /// The policy has no limit for the holder's own tier.
    Default,
    /// It is the policy's tier for consumers without one.
    Assumed,
}

/// A penalty as one node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PenaltyShown {
    /// The node that knows it.
    pub node: String,
    /// When the penalty ends; `null` if none is in force.
    pub ends_at: Option<Time>,
}

/// How much of one window has been used. `used`, `leased` and `remaining` add up to the capacity.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct WindowUsage {
    /// Its name, as `RateLimit-Policy` has it.
    pub window: String,
    /// How it counts.
    #[serde(skip)]
    pub quota: Quota,
    /// Units in one period, under the override if there is one.
    pub limit: u64,
    /// Units that it holds when it is full.
    pub capacity: u64,
    /// The period; `null` for a limit of requests in flight.
    pub period_seconds: Option<f64>,
    /// Units that requests have spent.
    pub used: u64,
    /// Units that nodes hold in leases, as far as they have reported.
    pub leased: u64,
    /// Units that requests of the holder may still spend.
    pub remaining: u64,
    /// When it is full again if nobody spends.
    pub reset_at: Option<Time>,
    /// Where it was counted: in Redis or by this node.
    pub from: CountSource,
    /// The override that its limit comes from.
    #[serde(rename = "override")]
    pub overridden: Option<Value>,
    /// The limit by the tenant's override, beneath the consumer's own.
    pub tenant_limit: Option<u64>,
    /// The limit that it replaces, if the key is so hot that this node decides it alone.
    pub hot_key: Option<HotKeyUsage>,
}

/// A hot key that a node decides alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HotKeyUsage {
    /// The limit of the policy's own window.
    pub instead_of: u64,
}

/// Where it was counted: in Redis or by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "CountedBy")]
pub enum CountSource {
    /// In Redis, for the whole fleet.
    Redis,
    /// This node, which counts on its own.
    Node,
    /// This node as far as it knows, because Redis does not answer.
    NodeWithoutRedis,
}

/// Units to be given back to a consumer or a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitGrant {
    pub holder: Holder,
    pub policy: String,
    /// The tenant that a consumer acts for.
    pub tenant: Option<String>,
    pub units: u64,
    /// The id of the reset that it will be.
    pub id: String,
    /// Whether it is only to be said what would come of it.
    pub is_dry: bool,
}

/// What came of preparing a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantOutcome {
    /// Counts under the new id begin as they should. The version of the reset that it follows; 0: none.
    Carried(i64),
    /// No policy of this name counts by this holder alone.
    NoPolicy,
    /// The policy is by tier, and this gateway does not know the consumer's: none was assigned.
    NoTier,
    /// Months begin on a day of the consumer's own, which this gateway does not know.
    OwnMonths,
    NoRedis,
}

/// A question whether one subject may spend units of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckQuestion {
    pub policy: String,
    pub named: SubjectValues,
    /// The tier that its credential would name.
    pub tier: Option<String>,
    /// Units. `None`: what the policy charges for a request that no rule is for.
    pub cost: Option<NonZeroU64>,
    /// Whether nothing is to be spent.
    pub is_dry: bool,
    /// When it is asked. `None`: now.
    pub at: Option<Time>,
}

/// Whether a subject is admitted, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Verdict", extend("examples" = [
    json!({ "allowed": true, "remaining": 9, "reset_at": "2027-01-31T12:00:00.000000Z" }),
    json!({ "allowed": false, "retry_after_seconds": 12, "violated": [{
        "policy": "calls", "window": "calls", "limit": 100, "period_seconds": 60, "retry_after_seconds": 12,
    }] }),
]))]
pub struct CheckVerdict {
    pub allowed: bool,
    /// Remaining units of the window with the least; `null` if no window counts this subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<Option<u64>>,
    /// When that window resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<Option<Time>>,
    /// How long it has to wait in a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// When to retry; `null`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<Option<u64>>,
    /// The windows that refuse; none if it is refused because of others in its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violated: Option<Vec<ViolatedWindow>>,
    /// The block that refuses the subject: its id, author, end and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Why it cannot be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Units left of the window that binds, and when it is full again: of a refusal the one that refuses for the longest.
    #[serde(skip)]
    pub binding: (Option<u64>, Option<Time>),
}

impl CheckVerdict {
    /// The units are spent, or would be.
    pub fn allowed(binding: (Option<u64>, Option<Time>), delay_seconds: f64) -> CheckVerdict {
        CheckVerdict {
            allowed: true,
            remaining: Some(binding.0),
            reset_at: Some(binding.1),
            delay_seconds: (delay_seconds > 0.0).then_some(delay_seconds),
            binding,
            ..CheckVerdict::default()
        }
    }

    /// By these windows, for so many seconds; `None`: for ever.
    pub fn refused(
        binding: (Option<u64>, Option<Time>),
        seconds: Option<u64>,
        violated: Vec<ViolatedWindow>,
    ) -> CheckVerdict {
        let (retry_after_seconds, violated) = (Some(seconds), Some(violated));
        CheckVerdict { retry_after_seconds, violated, binding, ..CheckVerdict::default() }
    }

    pub fn undecided(why: String) -> CheckVerdict {
        CheckVerdict { error: Some(why), ..CheckVerdict::default() }
    }
}

/// A window that refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ViolatedWindow {
    /// The policy that has the window.
    pub policy: String,
    /// Its name, as `RateLimit-Policy` has it.
    pub window: String,
    /// Units in one period.
    pub limit: u64,
    /// The period, rounded up.
    pub period_seconds: u64,
    /// Seconds until it may admit the subject, rounded up; `null`: never.
    pub retry_after_seconds: Option<u64>,
}
