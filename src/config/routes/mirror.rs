//! `mirror` of a route: how many requests are copied, and up to which size. Whether its upstream exists is for the routes.

use crate::load::text::Text;
use crate::reader::Value;
use policy::definition::MirrorDefinition;

/// Reads the name or URL of an upstream, or a table with that and the rest; `upstream` finds the upstream.
pub(crate) fn read<'c>(
    value: &Value<'c>,
    upstream: impl FnOnce(&Text<'c>) -> Option<String>,
) -> Option<MirrorDefinition> {
    let mut mirror = MirrorDefinition {
        upstream: String::new(),
        share_ppm: SHARE_WHOLE_PPM,
        body_bytes_max: BODY_BYTES_DEFAULT,
    };
    if !value.is_table() {
        return Some(MirrorDefinition { upstream: upstream(&value.text()?)?, ..mirror });
    }
    let table = value.table()?;
    let to = table.value("to");
    table.share("share", &mut mirror.share_ppm);
    table.size("max-body", &mut mirror.body_bytes_max);
    mirror.upstream = upstream(&to?.text()?)?;
    Some(mirror)
}

const SHARE_WHOLE_PPM: u32 = 1_000_000;
/// So much, because most bodies of an API are smaller, and all copies together have a bound of their own.
const BODY_BYTES_DEFAULT: usize = 64 * 1024;
