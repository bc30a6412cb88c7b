//! Watches the modules folder, saved Requests, the pins and the configuration for changes.
//!
//! The operating system reports single writes; a change is reported when no further write came for a moment.
//! Where the system cannot watch (network file systems, no watches left), and where its watch has ended, files are polled
//! every few seconds.
//! Files of the configuration are always polled, because they may be links whose target changes.

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use toolhold_admission::own_work;
use toolhold_files::{Links, ReadError, read};
use toolhold_policy::Digest;

/// Time without writes after which a change is complete.
const QUIET_PERIOD: Duration = Duration::from_millis(150);
/// Longest wait for a folder whose writes do not stop.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(2);
/// Poll interval of configuration files, and of folders that the system cannot watch.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What to read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The modules folder, saved Requests or the pins.
    Modules,
    /// A file of the configuration; the others may have changed, too.
    Configuration,
}

/// The folders that are watched.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    /// Including subfolders. Absent: modules are not loaded again.
    pub modules: Option<&'a Path>,
    /// Saved Requests, including subfolders. Absent: they are read when they are used.
    pub requests: Option<&'a Path>,
    pub pins: &'a Path,
    /// The folder of the database. Files of the configuration that are directly in it are polled: the system would wake
    /// the watch with each write of the database. What changes in it is no change of a folder around it.
    pub state: &'a Path,
}

impl Folders<'_> {
    /// Existing folders, and how deep each is watched.
    fn existing(&self) -> Vec<(PathBuf, RecursiveMode)> {
        let folders = [
            (self.modules, RecursiveMode::Recursive),
            (self.requests, RecursiveMode::Recursive),
            (Some(self.pins), RecursiveMode::NonRecursive),
        ];
        let folders = folders.into_iter();
        folders
            .filter_map(|(folder, mode)| Some((folder?.canonicalize().ok()?, mode)))
            .collect()
    }

    /// Adds the folders of these files: an editor may replace a file, which is an event of its folder.
    fn add_folders_of(&self, files: &[PathBuf], folders: &mut Vec<(PathBuf, RecursiveMode)>) {
        let state = self.state.canonicalize().ok();
        for folder in files.iter().filter_map(|file| file.parent()) {
            let known = folders.iter().any(|(known, _)| known == folder);
            if !known && state.as_deref() != Some(folder) {
                folders.push((folder.to_owned(), RecursiveMode::NonRecursive));
            }
        }
    }
}

/// Tells when something in folders changed.
#[derive(Debug)]
pub struct FolderWatch {
    changes: mpsc::Receiver<()>,
    /// Dropping it stops the watch; absent where the system cannot watch, or watches no more.
    watcher: Option<RecommendedWatcher>,
}

impl FolderWatch {
    /// Watches files, and folders with what is below them, but for what is below `except`.
    pub fn of(paths: &[PathBuf], except: &Path) -> Self {
        let mut folders: Vec<(PathBuf, RecursiveMode)> = Vec::new();
        let mut whole = Vec::new();
        for path in paths {
            if path.is_dir() {
                let folder = path.canonicalize().ok();
                whole.extend(folder.clone());
                folders.extend(folder.map(|folder| (folder, RecursiveMode::Recursive)));
            } else if let Some(file) = in_folder(path) {
                let folder = file.parent().map(Path::to_owned);
                folders.extend(folder.map(|folder| (folder, RecursiveMode::NonRecursive)));
                whole.push(file);
            }
        }
        let except = except.canonicalize().ok();
        let is_ours = move |path: &PathBuf| {
            let is_within = |folder: &PathBuf| path.starts_with(folder);
            whole.iter().any(is_within) && !except.iter().any(is_within)
        };
        Self::start(&folders, is_ours)
    }

