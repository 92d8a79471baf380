//! The pictures of docs/: each is XML, says what it shows, can be read in the dark and in the light, and is on a page.

use std::fs;
use std::path::{Path, PathBuf};

use crate::documents::documents;
use crate::support::{python, stdout_of};

/// Prints the title and the style of a picture.
const READS: &str = "\
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
name = '{http://www.w3.org/2000/svg}'
assert root.tag == name + 'svg', root.tag
for part in ('title', 'desc', 'style'):
    print(root.findtext(name + part).strip())
";

fn pictures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/diagrams");
    fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it is there").path()).collect()
}

#[test]
fn every_picture_has_a_title_and_both_colour_schemes() {
    let python = python::interpreter();
    let python = python.to_str().expect("the path is text");
    let pictures = pictures();
    assert!(pictures.len() > 3, "{pictures:?}");
    for picture in &pictures {
        let read = stdout_of(python, &["-c", READS, picture.to_str().expect("the path is text")]);
        let [title, about, style] = read.splitn(3, '\n').collect::<Vec<_>>()[..] else { panic!("{read}") };
        assert!(title.len() > 10 && about.len() > title.len(), "{}: {read}", picture.display());
        for scheme in ["light", "dark"] {
            assert!(style.contains(&format!("(prefers-color-scheme: {scheme})")), "{}", picture.display());
        }
    }
}

#[test]
fn every_picture_is_on_a_page() {
    let documents = documents();
    for picture in pictures() {
        let name = picture.file_name().and_then(|name| name.to_str()).expect("the name is text");
        let link = format!("diagrams/{name})");
        assert!(documents.iter().any(|(_, text)| text.contains(&link)), "no page shows {name}");
    }
}
