//! Features that this binary may have been built without, and the keys of gateway.toml that need them. Such a key is an
//! error, because a gateway that passed over it would do less than its operator wrote.

use crate::reader::{Table, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    name: &'static str,
    is_in: bool,
}

pub(crate) const ACME: Feature = Feature { name: "acme", is_in: cfg!(feature = "acme") };
const CONTROL: Feature = Feature { name: "control", is_in: cfg!(feature = "control") };
const OTLP: Feature = Feature { name: "otlp", is_in: cfg!(feature = "otlp") };
pub(crate) const RLS: Feature = Feature { name: "rls", is_in: cfg!(feature = "rls") };

/// Reports sections whose feature is missing.
pub(crate) fn check(documents: &[Table<'_>]) {
    for (section, feature) in SECTIONS {
        for value in documents.iter().filter_map(|document| document.value(section)) {
            feature.check(&value, &format!("[{section}]"));
        }
    }
}

impl Feature {
    /// Reports a key that needs it, if it is missing.
    pub(crate) fn check(self, value: &Value<'_>, shown: &str) {
        if !self.is_in {
            let name = self.name;
            value.wrong_key(
                format!("{shown} needs the feature `{name}`, which this binary was built without"),
                format!("leave it out, or run a binary built with `--features {name}`"),
            );
        }
    }
}

const SECTIONS: [(&str, Feature); 3] = [("database", CONTROL), ("rls", RLS), ("trace", OTLP)];
