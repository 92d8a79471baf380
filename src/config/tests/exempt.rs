//! `exempt` of `[policy.*]`.

use super::{config, each_says, load, reads_the_same};
use crate::MASK;
use policy::definition::ExemptDefinition;

const POLICY: &str = "[tier.internal]\nlimit = []\n[policy.a]\nby = [\"ip\"]\nlimit = \"1/s\"\nexempt = ";

#[test]
fn exemptions_are_read_and_written_without_their_secret() {
    let text = "{ ip = [\"10.0.0.0/8\", \"::ffff:192.0.2.1\", \"2001:db8::/32\"], consumer = \"monitor\", \
                tenant = [\"own\"], tier = [\"internal\"], header = { X-Probe = \"${SECRET}\" } }";
    let first = config(&format!("{POLICY}{text}"));
    let expected = ExemptDefinition {
        networks: ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]
            .map(|text| text.parse().expect("a range"))
            .to_vec(),
        consumers: vec!["monitor".to_owned()],
        tenants: vec!["own".to_owned()],
        tiers: vec!["internal".to_owned()],
        headers: vec![(http::HeaderName::from_static("x-probe"), "hunter2".to_owned())],
    };
    assert_eq!(first.policies[0].exempt, expected);
    assert!(reads_the_same(&first), "{}", first.page());
    let effective = first.effective();
    assert!(
        effective.contains(&format!("x-probe = \"{MASK}\"")) && !effective.contains("hunter2"),
        "{effective}"
    );
    // A tier may be one of the policy's own.
    let own =
        "[policy.a]\nby = []\nlimit = { free = \"1/s\", internal = [] }\nexempt = { tier = [\"internal\"] }";
    assert_eq!(config(own).policies[0].exempt.tiers, ["internal"]);
}

#[test]
fn a_secret_is_shown_by_no_message_whatever_its_header_is_called() {
    for value in ["\"HDR99\"", "'HDR99'", "\"\"\"HDR99\"\"\"", "\"\"\"\\\n  HDR99\"\"\""] {
        for text in [
            format!("{{ header = {{ x-probe = {value} }} }}"),
            format!("{{ header = {{ x-probe = {value} }}, consumer = [\"\"] }}"),
            format!("{{ header = {{ x-probe = {value}, x_y = 3 }} }}"),
        ] {
            let shown = match load(&[&format!("{POLICY}{text}")]) {
                Ok(loaded) => loaded.report.to_string(),
                Err(errors) => errors,
            };
            assert!(shown.contains(MASK) && !shown.contains("HDR99"), "{shown}");
        }
    }
}

#[test]
fn exemptions_are_checked() {
    let long = vec!["\"192.0.2.1\""; 100_001].join(", ");
    let cases = [
        ("{}".to_owned(), "`exempt` lists nobody", "6:1", "leave it out"),
        ("{ header = {} }".to_owned(), "`exempt` lists nobody", "6:1", "leave it out"),
        (
            "[\"10.0.0.0/8\"]".to_owned(),
            "`exempt` must be a table, not an array",
            "6:10",
            "write `exempt = { ip = [\"10.0.0.0/8\"] }`",
        ),
        ("{ ip = [] }".to_owned(), "`ip` is empty", "6:17", "list at least one"),
        ("{ consumer = [\"\"] }".to_owned(), "an empty text exempts nobody", "6:24", "leave it out"),
        (
            "{ ip = [\"10.0.0.0/33\"] }".to_owned(),
            "`10.0.0.0/33` is not an address or a range",
            "6:18",
            "`10.0.0.0/8`",
        ),
        (
            "{ ip = [\"10.0.0.1/8\"] }".to_owned(),
            "`10.0.0.1/8` has bits set after its prefix",
            "6:18",
            "`10.0.0.0/8`",
        ),
        (format!("{{ ip = [{long}] }}"), "`ip` has more than 100000 entries", "6:17", "merge"),
        ("{ tier = [\"internl\"] }".to_owned(), "there is no tier `internl`", "6:20", "`internal`"),
        ("{ tier = [\"x\"] }".to_owned(), "there is no tier `x`", "6:20", "`[tier.x]`"),
        ("{ header = { \"x y\" = \"a\" } }".to_owned(), "`x y` is not a header's name", "6:23", "`x-tenant`"),
        ("{ header = { x-a = \"\" } }".to_owned(), "`x-a` is empty", "6:29", "write the secret itself"),
        (
            "{ header = { x-a = \" ${SECRET}\" } }".to_owned(),
            "the value of `x-a` is not a value that a header can have",
            "6:29",
            "without blanks",
        ),
        ("{ ips = [\"10.0.0.0/8\"] }".to_owned(), "unknown key `ips` in `exempt`", "6:12", "`ip = "),
    ];
    for (exempt, message, at, hint) in cases {
        each_says(&[(&format!("{POLICY}{exempt}"), message, at, hint)]);
    }
}
