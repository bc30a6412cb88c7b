//! Notices that the modules folder, saved Requests, the approvals or the configuration changed.
//!
//! The operating system tells of single writes; what counts is that they are over. So a change is
//! reported when nothing more came for a moment. Where the system cannot tell (network file systems,
//! no watches left), everything is looked at every few seconds instead; so are, in any case, the files of
//! the configuration, which may be links that somebody turns elsewhere.

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A file that is being written is written to again within this time.
const QUIET_PERIOD: Duration = Duration::from_millis(150);
/// A folder that never comes to rest is looked at after this time anyway.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(2);
/// How often files of the configuration are looked at, and folders where the system cannot tell.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What to look at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The modules folder, saved Requests or the approvals.
    Modules,
    /// A file of the configuration; and perhaps the others, too.
    Configuration,
}

/// The folders that are watched.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    /// With all folders below it.
    pub modules: &'a Path,
    /// Saved Requests, with all folders below it.
    pub requests: &'a Path,
    pub approvals: &'a Path,
}

/// Tells when to load the modules folder, or the configuration, again.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<()>,
    /// Stops with this; absent where the system cannot watch.
    watcher: Option<RecommendedWatcher>,
    files: Vec<PathBuf>,
    seen: Seen,
}

/// In what form the files of the configuration were seen.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen(Vec<Option<Stamp>>);

/// In what form a file was seen.
type Stamp = (SystemTime, u64);

impl Seen {
    /// As they are now.
    pub fn now(files: &[PathBuf]) -> Self {
        let stamp = |file: &PathBuf| {
            let found = std::fs::metadata(file).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        Self(files.iter().map(stamp).collect())
    }
}

impl Watch {
    /// Watches these folders, as far as they are there, and the files of the configuration.
    pub fn start(files: Vec<PathBuf>, watched: &Folders<'_>) -> Self {
        let mut folders: Vec<(PathBuf, RecursiveMode)> = Vec::new();
        for (folder, mode) in [
            (watched.modules, RecursiveMode::Recursive),
            (watched.requests, RecursiveMode::Recursive),
            (watched.approvals, RecursiveMode::NonRecursive),
        ] {
            folders.extend(folder.canonicalize().ok().map(|folder| (folder, mode)));
        }
        let whole: Vec<PathBuf> = folders.iter().map(|(folder, _)| folder.clone()).collect();
        // Whoever writes a file anew puts another in its place: its folder is told of that.
        let named: Vec<PathBuf> = files.iter().filter_map(|file| in_folder(file)).collect();
        for folder in named.iter().filter_map(|file| file.parent()) {
            let known = folders.iter().any(|(known, _)| known == folder);
            if !known {
                folders.push((folder.to_owned(), RecursiveMode::NonRecursive));
            }
        }
        // The database lies beside some of them, and is always written to.
        let is_ours = move |path: &PathBuf| {
            named.contains(path) || whole.iter().any(|folder| path.starts_with(folder))
        };
        // One note is enough: whoever reads it looks at everything.
        let (note, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let is_nothing = |event: notify::Event| {
                // Looking at the folder is no change of it; we look at it ourselves.
                event.kind.is_access()
                    || !(event.paths.is_empty() || event.paths.iter().any(&is_ours))
            };
            if event.is_ok_and(is_nothing) {
                return;
            }
            // Full: a note is waiting already.
            let _ = note.try_send(());
        })
        .and_then(|mut watcher| {
            for (folder, mode) in &folders {
                watcher.watch(folder, *mode)?;
            }
            Ok(watcher)
        })
        .inspect_err(|error| tracing::warn!(%error, "looking at the folders every few seconds"))
        .ok();
        let seen = Seen::now(&files);
        Self {
            changes,
            watcher,
            files,
            seen,
        }
    }

    /// What is another since then has changed, too: loading takes its time.
    pub fn since(self, seen: Seen) -> Self {
        Self { seen, ..self }
    }

    /// Returns when something changed and has come to rest, or when it is time to look.
    pub async fn changed(&mut self) -> Changed {
        loop {
            let is_noted = match &self.watcher {
                Some(_) => timeout(POLL_INTERVAL, self.changes.recv()).await.is_ok(),
                None => {
                    sleep(POLL_INTERVAL).await;
                    true
                }
            };
            if is_noted && self.watcher.is_some() {
                let settled =
                    async { while timeout(QUIET_PERIOD, self.changes.recv()).await.is_ok() {} };
                let _ = timeout(MAX_SETTLE_TIME, settled).await;
            }
            let now = Seen::now(&self.files);
            if now != self.seen {
                self.seen = now;
                return Changed::Configuration;
            }
            if is_noted {
                return Changed::Modules;
            }
        }
    }
}

/// A file's path as the system tells of it, whether it is there or not.
fn in_folder(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let folder = file.parent()?.canonicalize().ok()?;
    Some(folder.join(file.file_name()?))
}
