//! Reads `[tier.*]`, and divides a policy's windows among tiers: `limit = "tier"`, windows by tier in the policy
//! itself, and what the tier table of the database says of either.

use std::cmp::Ordering;

use base::words;
use limit::{Algorithm, Quota, WhenDown, Zone};
use policy::counting::shorthand;
use policy::definition::{LimitOrigin, TierDefinition, TierPart, TiersDefinition};

use crate::keys::foreign::foreign_key;
use crate::keys::policy::{ALGORITHMS, WHEN_DOWN};
use crate::limits::tier_table;
use crate::limits::tier_table::{Row, TierTable};
use crate::limits::time_zone::CalendarKeys;
use crate::limits::windows::{Counting, counted, counting, overshoot};
use crate::limits::{time_zone, windows};
use crate::load::context::ImpliedSection;
use crate::load::report::quoted;
use crate::load::sections;
use crate::load::sections::NamedTable;
use crate::load::text::Text;
use crate::printer::{key, table as show_table, text as show_text, word};
use crate::reader::{Table, Value};
use base::units::show_share;

/// Reads every tier, with the windows that the tier table has for every policy.
pub(crate) fn read_all(documents: &[Table<'_>], rows: &TierTable<'_>) -> Vec<TierDefinition> {
    let named = sections::named(documents, "tier");
    let mut tiers: Vec<TierDefinition> = named.iter().map(read).collect();
    // Found before the rows are put in, because who has no tier must not get the limit of one that was made for others.
    let default = strictest(tiers.iter().map(|tier| (&*tier.name, &*tier.windows))).map(str::to_owned);
    for tier in &mut tiers {
        tier.is_default = default.as_ref() == Some(&tier.name);
    }
    for row in rows.of(tier_table::EVERY_POLICY) {
        let own = tiers.iter().position(|tier| tier.name == row.tier);
        let own = own.unwrap_or_else(|| {
            tiers.push(TierDefinition::new(row.tier.clone()));
            tiers.len() - 1
        });
        let tier = &mut tiers[own];
        tier.algorithm = row.algorithm.or(tier.algorithm);
        let counting = Counting { calendar: calendar_of(tier), ..Counting::default() }.by(tier.algorithm);
        tier.windows = row.window(counting).into_iter().collect();
        tier.origin = LimitOrigin::TierTable;
    }
    tiers
        .iter()
        .filter(|tier| tier.origin != LimitOrigin::File)
        .for_each(|tier| spell_tier(documents, &named, tier));
    tiers
}

fn spell_tier(documents: &[Table<'_>], named: &[NamedTable<'_>], tier: &TierDefinition) {
    let comment = tier.origin.sentence().map(|origin| format!("limit: {origin}"));
    let mut keys = vec![("limit", windows::show(&tier.windows))];
    keys.extend(tier.algorithm.map(|algorithm| ("algorithm", show_text(word(&ALGORITHMS, &algorithm)))));
    match (named.iter().find(|named| named.name == tier.name), documents.first()) {
        (Some(NamedTable { table, .. }), _) => {
            comment.iter().for_each(|comment| table.spell_comment(comment));
            keys.into_iter().for_each(|(key, toml)| table.spell(key, toml));
        }
        (None, Some(document)) => {
            document.ctx.make(ImpliedSection { section: "tier", name: tier.name.clone(), comment, keys });
        }
        (None, None) => {}
    }
}

fn read(NamedTable { name, table }: &NamedTable<'_>) -> TierDefinition {
    let (counting, windows) = windows_of(table, Counting::default(), "a tier needs `limit`".to_owned());
    let (overshoot_ppm, when_down) = sharing(table);
    time_zone::warn_if_unused(table, &windows);
    TierDefinition {
        name: name.clone(),
        windows,
        algorithm: counting.is_chosen.then_some(counting.algorithm),
        time_zone: counting.calendar.zone,
        anchor: counting.calendar.anchor,
        overshoot_ppm,
        when_down,
        origin: LimitOrigin::File,
        is_default: false,
    }
}

/// The windows of a tier's table, and how they count; `lack` is said of one without a limit.
fn windows_of(table: &Table<'_>, base: Counting, lack: String) -> (Counting, Vec<Quota>) {
    let limit = table.value("limit");
    let counting = counting(table, base);
    if limit.is_none() {
        table.lacks(&["limit"], lack, "write `limit = \"100/m\"`, or `limit = []` for none");
    }
    (counting, limit.map(|value| windows::windows(&value, counting)).unwrap_or_default())
}

fn calendar_of(tier: &TierDefinition) -> CalendarKeys {
    CalendarKeys { zone: tier.time_zone, anchor: tier.anchor }
}

fn sharing(table: &Table<'_>) -> (Option<u32>, Option<WhenDown>) {
    let overshoot_ppm = table.value("overshoot").and_then(|value| overshoot(&value));
    let when_down = table.value("when-redis-down").and_then(|value| value.choice(&WHEN_DOWN));
    (overshoot_ppm, when_down)
}

/// What a policy has for tiers that say nothing of their own, and where it is written.
pub(crate) struct Base<'b> {
    pub(crate) policy: &'b str,
    pub(crate) counting: Counting,
    pub(crate) overshoot_ppm: u32,
    pub(crate) when_down: WhenDown,
    pub(crate) origin: LimitOrigin,
}

