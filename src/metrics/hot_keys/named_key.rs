//! [`NamedKey`]: a key with the name that people know it by.

/// A shard of Redis, by its position among those of this process's limiter; it has fewer bits, because many keys are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardNumber(pub u16);

/// A key, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    pub key: u64,
    /// The policy that counts by it.
    pub policy: Box<str>,
    /// Who is counted, without anything secret; empty if the policy counts everybody together.
    pub name: Box<str>,
    /// The shard of Redis that keeps it; `None`: this node does.
    pub shard: Option<ShardNumber>,
}

impl NamedKey {
    /// A name that is cut to what is kept of one.
    pub fn new(key: u64, policy: &str, name: String, shard: Option<ShardNumber>) -> NamedKey {
        NamedKey { key, policy: policy.into(), name: cut(name).into(), shard }
    }
}

/// A name of what is kept of one at most.
pub(super) fn cut(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        let cut = name.floor_char_boundary(NAME_BYTES_MAX - ELLIPSIS.len());
        name.truncate(cut);
        name.push_str(ELLIPSIS);
    }
    name
}

/// A key's name as it is shown: that of a policy that counts everybody together is empty.
pub fn shown_name(name: &str) -> &str {
    if name.is_empty() { "everybody" } else { name }
}

/// A name is cut to so many bytes.
pub(super) const NAME_BYTES_MAX: usize = 200;
const ELLIPSIS: &str = "…";
