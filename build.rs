//! How the gateway is linked.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The addresses that the loader fills in take a hundredth of the room in this form. glibc reads it since 2.36.
    let is_own = env::var_os("HOST") == env::var_os("TARGET");
    if is_own && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc; nothing with another C library.
fn glibc() -> Option<(u32, u32)> {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let (major, minor) =
        str::from_utf8(&asked.stdout).ok()?.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
