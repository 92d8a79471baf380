//! Lengths of texts, the same as the tables have in their checks, because a message that says which is longer serves
//! a client better.

use super::error::Error;

/// A name of a consumer, tenant, tier, resource or policy.
pub(super) fn name(what: &str, text: &str) -> Result<(), Error> {
    length(what, text, NAME_CHARS_MAX)
}

/// A text of at least one character.
pub(super) fn length(what: &str, text: &str, chars_max: usize) -> Result<(), Error> {
    match text.chars().count() {
        0 => Err(Error::Invalid(format!("the {what} is empty"))),
        chars if chars > chars_max => {
            Err(Error::Invalid(format!("the {what} has {chars} characters, more than {chars_max}")))
        }
        _ => Ok(()),
    }
}

const NAME_CHARS_MAX: usize = 256;
