//! This repository: where it is, cargo in it, and the `toolhold` binary it builds.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::interrupt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    Release,
    Dev,
}

impl Profile {
    /// Cargo's folder for the profile: "dev" builds into `debug`.
    fn folder(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "debug",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "dev",
        }
    }
}

/// This crate's folder. Cargo names it where it runs a program: two checkouts with one target folder may share the
/// program, and the folder that was compiled into it may be the other's.
pub fn xtask_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
    });
    &FOLDER
}

pub fn root() -> PathBuf {
    xtask_folder()
        .ancestors()
        .nth(2)
        .unwrap_or(xtask_folder())
        .to_path_buf()
}

/// Cargo in the repository's root; the same cargo that runs us.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(root());
    cargo
}

/// Targets that cargo builds beside the binary `toolhold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// All targets of the workspace. Cargo unites the features of all packages of one build, of dev-dependencies too:
    /// the binary alone has other features of tokio, so tokio and its dependents would be compiled twice where tests
    /// follow.
    Tests,
}

/// Builds `toolhold` with cargo's own progress on the terminal and says where it is.
pub fn build_toolhold(profile: Profile, beside: Beside) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--profile", profile.name()]);
    build.args(match beside {
        Beside::Nothing => ["--package", "toolhold-cli"],
        Beside::Tests => ["--workspace", "--all-targets"],
    });
    require(&mut build)?;
    Ok(target_folder()?.join(profile.folder()).join("toolhold"))
}

/// Removes a file, if it is there.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Asked from cargo, because environment and configuration files can move it.
pub fn target_folder() -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .context("could not run `cargo metadata`")?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("`cargo metadata` named no target_directory")
}

/// Runs a command on this terminal; fails if it fails.
pub fn require(command: &mut Command) -> Result<()> {
    let status = run(command)?;
    if status.success() {
        return Ok(());
    }
    bail!("`{}` failed ({status})", shown(command))
}

pub fn run(command: &mut Command) -> Result<ExitStatus> {
    if interrupt::happened() {
        bail!("interrupted before `{}`", shown(command));
    }
    command
        .status()
        .with_context(|| format!("could not run `{}`", shown(command)))
}

/// A child's exit code as our own; a signal as shells report it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

/// The command line as a person would type it.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.lock").exists());
        assert!(root().join("host/xtask").exists());
    }

    #[test]
    fn a_signal_becomes_the_shells_code() {
        let by_signal = ExitStatus::from_raw(2);
        assert_eq!(
            format!("{:?}", exit_code(by_signal)),
            format!("{:?}", ExitCode::from(130))
        );
        let by_code = ExitStatus::from_raw(3 << 8);
        assert_eq!(
            format!("{:?}", exit_code(by_code)),
            format!("{:?}", ExitCode::from(3))
        );
    }

    #[test]
    fn a_command_is_shown_without_its_folder() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["build", "--release"]);
        assert_eq!(shown(&command), "cargo build --release");
    }
}
