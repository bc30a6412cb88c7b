//! Build script of the crates whose programs are started most: the command line, of which tests start thousands, and those with
//! the most tests, each of which is a process.
//!
//! An unoptimised program has half a million addresses to adjust if it may lie anywhere in memory, and copies the pages that
//! they are on: 14 of the 17 ms of processor time that it takes to start and do nothing. So it lies where it was linked for.
//! Releases may lie anywhere.

use std::env;
use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let mut cargo = io::stdout();
    writeln!(cargo, "cargo::rerun-if-changed=Cargo.toml")?;
    // Where it was measured.
    let is_measured = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_measured && is("PROFILE", "debug") {
        writeln!(cargo, "cargo::rustc-link-arg=-no-pie")?;
    }
    Ok(())
}
