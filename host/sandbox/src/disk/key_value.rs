//! Keys and values that outlive a call: one file a key, in a folder for each tenant and namespace.
//!
//! A key becomes a file name in hexadecimal, so that no key is a path. Writes replace the file in one
//! step. Two modules with the same namespace see the same files, across processes too.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toolhold_files::{read_in, replace_in};

/// Maximum bytes of a key: longer ones would not fit a file name.
pub const MAX_KEY_BYTES: usize = 100;
/// What a value counts besides its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 64;
/// Maximum keys of one namespace: a listing holds them all.
const MAX_KEYS_PER_NAMESPACE: usize = 10_000;

/// Why a key or value was not read or kept.
#[derive(Debug, Error)]
pub(crate) enum KeyValueError {
    #[error("a key has 1 to {MAX_KEY_BYTES} bytes")]
    Key,
    #[error("the namespace may hold {limit} bytes and {MAX_KEYS_PER_NAMESPACE} keys")]
    Quota { limit: u64 },
    #[error("the host could not read or write it: {0}")]
    Io(#[from] io::Error),
}

/// One tenant's part of a namespace. All methods block on the file system.
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

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        let name = file_name(key)?;
        match read_in(&self.open()?, name.as_ref(), self.limit).map_err(io::Error::from) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyValueError> {
        let name = file_name(key)?;
        let folder = self.open()?;
        let full = KeyValueError::Quota { limit: self.limit };
        let mut total = cost(key.len(), value.len() as u64);
        let mut keys = 1;
        for (other, bytes) in entries(&folder)? {
            if other != key {
                total += cost(other.len(), bytes);
                keys += 1;
            }
        }
        if total > self.limit || keys > MAX_KEYS_PER_NAMESPACE {
            return Err(full);
        }
        Ok(replace_in(&folder, &name, value)?)
    }

    pub fn delete(&self, key: &str) -> Result<bool, KeyValueError> {
        match self.open()?.remove_file(file_name(key)?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys that begin with `prefix`, sorted.
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>, KeyValueError> {
        let mut keys: Vec<_> = entries(&self.open()?)?
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with(prefix))
            .collect();
        keys.sort();
        Ok(keys)
    }

    fn open(&self) -> io::Result<Dir> {
        super::private_folder(&self.folder)?;
        Dir::open_ambient_dir(&self.folder, ambient_authority())
    }
}

fn cost(key: usize, value: u64) -> u64 {
    key as u64 + value + ENTRY_OVERHEAD_BYTES
}

/// Keys and the sizes of their values.
fn entries(folder: &Dir) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        // Anything else is a write under way.
        if let Some(key) = name.to_str().and_then(key_of)
            && let Ok(metadata) = entry.metadata()
        {
            found.push((key, metadata.len()));
        }
    }
    Ok(found)
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

    #[test]
    fn values_are_kept_listed_and_deleted() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "notes", 1_000);
        assert_eq!(space.get("a/../b").unwrap(), None);
        space.set("a/../b", b"one").unwrap();
        space.set("a/../b", b"two").unwrap();
        space.set("ä", b"").unwrap();
        assert_eq!(space.get("a/../b").unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(space.keys("").unwrap(), ["a/../b", "ä"]);
        assert_eq!(space.keys("a").unwrap(), ["a/../b"]);
        assert!(space.delete("ä").unwrap() && !space.delete("ä").unwrap());
    }

    #[test]
    fn tenants_see_their_own_and_quotas_hold() {
        let root = tempfile::tempdir().unwrap();
        let space = |tenant| Namespace::new(root.path(), tenant, "n", 300);
        space("a").set("k", b"secret").unwrap();
        assert_eq!(space("b").get("k").unwrap(), None);
        let full = space("a").set("l", &[0; 200]).unwrap_err();
        assert!(matches!(full, KeyValueError::Quota { limit: 300 }));
        space("b").set("l", &[0; 200]).unwrap();
        // Replacing a value frees the old one.
        space("b").set("l", &[1; 200]).unwrap();
        assert!(matches!(space("a").set("", b""), Err(KeyValueError::Key)));
        assert!(space("a").get(&"k".repeat(101)).is_err());
    }

    #[test]
    fn a_fifo_in_the_place_of_a_value_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let space = Namespace::new(root.path(), "t", "n", 300);
        space.set("k", b"value").unwrap();
        let path = space.folder.join(file_name("k").unwrap());
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(space.get("k"), Err(KeyValueError::Io(_))));
    }
}
