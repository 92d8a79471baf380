//! The examples that the service documents, in values of our own: descriptors get the limits there that they get here.

use smallvec::SmallVec;

use crate::{From, MigrationOutput, migrate_text};
use config::LoadedConfig;
use config::limits::limit_text;
use limit::Charge;
use policy::matching::domain::{CompiledDomain, DescriptorEntry, DescriptorMatch, DescriptorSubject};

/// A file that was read, and what came of it.
struct ImportResult {
    migrated: MigrationOutput,
    loaded: LoadedConfig,
}

impl ImportResult {
    fn of(descriptors: &str) -> ImportResult {
        let text = format!("domain: shop\ndescriptors:\n{descriptors}");
        let migrated = migrate_text(From::Ratelimit, "limits.yaml", &text).expect("it can be read");
        if let Some(errors) = &migrated.errors {
            panic!("{errors}\n{}", migrated.text);
        }
        let loaded = config::from_text("gateway.toml", &migrated.text);
        let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}\n{}", migrated.text));
        ImportResult { migrated, loaded }
    }

    fn domain(&self) -> &CompiledDomain {
        self.loaded.table.domain("shop").expect("it is there")
    }

    /// What is said of the descriptors of one request: `5/d`, `unlimited`, or `5/d shadow`.
    fn all(&self, descriptors: &[&str]) -> Vec<String> {
        let entries: Vec<Vec<DescriptorEntry<'_>>> = descriptors.iter().map(|text| entries(text)).collect();
        let matched = self.domain().find_all(entries.iter().map(Vec::as_slice));
        matched.iter().zip(descriptors).map(|(matched, text)| self.shown(*matched, text)).collect()
    }

    fn one(&self, descriptor: &str) -> String {
        self.all(&[descriptor]).remove(0)
    }

    fn shown(&self, matched: DescriptorMatch<'_>, descriptor: &str) -> String {
        match matched {
            DescriptorMatch::Unknown => "unknown".to_owned(),
            DescriptorMatch::Unlimited => "unlimited".to_owned(),
            DescriptorMatch::Denied => "denied".to_owned(),
            DescriptorMatch::Replaced => "replaced".to_owned(),
            DescriptorMatch::Limited(_) => {
                let charge = self.charge(descriptor);
                let shadow = if charge.shadow { " shadow" } else { "" };
                format!("{}{shadow}", limit_text::show_window(&charge.quota))
            }
        }
    }

    /// The only charge of a descriptor.
    fn charge(&self, descriptor: &str) -> Charge {
        let entries = entries(descriptor);
        let DescriptorMatch::Limited(rule) = self.domain().find(&entries) else {
            panic!("{descriptor} has no limit")
        };
        let mut out: SmallVec<[Charge; 4]> = SmallVec::new();
        let subject = DescriptorSubject::new(rule, &entries, None);
        self.loaded.table.chosen_by(rule).charges(&subject, &mut out).expect("nothing is missing");
        assert_eq!(out.len(), 1);
        out[0]
    }

    /// Whether two descriptors are counted together.
    fn are_together(&self, one: &str, other: &str) -> bool {
        self.charge(one).key == self.charge(other).key
    }

    /// Whether the comments say this of a line.
    fn says(&self, line: usize, what: &str) -> bool {
        let place = format!("limits.yaml:{line}:");
        self.migrated.text.lines().any(|it| it.starts_with("# ") && it.contains(&place) && it.contains(what))
    }
}

/// `"a=1 b=2"` as entries.
fn entries(text: &str) -> Vec<DescriptorEntry<'_>> {
    let pairs = text.split(' ').map(|pair| pair.split_once('=').expect("a key and a value"));
    pairs.map(|(key, value)| DescriptorEntry { key, value }).collect()
}

#[test]
fn values_of_one_key_have_limits_of_their_own() {
    let imported = ImportResult::of(
        "- { key: table, value: orders, rate_limit: { unit: second, requests_per_unit: 300 } }\n\
         - { key: table, value: carts, rate_limit: { unit: second, requests_per_unit: 200 } }\n",
    );
    let said = ["table=orders", "table=carts", "table=users", "Table=orders"].map(|text| imported.one(text));
    assert_eq!(said, ["300/s", "200/s", "unknown", "unknown"]);
    assert!(!imported.are_together("table=orders", "table=carts"));
    assert!(imported.migrated.is_whole, "{}", imported.migrated.text);
    // Windows of the clock that Redis decides, as there.
    let policy = &imported.loaded.config.policies[0];
    assert!(policy.sharing(0).is_exact());
    for part in ["algorithm = \"fixed-window\"\novershoot = 0", "[policy.shop-table-orders]\nby = []"] {
        assert!(imported.migrated.text.contains(part), "{}", imported.migrated.text);
    }
}

