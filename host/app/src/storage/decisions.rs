//! What people decided about calls that wait: a file a call, written by one process and taken by the
//! one that runs it. A decision is taken once.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use toolhold_agent::run::approval::Decision;
use uuid::Uuid;

/// The decisions about one run's calls: `runs/ID.decisions/CALL.json` in the state folder.
#[derive(Debug, Clone)]
pub struct Decisions {
    folder: PathBuf,
}

impl Decisions {
    pub fn of_run(state: &Path, run: Uuid) -> Self {
        Self {
            folder: super::journal::folder(state).join(format!("{run}.decisions")),
        }
    }

    /// Leaves a decision for whoever runs the call. The last one before it is taken counts.
    pub fn leave(&self, call: &str, decision: &Decision) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer(&mut file, decision)?;
        file.as_file_mut().flush()?;
        file.as_file().sync_data()?;
        file.persist(self.file(call)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Whether there is a decision about a call that nobody has taken yet.
    pub fn is_left(&self, call: &str) -> bool {
        self.file(call).is_file()
    }

    /// Takes the decision about a call, if there is one. One that nobody can read is as good as none,
    /// and goes away.
    pub fn take(&self, call: &str) -> Option<Decision> {
        let file = self.file(call);
        let text = std::fs::read(&file).ok()?;
        std::fs::remove_file(&file).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Calls are named by the host, but come here from the command line, too.
    fn file(&self, call: &str) -> PathBuf {
        let name: String = call
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        self.folder.join(format!("{name}.json"))
    }
}
