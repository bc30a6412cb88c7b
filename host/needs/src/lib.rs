//! Programs, servers and components that tests need of a machine, and may be without.
//!
//! A test that cannot run calls [`leave_out`]. The harness hides what a test prints that passes, so the reason is written
//! into the folder that [`FOLDER`] names, and `cargo xtask test` prints all of them in the end. A need that [`REQUIRED`]
//! names must be met: the test fails instead. `.ci/run` requires what it installed.

use std::fmt::{self, Display};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable with the folder that reasons are written into.
pub const FOLDER: &str = "TOOLHOLD_TEST_LEFT_OUT";
/// The variable with the names of needs that must be met, with commas between them.
pub const REQUIRED: &str = "TOOLHOLD_TEST_REQUIRED";
/// The variable with which nextest names the test.
const TEST: &str = "NEXTEST_TEST_NAME";

/// Something of the machine that a test cannot run without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A browser.
    Chromium,
    /// `dbus-daemon`, for a session bus.
    Dbus,
    /// A server of a real model.
    Model,
    /// A component that is not committed ready built.
    Module,
    /// A server of the proxy nginx.
    Nginx,
    /// A server of PostgreSQL, or its programs.
    PostgreSql,
    /// A system and a processor for which a program by others was compiled.
    Processor,
    /// A program that developers have, such as `npm`.
    Program,
    /// `promtool`, which checks rules of Prometheus.
    Promtool,
    /// A registry of packages that answers.
    Registry,
    /// `systemd-analyze`, which checks units of systemd.
    SystemdAnalyze,
}

impl Need {
    pub const ALL: [Self; 11] = [
        Self::Chromium,
        Self::Dbus,
        Self::Model,
        Self::Module,
        Self::Nginx,
        Self::PostgreSql,
        Self::Processor,
        Self::Program,
        Self::Promtool,
        Self::Registry,
        Self::SystemdAnalyze,
    ];

    /// The name in [`REQUIRED`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Chromium => "chromium",
            Self::Dbus => "dbus",
            Self::Model => "model",
            Self::Module => "modules",
            Self::Nginx => "nginx",
            Self::PostgreSql => "postgresql",
            Self::Processor => "processor",
            Self::Program => "programs",
            Self::Promtool => "promtool",
            Self::Registry => "registries",
            Self::SystemdAnalyze => "systemd-analyze",
        }
    }

    /// Whether [`REQUIRED`] names it.
    pub fn is_required(self) -> bool {
        let required = std::env::var(REQUIRED).unwrap_or_default();
        required.split(',').any(|name| name.trim() == self.name())
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Records that the running test, or a part of it, is left out.
///
/// # Panics
/// The need is required, or the reason cannot be written.
#[track_caller]
pub fn leave_out(need: Need, why: impl Display) {
    assert!(
        !need.is_required(),
        "{REQUIRED} says that {need} must be there, and this test would be left out: {why}"
    );
    // Not through the harness, which hides what it captures.
    let _ = writeln!(io::stderr(), "!!! SKIPPED: {why}");
    if let Some(folder) = std::env::var_os(FOLDER) {
        let thread = std::thread::current();
        let test = std::env::var(TEST).unwrap_or_else(|_| thread.name().unwrap_or("?").to_owned());
        let written = write(Path::new(&folder), need, &test, &why.to_string());
        assert!(written.is_ok(), "{FOLDER}: {written:?}");
    }
}

/// Whether a program starts. Where it does not, what `for_what` says is left out.
///
/// # Panics
/// As [`leave_out`].
#[track_caller]
pub fn has_program(program: &str, for_what: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        leave_out(
            Need::Program,
            format_args!("{program} is not installed, so {for_what}"),
        );
    }
    is_there
}

/// Whether the component of a module was built. `folder`: the module's, from the root of the repository, which is `root`.
///
/// # Panics
/// As [`leave_out`].
#[track_caller]
pub fn is_built(root: &Path, folder: &str) -> bool {
    let name = folder.rsplit('/').next().unwrap_or(folder);
    let is_there = root.join(folder).join(format!("{name}.wasm")).exists();
    if !is_there {
        leave_out(
            Need::Module,
            format_args!(
                "{folder} is not built (toolhold build {folder}); `cargo xtask test` builds it"
            ),
        );
    }
    is_there
}

/// A test, or a part of one, that was left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    pub why: String,
    pub need: String,
    pub test: String,
}

/// Reads the records of a folder, in the order of their reasons.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub fn read(folder: &Path) -> io::Result<Vec<LeftOut>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        let mut lines = text.splitn(3, '\n').map(str::to_owned);
        let mut next = || lines.next().unwrap_or_default();
        let (need, test, why) = (next(), next(), next());
        all.push(LeftOut { why, need, test });
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// A file of its own for each reason: tests run in processes of their own.
fn write(folder: &Path, need: Need, test: &str, why: &str) -> io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = folder.join(format!("{}-{number}", std::process::id()));
    fs::write(file, format!("{need}\n{test}\n{}", why.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let why = "no server\nanswers";
        for test in ["b::two", "a::one", "a::one"] {
            write(folder.path(), Need::Registry, test, why).unwrap();
        }
        let read = read(folder.path()).unwrap();
        let tests: Vec<_> = read.iter().map(|it| it.test.as_str()).collect();
        assert_eq!(tests, ["a::one", "b::two"]);
        assert!(
            read.iter()
                .all(|it| it.need == "registries" && it.why == why)
        );
    }

    #[test]
    fn needs_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = Need::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), Need::ALL.len());
    }
}
