//! Shows operators what Redis holds of a window, beside what this node knows. Asking Redis is `Inspection::look_in_redis`.

use serde_json::{Value, json};

use limit::lease_messages::{LentWindow, WindowBalance, WindowRecord};
use limiter::RedisView;

/// Adds `redis`, whether it answers, and if it does `at-redis`, what it holds.
pub(crate) fn show(look: &RedisView, shown: &mut Value) {
    shown["redis"] = match look {
        RedisView::Seen(_) => "answers",
        RedisView::Away => "away",
        RedisView::Late => "late",
        RedisView::Refused => "refuses",
    }
    .into();
    if let RedisView::Seen(seen) = look {
        shown["at-redis"] = held(seen);
    }
}

fn held(seen: &WindowRecord) -> Value {
    let unchanged = seen.unchanged_ns.map(|ns| ns as f64 / 1e9);
    match seen.left {
        WindowBalance::Exact(outcome) => json!({
            "left": outcome.remaining,
            "reset-seconds": outcome.reset_ns as f64 / 1e9,
            "changed-seconds-ago": unchanged,
        }),
        WindowBalance::Leased(LentWindow { level, out, promised, nodes, lasts_ns }) => json!({
            "left": level,
            "leased-to-nodes": out,
            "promised-per-second": promised,
            "nodes": nodes,
            "epoch-ends-in-ms": lasts_ns / 1_000_000,
            "changed-seconds-ago": unchanged,
        }),
    }
}

pub(crate) fn sentence(look: &RedisView) -> String {
    let seen = match look {
        RedisView::Away => return "Redis is down".to_owned(),
        RedisView::Late => return "Redis does not answer in time".to_owned(),
        RedisView::Refused => return "Redis refuses calls: the log says why".to_owned(),
        RedisView::Seen(seen) => seen,
    };
    let changed = match seen.unchanged_ns {
        Some(ns) => format!(", changed {:.1} s ago", ns as f64 / 1e9),
        None => String::new(),
    };
    match seen.left {
        WindowBalance::Exact(_) => format!("according to Redis{changed}"),
        WindowBalance::Leased(lent) => format!(
            "Redis has {:.0} left, {:.0} are leased to {} {}{changed}",
            lent.level.floor(),
            lent.out.floor(),
            lent.nodes,
            if lent.nodes == 1 { "node" } else { "nodes" }
        ),
    }
}
