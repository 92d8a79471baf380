//! The page on troubleshooting has every reason by which the gateway refuses or closes, so that one in a log is found there.

use crate::documents::{documents, documents_with};

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_reason_is_on_the_page() {
    const HEAD: &str = "| reason | status |";
    let (_, log) = documents_with(HEAD).remove(0);
    let (_, table) = log.split_once(HEAD).expect("it was found by it");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let reasons: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).flat_map(quoted).collect();
    assert!(reasons.len() > 30, "{reasons:?}");
    let named = |(name, _): &(String, String)| name.ends_with("/troubleshooting.md");
    let (_, page) = documents().into_iter().find(named).expect("the page is there");
    let missing: Vec<_> =
        reasons.iter().filter(|reason| !quoted(&page).any(|word| word == **reason)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
