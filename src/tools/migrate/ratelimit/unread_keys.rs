//! Keys that nothing here reads: those that change no answer, and why others have no counterpart.

use super::super::yaml_file::UnreadKeys;

pub(super) const UNREAD: UnreadKeys = UnreadKeys { needless: NEEDLESS, why: WHY, numbers: "", flags: "" };

const NEEDLESS: &str = "detailed_metric name share_threshold value_to_metric";

const WHY: &[(&str, &str)] = &[
    ("metadata", "responses have no metadata of their own"),
    ("rate_limit_metadata", "responses have no metadata of their own"),
    ("replaces", "it does not name another limit"),
];
