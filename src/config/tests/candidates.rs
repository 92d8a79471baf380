//! `replaces` and `rollout` of `[policy.*]`.

use super::{config, each_says, reads_the_same};
use limit::Algorithm;
use policy::definition::{CandidateDefinition, PolicyDefinition};

/// `search`, on lines 1 to 3.
const SEARCH: &str = "[policy.search]\nby = [\"host\"]\nlimit = \"20/s burst 40\"\n";

fn named<'p>(policies: &'p [PolicyDefinition], name: &str) -> &'p PolicyDefinition {
    policies.iter().find(|policy| policy.name == name).expect("it is there")
}

#[test]
fn a_candidate_is_its_policy_but_for_what_it_says() {
    let search = "cost = { default = 2, response-header = \"x-cost\" }\nmissing = \"skip\"\nshadow = true\n\
         match = { method = [\"POST\"] }\novershoot = 0\nwhen-redis-down = \"deny\"\ncount-denied = true\n\
         exempt = { ip = \"10.0.0.0/8\" }\npenalty = { after = 3 }\nidempotency-key = { key = \"header:x-id\", by-address = true }\nalgorithm = \"leaky-bucket\"\nmax-delay = \"1s\"\n";
    // Before its policy, which makes no difference.
    let text = |candidate: &str| format!("[policy.new]\n{candidate}\n{SEARCH}{search}");
    let first = config(&text("replaces = \"search\"\nlimit = \"30/s\"\nrollout = \"12.5%\""));
    let (live, new) = (named(&first.policies, "search"), named(&first.policies, "new"));
    let replaces = Some(CandidateDefinition { policy: "search".to_owned(), rollout_ppm: 125_000 });
    let expected = PolicyDefinition {
        name: "new".to_owned(),
        windows: new.windows.clone(),
        shadow: false,
        replaces: replaces.clone(),
        ..live.clone()
    };
    assert_eq!(*new, expected);
    assert_eq!(new.windows[0].algorithm(), Algorithm::LeakyBucket);
    assert!(reads_the_same(&first), "{}", first.page());

    let own =
        config(&text("replaces = \"search\"\nlimit = \"30/s\"\nalgorithm = \"sliding-window\"\ncost = 1"));
    let new = named(&own.policies, "new");
    assert_eq!((new.windows[0].algorithm(), new.cost.default.get()), (Algorithm::SlidingWindow, 1));
    assert_eq!(new.cost.actual, None);
    assert_eq!(new.replaces.as_ref().map(|replaces| replaces.rollout_ppm), Some(0));
}

#[test]
fn a_mistake_that_a_candidate_takes_over_is_told_once() {
    let text = "[policy.search]\nby = [\"consumers\"]\nlimit = \"20/s\"\n[policy.new]\nreplaces = \"search\"\nlimit = \"1/s\"";
    each_says(&[(text, "`consumers` is not a dimension", "2:7", "consumer")]);
}

#[test]
fn candidates_are_checked() {
    let with = |candidate: &str| format!("{SEARCH}[policy.new]\nlimit = \"30/s\"\n{candidate}\n");
    let second = with("replaces = \"search\"\n[policy.newer]\nlimit = \"1/s\"\nreplaces = \"search\"");
    let again = with("replaces = \"search\"\n[policy.newer]\nlimit = \"1/s\"\nreplaces = \"new\"");
    each_says(&[
        (
            &with("replaces = \"serch\"\n[[route]]\nlimit = \"new\"\nrespond = {}"),
            "no policy is called `serch`",
            "6:12",
            "did you mean `search`?",
        ),
        (&with("by = []\nreplaces = \"new\""), "a policy cannot replace itself", "7:12", ""),
        (&second, "`search` has the candidate `new` already", "9:12", "try one after the other"),
        (
            &again,
            "`new` is itself a candidate, of `search`",
            "9:12",
            "write `replaces = \"search\"`, or finish that trial first",
        ),
        (
            &with("replaces = \"search\"\nby = [\"ip\"]"),
            "a candidate must count by the dimensions of `search`, in their order",
            "6:12",
            "leave `by` out, or try other dimensions as a separate policy with `shadow = true`",
        ),
        (
            &with("replaces = \"search\"\nshadow = true\nrollout = \"1%\""),
            "a candidate in shadow never refuses, so it has no `rollout`",
            "8:11",
            "leave `rollout` or `shadow` out",
        ),
        (&with("by = []\nrollout = \"1%\""), "only a candidate has a `rollout`", "7:1", "replaces = "),
        (
            &with("replaces = \"search\"\nrollout = 10"),
            "`rollout` must be a string, not an integer",
            "7:11",
            "",
        ),
        (&with("replaces = 1\nby = []"), "`replaces` must be a string, not an integer", "6:12", ""),
        (
            &with("replaces = \"search\"\n[[route]]\nlimit = [\"search\", \"new\"]\nrespond = {}"),
            "`new` replaces `search`",
            "8:20",
            "name only `search`, and `new` is checked for the same requests",
        ),
    ]);
}
