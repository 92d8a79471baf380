//! The one form of a path: it is its own form, it hides nothing, and it means what was sent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::matching::path::{self, Canonical};

fuzz_target!(|sent: &str| {
    // The proxy refuses a target that is no path before it asks for its form.
    if !sent.starts_with('/') {
        return;
    }
    let Ok(Canonical { path: form, doubt }) = path::canonical(sent) else { return };
    let again = path::canonical(&form);
    assert_eq!(again, Ok(Canonical { path: (&*form).into(), doubt }), "a form has itself as its form");
    if doubt.is_some() {
        // What servers read in more than one way: refused, unless a route keeps it.
        return;
    }
    assert!(form.starts_with('/') && !form.contains("//"), "{form}");
    assert!(form.split('/').all(|segment| segment != "." && segment != ".."), "{form}");
    let once = decoded(form.as_bytes());
    assert!(once.iter().filter(|byte| **byte == b'/').count() == form.matches('/').count(), "{form}");
    assert!(!once.contains(&b'\\') && !once.contains(&0), "{form}");
    assert_eq!(once, meant(sent), "{sent:?} became {form:?}");
    // Whoever decodes a second time, as many servers do, finds nothing new.
    assert_eq!(decoded(&once), once, "{form}");
});

/// What a server reads that decodes first and resolves then, written as plainly as can be.
fn meant(sent: &str) -> Vec<u8> {
    let plain = decoded(sent.as_bytes());
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_in_slash = true;
    for segment in plain.split(|byte| *byte == b'/') {
        ends_in_slash = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut path = b"/".to_vec();
    path.extend(kept.join(&b'/'));
    if ends_in_slash && !kept.is_empty() {
        path.push(b'/');
    }
    path
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                at += 3;
            }
            (byte, ..) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}
