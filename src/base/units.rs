//! Reads and writes durations, sizes and shares: `"1m30s"`, `"16KiB"`, `"20%"`.

use std::time::Duration;

/// Reads `"250ms"`, `"5s"`, `"1m30s"`, `"1h"`, `"2d"`. The error says what to write instead.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let mut rest = text.trim();
    let mut total_ms: u64 = 0;
    let mut last_unit_ms = u64::MAX;
    if rest.is_empty() {
        return Err(DURATION_HINT);
    }
    while !rest.is_empty() {
        let (number, after) = number(rest).ok_or(DURATION_HINT)?;
        let unit_end = after.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(after.len());
        let (_, unit_ms) =
            *DURATION_UNITS.iter().find(|(unit, _)| *unit == &after[..unit_end]).ok_or(DURATION_HINT)?;
        // Units must fall, each once, because `30s1m` is more likely a typing error than meant.
        if unit_ms >= last_unit_ms {
            return Err(DURATION_HINT);
        }
        last_unit_ms = unit_ms;
        total_ms = number
            .checked_mul(unit_ms)
            .and_then(|part_ms| total_ms.checked_add(part_ms))
            .filter(|total_ms| *total_ms <= DURATION_MS_MAX)
            .ok_or("at most `366d`")?;
        rest = &after[unit_end..];
    }
    Ok(Duration::from_millis(total_ms))
}

/// What [`duration`] would read for one written in another way: `5sec`, `1 minute`, `1.5h`.
pub fn duration_meant(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit() && it != '.')?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let word = unit.trim();
    let word = if word.len() > 2 { word.trim_end_matches('s') } else { word };
    let (_, unit_ms) = DURATION_WORDS.iter().find(|(words, _)| words.contains(&word))?;
    let parts = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction_ms = fraction.parse::<u64>().ok()?.checked_mul(*unit_ms)?.div_ceil(parts);
    let ms = whole.parse::<u64>().ok()?.checked_mul(*unit_ms)?.checked_add(fraction_ms)?;
    (ms <= DURATION_MS_MAX).then(|| show_duration(Duration::from_millis(ms)))
}

/// What [`size`] would read for one written in another way: `64k`, as in nginx, or `10mb`.
pub fn size_meant(text: &str) -> Option<String> {
    let (number, unit) = number(text.trim())?;
    let unit = unit.trim();
    let binary = format!("{unit}iB");
    let is_meant = |name: &str| name.eq_ignore_ascii_case(unit) || name.eq_ignore_ascii_case(&binary);
    let (name, _) = SIZE_UNITS.iter().find(|(name, _)| !unit.is_empty() && is_meant(name))?;
    Some(format!("{number}{name}"))
}

/// Reads `"16KiB"`, `"10MB"`, `"512"`, bytes. The error says what to write instead.
pub fn size(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = number(text.trim()).ok_or(SIZE_HINT)?;
    let unit = unit.trim_start();
    let (_, factor) = *SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or(SIZE_HINT)?;
    number.checked_mul(factor).ok_or("a smaller size")
}

/// Reads `"20%"`, `"0.1%"` as parts per million, at most a million. The error says what to write instead.
pub fn share_ppm(text: &str) -> Result<u32, &'static str> {
    const PPM_PER_PERCENT: u64 = 10_000;
    let percent = text.trim().strip_suffix('%').ok_or(SHARE_HINT)?.trim_end();
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    let (whole, rest) = number(whole).ok_or(SHARE_HINT)?;
    if !rest.is_empty() || whole > 100 {
        return Err(SHARE_HINT);
    }
    if fraction.is_empty() || fraction.len() > 4 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("at most four digits after the point, for example `0.0001%`");
    }
    let fraction_ppm: u64 = format!("{fraction:0<4}").parse().map_err(|_| SHARE_HINT)?;
    let ppm = whole * PPM_PER_PERCENT + fraction_ppm;
    u32::try_from(ppm).ok().filter(|ppm| *ppm <= 1_000_000).ok_or(SHARE_HINT)
}

/// Writes a duration so that [`duration`] reads it back. Parts of a millisecond are dropped.
pub fn show_duration(duration: Duration) -> String {
    let mut rest_ms = u64::try_from(duration.as_millis()).unwrap_or(DURATION_MS_MAX);
    if rest_ms == 0 {
        return "0s".to_owned();
    }
    let mut shown = String::new();
    for (unit, unit_ms) in DURATION_UNITS {
        if rest_ms >= unit_ms {
            shown.push_str(&format!("{}{unit}", rest_ms / unit_ms));
            rest_ms %= unit_ms;
        }
    }
    shown
}

