//! Approvals on disk: one JSON file for each module, which several processes may read and write.

use crate::disk::private_folder;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::{ReadError, read_in, replace_in};
use toolhold_policy::approval::{Approval, ApprovalStore};

/// Maximum bytes of an approval. One holds the texts of a module's tools, which are bounded each and fill a fraction
/// of this.
const MAX_APPROVAL_BYTES: u64 = 64 << 20;

/// The approvals of one host: a folder with a file for each module. Methods block on the file system.
#[derive(Debug, Clone)]
pub struct ApprovalFolder {
    folder: PathBuf,
}

impl ApprovalFolder {
    /// The folder is made (0700) when the first approval is written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Where the approvals are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl ApprovalStore for ApprovalFolder {
    fn get(&self, slot: &str) -> Option<Approval> {
        let folder = Dir::open_ambient_dir(&self.folder, ambient_authority()).ok()?;
        let name = file(slot)?;
        let text = match read_in(&folder, name.as_ref(), MAX_APPROVAL_BYTES) {
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read
                .inspect_err(|error| tracing::warn!(slot, %error, "an approval cannot be read"))
                .ok()?,
        };
        serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(slot, %error, "an approval cannot be read"))
            .ok()
    }

    fn put(&self, approval: &Approval) -> io::Result<()> {
        let unfit = || io::Error::other("its name cannot be a file's");
        let name = file(&approval.slot).ok_or_else(unfit)?;
        private_folder(&self.folder)?;
        let folder = Dir::open_ambient_dir(&self.folder, ambient_authority())?;
        replace_in(&folder, &name, &serde_json::to_vec_pretty(approval)?)
    }

    fn knows(&self, module: &str) -> bool {
        let Ok(folder) = Dir::open_ambient_dir(&self.folder, ambient_authority()) else {
            return false;
        };
        let Ok(entries) = folder.entries() else {
            return false;
        };
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let Some(slot) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                return false;
            };
            // A manifest may name its module otherwise than its folder is called.
            slot.split('@').next() == Some(module)
                || self.get(slot).is_some_and(|record| record.is_of(module))
        })
    }
}

/// The file's name of a slot, unless the slot could lead to another folder.
fn file(slot: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.@+".contains(c);
    let fits = !slot.is_empty() && slot.len() <= 128 && slot.chars().all(plain);
    (fits && !slot.starts_with('.')).then(|| format!("{slot}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_policy::{ApprovedBy, Digest, Grant};

    fn approval(bytes: &[u8]) -> Approval {
        let grant = Grant::default();
        let by = ApprovedBy::Person;
        Approval::of("m", "named", Digest::of(bytes), &[], &grant, by)
    }

    #[test]
    fn approvals_are_kept_and_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let approvals = ApprovalFolder::new(folder.path().join("approvals"));
        assert!(approvals.get("m").is_none() && !approvals.knows("m"));
        let one = approval(b"1");
        approvals.put(&one).unwrap();
        assert_eq!(approvals.get("m"), Some(one));
        assert!(approvals.knows("m") && approvals.knows("named") && !approvals.knows("n"));
        approvals.put(&Approval::revoked("m")).unwrap();
        let changes = approvals.get("m").unwrap().changes(&approval(b"1"), true);
        assert_eq!(changes[0].what.raw(), "its approval was revoked");
        assert!(approvals.get("../m").is_none());
        // One that cannot be read is none, but it is known: it does not count as never seen.
        std::fs::write(approvals.folder().join("d.json"), "{").unwrap();
        assert!(approvals.get("d").is_none() && approvals.knows("d"));
    }

    #[cfg(unix)]
    #[test]
    fn a_fifo_in_the_place_of_an_approval_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let approvals = ApprovalFolder::new(folder.path());
        let path = folder.path().join("m.json");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(approvals.get("m").is_none() && approvals.knows("m"));
    }
}