impl Base<'_> {
    fn part(&self, name: &str, origin: LimitOrigin) -> TierPart {
        let (overshoot_ppm, when_down) = (self.overshoot_ppm, self.when_down);
        TierPart { name: name.to_owned(), windows: 0, overshoot_ppm, when_down, origin }
    }
}

type TierQuotas = (TierPart, Vec<Quota>);

/// Reads the `limit` of a policy, and `default-tier` if it is by tier: its windows, and whose they are.
pub(crate) fn divide(
    table: &Table<'_>,
    limit: &Value<'_>,
    base: &Base<'_>,
    tiers: &[TierDefinition],
    rows: &TierTable<'_>,
) -> (Vec<Quota>, Option<TiersDefinition>) {
    let rows = rows.of(base.policy);
    let shared = word_tier(limit);
    let default = table.value("default-tier");
    if let Some(default) = default.as_ref().filter(|_| shared.is_none() && !limit.is_table()) {
        default
            .wrong_key("`default-tier` needs a limit by tier", "leave it out, or write `limit = \"tier\"`");
    }
    let mut parts = match &shared {
        Some(text) => of_tiers(text, tiers, base),
        None if limit.is_table() => {
            let entries = limit.table().map(|table| table.entries()).unwrap_or_default();
            entries.iter().filter_map(|entry| own(entry, base)).collect()
        }
        None => {
            let windows = windows::windows(limit, base.counting);
            if rows.is_empty() {
                return (windows, None);
            }
            vec![(base.part(TiersDefinition::EVERYBODY, base.origin), windows)]
        }
    };
    // Here, too, before the rows are put in.
    let strictest_of_file = match tiers.iter().find(|tier| shared.is_some() && tier.is_default) {
        Some(tier) => Some(tier.name.clone()),
        None => strictest_of(&parts),
    };
    rows.iter().for_each(|row| put(row, base, &mut parts));
    let default = default.and_then(|value| value.text());
    let Some(default) = default_of(&parts, default, shared.is_none(), strictest_of_file) else {
        // No error in the last case, because a table whose tiers are all wrong has been reported.
        match shared {
            Some(_) => limit.wrong("a limit by tier needs a tier", "write `[tier.free]` with a `limit`"),
            None if limit.table().is_some_and(|table| table.is_empty()) => {
                limit
                    .wrong("a limit by tier needs a tier", "write `{ free = \"60/m\", default = \"30/m\" }`");
            }
            None => {}
        }
        return (Vec::new(), None);
    };
    // Not with a delay, because the queue of a shared tier is this policy's own then.
    let are_shared = shared.is_some() && rows.is_empty() && base.counting.delay_max.is_none();
    let mut windows = Vec::new();
    let parts = parts.into_iter().map(|(part, own)| {
        let part = TierPart { windows: own.len(), ..part };
        windows.extend(own);
        part
    });
    let parts = parts.collect();
    let tiers = TiersDefinition { parts, default, algorithm: base.counting.algorithm, are_shared };
    table.spell("default-tier", show_text(&tiers.default));
    if !rows.is_empty() {
        spell(table, &tiers, &windows, base);
    } else if shared.is_some() {
        limit.spell(show_text("tier"));
    }
    (windows, Some(tiers))
}

