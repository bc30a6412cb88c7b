//! Scratch directories: a place for a call's own files.

use super::copy::copy_all;
use super::folder_use::{FolderUse, UnusedFolder};
use super::remove::remove_until;
use super::{private_folder, removal_queue};
use crate::blocking::Stop;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toolhold_admission::detach;
use toolhold_files::{temporary_folder, temporary_name};
use toolhold_policy::{Caller, Keep};

/// A scratch directory on the host; removed with everything in it when dropped, if it is a call's.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub path: PathBuf,
    temporary: bool,
    /// No sweep removes the directory before this is dropped.
    _use: FolderUse,
}

/// Tries to make a folder and to mark it as used. A sweep may take an old one in between.
const ATTEMPTS: usize = 8;

impl Scratch {
    /// Makes the directory below `root`. Names are hashes: no module's, tenant's or session's name
    /// becomes a path.
    pub fn make(root: &Path, module: &str, caller: Caller<'_>, keep: Keep) -> io::Result<Self> {
        let temporary = keep == Keep::Call || caller.session.is_empty();
        if removal_queue::is_full() {
            return Err(io::Error::other(
                "too many scratch directories are still being removed; try again later",
            ));
        }
        if temporary {
            return Self::temporary(root);
        }
        let path = root.join(session_folder(module, caller));
        let used = begun(|| private_folder(&path).map(|()| path.clone()))?.1;
        used.touch()?;
        Ok(Self {
            path,
            temporary,
            _use: used,
        })
    }

    /// A new directory of one call, or of a copy in progress: never one that a killed call left.
    fn temporary(root: &Path) -> io::Result<Self> {
        private_folder(root)?;
        // A sweep takes each folder of a call that is not marked as used, so a new one has another name until it is.
        let (new, used) = begun(|| temporary_folder(root, OF_NEW))?;
        let path = root.join(temporary_name(OF_CALL, "")?);
        std::fs::rename(&new, &path)?;
        Ok(Self {
            path,
            temporary: true,
            _use: used,
        })
    }
}

/// Makes a folder and marks it as used.
fn begun(make: impl Fn() -> io::Result<PathBuf>) -> io::Result<(PathBuf, FolderUse)> {
    let mut refused = None;
    for _ in 0..ATTEMPTS {
        let path = match make() {
            // It was there when it was made, and a sweep took it before it was looked at.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                refused = Some(error);
                continue;
            }
            made => made?,
        };
        if let Some(used) = FolderUse::begin(&path)? {
            return Ok((path, used));
        }
    }
    Err(refused.unwrap_or_else(|| {
        io::Error::other(
            "scratch directories are removed as soon as they are made; end other programs that remove them",
        )
    }))
}

/// The scratch files that are kept for a session, of all modules: also of those that are gone, or have no grant any
/// more. All methods block on the file system.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    root: PathBuf,
    /// How the names of its folders begin.
    prefix: String,
}

impl SessionFiles {
    pub fn of(root: &Path, caller: Caller<'_>) -> Self {
        Self {
            root: root.to_owned(),
            prefix: session_prefix(caller),
        }
    }

    /// `other` begins with a copy of them: with all of a module's, or with nothing. The copy ends where `stop` says so.
    pub fn copy(&self, other: &Self, stop: &Stop) -> io::Result<()> {
        for name in self.folders()? {
            let from = self.root.join(&name);
            let Some(used) = FolderUse::begin(&from)? else {
                continue;
            };
            used.touch()?;
            let mut copy = Scratch::temporary(&self.root)?;
            copy_all(&from, &copy.path, stop)?;
            let module = &name[self.prefix.len()..];
            let to = format!("{}{module}", other.prefix);
            std::fs::rename(&copy.path, self.root.join(to))?;
            copy.temporary = false;
        }
        Ok(())
    }

    pub fn remove(&self) -> io::Result<()> {
        for name in self.folders()? {
            // Gone at once, however long it takes to remove what is in it.
            let aside = self.root.join(temporary_name(OF_CALL, "")?);
            match std::fs::rename(self.root.join(name), &aside) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                renamed => renamed?,
            }
            removal_queue::remove_soon(aside);
        }
        Ok(())
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut folders = Vec::new();
        for entry in entries {
            // A name that is no text is none of ours.
            if let Ok(name) = entry?.file_name().into_string()
                && name.starts_with(&self.prefix)
            {
                folders.push(name);
            }
        }
        Ok(folders)
    }
}

