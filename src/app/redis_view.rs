//! What Redis holds of a window, as operators are shown it beside what one gateway knows.

use serde_json::{Value, json};

use crate::limit::lease_messages::{Left, Lent, Seen};
use crate::limiter::Look;

/// `store`: whether it answers; `at-redis`: what it holds, where it does.
pub(super) fn show(look: &Look, shown: &mut Value) {
    shown["redis"] = match look {
        Look::Seen(_) => "answers",
        Look::Away => "away",
        Look::Late => "late",
        Look::Refused => "refuses",
    }
    .into();
    if let Look::Seen(seen) = look {
        shown["at-redis"] = held(seen);
    }
}

fn held(seen: &Seen) -> Value {
    let unchanged = seen.unchanged_ns.map(|ns| ns as f64 / 1e9);
    match seen.left {
        Left::Exact(outcome) => json!({
            "left": outcome.remaining,
            "reset-seconds": outcome.reset_ns as f64 / 1e9,
            "changed-seconds-ago": unchanged,
        }),
        Left::Lent(Lent { level, out, promised, nodes, lasts_ns }) => json!({
            "left": level,
            "held-by-gateways": out,
            "promised-per-second": promised,
            "gateways": nodes,
            "epoch-ends-in-ms": lasts_ns / 1_000_000,
            "changed-seconds-ago": unchanged,
        }),
    }
}

/// In words.
pub(super) fn said(look: &Look) -> String {
    let seen = match look {
        Look::Away => return "Redis is away".to_owned(),
        Look::Late => return "Redis does not answer in time".to_owned(),
        Look::Refused => return "Redis refuses to say".to_owned(),
        Look::Seen(seen) => seen,
    };
    let changed = match seen.unchanged_ns {
        Some(ns) => format!(", changed {:.1} s ago", ns as f64 / 1e9),
        None => String::new(),
    };
    match seen.left {
        Left::Exact(_) => format!("says Redis{changed}"),
        Left::Lent(lent) => format!(
            "Redis has {:.0} left, gateways hold {:.0} (reporting: {}){changed}",
            lent.level.floor(),
            lent.out.floor(),
            lent.nodes
        ),
    }
}
