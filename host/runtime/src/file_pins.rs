//! Pins of configuration files that a person trusts, by place and exact bytes: found files, and named ones
//! that modules may have written (`docs/security.md`, "Files that were found").
//!
//! The records are pins like those of modules, in a folder of their own: the slot is the SHA-256 of the
//! file's path, because a path may be longer than a file name; the digest is that of the file's bytes; and the
//! path and the text are in the place of the grant, for the list and for the difference that a person is shown.

use serde_json::json;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use toolhold_policy::{Digest, Pin, PinStore as _, PinWriteError, PinnedBy};
use toolhold_sandbox::PinFolder;

/// Folder below the state folder.
const FOLDER: &str = "trusted";
/// Keys in the place of the grant.
const PATH: &str = "path";
const TEXT: &str = "text";

/// Pins of one user's configuration files. Methods block on the file system.
#[derive(Debug, Clone)]
pub struct FilePins {
    pins: PinFolder,
}

/// State of a file beside its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePinState {
    Pinned,
    /// The file was pinned with this text, and differs now.
    Changed {
        before: String,
    },
    /// The file was pinned, and there is none now.
    Gone,
    Unknown,
}

/// A file that was pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedFile {
    /// As text, for people.
    pub path: String,
    /// `sha256:…` of its bytes.
    pub digest: String,
    /// Seconds since 1970.
    pub at: u64,
}

impl FilePins {
    /// The folder is made (0700) when the first file is pinned.
    pub fn new(state_folder: &Path) -> Self {
        Self {
            pins: PinFolder::new(state_folder.join(FOLDER)),
        }
    }

    /// Returns the state of these bytes at this path, which is absolute and without links.
    pub fn state(&self, path: &Path, bytes: &[u8]) -> FilePinState {
        let Some(record) = self.pins.get(&slot(path)) else {
            return FilePinState::Unknown;
        };
        if record.digest == digest(bytes) {
            return FilePinState::Pinned;
        }
        // The record of a file whose pin was revoked has no text.
        let before = record.grant[TEXT].as_str().map(str::to_owned);
        before.map_or(FilePinState::Unknown, |before| FilePinState::Changed {
            before,
        })
    }

    /// True if bytes of this digest are pinned at this path, which is absolute and without links.
    pub fn holds(&self, path: &Path, digest: &Digest) -> bool {
        let record = self.pins.get(&slot(path));
        record.is_some_and(|record| {
            record.digest == format!("{digest:?}") && !record.grant[TEXT].is_null()
        })
    }

    /// Returns the record of the file at this path, which a decision about the file is based on.
    pub fn record(&self, path: &Path) -> Option<Pin> {
        self.pins.get(&slot(path))
    }

