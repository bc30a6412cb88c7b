//! Notices that the modules folder or the approvals changed.
//!
//! The operating system tells of single writes; what counts is that they are over. So a change is
//! reported when nothing more came for a moment. Where the system cannot tell (network file systems,
//! no watches left), the folder is looked at every few seconds instead.

use crate::config::Config;
use anyhow::{Context as _, Result};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A file that is being written is written to again within this time.
const SETTLED: Duration = Duration::from_millis(150);
/// A folder that never comes to rest is looked at anyway.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(3);

/// Tells when to load the modules folder again.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<()>,
    /// Stops with this; absent where the system cannot watch.
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches the modules folder and the approvals.
    ///
    /// # Errors
    /// If the folder is not there.
    pub fn start(config: &Config) -> Result<Self> {
        let folder = config.modules_folder();
        let folder = folder
            .canonicalize()
            .with_context(|| format!("{} cannot be watched", folder.display()))?;
        // One note is enough: whoever reads it looks at everything.
        let (note, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Looking at the folder is no change of it; we look at it ourselves.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            // Full: a note is waiting already.
            let _ = note.try_send(());
        })
        .and_then(|mut watcher| {
            watcher.watch(&folder, RecursiveMode::Recursive)?;
            let approvals = config.approvals();
            if approvals.folder().is_dir() {
                watcher.watch(approvals.folder(), RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        })
        .inspect_err(|error| tracing::warn!(%error, "looking at the folder every few seconds"))
        .ok();
        Ok(Self { changes, watcher })
    }

    /// Returns when something changed and has come to rest, or when it is time to look.
    pub async fn changed(&mut self) {
        if self.watcher.is_none() {
            return sleep(LOOK).await;
        }
        let _ = self.changes.recv().await;
        let settled = async { while timeout(SETTLED, self.changes.recv()).await.is_ok() {} };
        let _ = timeout(PATIENCE, settled).await;
    }
}
