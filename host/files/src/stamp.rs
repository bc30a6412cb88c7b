//! Stamps of files: whether a file may have another content, told without reading it.

use cap_std::fs::{Metadata, MetadataExt as _};
use std::time::{Duration, SystemTime};

/// Two changes of a file within this time may leave the same stamp, because file systems count time in steps.
const TIMESTAMP_RESOLUTION: Duration = Duration::from_secs(2);

/// Identity, size and times of a file. A file whose stamp is the same has the same content, unless it changed within
/// the resolution of the file system's times ([`Self::is_settled`]).
///
/// The change time is a part of it, because a copy may keep the modification time of another file, and cannot keep this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds since 1970 and nanoseconds.
    modified: (i64, i64),
    /// Time of the last change of the content, name or attributes, in the form of `modified`.
    changed: (i64, i64),
}

impl FileStamp {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a stamp that was taken at `taken` tells all changes after it: the file had been left alone for two
    /// seconds.
    pub fn is_settled(&self, taken: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let since_1970 = Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
        let changed = SystemTime::UNIX_EPOCH + since_1970;
        taken
            .duration_since(changed)
            .is_ok_and(|age| age > TIMESTAMP_RESOLUTION)
    }

    /// All parts in one fixed order, to be hashed.
    pub fn to_bytes(&self) -> [u8; 56] {
        let parts = [
            self.device.to_le_bytes(),
            self.inode.to_le_bytes(),
            self.bytes.to_le_bytes(),
            self.modified.0.to_le_bytes(),
            self.modified.1.to_le_bytes(),
            self.changed.0.to_le_bytes(),
            self.changed.1.to_le_bytes(),
        ];
        let mut bytes = [0; 56];
        for (place, part) in bytes.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&part);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cap_std::ambient_authority;
    use cap_std::fs::Dir;
    use std::fs::{self, File};

    #[test]
    fn a_content_of_the_same_size_and_modification_time_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let stamp = |name: &str| FileStamp::of(&dir.metadata(name).unwrap());
        fs::write(&path, "one").unwrap();
        let first = stamp("a");
        assert_eq!(first, stamp("a"));
        assert!(!first.is_settled(SystemTime::now()));
        assert!(first.is_settled(SystemTime::now() + Duration::from_mins(1)));
        // As `rsync -t` does: another file, with the time of the first.
        let modified = path.metadata().unwrap().modified().unwrap();
        let next = folder.path().join("b");
        fs::write(&next, "two").unwrap();
        File::options()
            .write(true)
            .open(&next)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
        assert_ne!(first, stamp("a"));
        assert_ne!(first.to_bytes(), stamp("a").to_bytes());
    }
}
