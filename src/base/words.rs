//! Suggests words in messages: the nearest known word, and lists of all.

/// "did you mean `x`?", if a known word is near enough.
pub fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    let distance = |name: &&str| strsim::damerau_levenshtein(word, name);
    // Bounded, because a comparison takes time in the product of both lengths.
    let known = known.iter().take(COMPARED_MAX).filter(|_| word.len() <= NAME_BYTES_MAX);
    let near = known.min_by_key(|name| distance(name))?;
    let allowed = (near.len() / 3).max(1);
    (distance(near) <= allowed).then(|| format!("did you mean `{near}`?"))
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
        return format!("no {kind} is in force");
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
