//! Numbers as people read them.

use serde_json::Value;

use config::limits::limit_text::show_units;

pub(super) fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => thousands(rate.round() as u64),
    }
}

/// A count, its thousands apart.
pub(super) fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), thousands)
}

fn thousands(number: u64) -> String {
    show_units(number).replace('_', ",")
}

pub(super) fn duration(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, shown) in
            [(json!(0.0), "0"), (json!(1.25), "1.2"), (json!(1_234_567.8), "1,234,568"), (json!(null), "-")]
        {
            assert_eq!(rate(&value), shown);
        }
        for (value, shown) in [
            (json!(0.000_25), "250 us"),
            (json!(0.012_34), "12.3 ms"),
            (json!(0.5), "500 ms"),
            (json!(2.0), "2.0 s"),
        ] {
            assert_eq!(duration(&value), shown);
        }
        assert_eq!((count(&json!(100)), count(&json!(1000))), ("100".to_owned(), "1,000".to_owned()));
    }
}
