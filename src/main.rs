//! The `sluicegate` binary: arguments in, an exit code out.

use std::process::ExitCode;

use sluicegate::cli;

/// Gives freed pages back to the system by a thread of its own, even if every worker is idle.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
