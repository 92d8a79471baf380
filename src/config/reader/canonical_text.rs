//! A configuration in its canonical form, with its secrets between marks.

use std::sync::Arc;

/// A configuration as it is written, with its secrets between marks.
#[derive(Clone, Default, PartialEq, Eq, derive_more::Debug)]
#[debug("Canonical(..)")]
pub(crate) struct Canonical(Arc<str>);

impl Canonical {
    pub(super) fn of(text: String) -> Canonical {
        Canonical(text.into())
    }

    /// The text with a mask for each secret.
    pub(crate) fn masked(&self) -> String {
        self.parts(|masked, _| masked)
    }

    /// The text with its secrets.
    #[cfg(test)]
    pub(crate) fn whole(&self) -> String {
        self.parts(|_, secret| secret)
    }

    fn parts(&self, pick: for<'t> fn(&'t str, &'t str) -> &'t str) -> String {
        let mut pieces = self.0.split(BEGIN);
        let mut text = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (secret, rest) = piece.split_once(END).unwrap_or((piece, ""));
            let (masked, secret) = secret.split_once(BETWEEN).unwrap_or_default();
            text.extend([pick(masked, secret), rest]);
        }
        text
    }
}

/// Marks around a secret: `BEGIN`, what stands for it, `BETWEEN`, the secret, `END`. No text of a configuration has them.
pub(super) const BEGIN: char = '\u{2}';
pub(super) const BETWEEN: char = '\u{1}';
pub(super) const END: char = '\u{3}';