/// Time for one sweep.
const SWEEPING_TIME: Duration = Duration::from_mins(10);

/// How long a session may rest, such as over a holiday. Where no lock shows what is used, folders of calls are kept as long.
const RESTING_TIME: Duration = Duration::from_hours(14 * 24);

/// Removes folders that no call of any process uses: those of sessions that are over, and of calls whose host was killed.
/// Blocks on the file system.
pub(super) fn sweep(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return;
    };
    let deadline = Instant::now() + SWEEPING_TIME;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_of = |kind: &str| name.as_encoded_bytes().starts_with(kind.as_bytes());
        let is_of_call = is_of(OF_CALL);
        if !is_of_call && !is_of(OF_SESSION) && !is_of(OF_NEW) {
            continue;
        }
        let path = entry.path();
        match sweep_folder(root, &path, is_of_call, deadline) {
            // A call's end, or the sweep of another process, was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "old scratch files stay behind");
            }
            Ok(()) => {}
        }
        if Instant::now() > deadline {
            tracing::warn!(path = %root.display(), "old scratch files stay behind until the next start");
            return;
        }
    }
}

fn sweep_folder(root: &Path, path: &Path, is_of_call: bool, deadline: Instant) -> io::Result<()> {
    let Some(unused) = UnusedFolder::claim(path)? else {
        return Ok(());
    };
    let is_over = is_of_call && unused.is_sure;
    if !is_over && !unused.rests_for(RESTING_TIME) {
        return Ok(());
    }
    if is_of_call {
        return remove_until(path, deadline);
    }
    // Gone at once: a call of the session that begins now makes its folder anew.
    let aside = root.join(temporary_name(OF_CALL, "")?);
    std::fs::rename(path, &aside)?;
    remove_until(&aside, deadline)
}

/// How the names of folders of one call begin.
const OF_CALL: &str = "call-";
/// How the names of folders begin that are made for a call and not marked as used yet.
const OF_NEW: &str = "new-";
/// How the names of folders of sessions begin.
const OF_SESSION: &str = "session-";

/// The folder of a session's scratch files of one module.
fn session_folder(module: &str, caller: Caller<'_>) -> String {
    format!("{}{}", session_prefix(caller), digest(&[module]))
}

/// How the names of all folders of a session begin.
fn session_prefix(caller: Caller<'_>) -> String {
    format!("{OF_SESSION}{}-", digest(&[caller.tenant, caller.session]))
}

