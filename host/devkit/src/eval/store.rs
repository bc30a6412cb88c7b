//! A file of attempts, one a line, so that an interrupted evaluation can continue.

use crate::eval::arm::Arm;
use crate::eval::bench::Attempt;
use crate::eval::set::Task;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Identifies an attempt and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    settings: String,
    /// Digest of the task.
    #[serde(default)]
    modules: String,
    task: String,
    number: u32,
}

impl AttemptKey {
    pub fn new(arm: &Arm, task: &Task, number: u32) -> Self {
        Self {
            settings: arm.digest.clone(),
            modules: arm.modules(task.modules().iter().map(String::as_str)),
            task: task.digest(),
            number,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct AttemptLine {
    key: AttemptKey,
    attempt: Attempt,
}

/// The file of attempts.
#[derive(Debug)]
pub struct AttemptStore {
    file: File,
    done: HashMap<AttemptKey, Attempt>,
}

impl AttemptStore {
    /// Reads the existing attempts. An incomplete last line, left by a killed process, is overwritten; any
    /// other invalid line is an error.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds other data.
    pub fn open(path: &Path) -> Result<Self> {
        let named = || format!("--save {}", path.display());
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(named)?,
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut done = HashMap::new();
        for (index, line) in text.get(..whole).unwrap_or_default().lines().enumerate() {
            let line: AttemptLine = serde_json::from_str(line)
                .with_context(|| format!("line {} is no attempt", index + 1))
                .with_context(named)?;
            done.insert(line.key, line.attempt);
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .with_context(named)?;
        file.set_len(whole as u64).with_context(named)?;
        Ok(Self { file, done })
    }

    /// The stored attempt, if any, under the configuration's present name.
    pub fn find(&self, key: &AttemptKey, arm: &Arm) -> Option<Attempt> {
        self.done.get(key).map(|attempt| Attempt {
            configuration: arm.name.clone(),
            ..attempt.clone()
        })
    }

    pub fn put(&mut self, key: AttemptKey, attempt: &Attempt) -> Result<()> {
        let attempt = attempt.clone();
        let mut line = serde_json::to_vec(&AttemptLine { key, attempt })?;
        line.push(b'\n');
        self.file.write_all(&line).context("--save")
    }
}
