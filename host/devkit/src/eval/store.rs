//! Attempts in a file, a line each, so that an evaluation that was interrupted need not begin anew.

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

/// What was attempted under which settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    settings: String,
    /// Of the task.
    #[serde(default)]
    modules: String,
    task: String,
    number: u32,
}

impl Key {
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
struct Line {
    key: Key,
    attempt: Attempt,
}

/// The file.
#[derive(Debug)]
pub struct Store {
    file: File,
    done: HashMap<Key, Attempt>,
}

impl Store {
    /// Reads what is there already. A last line that was being written when the process ended is
    /// overwritten; any other line that is no attempt is an error.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds something else.
    pub fn open(path: &Path) -> Result<Self> {
        let named = || format!("--save {}", path.display());
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(named)?,
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut done = HashMap::new();
        for (index, line) in text.get(..whole).unwrap_or_default().lines().enumerate() {
            let line: Line = serde_json::from_str(line)
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

    /// The attempt, if it was made, under the name that the configuration has now.
    pub fn find(&self, key: &Key, arm: &Arm) -> Option<Attempt> {
        self.done.get(key).map(|attempt| Attempt {
            configuration: arm.name.clone(),
            ..attempt.clone()
        })
    }

    pub fn put(&mut self, key: Key, attempt: &Attempt) -> Result<()> {
        let line = Line {
            key,
            attempt: attempt.clone(),
        };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        self.file.write_all(&line).context("--save")
    }
}