/// The word `tier`, if it is the whole limit.
fn word_tier<'c>(value: &Value<'c>) -> Option<Text<'c>> {
    // Only the type is looked at, because errors are reported when the value is read.
    if !value.is_string() {
        return None;
    }
    value.text().filter(|text| text.text == "tier")
}

/// The windows of all tiers that policies share, with the policy's algorithm where they have none.
fn of_tiers(limit: &Text<'_>, tiers: &[TierDefinition], base: &Base<'_>) -> Vec<TierQuotas> {
    let part = |tier: &TierDefinition| {
        let calendar = calendar_of(tier).or(base.counting.calendar);
        let counting = Counting { calendar, ..base.counting };
        let windows = match tier.algorithm {
            Some(_) => tier.windows.iter().map(|it| calendar.put_on(*it)).collect(),
            None => tier.windows.iter().filter_map(|it| counted(limit, *it, counting)).collect(),
        };
        let part = TierPart {
            overshoot_ppm: tier.overshoot_ppm.unwrap_or(base.overshoot_ppm),
            when_down: tier.when_down.unwrap_or(base.when_down),
            ..base.part(&tier.name, tier.origin)
        };
        (part, windows)
    };
    tiers.iter().map(part).collect()
}

/// One of `{ free = "60/m", pro = { limit = "600/m", overshoot = 0 }, default = "30/m" }`.
fn own(entry: &Value<'_>, base: &Base<'_>) -> Option<TierQuotas> {
    if !sections::is_name(&entry.key) {
        entry.wrong_key(format!("{} cannot be the name of a tier", quoted(&entry.key)), sections::NAMES);
        return None;
    }
    // An error of its own, because nobody would be in a tier of this name.
    let is_limit =
        || entry.is_string() && entry.text().is_some_and(|text| shorthand::parse(&text.text).is_ok());
    if let Some((_, hint)) = foreign_key("a tier", &entry.key).filter(|_| !entry.is_table() && !is_limit()) {
        entry.wrong_key(format!("`{}` is not a tier with a limit", entry.key), hint);
        return None;
    }
    let mut part = base.part(&entry.key, base.origin);
    if !entry.is_table() {
        return Some((part, windows::windows(entry, base.counting)));
    }
    let table = entry.table()?;
    let needs = format!("the tier {} needs `limit`", quoted(&entry.key));
    let (_, windows) = windows_of(&table, base.counting, needs);
    if !table.entries().iter().any(|entry| entry.key != "limit") {
        entry.spell(windows::show(&windows));
    }
    let (overshoot_ppm, when_down) = sharing(&table);
    part.overshoot_ppm = overshoot_ppm.unwrap_or(part.overshoot_ppm);
    part.when_down = when_down.unwrap_or(part.when_down);
    Some((part, windows))
}

/// The algorithm of a tier's windows: of the first that is not of the calendar, because those have only one.
fn algorithm_of(windows: &[Quota]) -> Option<Algorithm> {
    let mut free = windows.iter().filter(|window| window.calendar().is_none()).map(Quota::algorithm);
    free.find(|it| ALGORITHMS.iter().any(|(_, known)| known == it))
}

fn calendar_of_all(windows: &[Quota]) -> CalendarKeys {
    windows.iter().map(CalendarKeys::of).reduce(CalendarKeys::or).unwrap_or_default()
}

/// Puts the window of a row in the place of those that its tier has, or adds the tier.
fn put(row: &Row<'_>, base: &Base<'_>, parts: &mut Vec<TierQuotas>) {
    let own = parts.iter().position(|(part, _)| part.name == row.tier);
    let own = own.unwrap_or_else(|| {
        parts.push((base.part(&row.tier, LimitOrigin::TierTable), Vec::new()));
        parts.len() - 1
    });
    let (part, windows) = &mut parts[own];
    // Read first, so that the algorithm that the tier has here stays, unless the row names another.
    let algorithm = algorithm_of(windows);
    let calendar = calendar_of_all(windows).or(base.counting.calendar);
    let is_chosen = base.counting.is_chosen || row.algorithm.is_some();
    part.origin = LimitOrigin::TierTable;
    let counting = Counting { is_chosen, calendar, ..base.counting.by(row.algorithm.or(algorithm)) };
    *windows = row.window(counting).into_iter().collect();
}

