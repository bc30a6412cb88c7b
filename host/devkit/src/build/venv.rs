//! Compilers that come as Python wheels, each in a virtual environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::Tool;
use super::{BuildError, Job, toolchain};

/// A package of the index at one version.
pub struct PinnedPackage {
    pub name: &'static str,
    pub version: &'static str,
    pub language: &'static str,
}

impl PinnedPackage {
    /// The environment of the package; installs it if it does not exist.
    pub fn installed(&self, job: &Job<'_>) -> Result<PathBuf, BuildError> {
        let install = |folder: &Path| self.install(job, folder);
        toolchain::folder(job, self.name, self.version, install)
    }

    /// Fetching the compiler needs Python on the machine.
    pub fn python(&self) -> Tool {
        Tool {
            program: if cfg!(windows) { "python" } else { "python3" },
            language: self.language,
            install: "install Python 3.10 or newer with its venv module, which fetches the compiler",
        }
    }

    fn install(&self, job: &Job<'_>, folder: &Path) -> Result<(), BuildError> {
        let python = self.python();
        job.log.run(
            python.command().args([ALONE, "-m", "venv"]).arg(folder),
            python,
            "install Python's venv module (on Debian the package python3-venv)",
        )?;
        job.log.run(
            interpreter(folder)
                .args(["-m", "pip", "install", "--disable-pip-version-check"])
                // A source package would run its own code to build itself.
                .args(["--quiet", "--no-deps", "--only-binary", ":all:"])
                .arg(format!("{}=={}", self.name, self.version)),
            python,
            "check that pip reaches its package index (network, proxy, PIP_INDEX_URL) and has the \
             compiler for this kind of machine",
        )
    }
}

/// Python loads no modules from the working folder, such as a foreign `venv.py`, and none from `PYTHONPATH`.
const ALONE: &str = "-I";

/// The environment's own Python, without the user's Python variables.
pub fn interpreter(venv: &Path) -> Command {
    let mut command = Command::new(program(venv, "python"));
    command.arg(ALONE);
    command
}

/// A program of the environment.
pub fn program(venv: &Path, name: &str) -> PathBuf {
    if cfg!(windows) {
        venv.join("Scripts").join(name).with_extension("exe")
    } else {
        venv.join("bin").join(name)
    }
}
