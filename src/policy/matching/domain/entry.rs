//! An entry of a descriptor, as another proxy sends it. Nothing is read into its text.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    pub key: &'a str,
    pub value: &'a str,
}
