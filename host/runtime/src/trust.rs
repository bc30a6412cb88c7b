//! Configuration files that a person trusts, each pinned to its place and its exact bytes: found ones, and named ones
//! that modules may have written (`docs/security.md`, "Files that were found").
//!
//! The records are approvals like those of modules, in a folder of their own: the slot is the SHA-256 of the
//! file's path, because a path may be longer than a file name; the digest is that of the file's bytes; and the
//! path and the text are in the place of the grant, for the list and for the difference that a person is shown.

use serde_json::json;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use toolhold_policy::{Approval, ApprovalStore as _, ApprovedBy, Digest};
use toolhold_sandbox::ApprovalFolder;

/// Folder below the state folder.
const FOLDER: &str = "trusted";
/// Keys in the place of the grant.
const PATH: &str = "path";
const TEXT: &str = "text";

/// The trusted files of one user. Methods block on the file system.
#[derive(Debug, Clone)]
pub struct TrustedFiles {
    approvals: ApprovalFolder,
}

/// Whether a file is trusted as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileTrust {
    Trusted,
    /// The file was trusted with this text, and differs now.
    Changed {
        before: String,
    },
    /// The file was trusted, and there is none now.
    Gone,
    Unknown,
}

/// A file that was trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedFile {
    /// As text, for people.
    pub path: String,
    /// `sha256:…` of its bytes.
    pub digest: String,
    /// Seconds since 1970.
    pub at: u64,
}

impl TrustedFiles {
    /// The folder is made (0700) when the first file is trusted.
    pub fn new(state_folder: &Path) -> Self {
        Self {
            approvals: ApprovalFolder::new(state_folder.join(FOLDER)),
        }
    }

    /// Whether these bytes are trusted at this path, which is absolute and without links.
    pub fn trust_in(&self, path: &Path, bytes: &[u8]) -> FileTrust {
        let Some(record) = self.approvals.get(&slot(path)) else {
            return FileTrust::Unknown;
        };
        if record.digest == digest(bytes) {
            return FileTrust::Trusted;
        }
        // The record of a file that is trusted no more has no text.
        let before = record.grant[TEXT].as_str().map(str::to_owned);
        before.map_or(FileTrust::Unknown, |before| FileTrust::Changed { before })
    }

    /// True if a person trusts bytes of this digest at this path, which is absolute and without links.
    pub fn trusts(&self, path: &Path, digest: &Digest) -> bool {
        let record = self.approvals.get(&slot(path));
        record.is_some_and(|record| {
            record.digest == format!("{digest:?}") && !record.grant[TEXT].is_null()
        })
    }

    /// Trusts exactly these bytes at this path, in the place of what was trusted there before.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn trust(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.approvals.put(&Approval {
            slot: slot(path),
            name: String::new(),
            digest: digest(bytes),
            tools: json!([]),
            grant: json!({
                PATH: path.display().to_string(),
                TEXT: String::from_utf8_lossy(bytes),
            }),
            by: ApprovedBy::Person,
            at: now.map_or(0, |now| now.as_secs()),
        })
    }

    /// Trusts the file at this path no more. `false`: it was not trusted.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn revoke(&self, path: &Path) -> io::Result<bool> {
        let slot = slot(path);
        let record = self.approvals.get(&slot);
        if record.is_none_or(|record| record.grant[TEXT].is_null()) {
            return Ok(false);
        }
        self.approvals.put(&Approval::revoked(&slot))?;
        Ok(true)
    }

    /// The trusted files, by path.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(&self) -> io::Result<Vec<TrustedFile>> {
        let entries = match std::fs::read_dir(self.approvals.folder()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let slot = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(record) = slot.and_then(|slot| self.approvals.get(slot)) else {
                continue;
            };
            let Some(path) = record.grant[PATH].as_str() else {
                continue;
            };
            files.push(TrustedFile {
                path: path.to_owned(),
                digest: record.digest,
                at: record.at,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The file of the record for `path`, which changes with the trust in it.
    pub fn record(&self, path: &Path) -> PathBuf {
        let folder = self.approvals.folder();
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
    fn trust_is_in_these_bytes_at_this_path() {
        let state = tempfile::tempdir().unwrap();
        let files = TrustedFiles::new(state.path());
        let (one, other) = (Path::new("/a/toolhold.toml"), Path::new("/b/toolhold.toml"));
        assert_eq!(files.trust_in(one, b"x = 1"), FileTrust::Unknown);
        assert_eq!(files.all().unwrap(), []);
        files.trust(one, b"x = 1").unwrap();
        assert_eq!(files.trust_in(one, b"x = 1"), FileTrust::Trusted);
        assert_eq!(files.trust_in(other, b"x = 1"), FileTrust::Unknown);
        assert!(files.trusts(one, &Digest::of(b"x = 1")));
        assert!(
            !files.trusts(one, &Digest::of(b"x = 2"))
                && !files.trusts(other, &Digest::of(b"x = 1"))
        );
        let before = "x = 1".to_owned();
        assert_eq!(files.trust_in(one, b"x = 2"), FileTrust::Changed { before });
        assert!(files.record(one).is_file() && !files.record(other).exists());
        let mode = std::fs::metadata(state.path().join(FOLDER)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn trust_is_taken_back_and_listed() {
        let state = tempfile::tempdir().unwrap();
        let files = TrustedFiles::new(state.path());
        let path = Path::new("/a/toolhold.toml");
        assert!(!files.revoke(path).unwrap());
        files.trust(Path::new("/b/toolhold.toml"), b"").unwrap();
        files.trust(path, b"x = 1").unwrap();
        let paths = |files: &TrustedFiles| -> Vec<String> {
            let all = files.all().unwrap().into_iter();
            all.map(|file| file.path).collect()
        };
        assert_eq!(paths(&files), ["/a/toolhold.toml", "/b/toolhold.toml"]);
        assert!(files.revoke(path).unwrap() && !files.revoke(path).unwrap());
        assert!(!files.trusts(path, &Digest::of(b"x = 1")));
        assert_eq!(files.trust_in(path, b"x = 1"), FileTrust::Unknown);
        assert_eq!(files.trust_in(path, b"revoked"), FileTrust::Unknown);
        assert_eq!(paths(&files), ["/b/toolhold.toml"]);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_no_trust() {
        let state = tempfile::tempdir().unwrap();
        let files = TrustedFiles::new(state.path());
        let path = Path::new("/a/toolhold.toml");
        files.trust(path, b"x = 1").unwrap();
        std::fs::write(files.record(path), "{").unwrap();
        assert_eq!(files.trust_in(path, b"x = 1"), FileTrust::Unknown);
        assert_eq!(files.all().unwrap(), []);
    }
}
