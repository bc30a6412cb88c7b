//! Builds the fuzz targets with coverage counters in our own crates alone.
//!
//! cargo-fuzz instruments every crate, which needs a nightly compiler and compiles the Wasm engine
//! anew: minutes. Here cargo runs *this* program in place of rustc for the workspace's members
//! (`RUSTC_WORKSPACE_WRAPPER`), and it adds LLVM's sanitizer coverage, which is a stable option, to
//! the crates that hold our code. Cargo keeps what a wrapper compiled apart from everything else, so
//! an ordinary build is neither used nor spoilt.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::project;

/// Environment variable with the crates to instrument, separated by commas. It is set for the cargo that builds
/// the targets, and read by this program as cargo's wrapper.
const IS_WRAPPER: &str = "TOOLHOLD_FUZZ_WRAPPER";

/// cargo-fuzz's flags without the sanitizer, and with optimisation, which the dev profile lacks.
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Copt-level=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// Builds the targets, into cargo's folder for the dev profile, with counters in `crates`.
pub fn build(targets: &[String], crates: &[String]) -> Result<()> {
    let wrapper = env::current_exe().context("could not find this program's own file")?;
    let mut build = project::cargo();
    // Together with the binary: features are unified over all packages of a build, so that the binary's
    // compiled dependencies are reused.
    build.args([
        "build",
        "--package",
        "toolhold-cli",
        "--package",
        "toolhold-fuzz",
    ]);
    build.args(["--features", "toolhold-fuzz/libfuzzer"]);
    for target in targets {
        build.args(["--bin", target]);
    }
    build
        .env("RUSTC_WORKSPACE_WRAPPER", wrapper)
        .env(IS_WRAPPER, crates.join(","))
        .env("CARGO_INCREMENTAL", "0");
    project::require(&mut build)
}

/// Fills `folder` with components that wasm-smith generates; random ones unless there is a seed.
///
/// wasm-smith runs in a separate program: it enables a feature of one of the engine's dependencies, and
/// linking it here would compile the engine a second time.
pub fn smith(binaries: &Path, folder: &Path, seed: Option<u32>) -> Result<()> {
    let mut build = project::cargo();
    build.args([
        "build",
        "--package",
        "toolhold-fuzz-smith",
        "--features",
        "smith",
    ]);
    project::require(&mut build)?;
    let mut smith = Command::new(binaries.join("fuzz-smith"));
    smith.arg(folder).args(seed.map(|seed| seed.to_string()));
    project::require(&mut smith)
}

/// Runs rustc and exits, if cargo called this program as its wrapper; otherwise returns `None`. Returns an error
/// if rustc cannot be run.
pub fn become_rustc() -> Option<anyhow::Error> {
    let crates = env::var(IS_WRAPPER).ok()?;
    let mut arguments = env::args_os().skip(1);
    let rustc = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    let mut command = Command::new(&rustc);
    if is_instrumented(&arguments, &crates) {
        command.args(FLAGS);
    }
    let error = command.args(arguments).exec();
    Some(anyhow::Error::new(error).context(format!("could not run {}", rustc.display())))
}

fn is_instrumented(arguments: &[OsString], crates: &str) -> bool {
    let is_ours = |name: &OsString| crates.split(',').any(|ours| name == ours);
    arguments
        .windows(2)
        .any(|pair| pair[0] == "--crate-name" && is_ours(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_crates_are_instrumented_and_no_others() {
        let of = |name: &str| {
            let arguments = ["--crate-name", name, "--edition=2024"].map(OsString::from);
            is_instrumented(&arguments, "toolhold_agent,toolhold_sandbox")
        };
        assert!(of("toolhold_sandbox"));
        assert!(!of("build_script_build"));
        assert!(!of("toolhold"));
        assert!(!is_instrumented(&["-vV".into()], "toolhold_agent"));
    }
}
