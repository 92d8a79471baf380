//! An entry of a descriptor, as another proxy sends it. Nothing is read into its text.

/// One entry of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}
