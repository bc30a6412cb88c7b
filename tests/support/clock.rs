//! The time of a server that a test makes pass: days in a moment.

use crate::sandbox::repository;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The clock of the processes that are started with [`Self::variables`]. A process waits by real time and notices
/// a change when it reads the clock again: a server does within a second or two.
#[derive(Debug)]
pub struct FakeClock {
    folder: TempDir,
    file: File,
    passed: u64,
    set: u64,
}

impl FakeClock {
    /// # Panics
    /// If there is no C compiler, which the binary's own libraries need, too.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("clock.so"))
            .arg(repository().join("tests/fixtures/clock.c"))
            .status();
        assert!(compiled.expect("a C compiler").success());
        let file = File::create(folder.path().join("clock")).expect("a file");
        let clock = Self {
            folder,
            file,
            passed: 0,
            set: 0,
        };
        clock.write();
        clock
    }

    /// For the environment of a process.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| -> PathBuf { self.folder.path().join(name) };
        vec![
            ("LD_PRELOAD", path("clock.so").display().to_string()),
            ("TOOLHOLD_TEST_CLOCK", path("clock").display().to_string()),
        ]
    }

    /// So long passes, by all clocks.
    pub fn pass(&mut self, time: Duration) {
        self.passed += time.as_secs();
        self.write();
    }

    /// Somebody sets the machine's clock ahead.
    pub fn set_ahead(&mut self, time: Duration) {
        self.set += time.as_secs();
        self.write();
    }

    fn write(&self) {
        let bytes = [self.passed.to_ne_bytes(), self.set.to_ne_bytes()].concat();
        self.file.write_all_at(&bytes, 0).expect("it is written");
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}