#[test]
fn a_nested_limit_and_an_outer_one_hold_for_each_value_and_for_both_descriptors() {
    let imported = ImportResult::of(
        "- key: kind\n  value: offer\n  descriptors:\n  - key: phone\n    rate_limit: { unit: day, requests_per_unit: 4 }\n\
         - key: phone\n  rate_limit: { unit: day, requests_per_unit: 50 }\n",
    );
    assert_eq!(imported.all(&["kind=offer phone=12", "phone=12"]), ["4/d", "50/d"]);
    assert_eq!(imported.one("kind=offer phone=13"), "4/d");
    assert!(!imported.are_together("kind=offer phone=12", "kind=offer phone=13"));
    assert!(!imported.are_together("phone=12", "phone=13"));
    assert!(!imported.are_together("kind=offer phone=12", "phone=12"));
    for unknown in ["kind=offer", "kind=other phone=12", "phone=12 kind=offer"] {
        assert_eq!(imported.one(unknown), "unknown", "{unknown}");
    }
}

#[test]
fn the_most_specific_value_counts_and_none_a_second_is_none_at_all() {
    let imported = ImportResult::of(
        "- key: remote_address\n  rate_limit: { unit: second, requests_per_unit: 8 }\n\
         - key: remote_address\n  value: 192.0.2.66\n  rate_limit: { unit: second, requests_per_unit: 0 }\n\
         - key: remote_address\n  value: 192.0.2.1\n",
    );
    assert_eq!(imported.one("remote_address=192.0.2.7"), "8/s");
    assert_eq!(imported.one("remote_address=192.0.2.66"), "denied");
    assert_eq!(
        imported.one("remote_address=192.0.2.1"),
        "unlimited",
        "it is on the list of those without a limit"
    );
    assert!(!imported.are_together("remote_address=192.0.2.7", "remote_address=192.0.2.8"));
}

#[test]
fn a_descriptor_needs_a_rule_of_as_many_entries() {
    let flat =
        ImportResult::of("- { key: a, value: b, rate_limit: { unit: second, requests_per_unit: 30 } }\n");
    assert_eq!(flat.one("a=b c=d"), "unknown");
    let nested = ImportResult::of(
        "- key: a\n  value: b\n  descriptors: [{ key: c, rate_limit: { unit: second, requests_per_unit: 30 } }]\n",
    );
    assert_eq!(
        ["a=b c=d", "a=b", "a=b c=d e=f"].map(|text| nested.one(text)),
        ["30/s", "unknown", "unknown"]
    );
}

#[test]
fn unlimited_descriptors_are_known() {
    let imported = ImportResult::of(
        "- { key: ldap, rate_limit: { unlimited: true } }\n\
         - { key: azure, rate_limit: { unit: MINUTE, requests_per_unit: 70 } }\n",
    );
    let said = ["ldap=x", "azure=x", "other=x"].map(|text| imported.one(text));
    assert_eq!(said, ["unlimited", "70/m", "unknown"]);
}

#[test]
fn what_is_in_shadow_is_counted_and_never_refused() {
    let imported = ImportResult::of(
        "- key: service\n  descriptors:\n\
         \x20 - { key: user, value: ann, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 6 } }\n\
         \x20 - { key: user, value: bob, rate_limit: { unit: second, requests_per_unit: 9 } }\n\
         - { key: soft, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 3 } }\n",
    );
    let said = ["service=auth user=ann", "service=auth user=bob", "service=auth user=eve", "soft=x"];
    assert_eq!(said.map(|text| imported.one(text)), ["6/s shadow", "9/s", "unknown", "3/h shadow"]);
    assert!(imported.says(7, "quota_mode") && !imported.migrated.is_whole, "{}", imported.migrated.text);
}

#[test]
fn a_limit_does_not_replace_itself() {
    let imported = ImportResult::of(
        "- key: user\n  rate_limit: { name: narrow, replaces: [{ name: narrow }], unit: second, requests_per_unit: 4 }\n",
    );
    assert_eq!(imported.one("user=ann"), "4/s");
    assert!(
        !imported.migrated.is_whole && imported.says(3, "replaces: narrow"),
        "{}",
        imported.migrated.text
    );
}

#[test]
fn a_limit_replaces_another_that_the_same_request_meets() {
    let imported = ImportResult::of(
        "- key: one\n  value: x\n  descriptors:\n\
         \x20 - { key: user, value: ann, rate_limit: { name: narrow, unit: second, requests_per_unit: 4 } }\n\
         - key: two\n  value: y\n  descriptors:\n\
         \x20 - { key: user, value: ann, rate_limit: { replaces: [{ name: narrow }, { name: nobody }], unit: second, requests_per_unit: 12 } }\n",
    );
    assert_eq!(imported.all(&["one=x user=ann"]), ["4/s"]);
    assert_eq!(imported.all(&["two=y user=ann"]), ["12/s"]);
    assert_eq!(imported.all(&["one=x user=ann", "two=y user=ann"]), ["replaced", "12/s"]);
    assert_eq!(imported.all(&["two=y user=ann", "one=x user=ann"]), ["12/s", "replaced"]);
    assert!(
        imported.migrated.is_whole && imported.says(10, "replaces: nobody"),
        "{}",
        imported.migrated.text
    );
}