    /// Pins exactly these bytes at this path, in the place of the record `before`.
    ///
    /// # Errors
    /// Another decision about the file came first, and holds; the record cannot be written.
    pub fn pin(
        &self,
        path: &Path,
        bytes: &[u8],
        before: Option<&Pin>,
    ) -> Result<(), PinWriteError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let pin = Pin {
            slot: slot(path),
            name: String::new(),
            digest: digest(bytes),
            tools: json!([]),
            grant: json!({
                PATH: path.display().to_string(),
                TEXT: String::from_utf8_lossy(bytes),
            }),
            by: PinnedBy::Person,
            at: now.map_or(0, |now| now.as_secs()),
        };
        self.pins.replace(before, &pin)
    }

    /// Revokes the pin of the file at this path. `false`: it had none.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn revoke(&self, path: &Path) -> io::Result<bool> {
        let slot = slot(path);
        let record = self.pins.get(&slot);
        if record.is_none_or(|record| record.grant[TEXT].is_null()) {
            return Ok(false);
        }
        self.pins.revoke(&slot)?;
        Ok(true)
    }

    /// Returns the pinned files, by path.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(&self) -> io::Result<Vec<PinnedFile>> {
        let entries = match std::fs::read_dir(self.pins.folder()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let slot = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(record) = slot.and_then(|slot| self.pins.get(slot)) else {
                continue;
            };
            let Some(path) = record.grant[PATH].as_str() else {
                continue;
            };
            files.push(PinnedFile {
                path: path.to_owned(),
                digest: record.digest,
                at: record.at,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Returns the path of the record for `path`, which changes with its pin.
    pub fn record_path(&self, path: &Path) -> PathBuf {
        let folder = self.pins.folder();
        folder.join(slot(path)).with_extension("json")
    }
}

/// How records name the bytes of a file.
pub fn digest(bytes: &[u8]) -> String {
    format!("{:?}", Digest::of(bytes))
}

fn slot(path: &Path) -> String {
    Digest::of(path.as_os_str().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_pin_is_of_these_bytes_at_this_path() {
        let state = tempfile::tempdir().unwrap();
        let files = FilePins::new(state.path());
        let (one, other) = (Path::new("/a/toolhold.toml"), Path::new("/b/toolhold.toml"));
        assert_eq!(files.state(one, b"x = 1"), FilePinState::Unknown);
        assert_eq!(files.all().unwrap(), []);
        files.pin(one, b"x = 1", None).unwrap();
        assert_eq!(files.state(one, b"x = 1"), FilePinState::Pinned);
        assert_eq!(files.state(other, b"x = 1"), FilePinState::Unknown);
        assert!(files.holds(one, &Digest::of(b"x = 1")));
        assert!(
            !files.holds(one, &Digest::of(b"x = 2")) && !files.holds(other, &Digest::of(b"x = 1"))
        );
        let before = "x = 1".to_owned();
        assert_eq!(files.state(one, b"x = 2"), FilePinState::Changed { before });
        assert!(files.record_path(one).is_file() && !files.record_path(other).exists());
        let mode = std::fs::metadata(state.path().join(FOLDER)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn pins_are_revoked_and_listed() {
        let state = tempfile::tempdir().unwrap();
        let files = FilePins::new(state.path());
        let path = Path::new("/a/toolhold.toml");
        assert!(!files.revoke(path).unwrap());
        files.pin(Path::new("/b/toolhold.toml"), b"", None).unwrap();
        files.pin(path, b"x = 1", None).unwrap();
        let paths = |files: &FilePins| -> Vec<String> {
            let all = files.all().unwrap().into_iter();
            all.map(|file| file.path).collect()
        };
        assert_eq!(paths(&files), ["/a/toolhold.toml", "/b/toolhold.toml"]);
        assert!(files.revoke(path).unwrap() && !files.revoke(path).unwrap());
        assert!(!files.holds(path, &Digest::of(b"x = 1")));
        assert_eq!(files.state(path, b"x = 1"), FilePinState::Unknown);
        assert_eq!(files.state(path, b"revoked"), FilePinState::Unknown);
        assert_eq!(paths(&files), ["/b/toolhold.toml"]);
    }

    #[test]
    fn the_first_decision_holds() {
        let state = tempfile::tempdir().unwrap();
        let files = FilePins::new(state.path());
        let path = Path::new("/a/toolhold.toml");
        files.pin(path, b"x = 1", None).unwrap();
        let seen = files.record(path);
        assert!(files.revoke(path).unwrap());
        // Whoever looked before the revocation does not undo it.
        let late = files.pin(path, b"x = 2", seen.as_ref()).unwrap_err();
        assert!(matches!(late, PinWriteError::Decided(_)), "{late:?}");
        assert!(!files.holds(path, &Digest::of(b"x = 2")));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_no_pin() {
        let state = tempfile::tempdir().unwrap();
        let files = FilePins::new(state.path());
        let path = Path::new("/a/toolhold.toml");
        files.pin(path, b"x = 1", None).unwrap();
        std::fs::write(files.record_path(path), "{").unwrap();
        assert_eq!(files.state(path, b"x = 1"), FilePinState::Unknown);
        assert_eq!(files.all().unwrap(), []);
    }
}
