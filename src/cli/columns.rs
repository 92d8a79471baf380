//! Text in columns.

/// Lines with their cells under each other, two spaces apart.
pub(crate) fn aligned(lines: Vec<Vec<String>>) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let wide = |column: usize| {
        let widths = lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
