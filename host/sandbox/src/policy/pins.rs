//! Pins on disk: one JSON file for each module, which several processes may read and write.

use crate::disk::private_folder;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::{FolderLock, ReadError, read_in, replace_in};
use toolhold_policy::pin::{EarlierPinDecision, Pin, PinStore, PinWriteError};

/// Maximum bytes of a pin. One holds the texts of a module's tools, which are bounded each and fill a fraction
/// of this.
const MAX_PIN_BYTES: u64 = 64 << 20;

/// The pins of one host: a folder with a file for each module. Methods block on the file system.
#[derive(Debug, Clone)]
pub struct PinFolder {
    folder: PathBuf,
}

impl PinFolder {
    /// The folder is made (0700) when the first pin is written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Folder of the pins.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder (0700), so that it can be watched before the first pin is written.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn prepare(&self) -> io::Result<()> {
        private_folder(&self.folder)
    }

    /// The right to change pins, which one process has at a time.
    fn lock(&self) -> io::Result<FolderLock> {
        private_folder(&self.folder)?;
        FolderLock::take(&self.folder)
    }

    fn write(&self, _right: &FolderLock, pin: &Pin) -> io::Result<()> {
        let unfit = || io::Error::other("its name cannot be a file's");
        let name = file(&pin.slot).ok_or_else(unfit)?;
        let folder = Dir::open_ambient_dir(&self.folder, ambient_authority())?;
        replace_in(&folder, &name, &serde_json::to_vec_pretty(pin)?)
    }
}

impl PinStore for PinFolder {
    fn get(&self, slot: &str) -> Option<Pin> {
        let folder = Dir::open_ambient_dir(&self.folder, ambient_authority()).ok()?;
        let name = file(slot)?;
        let text = match read_in(&folder, name.as_ref(), MAX_PIN_BYTES) {
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read
                .inspect_err(|error| tracing::warn!(slot, %error, "a pin cannot be read"))
                .ok()?,
        };
        serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(slot, %error, "a pin cannot be read"))
            .ok()
    }

    fn replace(&self, before: Option<&Pin>, pin: &Pin) -> Result<(), PinWriteError> {
        let lock = self.lock()?;
        let now = self.get(&pin.slot);
        if now.as_ref() != before {
            let decided = EarlierPinDecision::of(now.as_ref());
            return Err(PinWriteError::Decided(decided));
        }
        Ok(self.write(&lock, pin)?)
    }

    fn revoke(&self, slot: &str) -> io::Result<()> {
        self.write(&self.lock()?, &Pin::revoked(slot))
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
    use toolhold_policy::{Digest, Grant, PinnedBy};

    fn pin(bytes: &[u8]) -> Pin {
        let grant = Grant::default();
        let by = PinnedBy::Person;
        Pin::of("m", "named", Digest::of(bytes), &[], &grant, by)
    }

    #[test]
    fn pins_are_kept_and_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let pins = PinFolder::new(folder.path().join("approvals"));
        assert!(pins.get("m").is_none() && !pins.knows("m"));
        let one = pin(b"1");
        pins.replace(None, &one).unwrap();
        assert_eq!(pins.get("m"), Some(one));
        assert!(pins.knows("m") && pins.knows("named") && !pins.knows("n"));
        pins.revoke("m").unwrap();
        let changes = pins.get("m").unwrap().changes(&pin(b"1"), true);
        assert_eq!(changes[0].what.raw(), "its pin was revoked");
        assert!(pins.get("../m").is_none());
        // One that cannot be read is none, but it is known: it does not count as never seen.
        std::fs::write(pins.folder().join("d.json"), "{").unwrap();
        assert!(pins.get("d").is_none() && pins.knows("d"));
    }

    #[test]
    fn the_first_decision_holds() {
        let folder = tempfile::tempdir().unwrap();
        let pins = PinFolder::new(folder.path());
        let (one, two) = (pin(b"1"), pin(b"2"));
        pins.replace(None, &one).unwrap();
        // Two people looked at the same record.
        pins.replace(Some(&one), &two).unwrap();
        let late = pins.replace(Some(&one), &pin(b"3")).unwrap_err();
        assert!(
            matches!(late, PinWriteError::Decided(EarlierPinDecision::Approved)),
            "{late:?}"
        );
        pins.revoke("m").unwrap();
        let late = pins.replace(Some(&two), &pin(b"3")).unwrap_err();
        assert_eq!(
            late.to_string(),
            "its pin was revoked meanwhile; look at it again"
        );
        assert!(pins.get("m").unwrap().is_revoked());
        // Whoever looked at the revocation may approve again.
        pins.replace(Some(&Pin::revoked("m")), &one).unwrap();
        assert_eq!(pins.get("m"), Some(one));
    }

    #[cfg(unix)]
    #[test]
    fn a_fifo_in_the_place_of_a_pin_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let pins = PinFolder::new(folder.path());
        let path = folder.path().join("m.json");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(pins.get("m").is_none() && pins.knows("m"));
    }
}
