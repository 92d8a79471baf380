//! Reads `[errors]`: own bodies for the errors that the gateway answers itself. No file is read.

use std::path::PathBuf;

use crate::load::sections;
use crate::load::text::path;
use crate::reader::{Table, Value};
use crate::upstream::health::range;
use gateway::proxy::config::ErrorPage;
use gateway::proxy::response::error_pages;

pub(crate) fn read(documents: &[Table<'_>]) -> Vec<ErrorPage> {
    let table = sections::table(documents, "errors");
    table.iter().flat_map(Table::entries).flat_map(|value| entry(&value)).collect()
}

/// One status or class of them, and its files.
fn entry(value: &Value<'_>) -> Vec<ErrorPage> {
    let Some(statuses) = range(&value.key).filter(|range| *range.start() >= 400 && !range.is_empty()) else {
        value
            .wrong_key(format!("`{}` is not an error status", value.key), "write it like `404` or `\"5xx\"`");
        return Vec::new();
    };
    let mut pages: Vec<ErrorPage> = Vec::new();
    for file in value.texts() {
        let path: PathBuf = path(&file);
        let form = error_pages::form(&path);
        if form.is_none() {
            file.wrong(
                format!("{} does not end in `.html`, `.json` or `.txt`", file.shown()),
                "name it like `404.html`, `404.json` or `404.txt`",
            );
        } else if pages.iter().any(|other| error_pages::form(&other.file) == form) {
            file.wrong(
                format!("{} is the second file of its type for `{}`", file.shown(), value.key),
                "keep one `.html`, one `.json` and one `.txt` for each status",
            );
        } else {
            pages.push(ErrorPage { key: value.key.clone(), statuses: statuses.clone(), file: path });
        }
    }
    pages
}
