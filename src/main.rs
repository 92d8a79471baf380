//! The `sluicegate` binary: arguments in, an exit code out.

use std::process::ExitCode;

/// jemalloc returns freed pages to the system from a background thread, so an idle gateway shrinks too. An allocator
/// that returns pages only while it allocates keeps them as long as the workers are idle.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
