//! `[rls.*]`.

use super::{config, each_says, load, reads_the_same};
use policy::definition::Dimension;
use policy::matching::domain::definition::{
    DescriptorSlot, EntryMatch, RuleDefinition, ValueMatch, VerdictDefinition,
};

const POLICIES: &str = "[policy.per-user]\nlimit = \"10/m\"\nby = [\"entry:generic_key\", \"entry:user_id\"]\n\
    [policy.per-shop]\nlimit = \"99/m\"\nby = [\"tenant\"]\n";

fn matches(pairs: &[(&str, ValueMatch)]) -> Vec<EntryMatch> {
    pairs.iter().map(|(key, value)| EntryMatch { key: (*key).to_owned(), value: value.clone() }).collect()
}

#[test]
fn domains_are_read_and_written() {
    let text = format!(
        "{POLICIES}[rls.edge]\noverrides = true\ndescriptors = [\n\
         {{ entries = {{ remote_address = \"*\" }}, limit = \"100/m by ip\" }},\n\
         {{ entries = [{{ generic_key = \"checkout\" }}, {{ user_id = \"*\" }}], name = \"checkout\", limit = [\"per-user\", \"per-shop\", \"9/s\", \"99/h\"], \
            dimensions = {{ tenant = \"shop-{{user_id}}\", tier = \"{{generic_key}}\" }} }},\n\
         {{ entries = {{ path = \"/static/*\", method = \"GET\" }}, unlimited = true, deny = false, instead-of = [\"checkout\"] }},\n\
         {{ entries = [{{ \"odd key\" = \"a*b\" }}], deny = true }},\n]\n[rls.other]\ndescriptors = []\n"
    );
    let first = config(&text);
    let [edge, other] = first.domains.as_slice() else { panic!("there are two") };
    assert_eq!((edge.name.as_str(), edge.overrides), ("edge", true));
    assert_eq!((other.name.as_str(), other.overrides, other.rules.len()), ("other", false, 0));
    let any = || ValueMatch::Any;
    let exact = |text: &str| ValueMatch::Exact(text.to_owned());
    let limited =
        |names: &[&str]| VerdictDefinition::Limited(names.iter().map(|name| (*name).to_owned()).collect());
    let plain = |entries, is_ordered, verdict| RuleDefinition {
        name: None,
        instead_of: Vec::new(),
        entries,
        is_ordered,
        given: Vec::new(),
        verdict,
    };
    let expected = [
        plain(matches(&[("remote_address", any())]), false, limited(&["rls:edge#1"])),
        RuleDefinition {
            name: Some("checkout".to_owned()),
            given: vec![
                (DescriptorSlot::Dimension(Dimension::Tenant), "shop-{user_id}".to_owned()),
                (DescriptorSlot::Tier, "{generic_key}".to_owned()),
            ],
            ..plain(
                matches(&[("generic_key", exact("checkout")), ("user_id", any())]),
                true,
                limited(&["per-user", "per-shop", "rls:edge:checkout", "rls:edge:checkout#2"]),
            )
        },
        RuleDefinition {
            instead_of: vec!["checkout".to_owned()],
            ..plain(
                matches(&[("path", ValueMatch::Prefix("/static/".to_owned())), ("method", exact("GET"))]),
                false,
                VerdictDefinition::Unlimited,
            )
        },
        plain(matches(&[("odd key", exact("a*b"))]), true, VerdictDefinition::Denied),
    ];
    assert_eq!(edge.rules, expected);
    assert!(reads_the_same(&first), "{}", first.page());
}

#[test]
fn a_domain_of_a_file_is_compiled_into_the_table() {
    let text = "[rls.edge]\ndescriptors = [{ entries = { a = \"*\" }, limit = \"1/s\" }]\n";
    let grpc = format!("[admin]\ngrpc = \"127.0.0.1:9901\"\n{text}");
    let loaded = load(&[&grpc]).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.table.domains().map(|domain| domain.name()).collect::<Vec<_>>(), ["edge"]);
    assert!(loaded.report.is_empty(), "{}", loaded.report);
    let loaded = load(&[text]).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.report.to_string().contains("there is no gRPC listener"), "{}", loaded.report);
}

