//! A run's journal: one file, one JSON object a line.

use futures_util::future::BoxFuture;
use std::io;
use std::path::{Path, PathBuf};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use toolhold_agent::{Event, EventKind, Journal};
use uuid::Uuid;

/// Appends events to `runs/ID.jsonl` in the state folder.
#[derive(Debug)]
pub struct FileJournal {
    file: File,
    path: PathBuf,
}

impl FileJournal {
    /// Makes a new journal, readable by its owner alone: it holds everything that was said.
    pub async fn create(state: &Path, run: Uuid) -> io::Result<Self> {
        let folder = state.join("runs");
        tokio::fs::create_dir_all(&folder).await?;
        let path = folder.join(format!("{run}.jsonl"));
        let mut options = OpenOptions::new();
        options.create_new(true).append(true);
        #[cfg(unix)]
        options.mode(0o600);
        Ok(Self {
            file: options.open(&path).await?,
            path,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Journal for FileJournal {
    fn append<'a>(&'a mut self, event: &'a Event) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut line = serde_json::to_vec(event)?;
            line.push(b'\n');
            self.file.write_all(&line).await?;
            // tokio buffers writes; after the flush the kernel has the line, and a killed process
            // loses nothing. Deltas may be lost with the machine, everything else is on the disk.
            self.file.flush().await?;
            match event.kind {
                EventKind::Delta { .. } => Ok(()),
                _ => self.file.sync_data().await,
            }
        })
    }
}
