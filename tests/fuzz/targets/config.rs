//! The configuration: any text is read or refused with places, and what is read can be written and, with
//! other secrets for the masked ones, read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let loaded = match config::from_text("gateway.toml", text) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let said = errors.to_string();
            let places =
                said.lines().filter(|line| line.trim_start().starts_with("--> gateway.toml:")).count();
            // More than are shown are only counted.
            assert!(errors.count() > 0 && places >= errors.count().min(200), "{said}");
            return;
        }
    };
    assert_eq!(loaded.table.routes().len(), loaded.config.routes.len());
    let effective = loaded.config.effective();
    let filled = effective.replace(config::MASK, &"s".repeat(64));
    match config::from_text("gateway.toml", &filled) {
        Ok(again) => assert_eq!(again.config.effective(), effective),
        Err(errors) => panic!("{errors}\n\nof\n\n{effective}"),
    }
});
