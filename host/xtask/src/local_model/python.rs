//! llama.cpp's server from a wheel, in a virtual environment of its own. The wheel is pinned by
//! hash in `local_model/requirements.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use super::home;
use crate::{narrate, project};

const REQUIREMENTS: &str = include_str!("../../local_model/requirements.txt");

/// The interpreter of an environment that can import the server.
pub fn install() -> Result<PathBuf> {
    let environment = home::folder()?.join("python");
    let interpreter = environment.join("bin").join("python");
    // Written last, so that an installation that was broken off, or of other pins, is made again.
    let complete = environment.join("toolhold-complete");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(interpreter);
    }

    let spinner = narrate::spinner("installing llama.cpp's server (a wheel of 34 MB)");
    create_environment(&environment)?;
    let requirements = project::xtask_folder().join("local_model/requirements.txt");
    let mut pip = Command::new(&interpreter);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
    ])
    .args([
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--requirement",
    ])
    .arg(requirements);
    checked(
        &mut pip,
        "there may be no wheel for this platform or no way to a Python package registry: use an endpoint of your own (--base-url)",
    )?;
    checked(
        Command::new(&interpreter).args(["-c", "import xllamacpp"]),
        "if it misses libgomp.so.1, install your system's libgomp (Debian: apt-get install libgomp1)",
    )?;
    fs::write(&complete, REQUIREMENTS)
        .with_context(|| format!("could not write {}", complete.display()))?;
    spinner.finish_and_clear();
    Ok(interpreter)
}

fn create_environment(folder: &Path) -> Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(folder);
    checked(
        &mut venv,
        "install Python 3.10 or newer with its venv module (Debian: apt-get install python3-venv)",
    )
}

/// Runs quietly; a failure carries the end of what was printed and what to do about it.
fn checked(command: &mut Command, advice: &str) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command
        .output()
        .with_context(|| format!("could not run {shown}: {advice}"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{shown} failed: {}; {advice}", last_words(&output))
}

fn last_words(output: &Output) -> String {
    let text = [output.stderr.as_slice(), &output.stdout]
        .map(String::from_utf8_lossy)
        .join("\n");
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}
