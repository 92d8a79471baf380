//! `compress`, of the whole file and of a route.

use super::{config, each_says};
use policy::response::compress::{Coding, Compress};

#[test]
fn a_route_starts_from_the_default_and_says_what_differs() {
    let text = "[compress]\nmin = \"2KiB\"\nlevel = { br = 6 }\nset-cookie = true\n\
        [[route]]\npath = \"/a\"\nto = \"echo\"\n\
        [[route]]\npath = \"/b\"\nto = \"echo\"\ncompress = { encodings = [\"br\", \"gzip\"], level = { gzip = 9 } }\n\
        [[route]]\npath = \"/c\"\nto = \"echo\"\ncompress = false\n";
    let first = config(text);
    let rules = |index: usize| first.routes[index].compress.as_deref();
    let usual = Compress::default();
    let default = rules(0).expect("the default holds");
    assert_eq!((default.min_bytes, default.set_cookie, &default.types), (2_048, true, &usual.types));
    assert_eq!(default.codings, [(Coding::Zstd, 3), (Coding::Brotli, 6), (Coding::Gzip, 5)]);
    let own = rules(1).expect("it is on");
    assert_eq!((own.min_bytes, &own.codings[..]), (2_048, &[(Coding::Brotli, 6), (Coding::Gzip, 9)][..]));
    assert_eq!(rules(2), None);
    let again = config(&first.effective());
    assert_eq!(again, first);
    assert_eq!(again.effective(), first.effective());
    let on = config("[[route]]\nto = \"echo\"\ncompress = true");
    assert_eq!(on.routes[0].compress.as_deref(), Some(&usual));
}

#[test]
fn every_mistake_is_told() {
    each_says(&[
        (
            "compress = \"yes\"",
            "`compress` must be true, false or a table, not a string",
            "1:12",
            "write `compress = true`, or `{ … }`",
        ),
        ("[compress]\ntypes = []", "`types` is empty", "2:9", "leave it out for the default types"),
        ("[compress]\ntypes = \"*/*\"", "`*/*` is not a media type", "2:9", "`application/*+json`"),
        ("[compress]\nmin = \"2GiB\"", "`min` is out of range", "2:7", "`\"1GiB\"`"),
        ("[compress]\nencodings = []", "`encodings` is empty", "2:13", "compress = false"),
        ("[compress]\nencodings = [\"gzip\", \"gzip\"]", "`gzip` is named twice", "2:22", "once"),
        ("[compress]\nencodings = \"deflate\"", "`deflate` is not a value of `encodings`", "2:13", "`gzip`"),
        ("[compress]\nlevel = { br = 11 }", "`br` is out of range", "2:16", "from 1 to 6"),
        (
            "[compress]\nencodings = \"br\"\nlevel = { gzip = 1 }",
            "`gzip` is not listed in `encodings`",
            "3:11",
            "add it",
        ),
        ("[compress]\ntyps = []", "unknown key `typs` in `compress`", "2:1", "`types`"),
    ]);
}
