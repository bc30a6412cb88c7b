//! Keys and values that outlive a call: one file a key, in a folder for each tenant and namespace.
//!
//! A key becomes a file name in hexadecimal, so that no key is a path. Writes replace the file in one
//! step. Two modules with the same namespace see the same files, across processes too: so a write holds the
//! folder's lock from the look at what is there until its file is in place, or two of them would share the
//! same free bytes.

use crate::blocking::{Stop, WorkStopped};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use toolhold_files::{open_in, read_to_end};

/// Maximum bytes of a key: longer ones would not fit a file name.
pub const MAX_KEY_BYTES: usize = 100;
/// What a value counts besides its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 64;
/// Maximum keys of one namespace: a listing holds them all.
const MAX_KEYS_PER_NAMESPACE: usize = 10_000;
/// How long a write waits for other writes to its namespace: each takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// A key in a listing besides its name: a place in a list that grows, and an allocation.
const LISTED_KEY_BYTES: u64 = 64;
/// Time between two tries to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);
/// What is being written, no key's name. Only the holder of the lock writes it, and removes what a host that was
/// killed left of it.
const UNFINISHED: &str = ".unfinished";

/// Why a key or value was not read or kept.
#[derive(Debug, Error)]
pub(crate) enum KeyValueError {
    #[error("a key has 1 to {MAX_KEY_BYTES} bytes")]
    Key,
    #[error("the namespace may hold {limit} bytes and {MAX_KEYS_PER_NAMESPACE} keys")]
    Quota { limit: u64 },
    #[error("there is no room for it in the memory that the host may keep (kept_bytes)")]
    NoRoom,
    #[error("the host could not read or write it: {0}")]
    Io(#[from] io::Error),
}

impl From<WorkStopped> for KeyValueError {
    fn from(stopped: WorkStopped) -> Self {
        Self::Io(stopped.into())
    }
}

/// One tenant's part of a namespace. All methods block on the file system, and end when they are to stop.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    folder: PathBuf,
    limit: u64,
}