    /// Watches folders for changes of paths that are `ours`.
    fn start(
        folders: &[(PathBuf, RecursiveMode)],
        is_ours: impl Fn(&PathBuf) -> bool + Send + 'static,
    ) -> Self {
        // One note is enough: its reader checks everything.
        let (note, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let is_nothing = |event: notify::Event| {
                // Reading a folder is no change; we read it ourselves.
                event.kind.is_access()
                    || !(event.paths.is_empty() || event.paths.iter().any(&is_ours))
            };
            if event.is_ok_and(is_nothing) {
                return;
            }
            // Full: a note is already queued.
            let _ = note.try_send(());
        })
        .and_then(|mut watcher| {
            for (folder, mode) in folders {
                watcher.watch(folder, *mode)?;
            }
            Ok(watcher)
        })
        .inspect_err(|error| tracing::warn!(%error, "looking at the folders every few seconds"))
        .ok();
        Self { changes, watcher }
    }

    /// Completes when a change is complete, or when it is time to look at what cannot be watched.
    pub async fn changed(&mut self) {
        while !self.is_noted().await {}
    }

    /// Waits until a change is complete, or until it is time to poll. Returns whether there may be a change.
    async fn is_noted(&mut self) -> bool {
        if self.watcher.is_none() {
            sleep(POLL_INTERVAL).await;
            return true;
        }
        let noted = timeout(POLL_INTERVAL, self.changes.recv()).await;
        match noted {
            Err(_) => return false,
            Ok(Some(())) => settle(&mut self.changes).await,
            Ok(None) => {
                tracing::warn!(
                    "the system's watch has ended: looking at the folders every few seconds"
                );
                // Notify's thread has ended, and dropping its handle panics then. It is kept, once for each watch.
                std::mem::forget(self.watcher.take());
            }
        }
        true
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        // As in `is_noted`: dropping the handle of a thread that has ended panics.
        if self.changes.is_closed() {
            std::mem::forget(self.watcher.take());
        }
    }
}

/// Waits until no write was noted for a while, until the longest wait is over, or until the watch has ended.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let settled = async { while let Ok(Some(())) = timeout(QUIET_PERIOD, changes.recv()).await {} };
    let _ = timeout(MAX_SETTLE_TIME, settled).await;
}

/// Tells when to load the modules folder, or the configuration, again.
#[derive(Debug)]
pub struct ConfigWatch {
    folders: FolderWatch,
    files: Vec<PathBuf>,
    seen: ConfigDigests,
}

/// Digests of the configuration's files, because their times and sizes tell nothing where a file is a link that is
/// led to another one, comes from an image's layer, or is copied with its time.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigDigests(Vec<FileContent>);

#[derive(Debug, PartialEq, Eq)]
enum FileContent {
    Digest(Digest),
    /// The file cannot be read, for example because it does not exist.
    Unreadable(io::ErrorKind),
    /// The file has more bytes than a configuration may have.
    TooLarge,
}

/// Maximum bytes of a file that is compared. Larger ones are refused when the configuration is loaded.
const MAX_COMPARED_BYTES: u64 = 16 << 20;

impl ConfigDigests {
    /// The digests of the files as they are now. Blocks on the file system.
    pub fn now(files: &[PathBuf]) -> Self {
        let content = |file: &PathBuf| match read(file, MAX_COMPARED_BYTES, Links::Follow) {
            Ok(bytes) => FileContent::Digest(Digest::of(&bytes)),
            Err(ReadError::Io(error)) => FileContent::Unreadable(error.kind()),
            Err(ReadError::TooLarge { .. }) => FileContent::TooLarge,
        };
        Self(files.iter().map(content).collect())
    }
}

impl ConfigWatch {
    /// Watches the existing ones of these folders, and the files of the configuration.
    pub fn start(files: Vec<PathBuf>, watched: &Folders<'_>) -> Self {
        let mut folders = watched.existing();
        let whole: Vec<PathBuf> = folders.iter().map(|(folder, _)| folder.clone()).collect();
        let named: Vec<PathBuf> = files.iter().filter_map(|file| in_folder(file)).collect();
        watched.add_folders_of(&named, &mut folders);
        let state = watched.state.canonicalize().ok();
        // Other files are beside them.
        let is_ours = move |path: &PathBuf| {
            named.contains(path)
                || whole
                    .iter()
                    .any(|folder| has(folder, path, state.as_deref()))
        };
        let folders = FolderWatch::start(&folders, is_ours);
        let seen = ConfigDigests::now(&files);
        Self {
            folders,
            files,
            seen,
        }
    }

    /// Also reports changes since then, because loading takes time.
    pub fn since(self, seen: ConfigDigests) -> Self {
        Self { seen, ..self }
    }

    /// Completes when a change is complete, or when it is time to poll.
    pub async fn changed(&mut self) -> Changed {
        loop {
            let is_noted = self.folders.is_noted().await;
            let files = self.files.clone();
            let now = own_work(move || ConfigDigests::now(&files)).await;
            if let Ok(now) = now
                && now != self.seen
            {
                self.seen = now;
                return Changed::Configuration;
            }
            if is_noted {
                return Changed::Modules;
            }
        }
    }
}

