//! Values that several readers write: rates, times, names of fields.

use std::time::Duration;

/// So many units in so much time, as a limit writes it. A part of a second becomes whole seconds of the same rate.
pub(super) fn rate(units: u64, period: Duration) -> Option<String> {
    let millis = u64::try_from(period.as_millis()).ok().filter(|millis| *millis > 0)?;
    let common = greatest_common_divisor(millis, 1_000);
    // Two in 1,500 ms are four in 3 s: 1,500 and 1,000 share 500.
    let units = units.checked_mul(1_000 / common).filter(|units| *units > 0)?;
    Some(format!("{units}/{}", seconds(millis / common)))
}

/// Whether a name is `known`, or begins with it if that ends in a star.
pub(super) fn is_named(name: &str, known: &str) -> bool {
    known.strip_suffix('*').map_or(name == known, |begin| name.starts_with(begin))
}

/// Whether a word is one of a list, whose words have blanks between them.
pub(super) fn is_among(word: &str, list: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

/// A period as a limit writes it.
pub(super) fn seconds(seconds: u64) -> String {
    match seconds {
        1 => "s".to_owned(),
        60 => "m".to_owned(),
        3_600 => "h".to_owned(),
        86_400 => "d".to_owned(),
        seconds if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds if seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// A duration as protocol buffers write it in JSON: `0.25s`, `30s`.
pub(super) fn protobuf_time(text: &str) -> Option<Duration> {
    let (whole, part) = text.strip_suffix('s')?.split_once('.').unwrap_or((text.strip_suffix('s')?, ""));
    let part = format!("{part:0<9}");
    let nanos: u32 = part.get(..9)?.parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

/// Methods without those that no route can name, because every request with one of them is answered 501. One alone
/// stays, so that what is for it alone is listed and not for all methods.
pub(super) fn methods<'a>(named: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let all: Vec<String> = named.into_iter().map(str::to_owned).collect();
    let known: Vec<String> =
        all.iter().filter(|it| !matches!(it.as_str(), "TRACE" | "CONNECT")).cloned().collect();
    if known.is_empty() { all } else { known }
}

/// Whether a text can be the name of a field.
pub(super) fn is_field(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_parts_of_a_second_are_the_same_in_seconds() {
        for (units, millis, said) in [
            (1, 100, "10/s"),
            (5, 250, "20/s"),
            (2, 1_500, "4/3s"),
            (7, 1_000, "7/s"),
            (10, 60_000, "10/m"),
            (10, 90_000, "10/90s"),
            (1, 7_200_000, "1/2h"),
            (3, 30 * 86_400_000, "3/30d"),
        ] {
            assert_eq!(rate(units, Duration::from_millis(millis)).as_deref(), Some(said));
        }
        assert_eq!(rate(1, Duration::ZERO), None);
        assert_eq!(rate(u64::MAX, Duration::from_millis(1)), None);
    }

    #[test]
    fn durations_of_protocol_buffers_have_parts() {
        assert_eq!(protobuf_time("0.25s"), Some(Duration::from_millis(250)));
        assert_eq!(protobuf_time("30s"), Some(Duration::from_secs(30)));
        assert_eq!(protobuf_time("1.5m"), None);
        assert_eq!(protobuf_time("5"), None);
        assert_eq!(protobuf_time("1.é12345678s"), None);
    }
}
