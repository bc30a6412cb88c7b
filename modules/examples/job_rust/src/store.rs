//! One file a job, in the granted directory.

use crate::primes::Work;
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toolhold_guest::Error;

/// How long the file of a job that nothing asks about stays: the host may have ended before it could cancel it.
const OLD: Duration = Duration::from_hours(24);

/// An id that is hard to guess: the standard library takes the keys of its hashes from the host's random numbers.
pub fn new_id() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", part(), part())
}

/// Writes how far a job is, whole or not at all.
pub fn keep(folder: &Path, id: &str, work: Work) -> Result<(), Error> {
    let path = path(folder, id)?;
    let new = path.with_extension("new");
    let text = format!("{} {} {}", work.below, work.next, work.found);
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| failed(&error))
}

pub fn read(folder: &Path, id: &str) -> Result<Work, Error> {
    let text = fs::read_to_string(path(folder, id)?).map_err(|error| failed(&error))?;
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(below)), Some(Ok(next)), Some(Ok(found))) => Ok(Work { below, next, found }),
        _ => Err(Error::fatal(format!("the file of the job {id} is damaged"))),
    }
}

pub fn remove(folder: &Path, id: &str) -> Result<(), Error> {
    match fs::remove_file(path(folder, id)?) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&error)),
        _ => Ok(()),
    }
}

/// Removes the files of jobs that were left. What cannot be removed now is removed another time.
pub fn forget_old(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        // The directory may have files of others.
        if !is_of_job(&entry.path()) {
            continue;
        }
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if age.is_some_and(|age| age > OLD) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The host asks only about ids that this module gave out; a name that is none leads nowhere all the same.
fn path(folder: &Path, id: &str) -> Result<PathBuf, Error> {
    if is_id(id) {
        Ok(folder.join(format!("{id}.job")))
    } else {
        Err(Error::fatal("there is no such job"))
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// True for the file of a job, and for one that was about to become it.
fn is_of_job(path: &Path) -> bool {
    let is_kind = path
        .extension()
        .is_some_and(|kind| kind == "job" || kind == "new");
    is_kind && path.file_stem().and_then(OsStr::to_str).is_some_and(is_id)
}

fn failed(error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::fatal(
            "the job, or the directory /jobs, is not there: ask the operator to grant a directory as /jobs, then call again",
        ),
        _ => Error::retryable(format!("the file of the job could not be used: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_new_and_leads_to_its_file() {
        let (one, other) = (new_id(), new_id());
        assert_ne!(one, other);
        let folder = Path::new("/jobs");
        assert_eq!(path(folder, &one), Ok(folder.join(format!("{one}.job"))));
        assert!(path(folder, "../../etc/passwd").is_err());
        assert!(path(folder, &one).is_ok_and(|path| is_of_job(&path)));
        assert!(!is_of_job(Path::new("/jobs/letters.job")));
        assert!(!is_of_job(&folder.join(&one)));
    }
}