/// True if `path` is in `folder`, and not in the folder `state` of the database somewhere below it: each write of the database
/// would count as a change of the modules.
fn has(folder: &Path, path: &Path, state: Option<&Path>) -> bool {
    let is_state =
        |state: &Path| state != folder && state.starts_with(folder) && path.starts_with(state);
    path.starts_with(folder) && !state.is_some_and(is_state)
}

/// The path of a file as the system reports it, whether the file exists or not.
fn in_folder(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let folder = file.parent()?.canonicalize().ok()?;
    Some(folder.join(file.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Time until a change is reported. Writes come `apart` from each other.
    async fn waits(writes: u32, apart: Duration) -> Duration {
        let (note, mut changes) = mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..writes {
                sleep(apart).await;
                note.send(()).await.unwrap();
            }
            // As the watch does: it is not dropped.
            std::future::pending::<()>().await;
        });
        let began = Instant::now();
        settle(&mut changes).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_has_ended_is_polled_from_then_on() {
        let (note, mut changes) = mpsc::channel(1);
        note.try_send(()).unwrap();
        drop(note);
        let began = Instant::now();
        settle(&mut changes).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        let watcher = notify::recommended_watcher(|_: notify::Result<notify::Event>| {}).unwrap();
        let mut watch = FolderWatch {
            changes,
            watcher: Some(watcher),
        };
        // What was written before it ended may not have been told.
        assert!(watch.is_noted().await && watch.watcher.is_none());
        assert_eq!(began.elapsed(), Duration::ZERO);
        watch.changed().await;
        assert_eq!(began.elapsed(), POLL_INTERVAL);
    }

    #[test]
    fn the_folder_of_the_database_is_not_watched() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let [state, config] = ["state", "config"].map(|name| folder.join(name));
        for made in [&state, &config, &state.join("approvals")] {
            std::fs::create_dir(made).unwrap();
        }
        let none = folder.join("none");
        let watched = Folders {
            modules: Some(&none),
            requests: Some(&config),
            pins: &state.join("approvals"),
            state: &state,
        };
        let mut folders = watched.existing();
        let files = [state.join("grants.toml"), folder.join("toolhold.toml")];
        watched.add_folders_of(&files, &mut folders);
        let folders: Vec<PathBuf> = folders.into_iter().map(|(folder, _)| folder).collect();
        assert_eq!(folders, [config, state.join("approvals"), folder]);
    }

    #[test]
    fn writes_of_the_database_are_no_changes_of_a_folder_around_it() {
        let state = Path::new("/modules/state");
        for (folder, path, expected) in [
            ("/modules", "/modules/state/toolhold.db-wal", false),
            ("/modules", "/modules/state/approvals/files", false),
            (
                "/modules/state/approvals",
                "/modules/state/approvals/files",
                true,
            ),
            ("/modules", "/modules/files/module.toml", true),
            ("/modules", "/modules/statement/module.toml", true),
            ("/requests", "/modules/files/module.toml", false),
            ("/modules/state", "/modules/state/files/module.toml", true),
        ] {
            let (folder, path) = (Path::new(folder), Path::new(path));
            assert_eq!(
                has(folder, path, Some(state)),
                expected,
                "{}",
                path.display()
            );
            assert_eq!(has(folder, path, None), path.starts_with(folder));
        }
    }

    #[test]
    fn a_change_that_keeps_size_and_time_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("1"), folder.path().join("2"));
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        for (path, text) in [(&one, "a = 1"), (&two, "a = 2")] {
            std::fs::write(path, text).unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(time).unwrap();
        }
        let file = folder.path().join("toolhold.toml");
        let files = [file.clone()];
        let none = ConfigDigests::now(&files);
        std::os::unix::fs::symlink(&one, &file).unwrap();
        let first = ConfigDigests::now(&files);
        assert_ne!(none, first);
        // The link leads to another file, as a store of packages does it.
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&two, &file).unwrap();
        let second = ConfigDigests::now(&files);
        assert_ne!(first, second);
        // The content is replaced within the file.
        std::fs::write(&two, "a = 1").unwrap();
        assert_eq!(ConfigDigests::now(&files), first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_when_writes_stop_or_after_the_longest_wait() {
        let apart = Duration::from_millis(100);
        assert_eq!(waits(0, apart).await, QUIET_PERIOD);
        assert_eq!(waits(5, apart).await, apart * 5 + QUIET_PERIOD);
        assert_eq!(waits(1_000, apart).await, MAX_SETTLE_TIME);
        // Further from each other than that, they are two changes.
        assert_eq!(waits(5, QUIET_PERIOD * 2).await, QUIET_PERIOD);
    }
}
