//! The cache directory in which compilers are installed, each version in a folder of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use toolhold_files::temporary_name;

use super::{BuildError, Job, WIT};

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
    if complete.exists() {
        return Ok(folder);
    }
    // Two builds at once are ordinary (a watcher and a person): the second waits here, then finds
    // the work done.
    let lock_path = job.toolchains.join(format!("{tool}-{version}.lock"));
    let lock = File::create(&lock_path).map_err(BuildError::io("create", &lock_path))?;
    lock.lock().map_err(BuildError::io("lock", &lock_path))?;
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
