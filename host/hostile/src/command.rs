//! This host as a person runs it, in a process that is watched and killed: for attacks that go through more of
//! it than the sandbox, or that never end.

use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, SharedCode, ms};
use crate::process::{self, WorkClock};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder with a configuration and modules, and the program that is run in it.
pub struct CommandFolder {
    folder: TempDir,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
}

/// What a command did.
pub struct Ran {
    /// `None`: it was killed, because it went beyond a bound.
    pub code: Option<i32>,
    pub took: Duration,
    /// The most memory that was resident in it, in bytes.
    pub peak: u64,
    pub stdout: String,
    pub stderr: String,
}

/// At which a command is killed.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// By [`WorkClock::is_over`].
    pub time: Duration,
    pub memory: u64,
}

impl CommandFolder {
    /// # Errors
    /// [`AttackFailure::Unable`] if this host is no program of its own.
    pub fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        Self::at(lab, lab.folder()?)
    }

    /// A folder in memory where this machine has a place for that: for attacks whose commands flush small files thousands
    /// of times, and that are not about disks.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn in_memory(lab: &Lab) -> Result<Self, AttackFailure> {
        Self::at(lab, lab.folder_in_memory()?)
    }

    fn at(lab: &Lab, folder: TempDir) -> Result<Self, AttackFailure> {
        let program = lab.program().ok_or_else(|| {
            AttackFailure::Unable("this host has no process of its own for the compiler".into())
        })?;
        let folder = Self {
            program: program.to_owned(),
            folder,
            variables: Vec::new(),
        };
        fs::create_dir(folder.path().join("modules"))?;
        if let Some(code) = lab.shared_code() {
            folder.find_compiled(code)?;
        }
        Ok(folder)
    }

    /// Has the commands find components that other attacks compiled, and keep theirs for these. All else of their
    /// cache and state is their own.
    fn find_compiled(&self, code: &SharedCode) -> Result<(), AttackFailure> {
        for name in ["cache", "state"] {
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(self.path().join(name))?;
        }
        symlink(&code.compiled, self.path().join("cache/compiled"))?;
        // An entry is sound for the key alone with which it was made.
        fs::copy(&code.key, self.path().join("state/cache.key"))?;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A variable of the person's shell.
    pub fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Has the commands find no programs. `doctor` asks the toolchains of all languages for their versions, which takes
    /// longer than all else that it does.
    pub fn without_programs(self) -> Self {
        let nothing = self.path().join("no-programs").display().to_string();
        self.with_variable("PATH", &nothing)
    }

    /// Makes an API key, and returns the `authorization` header of its requests.
    ///
    /// # Errors
    /// The command failed.
    pub fn key(
        &self,
        config: &[&str],
        name: &str,
        bounds: Bounds,
    ) -> Result<String, AttackFailure> {
        self.key_with(config, name, &[], bounds)
    }

    /// Makes a key with flags of the command, as [`Self::key`] does without.
    pub fn key_with(
        &self,
        config: &[&str],
        name: &str,
        flags: &[&str],
        bounds: Bounds,
    ) -> Result<String, AttackFailure> {
        let create = [config, &["keys", "create", name], flags].concat();
        let made = self.run(&create, bounds)?;
        ensure(made.code == Some(0), || {
            format!("no key can be made: {}", made.stderr)
        })?;
        Ok(format!("Bearer {}", made.stdout.trim()))
    }

    /// A command that is ready to run, with nothing of the environment but a home of its own.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TOOLHOLD_PATHS__CACHE", self.path().join("cache"))
            .env("TOOLHOLD_PATHS__STATE", self.path().join("state"))
            // Without it the keyring would be looked for in the usual place.
            .env("DBUS_SESSION_BUS_ADDRESS", "disabled:")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), AttackFailure> {
        let path = self.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(fs::write(path, content)?)
    }

    /// Runs a command to its end, or to its bounds.
    pub fn run(&self, arguments: &[&str], bounds: Bounds) -> Result<Ran, AttackFailure> {
        self.run_with(arguments, Stdio::null(), bounds)
    }

    /// The same, with a file of the folder as its input.
    pub fn run_with_input(
        &self,
        arguments: &[&str],
        input: &str,
        bounds: Bounds,
    ) -> Result<Ran, AttackFailure> {
        let input = fs::File::open(self.path().join(input))?;
        self.run_with(arguments, input.into(), bounds)
    }

    fn run_with(
        &self,
        arguments: &[&str],
        input: Stdio,
        bounds: Bounds,
    ) -> Result<Ran, AttackFailure> {
        let (stdout, stderr) = (self.path().join("stdout"), self.path().join("stderr"));
        let started = Instant::now();
        let mut child = self
            .command(arguments)
            .stdin(input)
            .stdout(fs::File::create(&stdout)?)
            .stderr(fs::File::create(&stderr)?)
            .spawn()?;
        let work = WorkClock::of(child.id());
        let mut peak = 0;
        let status = loop {
            // Asked first: a process that ended says nothing more.
            peak = process::peak_of(child.id()).unwrap_or(0).max(peak);
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if work.is_over(bounds.time) || peak > bounds.memory {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ok(Ran {
            // A signal of its own, such as an abort, is no code either.
            code: status.map(|status| status.code().unwrap_or(-1)),
            took: started.elapsed(),
            peak,
            stdout: printed(&stdout)?,
            stderr: printed(&stderr)?,
        })
    }
}

impl Ran {
    /// It ended by itself, and not by a crash.
    pub fn ensure_ended(&self, what: &str) -> Result<(), AttackFailure> {
        ensure(self.code.is_some(), || {
            format!(
                "{what}: killed after {}, with {} MiB resident",
                ms(self.took),
                self.peak >> 20
            )
        })?;
        let last = self.stderr.lines().last().unwrap_or_default();
        ensure(matches!(self.code, Some(0..=127)), || {
            format!("{what}: the host died: {last:.200}")
        })
    }
}

fn printed(path: &Path) -> Result<String, AttackFailure> {
    /// More than any command prints here.
    const MOST: u64 = 1 << 20;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
