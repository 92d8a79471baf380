//! Any bytes as a part of a line, in printable ASCII only.
//!
//! What a client sends may hold line feeds, terminal sequences, right-to-left overrides or bytes that are not text.
//! In JSON everything but printable ASCII is written as `\u....`, and bytes that are not UTF-8 as U+FFFD; in texts as
//! `\x..`, byte by byte, as nginx does, so that a line is safe on any terminal and in any parser, and nobody can
//! forge another one.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// For the inside of a JSON string.
    Json,
    /// For a text between quotes.
    Quoted,
    /// For a text between blanks.
    Bare,
    /// Not at all: for what is no line.
    Raw,
}

impl Escape {
    /// Appends `bytes` escaped, clipped to `bytes_max` of them; `…` marks the cut. The output is at most six times as long
    /// as the clipped input, plus [`CUT_BYTES_MAX`] for the mark.
    pub(super) fn push(self, out: &mut Vec<u8>, bytes: &[u8], bytes_max: usize) {
        let kept = if bytes.len() > bytes_max { cut(bytes, bytes_max) } else { bytes };
        if is_plain(kept) && (self != Escape::Bare || !kept.contains(&b' ')) {
            out.extend_from_slice(kept);
        } else {
            self.push_escaped(out, kept);
        }
        if kept.len() < bytes.len() {
            out.extend_from_slice(self.cut());
        }
    }

    /// U+2026, an ellipsis.
    pub(super) fn cut(self) -> &'static [u8] {
        match self {
            Escape::Json => b"\\u2026",
            Escape::Quoted | Escape::Bare => b"\\xE2\\x80\\xA6",
            Escape::Raw => "…".as_bytes(),
        }
    }

    #[cold]
    fn push_escaped(self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Escape::Json => push_json(out, bytes),
            Escape::Quoted => bytes.iter().for_each(|byte| push_byte(out, *byte, false)),
            Escape::Bare => bytes.iter().for_each(|byte| push_byte(out, *byte, true)),
            Escape::Raw => out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes()),
        }
    }
}

fn push_byte(out: &mut Vec<u8>, byte: u8, is_bare: bool) {
    match byte {
        // The backslash, too, so that it begins nothing but an escape.
        b'"' | b'\\' => out.extend_from_slice(&hex(byte)),
        b' ' if is_bare => out.extend_from_slice(&hex(byte)),
        b' '..=b'~' => out.push(byte),
        _ => out.extend_from_slice(&hex(byte)),
    }
}

/// A byte as it stands in a text.
pub(super) fn hex(byte: u8) -> [u8; ESCAPE_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Whether no byte needs an escape. Eight bytes are checked at a time, because most texts have about a dozen.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    let marks = words.iter().fold(marks(last), |found, word| found | marks(*word));
    marks == 0
}

/// Not zero if one of the eight bytes is a quote, a backslash or not printable ASCII. It does not say which, because
/// a borrow in the subtraction may also mark the byte above.
fn marks(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let all = |byte: u8| u64::from_le_bytes([byte; 8]);
    let below = |word: u64, byte: u8| word.wrapping_sub(all(byte)) & !word;
    let is = |byte: u8| below(word ^ all(byte), 1);
    (word | below(word, 0x20) | is(b'"') | is(b'\\') | is(0x7f)) & all(0x80)
}

/// The first `length` bytes, or up to three fewer so that no character is cut in two.
fn cut(bytes: &[u8], length: usize) -> &[u8] {
    let is_inside = |end: usize| bytes[end] & 0xc0 == 0x80;
    let end = (length.saturating_sub(3)..=length).rev().find(|end| !is_inside(*end));
    &bytes[..end.unwrap_or(length)]
}

fn push_json(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_character(out, character);
        }
        if !chunk.invalid().is_empty() {
            push_unit(out, 0xfffd);
        }
    }
}

fn push_character(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        ' '..='~' => out.push(character as u8),
        _ => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_unit(out, *unit)),
    }
}

