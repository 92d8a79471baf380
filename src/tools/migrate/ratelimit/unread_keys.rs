//! Keys that nothing here reads: those that change no answer, and why others have no counterpart.

use super::super::yaml_file::UnreadKeys;

pub(super) const UNREAD: UnreadKeys = UnreadKeys { needless: NEEDLESS, why: WHY };

const NEEDLESS: &[&str] = &["detailed_metric", "name", "share_threshold", "value_to_metric"];

const WHY: &[(&str, &str)] = &[
    ("metadata", "an answer has no metadata of its own"),
    ("rate_limit_metadata", "an answer has no metadata of its own"),
    ("replaces", "it has no name of another limit"),
];