/// Writes a size so that [`size`] reads it back: in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    let binary = SIZE_UNITS.iter().filter(|(unit, _)| unit.ends_with("iB"));
    match binary.rev().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// Writes parts per million so that [`share_ppm`] reads them back.
pub fn show_share(ppm: u32) -> String {
    let shown = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{}%", shown.trim_end_matches('0').trim_end_matches('.'))
}

/// A leading whole number, underscores between digits allowed, and the rest.
fn number(text: &str) -> Option<(u64, &str)> {
    let end =
        text.find(|character: char| !character.is_ascii_digit() && character != '_').unwrap_or(text.len());
    let digits = &text[..end];
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    digits.replace('_', "").parse().ok().map(|number| (number, &text[end..]))
}

const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// How others write units, in lower case and without an `s` at the end.
const DURATION_WORDS: [(&[&str], u64); 6] = [
    (&["w", "wk", "week"], 7 * 86_400_000),
    (&["d", "day"], 86_400_000),
    (&["h", "hr", "hour"], 3_600_000),
    (&["m", "min", "minute"], 60_000),
    (&["s", "sec", "second"], 1_000),
    (&["ms", "msec", "milli", "millisecond"], 1),
];

/// The longest duration: longer than any sensible deadline, and far from overflow in nanoseconds.
pub const DURATION_MAX: Duration = Duration::from_millis(DURATION_MS_MAX);
const DURATION_MS_MAX: u64 = 366 * 86_400_000;

const SIZE_UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const DURATION_HINT: &str = "whole numbers with d, h, m, s or ms, for example `5s`, `250ms`, `1m30s`";
const SIZE_HINT: &str =
    "a whole number of bytes, or one with KiB, MiB, GiB, KB, MB or GB, for example `16KiB`";
const SHARE_HINT: &str = "a share from `0%` to `100%`, for example `20%`";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    #[test]
    fn durations() {
        for (text, ms) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("1_000ms", 1_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "5", "s", "1.5s", "-1s", "30s1m", "1s1s", "5 s", "5sec", "1__0s", "99999999999999999999s"]
        {
            assert_eq!(duration(text), Err(DURATION_HINT), "{text}");
        }
        assert_eq!(duration("400d"), Err("at most `366d`"));
        for (text, meant) in [
            ("5sec", "5s"),
            ("1 minute", "1m"),
            ("90 Seconds", "1m30s"),
            ("1.5h", "1h30m"),
            ("0.25s", "250ms"),
            ("2 weeks", "14d"),
            ("100 millis", "100ms"),
            ("3ms", "3ms"),
        ] {
            assert_eq!(duration_meant(text).as_deref(), Some(meant), "{text}");
        }
        for text in ["", "5", "s", "5 parsecs", "1h 30m", "9999999999999999999 s", "400d", "1.2.3s"] {
            assert_eq!(duration_meant(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("16KiB", 16_384), ("10MB", 10_000_000), ("512", 512), ("1 GiB", 1 << 30), ("1_000B", 1_000)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "1.5KiB", "16kb", "-1", "16 Ki B"] {
            assert_eq!(size(text), Err(SIZE_HINT), "{text}");
        }
        assert_eq!(size("18446744073709551615TiB"), Err("a smaller size"));
        for (text, meant) in [("64k", "64KiB"), ("10 M", "10MiB"), ("10mb", "10MB"), ("1gib", "1GiB")] {
            assert_eq!(size_meant(text).as_deref(), Some(meant), "{text}");
        }
        for text in ["", "k", "10 pages", "10", "1.5k"] {
            assert_eq!(size_meant(text), None, "{text}");
        }
    }

    #[test]
    fn shares() {
        for (text, ppm) in [("20%", 200_000), ("0.1%", 1_000), ("100%", 1_000_000), ("0%", 0), ("0.0001%", 1)]
        {
            assert_eq!(share_ppm(text), Ok(ppm), "{text}");
        }
        for text in ["20", "101%", "100.1%", "-1%", "1.%", "1.00001%", "%", "1e2%"] {
            assert!(share_ppm(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0..=DURATION_MS_MAX, bytes in any::<u64>(), ppm in 0..=1_000_000_u32) {
            let length = Duration::from_millis(ms);
            assert_eq!(duration(&show_duration(length)), Ok(length));
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
            assert_eq!(share_ppm(&show_share(ppm)), Ok(ppm));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (duration(&text), size(&text), share_ppm(&text), duration_meant(&text), size_meant(&text));
        }
    }
}
