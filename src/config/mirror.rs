//! `mirror` of a route: how many requests are copied, and up to which size. Whether its upstream exists is for the routes.

use super::printer::{size, table, text};
use super::reader::{Table, Value};
use super::text::Text;
use base::units::show_share;
use policy::definition::Mirror;

/// Reads the name or URL of an upstream, or a table with that and the rest; `upstream` finds the upstream.
pub(super) fn read<'c>(
    value: &Value<'c>,
    upstream: impl FnOnce(&Text<'c>) -> Option<String>,
) -> Option<Mirror> {
    let whole =
        |upstream| Mirror { upstream, share_ppm: SHARE_WHOLE_PPM, body_bytes_max: BODY_BYTES_DEFAULT };
    if !value.is_table() {
        return Some(whole(upstream(&value.text()?)?));
    }
    let table = value.table("`mirror`")?;
    let to = table.value("to");
    if to.is_none() {
        table.wrong("`mirror` needs `to`", "write `{ to = \"orders-next\", share = \"10%\" }`");
    }
    let share_ppm = table.value("share").map_or(Some(SHARE_WHOLE_PPM), |share| share.share_ppm());
    let body_bytes_max = body_bytes_max(&table);
    table.finish(&[]);
    let whole = whole(upstream(&to?.text()?)?);
    Some(Mirror { share_ppm: share_ppm?, body_bytes_max: body_bytes_max?, ..whole })
}

fn body_bytes_max(table: &Table<'_>) -> Option<usize> {
    let Some(value) = table.value("max-body") else { return Some(BODY_BYTES_DEFAULT) };
    usize::try_from(value.size(0..=BODY_BYTES_MAX)?).ok()
}

/// Writes one as a table.
pub(super) fn show(mirror: &Mirror) -> String {
    table([
        ("to", text(&mirror.upstream)),
        ("share", text(&show_share(mirror.share_ppm))),
        ("max-body", size(mirror.body_bytes_max as u64)),
    ])
}

const SHARE_WHOLE_PPM: u32 = 1_000_000;
/// Most bodies of an API are smaller, and all copies together have a bound of their own.
const BODY_BYTES_DEFAULT: usize = 64 * 1024;
const BODY_BYTES_MAX: u64 = 16 << 20;
