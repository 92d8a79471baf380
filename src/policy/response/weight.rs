//! Weights of the `Accept` fields (RFC 9110 section 12.4.2).

/// The items of a list field, each with its parameters cut off and its weight in thousandths. A weight that cannot be read
/// counts as none.
pub fn weighted(line: &str) -> impl Iterator<Item = (&str, u16)> {
    line.split(',').map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        (name, weight.map_or(WHOLE, thousandths))
    })
}

fn thousandths(text: &str) -> u16 {
    let weight = text.parse::<f32>().unwrap_or(0.0);
    // The cast is safe, because it saturates, and makes 0 of what is not a number.
    (weight.clamp(0.0, 1.0) * f32::from(WHOLE)) as u16
}

/// The weight of an item that names none.
const WHOLE: u16 = 1000;
