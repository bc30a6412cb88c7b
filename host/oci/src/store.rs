//! The cache on disk: content by digest, and the digest that each tag had when it was last pulled.
//!
//! `blobs/sha256/HEX` holds manifests and components. Every read hashes the file again and ignores it
//! if the hash differs, so a damaged or replaced file counts as absent. `refs` is used only offline,
//! when the registry cannot be asked. A write goes to a temporary file beside the target, is flushed,
//! and is renamed, so a reader never sees a part of a file.

use crate::digest::Digest;
use crate::error::FetchError;
use crate::reference::Reference;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toolhold_files::{Links, ReadError};

/// Poll interval while another task or process holds the lock. A blocking lock call would occupy a
/// thread that no deadline could free.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes read of a tag's note. We write one line; a longer file is not ours.
const MAX_NOTE_BYTES: u64 = 4 << 10;

/// The cache folder. It is created by the first write.
#[derive(Debug, Clone)]
pub struct ComponentCache {
    folder: PathBuf,
}

/// The digest that a tag had at its last pull.
#[derive(Debug, Serialize, Deserialize)]
struct TagRecord {
    reference: String,
    digest: String,
}

impl ComponentCache {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The content of `digest`. `None` if it is absent, larger than `limit` bytes, or does not match the
    /// digest.
    pub fn read(&self, digest: Digest, limit: u64) -> Result<Option<Vec<u8>>, FetchError> {
        let path = self.blob(digest);
        match toolhold_files::read(&path, limit, Links::Refuse) {
            Ok(bytes) if Digest::of(&bytes) == digest => return Ok(Some(bytes)),
            Ok(_) | Err(ReadError::TooLarge { .. }) => {}
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(ReadError::Io(error)) => return Err(FetchError::store("read", &path)(error)),
        }
        tracing::warn!(path = %path.display(), "a cached component is damaged and is not used");
        Ok(None)
    }

    /// Writes `bytes` as the content of `digest`. The caller must hold the lock of the component that
    /// they belong to: two writers would share one temporary file.
    pub fn write(&self, digest: Digest, bytes: &[u8]) -> Result<(), FetchError> {
        let path = self.blob(digest);
        write(&path, &path.with_extension("part"), bytes)
    }

    /// The digest of the reference's tag at its last complete pull.
    pub fn seen(&self, reference: &Reference) -> Option<Digest> {
        let note = self.note(reference);
        let bytes = toolhold_files::read(&note, MAX_NOTE_BYTES, Links::Refuse).ok()?;
        let note: TagRecord = serde_json::from_slice(&bytes).ok()?;
        (note.reference == tag_of(reference))
            .then(|| note.digest.parse().ok())
            .flatten()
    }

    /// Records the tag's digest. Two writers may run at once: each has a temporary file of its own, and
    /// either result is right.
    pub fn remember(&self, reference: &Reference, digest: Digest) -> Result<(), FetchError> {
        let note = serde_json::json!(TagRecord {
            reference: tag_of(reference),
            digest: digest.to_string(),
        });
        let path = self.note(reference);
        let own = format!("{}.part", uuid::Uuid::now_v7());
        write(
            &path,
            &path.with_extension(own),
            note.to_string().as_bytes(),
        )
    }

    /// Waits until no other task or process is pulling `digest`, then keeps the others out.
    pub async fn lock(&self, digest: Digest) -> Result<Lock, FetchError> {
        let path = self.folder.join("locks").join(digest.hex());
        make_parent(&path)?;
        // Opened for both, it does not wait for the other end of a FIFO either.
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options
            .open(&path)
            .map_err(FetchError::store("create", &path))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL_INTERVAL).await,
                Err(TryLockError::Error(error)) => {
                    return Err(FetchError::store("lock", &path)(error));
                }
            }
        }
    }

    fn blob(&self, digest: Digest) -> PathBuf {
        self.folder.join("blobs").join("sha256").join(digest.hex())
    }

    /// The file name is a hash: a reference may be too long for a file name or hold characters that
    /// file systems refuse.
    fn note(&self, reference: &Reference) -> PathBuf {
        let key = Digest::of(tag_of(reference).as_bytes()).hex();
        self.folder.join("refs").join(key)
    }
}

/// Exclusive right to pull one component; dropping it releases the lock file.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

fn tag_of(reference: &Reference) -> String {
    let (host, repository) = (reference.authority(), reference.repository());
    format!("oci://{host}/{repository}:{}", reference.tag())
}

fn write(path: &Path, unfinished: &Path, bytes: &[u8]) -> Result<(), FetchError> {
    make_parent(path)?;
    let result = File::create(unfinished)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(unfinished, path));
    result.map_err(|error| {
        // The disk may be full: free the part that was written.
        let _ = fs::remove_file(unfinished);
        FetchError::store("write", path)(error)
    })
}

/// Creates the folder for this user alone (0700): other users must not choose what a tag means offline.
fn make_parent(path: &Path) -> Result<(), FetchError> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(parent)
        .map_err(FetchError::store("create", parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ComponentCache) {
        let folder = tempfile::tempdir().unwrap();
        let store = ComponentCache::new(folder.path().join("oci"));
        (folder, store)
    }

    #[test]
    fn content_is_read_back_only_as_what_it_is() {
        let (_folder, store) = store();
        let digest = Digest::of(b"abc");
        assert_eq!(store.read(digest, 10).unwrap(), None);
        store.write(digest, b"abc").unwrap();
        assert_eq!(store.read(digest, 3).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(store.read(digest, 2).unwrap(), None);
        fs::write(store.blob(digest), b"abd").unwrap();
        assert_eq!(store.read(digest, 10).unwrap(), None);
        store.write(digest, b"abc").unwrap();
        assert!(store.read(digest, 10).unwrap().is_some());
        let names: Vec<_> = fs::read_dir(store.blob(digest).parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [digest.hex().as_str()], "nothing half-written stays");
    }

    #[test]
    fn a_tag_is_remembered_for_its_own_reference() {
        let (_folder, store) = store();
        let tagged: Reference = "oci://registry.example/a:1".parse().unwrap();
        let other: Reference = "oci://registry.example/a:2".parse().unwrap();
        store.remember(&tagged, Digest::of(b"x")).unwrap();
        store.remember(&tagged, Digest::of(b"y")).unwrap();
        assert_eq!(store.seen(&tagged), Some(Digest::of(b"y")));
        assert_eq!(store.seen(&other), None);
        fs::copy(store.note(&tagged), store.note(&other)).unwrap();
        assert_eq!(store.seen(&other), None, "a note speaks for its own tag");
    }

    #[tokio::test]
    async fn a_lock_is_held_by_one() {
        let (_folder, store) = store();
        let digest = Digest::of(b"x");
        let held = store.lock(digest).await.unwrap();
        let second = tokio::time::timeout(LOCK_POLL_INTERVAL * 3, store.lock(digest)).await;
        assert!(second.is_err());
        drop(held);
        store.lock(digest).await.unwrap();
    }
}