#[test]
fn domains_are_checked() {
    // The only rule is on line 9.
    let grpc = "[admin]\ngrpc = \"127.0.0.1:9901\"\n";
    let with = |rule: &str| format!("{POLICIES}[rls.edge]\ndescriptors = [\n{{ {rule} }},\n]\n{grpc}");
    let limited =
        |keys: &str| with(&format!("entries = [{{ shop = \"*\" }}, {{ user_id = \"*\" }}], {keys}"));
    let number = "there is no policy `per-usr`";
    each_says(&[
        (&with("limit = \"9/m\""), "a rule needs `entries`", "9:1", "remote_address"),
        (
            &with("entries = { a = \"*\" }"),
            "a rule needs `limit`, `unlimited` or `deny`",
            "9:1",
            "100/m by entry:a",
        ),
        (
            &with("entries = { a = \"*\" }, limit = \"9/m\", deny = true"),
            "a rule has only one of `limit`, `unlimited` and `deny`",
            "9:1",
            "leave the others out",
        ),
        (
            &with("entries = {}, deny = true"),
            "a rule needs `entries`",
            "9:13",
            "write `entries = { remote_address = \"*\" }`",
        ),
        (
            &with("entries = [{ a = \"1\", b = \"2\" }], deny = true"),
            "an entry must be a table of one key",
            "9:14",
            "one table for each",
        ),
        (
            &with("entries = { a = \"\" }, deny = true"),
            "an empty value matches nothing",
            "9:19",
            "`\"*\"` for any value",
        ),
        (&with("entries = { a = 7 }, deny = true"), "`a` must be a string, not an integer", "9:19", ""),
        (
            &with("entries = { a = \"*\" }, limits = \"9/m\", deny = true"),
            "unknown key `limits` in a rule",
            "9:26",
            "did you mean `limit`?",
        ),
        (&limited("limit = \"per-usr\""), number, "9:58", "did you mean `per-user`?"),
        (&limited("limit = []"), "`limit` is empty", "9:58", "unlimited = true"),
        (
            &limited("limit = \"per-user\""),
            "`per-user` counts by `entry:generic_key`, and the rule has no entry `generic_key`",
            "9:58",
            "",
        ),
        (
            &limited("limit = [\"9/m\", \"per-shop\"]"),
            "`per-shop` counts by `tenant`, to which the rule maps no entry",
            "9:66",
            "write which entry holds it, for example `dimensions = { consumer = \"{user_id}\" }`",
        ),
        (
            &limited("limit = \"per-shop\", dimensions = { tenant = \"{shopp}\" }"),
            "the rule has no entry `shopp`",
            "9:94",
            "did you mean `shop`?",
        ),
        (
            &limited("limit = \"9/m\", dimensions = { consumr = \"{shop}\" }"),
            "`consumr` is not a dimension",
            "9:80",
            "did you mean `consumer`?",
        ),
        (
            &limited("limit = \"9/m\", dimensions = { route = \"{shop}\" }"),
            "no policy of the rule counts by `route`",
            "9:88",
            "",
        ),
        (&limited("limit = \"9/m\", name = \"9\""), "`9` cannot be a name", "9:72", "start with a letter"),
        (
            &limited("limit = \"9/m\", instead-of = \"reads\""),
            "no rule of this domain has the name `reads`",
            "9:78",
            "",
        ),
        ("[rls.edge]\noverrides = true\n", "a domain needs `descriptors`", "1:6", "remote_address"),
        (
            "[rls.edge]\ndescriptors = []\noveride = true\n",
            "unknown key `overide` in [rls.edge]",
            "3:1",
            "did you mean `overrides`?",
        ),
        (
            "[policy.p]\nby = [\"entry:user\"]\nlimit = \"9/m\"\n[[route]]\nto = \"echo\"\nlimit = \"p\"\n",
            "`p` counts by `entry:user`, and only descriptors have entries: count by `consumer`, `ip` or a header on routes, and map entries to it by `dimensions` in the rule of `[rls]`",
            "6:9",
            "",
        ),
        (
            "[[route]]\nto = [{ upstream = \"http://a\" }, { upstream = \"http://b\" }]\nsticky = \"entry:user\"\n",
            "an entry of a descriptor is not known when an upstream or a server is chosen",
            "3:10",
            "header:x-user",
        ),
        (
            "[policy.p]\nby = [\"entry\"]\nlimit = \"9/m\"\n",
            "`entry` is not a dimension",
            "2:7",
            "write `entry:NAME`",
        ),
    ]);
}

#[test]
fn two_rules_for_the_same_descriptors_are_shown_together() {
    let text = "[rls.edge]\ndescriptors = [\n{ entries = { a = \"*\" }, deny = true },\n{ entries = [{ a = \"*\" }], unlimited = true },\n]\n";
    let errors = load(&[text]).err().map(|errors| errors.to_string()).unwrap_or_default();
    for part in [
        "another rule matches the same descriptors",
        "leave one out",
        "gateway.toml:4:13",
        "the other",
        "3 |",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