#[test]
fn metrics_of_a_descriptor_change_no_limit() {
    let imported = ImportResult::of(
        "- { key: k, detailed_metric: true, value_to_metric: true, rate_limit: { unit: minute, requests_per_unit: 11 } }\n\
         - { key: k, value: v, rate_limit: { unit: minute, requests_per_unit: 22 } }\n",
    );
    assert_eq!(["k=a", "k=b", "k=v"].map(|text| imported.one(text)), ["11/m", "11/m", "22/m"]);
    assert!(!imported.are_together("k=a", "k=b"));
    assert!(imported.migrated.is_whole, "{}", imported.migrated.text);
}

#[test]
fn a_star_takes_values_that_begin_alike_each_with_its_own_count_unless_it_is_shared() {
    let imported = ImportResult::of(
        "- { key: path, value: /files/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 10 } }\n\
         - { key: path, value: /v*, rate_limit: { unit: minute, requests_per_unit: 20 } }\n\
         - { key: path, value: /v1, rate_limit: { unit: minute, requests_per_unit: 5 } }\n\
         - { key: path, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
         - key: shop\n  value: eu-*\n  share_threshold: true\n  descriptors:\n\
         \x20 - { key: user, rate_limit: { unit: minute, requests_per_unit: 7 } }\n",
    );
    let said = ["path=/files/a", "path=/v2", "path=/v1", "path=/x", "shop=eu-1 user=u"]
        .map(|text| imported.one(text));
    assert_eq!(said, ["10/h", "20/m", "5/m", "1/m", "7/m"]);
    assert!(imported.are_together("path=/files/a", "path=/files/b"));
    assert!(!imported.are_together("path=/v2", "path=/v3"));
    assert!(imported.are_together("shop=eu-1 user=u", "shop=eu-2 user=u"));
    assert!(!imported.are_together("shop=eu-1 user=u", "shop=eu-1 user=w"));
}

#[test]
fn what_is_never_reached_there_is_not_reached_here() {
    let limit = |units: u32| format!("rate_limit: {{ unit: minute, requests_per_unit: {units} }}");
    let imported = ImportResult::of(&format!(
        "- {{ key: a, value: x*, {} }}\n- {{ key: a, value: xy*, {} }}\n- {{ key: a, {} }}\n- {{ key: a, value: \"*\", {} }}\n\
         - {{ key: b, value: xy*, {} }}\n- {{ key: b, value: x*, {} }}\n- {{ key: b, value: xy, {} }}\n- {{ key: \"c*\", {} }}\n",
        limit(1),
        limit(2),
        limit(3),
        limit(4),
        limit(5),
        limit(6),
        limit(7),
        limit(8),
    ));
    let said = ["a=x1", "a=xy1", "a=z", "b=xy1", "b=x1", "b=xy", "cd=1"].map(|text| imported.one(text));
    assert_eq!(said, ["1/m", "1/m", "4/m", "5/m", "6/m", "7/m", "unknown"]);
    let text = &imported.migrated.text;
    assert!(imported.says(4, "never reached: line 3 takes these values before it"), "{text}");
    assert!(imported.says(5, "never reached: the same key with `*`"), "{text}");
    assert!(imported.says(10, "here a key must match exactly"), "{text}");
}

#[test]
fn units_are_windows_as_long_as_there() {
    let units = ["second", "Minute", "HOUR", "day", "week", "month", "year"];
    let lines: String = units
        .iter()
        .map(|unit| format!("- {{ key: {unit}, rate_limit: {{ unit: {unit}, requests_per_unit: 3 }} }}\n"))
        .collect();
    let imported = ImportResult::of(&format!(
        "{lines}- {{ key: ten, rate_limit: {{ unit: minute, unit_multiplier: 10, requests_per_unit: 3 }} }}\n\
         - {{ key: two, rate_limit: {{ unit: month, unit_multiplier: 2, requests_per_unit: 3 }} }}\n"
    ));
    let said = units.iter().chain(&["ten", "two"]).map(|unit| imported.one(&format!("{unit}=1")));
    let expected = ["3/s", "3/m", "3/h", "3/d", "3/7d", "3/month", "3/year", "3/10m", "3/60d"];
    assert_eq!(said.collect::<Vec<_>>(), expected);
}

