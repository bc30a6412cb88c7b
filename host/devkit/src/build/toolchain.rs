//! The cache directory in which compilers are installed, each version in a folder of its own.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use toolhold_files::temporary_name;

use super::{BuildError, Job, WIT, bundle, c, go, javascript, python, typescript};

/// Written last: a folder without it is an incomplete installation.
const COMPLETE: &str = ".complete";

/// Creates the cache directory and returns its absolute path.
pub fn prepare(toolchains: &Path) -> Result<PathBuf, BuildError> {
    fs::create_dir_all(toolchains).map_err(BuildError::io("create", toolchains))?;
    fs::canonicalize(toolchains).map_err(BuildError::io("open", toolchains))
}

/// The folder of a tool at one version; `install` fills it if it does not exist.
pub fn folder(
    job: &Job<'_>,
    tool: &str,
    version: &str,
    install: impl FnOnce(&Path) -> Result<(), BuildError>,
) -> Result<PathBuf, BuildError> {
    let folder = job.toolchains.join(format!("{tool}-{version}"));
    let complete = folder.join(COMPLETE);
    let lock_path = job.toolchains.join(format!("{tool}-{version}.lock"));
    if complete.exists() {
        if let Ok(lock) = File::options().append(true).create(true).open(&lock_path) {
            used(&lock);
        }
        return Ok(folder);
    }
    // Two builds at once are ordinary (a watcher and a person): the second waits here, then finds
    // the work done.
    let lock = locked(job, &lock_path)?;
    used(&lock);
    if complete.exists() {
        return Ok(folder);
    }
    job.installing(&format!("{tool} {version}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(BuildError::io("remove", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(BuildError::io("create", &folder))?;
    install(&folder)?;
    fs::write(&complete, version).map_err(BuildError::io("write", &complete))?;
    Ok(folder)
}

/// Waits for the lock on the file at `path`; it ends when the file is dropped.
pub fn locked(job: &Job<'_>, path: &Path) -> Result<File, BuildError> {
    let lock = File::create(path).map_err(BuildError::io("create", path))?;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            // Another process builds with it.
            Err(TryLockError::WouldBlock) => {
                let waits = || format!("waiting for {}", path.display());
                let paused = job.log.control.pause();
                paused.map_err(|stopped| BuildError::stopped(stopped, &waits()))?;
            }
            Err(TryLockError::Error(error)) => return Err(BuildError::io("lock", path)(error)),
        }
    }
}

/// Notes on a folder's lock that the folder was used now, for [`remove_outdated`].
pub fn used(lock: &File) {
    // Without the note it is only removed, and made again, too early.
    let _ = lock.set_modified(SystemTime::now());
}

/// What builds install, at the versions of this program.
const INSTALLED: [(&str, &str); 6] = [
    (c::ZIG.name, c::ZIG.version),
    (go::GO.name, go::GO.version),
    (python::COMPONENTIZE.name, python::COMPONENTIZE.version),
    ("componentize-qjs", javascript::VERSION),
    ("typescript", typescript::VERSION),
    ("esbuild", bundle::VERSION),
];

/// What builds of any version use, and only as long as a module needs it.
const KEPT_WHILE_USED: [&str; 2] = ["python-packages-", "rust-target"];

/// After this time, they are removed.
const MAX_UNUSED: Duration = Duration::from_hours(30 * 24);

/// Tools of other versions than those that builds install, and what builds left that is not used any more.
#[derive(Debug, Default)]
pub struct OutdatedTools {
    /// The names of the folders that were removed.
    pub removed: Vec<String>,
    /// The names of those that another process installs at the moment. They are left.
    pub busy: Vec<String>,
}

/// Removes the tools of other versions, and what no build used for 30 days, from the cache directory. Blocks, but waits for no other process.
///
/// # Errors
/// The directory cannot be read, or a folder cannot be removed.
pub fn remove_outdated(toolchains: &Path) -> io::Result<OutdatedTools> {
    let mut tools = OutdatedTools::default();
    let entries = match fs::read_dir(toolchains) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(tools),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let lock_path = toolchains.join(format!("{name}.lock"));
        let is_of_no_use = is_outdated(&name) || is_unused(&name, &lock_path);
        if !entry.file_type()?.is_dir() || !is_of_no_use {
            continue;
        }
        // A build of an older program may be installing it.
        let lock = File::create(&lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tools.busy.push(name);
                continue;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let complete = entry.path().join(COMPLETE);
        if complete.exists() {
            fs::remove_file(complete)?;
        }
        fs::remove_dir_all(entry.path())?;
        fs::remove_file(lock_path)?;
        tools.removed.push(name);
    }
    tools.removed.sort();
    tools.busy.sort();
    Ok(tools)
}