fn digest(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // Lengths between the parts: no two different lists look the same.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.temporary {
            return;
        }
        let path = std::mem::take(&mut self.path);
        let remove = move || removal_queue::remove_soon(path);
        // A guest may have left thousands of files: not on an async thread.
        detach(remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn callers_do_not_share() {
        let folder = |module, tenant, session| session_folder(module, Caller { tenant, session });
        assert_eq!(folder("m", "t", "s"), folder("m", "t", "s"));
        assert_ne!(folder("m", "t", "s"), folder("m", "ts", ""));
        assert_ne!(folder("m", "a", "s"), folder("m", "b", "s"));
    }

    /// Gives the folder the time of use of a folder that a sweep removes.
    fn made_old(path: &Path) {
        let old = SystemTime::now() - RESTING_TIME - Duration::from_hours(1);
        let folder = std::fs::File::open(path).unwrap();
        folder.set_modified(old).unwrap();
    }

    fn names(root: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(root).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn unused_folders_are_swept() {
        let root = tempfile::tempdir().unwrap();
        for (name, is_old) in [
            ("call-1", true),
            ("call-2", false),
            ("new-1", true),
            ("new-2", false),
            ("session-a", true),
            ("session-b", false),
            ("x", true),
        ] {
            let path = root.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("file"), "x").unwrap();
            if is_old {
                made_old(&path);
            }
        }
        sweep(root.path());
        assert_eq!(names(root.path()), ["new-2", "session-b", "x"]);
    }

    /// The error of [`private_folder`] where the folder exists and is gone before its kind is read.
    #[test]
    fn a_folder_that_a_sweep_takes_while_it_is_made_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("folder");
        let is_swept = std::cell::Cell::new(true);
        let made = begun(|| {
            if is_swept.replace(false) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            private_folder(&path).map(|()| path.clone())
        });
        assert_eq!(made.unwrap().0, path);
        let never = begun(|| Err(io::ErrorKind::AlreadyExists.into())).unwrap_err();
        assert_eq!(never.kind(), io::ErrorKind::AlreadyExists);
    }

    /// A call whose clock stands still, while a person decides, is as old as it likes.
    #[test]
    fn a_running_calls_files_are_never_swept_however_old_they_are() {
        let root = tempfile::tempdir().unwrap();
        let caller = Caller {
            tenant: "",
            session: "s",
        };
        let of = |keep| Scratch::make(root.path(), "m", caller, keep).unwrap();
        let running = [of(Keep::Call), of(Keep::Session)];
        for scratch in &running {
            std::fs::write(scratch.path.join("file"), "x").unwrap();
            made_old(&scratch.path);
        }
        sweep(root.path());
        for scratch in &running {
            assert!(scratch.path.join("file").exists(), "{scratch:?}");
        }
        let [call, session] = running;
        let path = session.path.clone();
        drop((call, session));
        sweep(root.path());
        assert!(!path.exists());
        // Its next call finds a new one, marked as used.
        let again = of(Keep::Session);
        assert_eq!(std::fs::read_dir(&again.path).unwrap().count(), 0);
        made_old(&again.path);
        sweep(root.path());
        assert!(again.path.exists());
    }

    #[test]
    fn a_copy_is_all_of_it_and_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        let caller = |session| Caller {
            tenant: "",
            session,
        };
        let of = |session| SessionFiles::of(root.path(), caller(session));
        let path = |session| root.path().join(session_folder("m", caller(session)));
        let (one, two) = (of("one"), of("two"));
        one.copy(&two, &Stop::default()).unwrap();
        assert!(!path("two").exists(), "there was nothing");

        let outside = root.path().join("outside");
        std::fs::write(&outside, "secret").unwrap();
        std::fs::create_dir_all(path("one").join("a/b")).unwrap();
        std::fs::write(path("one").join("a/b/x"), "x").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("../outside", path("one").join("link")).unwrap();
        one.copy(&two, &Stop::default()).unwrap();
        std::fs::write(path("two").join("a/b/x"), "changed").unwrap();
        assert_eq!(std::fs::read(path("one").join("a/b/x")).unwrap(), b"x");
        #[cfg(unix)]
        assert_eq!(
            std::fs::read_link(path("two").join("link")).unwrap(),
            PathBuf::from("../outside")
        );

        one.copy(&two, &Stop::default())
            .expect_err("there is something already");
        assert_eq!(
            std::fs::read(path("two").join("a/b/x")).unwrap(),
            b"changed"
        );
        two.remove().unwrap();
        two.remove().unwrap();
        let mut left: Vec<_> = std::fs::read_dir(root.path()).unwrap().flatten().collect();
        left.retain(|entry| entry.path() != path("one") && entry.path() != outside);
        assert_eq!(left.len(), 0, "{left:?}");
    }

    /// A process' number repeats, and so would names that are made of it.
    #[test]
    fn a_call_never_gets_what_another_call_left() {
        let root = tempfile::tempdir().unwrap();
        let caller = Caller {
            tenant: "",
            session: "",
        };
        let make = || Scratch::make(root.path(), "m", caller, Keep::Call).unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let mut scratch = make();
            assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 0);
            std::fs::write(scratch.path.join("x"), "secret").unwrap();
            // As if the process was killed.
            scratch.temporary = false;
            let name = scratch.path.file_name().unwrap().to_owned();
            let number = std::process::id().to_string();
            assert!(!name.to_str().unwrap().split('-').any(|part| part == number));
            assert!(seen.insert(name));
        }
    }

    #[test]
    fn a_calls_files_go_with_it() {
        let root = tempfile::tempdir().unwrap();
        let make = |keep, session| {
            Scratch::make(
                root.path(),
                "m",
                Caller {
                    tenant: "",
                    session,
                },
                keep,
            )
            .unwrap()
        };
        let scratch = make(Keep::Call, "s");
        let path = scratch.path.clone();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
        let kept = make(Keep::Session, "s").path.clone();
        assert!(kept.exists());
    }
}