fn push_unit(out: &mut Vec<u8>, unit: u16) {
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Bytes of `\x..`.
pub(super) const ESCAPE_BYTES: usize = 4;
/// The longest mark of a cut.
pub(super) const CUT_BYTES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(bytes: &[u8], bytes_max: usize) -> String {
        let mut out = Vec::new();
        Escape::Json.push(&mut out, bytes, bytes_max);
        String::from_utf8(out).expect("ASCII is UTF-8")
    }

    #[test]
    fn hostile_bytes_are_shown_not_sent() {
        assert_eq!(escaped(b"plain /a?b=%0a'", 100), "plain /a?b=%0a'");
        assert_eq!(escaped(b"a\r\n\"b\\", 100), r#"a\u000d\u000a\"b\\"#);
        assert_eq!(escaped(b"\x1b[31m\x7f\x00", 100), r"\u001b[31m\u007f\u0000");
        assert_eq!(escaped("\u{85}\u{9b}\u{202e}\u{2028}".as_bytes(), 100), r"\u0085\u009b\u202e\u2028");
        assert_eq!(escaped("é😀".as_bytes(), 100), r"\u00e9\ud83d\ude00");
        assert_eq!(escaped(b"\xff\xc3", 100), r"\ufffd\ufffd");
    }

    #[test]
    fn a_cut_is_marked_and_spares_characters() {
        assert_eq!(escaped(b"abcdef", 6), "abcdef");
        assert_eq!(escaped(b"abcdef", 5), r"abcde\u2026");
        assert_eq!(escaped("abcdé".as_bytes(), 5), r"abcd\u2026");
        assert_eq!(escaped("a😀😀".as_bytes(), 8), r"a\ud83d\ude00\u2026");
        assert_eq!(escaped(&[0x80; 9], 8), format!("{}\\u2026", r"\ufffd".repeat(8)));
    }

    #[test]
    fn every_byte_is_judged_alike_at_every_place() {
        for byte in 0..=u8::MAX {
            for (length, at) in (1..=17).flat_map(|length| (0..length).map(move |at| (length, at))) {
                let mut text = vec![b'~'; length];
                text[at] = byte;
                let is_shown = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
                assert_eq!(is_plain(&text), is_shown, "{byte:#x} at {at} of {length}");
            }
        }
    }

    #[test]
    fn texts_are_escaped_as_nginx_does() {
        let escaped = |escape: Escape, bytes: &[u8]| {
            let mut out = Vec::new();
            escape.push(&mut out, bytes, 8);
            String::from_utf8(out).expect("ASCII is UTF-8")
        };
        assert_eq!(escaped(Escape::Quoted, b"a b"), "a b");
        assert_eq!(escaped(Escape::Bare, b"a b"), r"a\x20b");
        assert_eq!(escaped(Escape::Quoted, b"\"\\\n\x7f\xff"), r"\x22\x5C\x0A\x7F\xFF");
        assert_eq!(escaped(Escape::Bare, b"123456789"), r"12345678\xE2\x80\xA6");
    }

    proptest! {
        #[test]
        fn no_bytes_forge_a_quote_or_a_blank(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for escape in [Escape::Quoted, Escape::Bare] {
                let mut out = Vec::new();
                escape.push(&mut out, &bytes, usize::MAX);
                let is_safe = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'"';
                prop_assert!(out.iter().all(is_safe) && (escape == Escape::Quoted || !out.contains(&b' ')));
                prop_assert!(out.len() <= 6 * bytes.len());
            }
        }

        #[test]
        fn any_bytes_parse_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = escaped(&bytes, usize::MAX);
            prop_assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert!(text.len() <= 6 * bytes.len());
            let parsed: String = serde_json::from_str(&format!("\"{text}\"")).expect("JSON");
            prop_assert_eq!(parsed, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_text_parses_back_cut(text in any::<String>(), bytes_max in 0usize..40) {
            let parsed: String = serde_json::from_str(&format!("\"{}\"", escaped(text.as_bytes(), bytes_max)))
                .expect("JSON");
            if text.len() <= bytes_max {
                prop_assert_eq!(parsed, text);
            } else {
                let kept = &text[..text.floor_char_boundary(bytes_max)];
                prop_assert_eq!(parsed, format!("{kept}…"));
            }
        }
    }
}