/// Whether it is of [`KEPT_WHILE_USED`] and was not used for a long time.
fn is_unused(name: &str, lock: &Path) -> bool {
    let used = || fs::metadata(lock).and_then(|lock| lock.modified());
    KEPT_WHILE_USED.iter().any(|kept| name.starts_with(kept))
        && used().is_ok_and(|used| used.elapsed().is_ok_and(|unused| unused > MAX_UNUSED))
}

/// Whether a folder is of a tool that builds install, at another version.
fn is_outdated(name: &str) -> bool {
    INSTALLED.iter().any(|(tool, version)| {
        let found = name
            .strip_prefix(tool)
            .and_then(|rest| rest.strip_prefix('-'));
        found.is_some_and(|found| {
            found != *version && found.starts_with(|first: char| first.is_ascii_digit())
        })
    })
}

/// The WIT to build against: the module's own `wit/`, or else the contract of this host.
pub fn wit(job: &Job<'_>) -> Result<PathBuf, BuildError> {
    let own = job.manifest.directory.join("wit");
    if own.is_dir() {
        return Ok(own);
    }
    shared(job, "wit", &[("toolhold.wit", WIT)])
}

/// The support that a language's modules are written with: the module's own copy in the folder
/// `name`, or else the one in this binary.
pub fn support(job: &Job<'_>, name: &str, files: &[(&str, &str)]) -> Result<PathBuf, BuildError> {
    let own = job.manifest.directory.join(name);
    if own.is_dir() {
        return Ok(own);
    }
    shared(job, &format!("{name}-{}", job.manifest.language), files)
}

/// A folder of the cache with these files in it, where tools can read them.
pub fn shared(job: &Job<'_>, name: &str, files: &[(&str, &str)]) -> Result<PathBuf, BuildError> {
    let directory = job.toolchains.join(name);
    fs::create_dir_all(&directory).map_err(BuildError::io("create", &directory))?;
    for (name, text) in files {
        let path = directory.join(name);
        // Another build may be reading it, so it is not touched when it is right already.
        if fs::read_to_string(&path).is_ok_and(|found| found == *text) {
            continue;
        }
        let unfinished = temporary_name(&format!("{name}."), ".part");
        let unfinished = directory.join(unfinished.map_err(BuildError::io("name", &directory))?);
        fs::write(&unfinished, text).map_err(BuildError::io("write", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(BuildError::io("write", &path))?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_other_versions_are_removed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let now = format!("ziglang-{}", c::ZIG.version);
        let kept = [
            now.as_str(),
            "zig-cache",
            "toolhold-c",
            "logs",
            "typescript-mine",
            "other-1.0",
        ];
        for name in kept.iter().chain(&["ziglang-0.16.0", "esbuild-0.1.2"]) {
            fs::create_dir_all(root.path().join(name).join("bin")).unwrap();
            fs::write(root.path().join(name).join(COMPLETE), "").unwrap();
        }
        // Another process installs it.
        let installing = root.path().join("componentize-qjs-0.0.1");
        fs::create_dir(&installing).unwrap();
        let lock = File::create(root.path().join("componentize-qjs-0.0.1.lock")).unwrap();
        lock.lock().unwrap();
        for (name, hours) in [
            ("python-packages-1", 0),
            ("python-packages-2", 31 * 24),
            ("rust-target", 31 * 24),
        ] {
            fs::create_dir(root.path().join(name)).unwrap();
            let lock = File::create(root.path().join(format!("{name}.lock"))).unwrap();
            let used = SystemTime::now() - Duration::from_hours(hours);
            lock.set_modified(used).unwrap();
        }
        let tools = remove_outdated(root.path()).unwrap();
        let removed = [
            "esbuild-0.1.2",
            "python-packages-2",
            "rust-target",
            "ziglang-0.16.0",
        ];
        assert_eq!(tools.removed, removed);
        assert!(root.path().join("python-packages-1").is_dir());
        assert_eq!(tools.busy, ["componentize-qjs-0.0.1"]);
        assert!(installing.is_dir());
        assert!(!root.path().join("ziglang-0.16.0.lock").exists());
        for name in kept {
            assert!(root.path().join(name).join("bin").exists(), "{name}");
        }
        assert!(!root.path().join("ziglang-0.16.0").exists());
        let none = remove_outdated(&root.path().join("none")).unwrap();
        assert!(none.removed.is_empty() && none.busy.is_empty());
    }
}
