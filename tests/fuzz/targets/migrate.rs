//! Configurations of other gateways: any text is read or refused with its line, and what comes out is a configuration.

#![no_main]

use libfuzzer_sys::fuzz_target;
use migrate::{From, migrate_text};

// The first byte says whose configuration it is.
fuzz_target!(|text: &str| {
    let (from, text) = match text.split_at_checked(1) {
        Some(("n", text)) => (From::Nginx, text),
        Some(("h", text)) => (From::Haproxy, text),
        Some(("e", text)) => (From::Envoy, text),
        Some(("k", text)) => (From::Kong, text),
        Some(("r", text)) => (From::Ratelimit, text),
        _ => return,
    };
    let Ok(migrated) = migrate_text(from, "its.conf", text) else { return };
    if let Some(errors) = migrated.errors {
        panic!("{errors}\n\nof\n\n{}", migrated.text);
    }
    let loaded = config::from_text("gateway.toml", &migrated.text);
    assert!(loaded.is_ok());
    let keys: Option<toml::Table> = migrated.keys.map(|keys| keys.parse().expect("keys are TOML"));
    assert!(keys.is_none_or(|keys| keys.keys().all(|key| key == "key")));
    // Every line above the first section is a comment.
    let head = migrated.text.lines().take_while(|line| !line.is_empty());
    assert!(head.into_iter().all(|line| line.starts_with('#')));
});
