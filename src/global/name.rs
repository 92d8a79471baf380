//! What keys are called in Redis: `prefix:policy:hash`, in a cluster with a tag of ours before the policy.
//!
//! Nothing of a client is in a name but 128 bits of a keyed hash. The policy is there for people who look.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Makes names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    /// Names that begin with `prefix`.
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned() }
    }

    /// Appends the name of a window's key.
    pub(super) fn write_key(&self, out: &mut Vec<u8>, tag: Option<&str>, policy: &str, key: u128) {
        self.begin(out, tag);
        let shown = policy.bytes().take(POLICY_BYTES_MAX);
        // A brace would be read as a tag, a glob would make a key hard to look for.
        out.extend(shown.map(|byte| if is_plain(byte) { byte } else { b'_' }));
        out.push(b':');
        let mut hash = [0; HASH_BYTES];
        let length = URL_SAFE_NO_PAD.encode_slice(key.to_be_bytes(), &mut hash);
        out.extend_from_slice(&hash[..length.expect("22 characters hold 16 bytes in base64")]);
    }

    /// The name of something that is not a window's: `!` is in no policy's place.
    pub(super) fn own(&self, tag: Option<&str>, what: &str) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + what.len() + 12);
        self.begin(&mut name, tag);
        name.push(b'!');
        name.extend_from_slice(what.as_bytes());
        name
    }

    fn begin(&self, out: &mut Vec<u8>, tag: Option<&str>) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.push(b':');
        if let Some(tag) = tag {
            out.push(b'{');
            out.extend_from_slice(tag.as_bytes());
            out.push(b'}');
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

/// So much of a policy's name is shown: with the usual prefix a name stays within a 56-byte block of the allocator.
const POLICY_BYTES_MAX: usize = 24;
const HASH_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tag: Option<&str>, policy: &str, key: u128) -> String {
        let mut name = Vec::new();
        Names::new("sg").write_key(&mut name, tag, policy, key);
        String::from_utf8(name).expect("names are text")
    }

    #[test]
    fn names_are_plain_and_short() {
        assert_eq!(name(None, "per-tenant", 0), "sg:per-tenant:AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(name(Some("7"), "a{b}*: c", u128::MAX), "sg:{7}a_b____c:_____________________w");
        assert_eq!(name(None, &"x".repeat(200), 0).len(), 3 + 24 + 1 + 22);
        assert_eq!(Names::new("sg").own(Some("7"), "up"), b"sg:{7}!up");
    }
}
