//! The `sluicegate` binary.
fn main() {}