/// The tier of clients that have none, or one that is not listed: as written; that for everybody, if the policy has tiers of
/// its own; or the strictest of the file, of rows if the file has none. `None` if there is no tier at all.
fn default_of(
    parts: &[TierQuotas],
    written: Option<Text<'_>>,
    are_own: bool,
    strictest_of_file: Option<String>,
) -> Option<String> {
    let strictest = strictest_of_file.or_else(|| strictest_of(parts))?;
    let names: Vec<&str> = parts.iter().map(|(part, _)| part.name.as_str()).collect();
    let Some(written) = written else {
        let has_everybody = are_own && names.contains(&TiersDefinition::EVERYBODY);
        return Some(if has_everybody { TiersDefinition::EVERYBODY.to_owned() } else { strictest });
    };
    if !names.contains(&written.text.as_str()) {
        let hint = words::did_you_mean(&written.text, &names);
        written.wrong(
            format!("there is no tier {}", written.shown()),
            hint.unwrap_or_else(|| format!("write {}", words::listed(&names))),
        );
    }
    Some(written.text)
}

/// The tier whose slowest window admits least in the long run; of several equal ones the first by name. It is the default,
/// so that a client of unknown tier gets no more than any other.
fn strictest<'t>(tiers: impl Iterator<Item = (&'t str, &'t [Quota])>) -> Option<&'t str> {
    let rate = |window: &Quota| window.limit().get() as f64 / window.period_ns().get() as f64;
    let slowest = |windows: &[Quota]| windows.iter().map(rate).fold(f64::INFINITY, f64::min);
    let order =
        |(left, left_windows): &(&str, &[Quota]), (right, right_windows): &(&str, &[Quota])| -> Ordering {
            let by_rate = slowest(left_windows).total_cmp(&slowest(right_windows));
            by_rate.then_with(|| left.cmp(right))
        };
    tiers.min_by(order).map(|(name, _)| name)
}

fn strictest_of(parts: &[TierQuotas]) -> Option<String> {
    strictest(parts.iter().map(|(part, own)| (&*part.name, &**own))).map(str::to_owned)
}

/// Notes the `limit` of a policy that the tier table has changed.
fn spell(policy: &Table<'_>, tiers: &TiersDefinition, windows: &[Quota], base: &Base<'_>) {
    let mut rest = windows;
    let mut entries = Vec::new();
    for part in &tiers.parts {
        let (own, others) = rest.split_at(part.windows);
        rest = others;
        if part.origin == LimitOrigin::TierTable {
            policy.spell_comment(&format!("limit.{}: from the tier table of the database", key(&part.name)));
        }
        entries.push((key(&part.name), show_part(part, own, base)));
    }
    policy.spell("limit", show_table(entries));
}

/// Windows alone, or a table with what the tier does not share with its policy.
fn show_part(part: &TierPart, windows: &[Quota], base: &Base<'_>) -> String {
    let mut keys = vec![("limit", windows::show(windows))];
    if let Some(algorithm) = algorithm_of(windows).filter(|algorithm| *algorithm != base.counting.algorithm) {
        keys.push(("algorithm", show_text(word(&ALGORITHMS, &algorithm))));
    }
    let own = calendar_of_all(windows);
    let (zone, anchor) = (base.counting.calendar.zone, base.counting.calendar.anchor);
    if let Some(own) = own.zone.filter(|own| *own != zone.unwrap_or(Zone::utc())) {
        keys.push(("time-zone", show_text(own.name())));
    }
    if let Some(own) = own.anchor.filter(|own| *own != anchor.unwrap_or(1)) {
        keys.push(("anchor", own.to_string()));
    }
    if part.overshoot_ppm != base.overshoot_ppm {
        keys.push(("overshoot", show_text(&show_share(part.overshoot_ppm))));
    }
    if part.when_down != base.when_down {
        keys.push(("when-redis-down", show_text(word(&WHEN_DOWN, &part.when_down))));
    }
    if keys.len() == 1 { windows::show(windows) } else { show_table(keys) }
}