#[test]
fn what_cannot_be_said_is_listed_with_its_line() {
    let imported = ImportResult::of(
        "- { key: a, rate_limit: { unit: fortnight, requests_per_unit: 3 } }\n\
         - { key: b, rate_limit: { unit: day, requests_per_unit: some } }\n\
         - { value: c, rate_limit: { unit: day, requests_per_unit: 3 } }\n\
         - { key: d, metadata: { x: y }, colour: blue, rate_limit: { unit: day, requests_per_unit: 3 } }\n\
         - { key: d, rate_limit: { unit: day, requests_per_unit: 4 } }\n\
         - { key: e, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }\n\
         - { key: f, rate_limit: { unit: day } }\n",
    );
    for (line, what) in [
        (3, "unit: fortnight"),
        (4, "its number of requests or its period is invalid"),
        (5, "it has no key"),
        (6, "metadata"),
        (6, "colour: blue"),
        (7, "it is written twice"),
        (8, "in shadow nothing is refused"),
    ] {
        assert!(imported.says(line, what), "{line}: {what}\n{}", imported.migrated.text);
    }
    assert!(!imported.migrated.is_whole);
    let said = ["a=1", "b=1", "d=1", "e=1", "f=1"].map(|text| imported.one(text));
    assert_eq!(said, ["unknown", "unknown", "3/d", "unlimited", "denied"]);
}

#[test]
fn a_file_that_the_service_refuses_becomes_no_limits_that_are_none() {
    let refused = |line: &str| {
        let text = format!("domain: shop\ndescriptors:\n- {{ key: a }}\n{line}\n");
        migrate_text(From::Ratelimit, "limits.yaml", &text).expect_err(line).to_string()
    };
    for (line, message) in [
        (
            "- { key: b, ratelimit: { unit: day, requests_per_unit: 3 } }",
            "`ratelimit` is not a key of a descriptor",
        ),
        ("- { key: b, rate_limits: { unit: day } }", "(did you mean `rate_limit`?)"),
        ("- { key: b, descriptors: [{ key: c, limit: { unit: day } }] }", "`limit` is not a key"),
        (
            "- { key: b, rate_limit: { unlimited: true, unit: day } }",
            "`unlimited` cannot be combined with `unit`",
        ),
        (
            "- { key: b, rate_limit: { unlimited: true, unit: day, requests_per_unit: 3 } }",
            "`unlimited` cannot be combined with `requests_per_unit`",
        ),
        (
            "- { key: b, rate_limit: { unit: day, requests_per_unit: 4294967296 } }",
            "`requests_per_unit` is more than 4294967295",
        ),
        (
            "- { key: b, rate_limit: { unit: day, requests_per_unit: 99999999999999999999999 } }",
            "`requests_per_unit` is more than",
        ),
    ] {
        let said = refused(line);
        let is_refused = said.starts_with("limits.yaml:4:") && said.ends_with("the service refuses the file");
        assert!(is_refused && said.contains(message), "{line}: {said}");
    }
    let most = ImportResult::of("- { key: a, rate_limit: { unit: day, requests_per_unit: 4294967295 } }\n");
    assert_eq!(most.one("a=1"), "4294967295/d");
}

#[test]
fn names_that_are_none_here_are_changed_and_files_of_others_refused() {
    let text = "domain: 9shops\ndescriptors: [{ key: \"k\\u00e9y\", value: \"a\\nb${HOME}\", rate_limit: { name: 1st, unit: day, requests_per_unit: 3 } }]\n";
    let migrated = migrate_text(From::Ratelimit, "limits.yaml", text).expect("it can be read");
    assert!(migrated.errors.is_none() && !migrated.is_whole, "{}", migrated.text);
    for part in ["limits.yaml:1: `domain: 9shops`", "[rls.domain-9shops]", "name = \"rule-1st\"", "$${HOME}"]
    {
        assert!(migrated.text.contains(part), "{part}: {}", migrated.text);
    }
    for (text, message) in [
        ("descriptors: []", "limits.yaml:1: there is no `domain`"),
        ("domain: \"\"", "limits.yaml:1: there is no `domain`"),
        ("domain: [", "limits.yaml:"),
    ] {
        let error = migrate_text(From::Ratelimit, "limits.yaml", text).expect_err("it is no such file");
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

#[test]
fn thousands_of_descriptors_are_read_soon() {
    let line = |number: usize| {
        format!("- {{ key: k, value: v{number}, rate_limit: {{ unit: day, requests_per_unit: 3 }} }}\n")
    };
    let imported = ImportResult::of(&(0..10_000).map(line).collect::<String>());
    assert_eq!(imported.one("k=v9999"), "3/d");
    assert_eq!(imported.domain().rules().len(), 10_000);
}