impl Namespace {
    pub fn new(root: &Path, tenant: &str, name: &str, limit: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(tenant.len() as u64).to_le_bytes());
        hasher.update(tenant.as_bytes()).update(name.as_bytes());
        let folder = root.join(&hasher.finalize().to_hex()[..32]);
        Self { folder, limit }
    }

    /// The value. It is read if there is `room` for its bytes.
    pub fn get(
        &self,
        key: &str,
        stop: &Stop,
        room: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Vec<u8>>, KeyValueError> {
        stop.check()?;
        let name = file_name(key)?;
        let file = match open_in(&self.open()?, name.as_ref()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = file.metadata()?.len();
        if size > self.limit {
            return Err(KeyValueError::Quota { limit: self.limit });
        }
        if !room(size) {
            return Err(KeyValueError::NoRoom);
        }
        // No more than was counted: a value is replaced as a whole, by another file.
        let value = read_to_end(file, size).map_err(io::Error::from)?;
        Ok(Some(value))
    }

    /// Keeps the value. Nothing is changed if it is to stop before the value is in its place.
    pub fn set(&self, key: &str, value: &[u8], stop: &Stop) -> Result<(), KeyValueError> {
        let name = file_name(key)?;
        let folder = self.open()?;
        let _lock = locked(&folder, LOCK_TIMEOUT, stop)?;
        let full = KeyValueError::Quota { limit: self.limit };
        let mut total = cost(key.len(), value.len() as u64);
        let mut keys = 1;
        for entry in entries(&folder)? {
            stop.check()?;
            let (other, bytes) = entry?;
            if other != key {
                total += cost(other.len(), bytes);
                keys += 1;
            }
        }
        if total > self.limit || keys > MAX_KEYS_PER_NAMESPACE {
            return Err(full);
        }
        match folder.remove_file(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = folder.open_with(UNFINISHED, &options)?;
        file.write_all(value)?;
        // Otherwise the name may be on disk before the content is.
        file.sync_all()?;
        stop.check()?;
        folder.rename(UNFINISHED, &folder, name)?;
        Ok(())
    }

    pub fn delete(&self, key: &str, stop: &Stop) -> Result<bool, KeyValueError> {
        stop.check()?;
        match self.open()?.remove_file(file_name(key)?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys that begin with `prefix`, sorted. They are read as far as there is `room` for their bytes.
    pub fn keys(
        &self,
        prefix: &str,
        stop: &Stop,
        mut room: impl FnMut(u64) -> bool,
    ) -> Result<Vec<String>, KeyValueError> {
        let mut keys = Vec::new();
        for entry in entries(&self.open()?)? {
            stop.check()?;
            let (key, _) = entry?;
            if key.starts_with(prefix) {
                if !room(LISTED_KEY_BYTES + key.len() as u64) {
                    return Err(KeyValueError::NoRoom);
                }
                keys.push(key);
            }
        }
        keys.sort();
        Ok(keys)
    }

    fn open(&self) -> io::Result<Dir> {
        super::private_folder(&self.folder)?;
        Dir::open_ambient_dir(&self.folder, ambient_authority())
    }
}

/// Waits until no other write to the folder is under way, in this process or in another. The lock is released when it is
/// dropped. A process that was stopped while it held the lock does not hold up others for ever.
fn locked(folder: &Dir, timeout: Duration, stop: &Stop) -> io::Result<OwnedFd> {
    // The handle of the folder is a path to the system, which locks nothing.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = openat(folder, ".", flags, Mode::empty())?;
    let deadline = Instant::now() + timeout;
    loop {
        stop.check()?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
}

fn cost(key: usize, value: u64) -> u64 {
    key as u64 + value + ENTRY_OVERHEAD_BYTES
}

/// Keys and the sizes of their values, as they are read.
fn entries(folder: &Dir) -> io::Result<impl Iterator<Item = io::Result<(String, u64)>>> {
    let entries = folder.entries()?;
    Ok(entries.filter_map(|entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        // Anything else is a write under way.
        let key = entry.file_name().to_str().and_then(key_of)?;
        let metadata = entry.metadata().ok()?;
        Some(Ok((key, metadata.len())))
    }))
}

fn file_name(key: &str) -> Result<String, KeyValueError> {
    use std::fmt::Write as _;
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(KeyValueError::Key);
    }
    Ok(key.bytes().fold(String::new(), |mut name, byte| {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
        name
    }))
}

fn key_of(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || !bytes.len().is_multiple_of(2) {
        return None;
    }
    let bytes = bytes
        .chunks(2)
        .map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        })
        .collect::<Option<Vec<_>>>()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(_: u64) -> bool {
        true
    }

    /// A flag that stops no work.
    fn go() -> Stop {
        Stop::default()
    }

    #[test]
    fn a_write_whose_call_ends_while_it_waits_for_another_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 300);
        space.set("k", b"before", &go()).unwrap();
        let held = locked(&space.open().unwrap(), LOCK_TIMEOUT, &go()).unwrap();
        let stop = Stop::default();
        let written = std::thread::scope(|scope| {
            let write = scope.spawn(|| space.set("k", b"after", &stop));
            std::thread::sleep(Duration::from_millis(20));
            stop.leave();
            let written = write.join().unwrap();
            drop(held);
            written
        });
        assert!(matches!(written, Err(KeyValueError::Io(_))), "{written:?}");
        assert!(space.delete("k", &stop).is_err());
        assert_eq!(space.get("k", &go(), all).unwrap().unwrap(), b"before");
    }

    #[test]
    fn values_are_kept_listed_and_deleted() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "notes", 1_000);
        assert_eq!(space.get("a/../b", &go(), all).unwrap(), None);
        space.set("a/../b", b"one", &go()).unwrap();
        space.set("a/../b", b"two", &go()).unwrap();
        space.set("ä", b"", &go()).unwrap();
        assert_eq!(
            space.get("a/../b", &go(), all).unwrap().as_deref(),
            Some(&b"two"[..])
        );
        assert_eq!(space.keys("", &go(), all).unwrap(), ["a/../b", "ä"]);
        assert_eq!(space.keys("a", &go(), all).unwrap(), ["a/../b"]);
        assert!(space.delete("ä", &go()).unwrap() && !space.delete("ä", &go()).unwrap());
    }

    #[test]
    fn nothing_is_read_that_there_is_no_room_for() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 2_000);
        space.set("a", &[7; 300], &go()).unwrap();
        space.set("b", b"", &go()).unwrap();
        let mut asked = Vec::new();
        let refused = space.get("a", &go(), |bytes| {
            asked.push(bytes);
            false
        });
        assert!(matches!(refused, Err(KeyValueError::NoRoom)));
        assert_eq!(asked, [300]);
        assert_eq!(
            space.get("b", &go(), |bytes| bytes == 0).unwrap().unwrap(),
            b""
        );
        assert_eq!(space.get("none", &go(), |_| false).unwrap(), None);
        let mut left = 1;
        let refused = space.keys("", &go(), |_| {
            left -= 1;
            left >= 0
        });
        assert!(matches!(refused, Err(KeyValueError::NoRoom)));
        assert_eq!(space.keys("b", &go(), all).unwrap(), ["b"]);
    }

    #[test]
    fn tenants_see_their_own_and_quotas_hold() {
        let root = tempfile::tempdir().unwrap();
        let space = |tenant| Namespace::new(root.path(), tenant, "n", 300);
        space("a").set("k", b"secret", &go()).unwrap();
        assert_eq!(space("b").get("k", &go(), all).unwrap(), None);
        let full = space("a").set("l", &[0; 200], &go()).unwrap_err();
        assert!(matches!(full, KeyValueError::Quota { limit: 300 }));
        space("b").set("l", &[0; 200], &go()).unwrap();
        // Replacing a value frees the old one.
        space("b").set("l", &[1; 200], &go()).unwrap();
        assert!(matches!(
            space("a").set("", b"", &go()),
            Err(KeyValueError::Key)
        ));
        assert!(space("a").get(&"k".repeat(101), &go(), all).is_err());
    }

    #[test]
    fn a_namespace_holds_a_bounded_number_of_keys() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 1 << 30);
        let folder = space.open().unwrap();
        for number in 0..MAX_KEYS_PER_NAMESPACE {
            let name = file_name(&format!("k{number}")).unwrap();
            folder.write(name, b"").unwrap();
        }
        let full = space.set("more", b"", &go()).unwrap_err();
        assert!(matches!(full, KeyValueError::Quota { .. }), "{full}");
        // One that is there may be written, and one in the place of another.
        space.set("k0", b"x", &go()).unwrap();
        assert!(space.delete("k1", &go()).unwrap());
        space.set(&"k".repeat(MAX_KEY_BYTES), b"", &go()).unwrap();
        assert!(space.delete("k2", &go()).unwrap());
        let long = space.set(&"k".repeat(MAX_KEY_BYTES + 1), b"", &go());
        assert!(matches!(long, Err(KeyValueError::Key)), "{long:?}");
    }

    #[test]
    fn writes_at_the_same_time_share_the_quota() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 1_000);
        for round in 0..20 {
            let kept = std::thread::scope(|scope| {
                let writes = ["a", "b", "c", "d"]
                    .map(|key| scope.spawn(|| space.set(key, &[0; 700], &go()).is_ok()));
                writes.map(|write| write.join().unwrap())
            });
            let kept = kept.into_iter().filter(|kept| *kept).count();
            assert_eq!(
                (kept, space.keys("", &go(), all).unwrap().len()),
                (1, 1),
                "{round}"
            );
            for key in space.keys("", &go(), all).unwrap() {
                assert!(space.delete(&key, &go()).unwrap());
            }
        }
    }

    #[test]
    fn what_a_killed_host_left_unfinished_is_no_key_and_does_not_stay() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 300);
        space.set("k", b"value", &go()).unwrap();
        let path = space.folder.join(UNFINISHED);
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(space.keys("", &go(), all).unwrap(), ["k"]);
        space.set("l", b"other", &go()).unwrap();
        assert!(!path.exists());
        assert_eq!(space.keys("", &go(), all).unwrap(), ["k", "l"]);
    }

    #[test]
    fn a_write_does_not_wait_for_ever_for_another_process() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 300);
        let folder = space.open().unwrap();
        let soon = Duration::from_millis(20);
        let held = locked(&folder, soon, &go()).unwrap();
        let error = locked(&space.open().unwrap(), soon, &go()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(held);
        locked(&folder, soon, &go()).unwrap();
    }

    #[test]
    fn a_fifo_in_the_place_of_a_value_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 300);
        space.set("k", b"value", &go()).unwrap();
        let path = space.folder.join(file_name("k").unwrap());
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(
            space.get("k", &go(), all),
            Err(KeyValueError::Io(_))
        ));
    }
}
