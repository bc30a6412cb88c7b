//! The `toolhold` binary as a user runs it: its own folder, no configuration but what the test gives.

use crate::sandbox::repository;
use crate::until;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use tempfile::TempDir;
use toolhold_runtime::file_pins::FilePins;

/// A place to run the binary in.
#[derive(Debug)]
pub struct Host {
    folder: TempDir,
}

/// What a finished command printed.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Host {
    /// An empty folder. The compiled cache is shared between tests: compiling is not what they test.
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts the shipped module `name` into `modules/`.
    pub fn ship(&self, name: &str) -> &Self {
        self.ship_from("modules", name)
    }

    /// Ships a module of this folder of the repository, as [`ship`](Self::ship).
    pub fn ship_from(&self, folder: &str, name: &str) -> &Self {
        let from = repository().join(folder).join(name);
        let to = self.path().join("modules").join(name);
        std::fs::create_dir_all(&to).expect("a folder");
        for file in ["module.toml", &format!("{name}.wasm")] {
            std::fs::copy(from.join(file), to.join(file)).expect("a shipped module");
        }
        self
    }

    /// Writes a file, and the folders above it. A `toolhold.toml` is trusted first, as its author who has run
    /// `toolhold trust` would have it: a server that watches never sees it without.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        if path == "toolhold.toml" {
            let folder = self.path().canonicalize().expect("a folder");
            let trusted = FilePins::new(&self.state());
            let file = folder.join(path);
            let before = trusted.record(&file);
            let kept = trusted.pin(&file, content.as_ref(), before.as_ref());
            kept.expect("a record of the trust");
        }
        self.write_untrusted(path, content)
    }

    /// As [`write`](Self::write), without any trust in the file.
    pub fn write_untrusted(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder");
        }
        std::fs::write(path, content).expect("a file");
        self
    }

    /// The state folder: pins and grants are this host's own. Only the key of the compiled cache
    /// is everybody's, as the cache is.
    fn state(&self) -> PathBuf {
        // Two threads of a test may start a command at the same time.
        static CREATING: Mutex<()> = Mutex::new(());
        let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.path().join(".state");
        if !state.exists() {
            let mut builder = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(&state).expect("a folder");
            std::fs::write(state.join("cache.key"), [7; 32]).expect("a key");
        }
        state
    }

    /// A command that is ready to run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let shared = binary().with_file_name("toolhold-test-state");
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TOOLHOLD_PATHS__CACHE", shared.join("cache"))
            .env("TOOLHOLD_PATHS__STATE", self.state())
            // Never the keyring of whoever runs the tests.
            .env("DBUS_SESSION_BUS_ADDRESS", "disabled:")
            // Modules are compiled beside other tests; a test calls their tools at once.
            .env("TOOLHOLD_MODULES__START_TIMEOUT_MS", "120000")
            .stdin(Stdio::null());
        // Rust's own toolchain is found through these, where a test builds a module.
        for name in [
            "CARGO_HOME",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
            "CARGO_HTTP_CAINFO",
            "SSL_CERT_FILE",
        ] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Finished {
        finish(self.command(arguments).output().expect("the binary runs"))
    }

    /// Runs a command until `times` of the lines that it prints have `mark`, and sends it then what Ctrl-C sends. A command that
    /// prints fewer runs to its end.
    pub fn run_until(&self, arguments: &[&str], mark: &str, times: usize) -> Finished {
        let mut command = self.command(arguments);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary runs");
        let printed = BufReader::new(child.stdout.take().expect("a pipe"));
        let (mut stdout, mut found) = (String::new(), 0);
        for line in printed.lines() {
            let line = line.expect("a line");
            stdout.push_str(&line);
            stdout.push('\n');
            if line.contains(mark) {
                found += 1;
                if found == times {
                    signal(child.id(), "INT");
                }
            }
        }
        Finished {
            stdout,
            ..finish(child.wait_with_output().expect("it ends"))
        }
    }

    /// The first call of the list that waits for a person, as soon as there is one.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn waiting_call(&self) -> String {
        until("a call that waits", || {
            let listed = self.run(&["approvals", "list"]);
            assert_eq!(listed.code, Some(0), "{listed:?}");
            let call = listed.stdout.split_whitespace().next()?;
            Some(call.to_owned())
        })
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

/// Sends a process a signal, such as `INT`. A shell has `kill` of its own, which slim systems lack as a program.
///
/// # Panics
/// If it cannot be sent.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", "kill -s \"$1\" \"$2\"", "kill", name])
        .arg(process.to_string())
        .status();
    assert!(sent.expect("a shell").success(), "{name} to {process}");
}

/// Whether a process has a handler for each of these signals, by number.
///
/// # Panics
/// If there is no such process.
pub fn handles(process: u32, signals: &[u32]) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("Linux says it").trim(), 16).expect("hex");
    signals.iter().all(|signal| caught >> (signal - 1) & 1 == 1)
}

/// The most memory that a process had so far, in bytes. Absent: it has ended, or the system does not say.
pub fn peak_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// What `output` holds, as text.
pub fn finish(output: Output) -> Finished {
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Set where the binary is built already: by the setup script of `.config/nextest.toml`, because under nextest
/// each test is a process, and each would ask cargo again.
const IS_BUILT: &str = "TOOLHOLD_TEST_BINARY";

/// The binary of this build. Built here, once a process, unless that was done before: cargo does not build
/// another package's binary for a test, and a stale one would test the past.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY
        .get_or_init(|| {
            if std::env::var_os(IS_BUILT).is_none() {
                build();
            }
            // target/PROFILE/deps/integration-… → target/PROFILE/toolhold
            let test = std::env::current_exe().expect("a path");
            let profile = test
                .parent()
                .and_then(Path::parent)
                .expect("a target folder");
            profile.join("toolhold")
        })
        .clone()
}

fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "toolhold-cli"])
        .current_dir(repository())
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the binary does not build");
}
