//! Words in messages: the nearest known word, lists of all, and what others wrote as a terminal may get it.

/// Whether a character steers a terminal, or changes how the text beside it reads: controls, and what Unicode formats text
/// with (overrides of direction, joiners, tags, ends of lines and paragraphs), which nobody sees.
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text in one line, with a replacement for each character that [`steers`], so that what somebody else has written
/// does not steer the terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|one| if steers(one) { char::REPLACEMENT_CHARACTER } else { one }).collect()
}

/// The same of a text of several lines.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// "did you mean `x`?", if a known word is near enough.
pub fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The known word that is nearest, if it is near enough.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let distance = |name: &&str| strsim::damerau_levenshtein(word, name);
    // Bounded, because a comparison takes time in the product of both lengths.
    let known = known.iter().take(COMPARED_MAX).filter(|_| word.len() <= NAME_BYTES_MAX);
    let known = known.filter(|name| {
        let front = word.strip_suffix(**name).unwrap_or_default().trim_end_matches(['-', '_']);
        !["dis", "in", "no", "non", "not", "un"].contains(&front)
    });
    let near = known.clone().min_by_key(|name| distance(name))?;
    let allowed = if word.len() <= 5 { 1 } else { (near.len() / 3).clamp(1, 2) };
    // A longer word too, because others say more: `max-body-size`.
    let begins = |name: &&&str| word.strip_prefix(**name).is_some_and(|rest| rest.starts_with(['-', '_']));
    let near =
        if distance(near) <= allowed { Some(near) } else { known.filter(begins).max_by_key(|it| it.len()) };
    near.copied()
}

/// "`a`, `b` or `c`".
pub fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

/// `no policy of this name is in force: did you mean `calls`? write `calls` or `search``
pub fn unknown(kind: &str, name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if known.is_empty() {
        return format!("no {kind} is in force: define `[{kind}.{}]` in gateway.toml first", plain(name));
    }
    let near = did_you_mean(name, &known).map(|near| format!("{near} ")).unwrap_or_default();
    let shown = &known[..known.len().min(NAMES_SHOWN)];
    let more = match known.len() - shown.len() {
        0 => String::new(),
        more => format!(" or one of {more} more"),
    };
    format!("no {kind} of this name is in force: {near}write {}{more}", listed(shown))
}

/// Known words that an unknown one is compared with.
const COMPARED_MAX: usize = 1_000;

/// Longest word that is compared, and longest name of a definition, bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// Names of an answer about an unknown one.
const NAMES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_meant() {
        let known = ["max", "max-body", "path", "limit"];
        for (word, near) in [
            ("pth", Some("path")),
            ("max-body-size", Some("max-body")),
            ("limit_per_minute", Some("limit")),
            ("pathology", None),
            ("by", None),
            ("lmt", None),
            ("no-limit", None),
            ("unpath", None),
        ] {
            let said = near.map(|near| format!("did you mean `{near}`?"));
            assert_eq!(did_you_mean(word, &known), said, "{word}");
        }
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_plain() {
        for one in "\u{1b}\r\n\t\u{7f}\u{9b}\u{202a}\u{202e}\u{2066}\u{2069}\u{200b}\u{200f}\u{2028}\u{feff}\u{e0041}".chars() {
            assert_eq!(plain(&format!("a{one}b")), "a\u{fffd}b", "{one:?}");
        }
        for text in
            ["Zo\u{eb} e\u{301} \u{5e9}\u{5dc} \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940}", "\u{1f600} \"'\\"]
        {
            assert_eq!(plain(text), text);
        }
        assert_eq!(plain_lines("a\u{202e}\nb\n"), "a\u{fffd}\nb\n");
    }
}
