//! Bodies of the admin API: any bytes are read or refused with places that are in the body, and no value is repeated. What is
//! read is what another reader of JSON finds, and the database takes it; a policy adds itself to gateway.toml, and nothing else.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use config::{self, Config, RowDocument};
use control::admin::bodies::{self, At, BodyEndpoint, ParsedBody};
use control::database::{ABSOLUTE_MAX, NewApiKey, NewOverride, OverrideKind, Time};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, body) = input;
    let endpoint = match kind % 4 {
        0 => BodyEndpoint::Overrides,
        1 => BodyEndpoint::SnakeOverrides,
        2 => BodyEndpoint::ApiKeys,
        _ => BodyEndpoint::Policies,
    };
    let other: Option<Value> = serde_json::from_slice(body).ok();
    match bodies::read(endpoint, body, NOW) {
        Err(flaws) => {
            assert!(!flaws.is_empty(), "it is refused for nothing");
            for flaw in flaws {
                let At::Body(pointer) = &flaw.at else { panic!("{flaw:?} is not in the body") };
                assert!(pointer.is_empty() || pointer.starts_with('/'), "{flaw:?}");
                let is_repeated = flaw.detail.contains(CANARY) || pointer.contains(CANARY);
                assert!(!is_repeated || other.as_ref().is_none_or(is_named), "{flaw:?}");
            }
        }
        Ok(asked) => {
            let other = other.expect("another reader reads it, too");
            match asked {
                ParsedBody::Override(new) => {
                    check_override(&new, &other, endpoint == BodyEndpoint::SnakeOverrides)
                }
                ParsedBody::ApiKey(new) => check_key(&new, &other),
                ParsedBody::Policy(keys) => {
                    assert_eq!(keys, other);
                    for name in ["own", "another", "a.b\"]\n[admin"] {
                        check_policy(name, &keys);
                    }
                }
            }
        }
    }
});

fn check_override(new: &NewOverride, other: &Value, is_snake: bool) {
    let name = |name: &str| if is_snake { name.replace('-', "_") } else { name.to_owned() };
    let text = |of: &str| other[name(of)].as_str();
    assert_eq!((new.user_id.as_deref(), new.tenant_id.as_deref()), (text("user-id"), text("tenant-id")));
    let is_standing = matches!(new.kind, OverrideKind::Block(_) | OverrideKind::Unlimited);
    assert!(new.user_id.is_some() || new.tenant_id.is_some() || new.subject.is_some() && is_standing);
    assert_eq!(Some(new.reason.as_str()), text("reason"));
    let texts = [&new.user_id, &new.tenant_id, &new.policy].into_iter().flatten().chain([&new.reason]);
    texts.for_each(|text| check_text(text, 4_096));
    let value = other["value"].as_f64();
    match new.kind {
        OverrideKind::Block(status) => {
            assert!([403, 429].contains(&status) && value.is_none_or(|it| it == f64::from(status)))
        }
        OverrideKind::Unlimited => assert_eq!(value, None),
        OverrideKind::Absolute(limit) => {
            assert!(limit <= ABSOLUTE_MAX && Some(limit as f64) == value, "{limit} of {value:?}");
        }
        OverrideKind::Multiplicative(factor) => {
            assert!(Some(factor) == value && factor > 0.0 && factor.is_finite())
        }
    }
    assert!(new.expires_at.is_none_or(|end| end > NOW), "{new:?}");
    assert!(!is_snake || new.expires_at.is_some() && new.policy.is_none());
}

fn check_key(new: &NewApiKey, other: &Value) {
    assert_eq!(Some(new.consumer.as_str()), other["consumer"].as_str());
    let texts = [&new.tenant, &new.tier].into_iter().flatten().chain([&new.consumer]);
    texts.for_each(|text| check_text(text, 256));
    let claims = other["claims"].as_object().cloned().unwrap_or_default();
    assert_eq!(new.claims, claims);
    assert!(new.expires_at.is_none_or(|end| end > NOW), "{new:?}");
}

/// PostgreSQL takes no NUL, and its columns have bounds.
fn check_text(text: &str, chars_max: usize) {
    assert!((1..=chars_max).contains(&text.chars().count()) && !text.contains(char::is_control), "{text:?}");
}

/// The policy is there under its name, if there is one like it; everything else is as without it.
fn check_policy(name: &str, keys: &Value) {
    let Ok(added) = RowDocument::policy(name, keys) else { return };
    let read = |added: &[RowDocument]| {
        let mut definition = config::Files::read(&FILE).with(added)?;
        let table = definition.compile();
        definition.finish(table)
    };
    match read(&[added]) {
        Err(errors) => assert!(!errors.to_string().is_empty()),
        Ok(loaded) => {
            let mut names: Vec<&str> =
                loaded.config.policies.iter().map(|policy| policy.name.as_str()).collect();
            names.sort_unstable();
            let mut expected = vec![name, "own"];
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(names, expected);
            let plain = read(&[]).expect("the file is valid");
            assert_eq!(printed_without_policies(&loaded.config), printed_without_policies(&plain.config));
            assert_eq!(without_policies(loaded.config), without_policies(plain.config));
        }
    }
}

/// All values but the policies. As text, because two configurations are equal only if they print alike, and policies
/// are printed too.
fn without_policies(mut config: Config) -> String {
    config.policies.clear();
    format!("{config:?}")
}

/// What `--effective` prints of everything else.
fn printed_without_policies(config: &Config) -> toml::Table {
    let mut printed: toml::Table = config.effective().parse().expect("it prints valid TOML");
    printed.remove("policy");
    printed
}

/// Whether a name in it has what no value may be shown by.
fn is_named(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains(CANARY) || is_named(value)),
        Value::Array(values) => values.iter().any(is_named),
        _ => false,
    }
}

/// What the first inputs have for values.
const CANARY: &str = "zqzqzqzq";
const NOW: Time = Time(1_700_000_000_000_000);

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("sluicegate-fuzz-bodies-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join("gateway.toml");
    let text = "[policy.own]\nlimit = \"2/m\"\nby = [\"ip\"]\n\
                [[route]]\npath = \"/\"\nlimit = \"own\"\nrespond = {}\n";
    std::fs::write(&file, text).expect("a file can be written");
    file
});
