//! The `sluicegate` binary: arguments in, an exit code out.

use std::process::ExitCode;

use sluicegate::cli;

/// A thread-local allocator for threads that share nothing.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
