//! Words that a configuration may use, as messages suggest them.

/// "did you mean `x`?" where one of the known words is near.
pub(super) fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    let distance = |name: &&str| strsim::damerau_levenshtein(word, name);
    // A long word is compared with nothing, and a word with so many at most: each costs the product of the lengths.
    let known = known.iter().take(COMPARED_MAX).filter(|_| word.len() <= NAME_BYTES_MAX);
    let near = known.min_by_key(|name| distance(name))?;
    let allowed = (near.len() / 3).max(1);
    (distance(near) <= allowed).then(|| format!("did you mean `{near}`?"))
}

/// "`a`, `b` or `c`".
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

/// Known words that an unknown one is compared with.
const COMPARED_MAX: usize = 1_000;

/// Longest word that is compared, and longest name of a definition, bytes.
pub(super) const NAME_BYTES_MAX: usize = 200;
