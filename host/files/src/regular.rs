//! Regular files: opened without waiting, checked, and read up to a bound.

use cap_std::fs::{Dir, OpenOptionsExt as _};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use thiserror::Error;

/// Whether the last component of a path may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// For files that a person or a system names: secrets are often mounted as links.
    Follow,
    /// For files that this host wrote itself.
    Refuse,
}

/// Why a file was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has {size} bytes, and may have {most}")]
    TooLarge {
        /// What was seen of it: the size of a file that grows is not known.
        size: u64,
        most: u64,
    },
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            large @ ReadError::TooLarge { .. } => Self::other(large),
        }
    }
}

/// Opens a regular file for reading. Returns at once: a FIFO, which would wait for a writer, a device and a socket
/// are refused.
///
/// # Errors
/// What the file system says; it is no regular file; it is a link and `links` refuses it.
pub fn open(path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::NONBLOCK;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(bits(flags))
        .open(path);
    match opened {
        Err(error)
            if links == Links::Refuse
                && error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) =>
        {
            Err(io::Error::new(error.kind(), "it is a symbolic link"))
        }
        opened => checked(opened?),
    }
}

/// As [`open`], below `folder`. Links are followed as long as they stay in it.
///
/// # Errors
/// As [`open`]; it is outside of the folder.
pub fn open_in(folder: &Dir, file: &Path) -> io::Result<File> {
    let mut options = cap_std::fs::OpenOptions::new();
    options.read(true).custom_flags(bits(OFlags::NONBLOCK));
    checked(folder.open_with(file, &options)?.into_std())
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open`]; it has more bytes, or grew to more while it was read.
pub fn read(path: &Path, most: u64, links: Links) -> Result<Vec<u8>, ReadError> {
    read_to_end(open(path, links)?, most)
}

/// As [`read`], below `folder`. Links are followed as long as they stay in it.
///
/// # Errors
/// As [`read`]; it is outside of the folder.
pub fn read_in(folder: &Dir, file: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    read_to_end(open_in(folder, file)?, most)
}

/// As [`read`], for a text.
///
/// # Errors
/// As [`read`]; it is not UTF-8.
pub fn read_text(path: &Path, most: u64, links: Links) -> io::Result<String> {
    let bytes = read(path, most, links)?;
    String::from_utf8(bytes).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is not UTF-8: {error}"),
        )
    })
}

fn checked(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Reads the rest of a file of at most `most` bytes, which [`open`] opened.
///
/// # Errors
/// What the file system says; it has more bytes, or grew to more while it was read.
pub fn read_to_end(file: File, most: u64) -> Result<Vec<u8>, ReadError> {
    let size = file.metadata()?.len();
    if size > most {
        return Err(ReadError::TooLarge { size, most });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes)? as u64;
    if read > most {
        return Err(ReadError::TooLarge { size: read, most });
    }
    Ok(bytes)
}

/// As std and cap-std take them.
fn bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cap_std::ambient_authority;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        symlink("fifo", at("to-fifo")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let inside = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        for name in ["fifo", "to-fifo", "folder", "socket"] {
            for links in [Links::Follow, Links::Refuse] {
                assert!(read(&at(name), 10, links).is_err(), "{name}");
            }
            assert!(read_in(&inside, Path::new(name), 10).is_err(), "{name}");
        }
        assert!(read(Path::new("/dev/zero"), 10, Links::Follow).is_err());
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5, Links::Refuse).unwrap(), b"12345");
        let error = read(&path, 4, Links::Refuse).unwrap_err();
        assert_eq!(error.to_string(), "it has 5 bytes, and may have 4");
        // Its size is said to be 0, and is not.
        let error = read(Path::new("/proc/self/status"), 4, Links::Follow).unwrap_err();
        assert!(matches!(error, ReadError::TooLarge { most: 4, .. }));
        fs::write(&path, b"\xff").unwrap();
        let error = read_text(&path, 4, Links::Refuse).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_link_is_followed_only_where_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(at("file"), "x").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("/etc/hostname", at("out")).unwrap();
        assert_eq!(read(&at("link"), 5, Links::Follow).unwrap(), b"x");
        let error = read(&at("link"), 5, Links::Refuse).unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link");
        let inside = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        assert_eq!(read_in(&inside, Path::new("link"), 5).unwrap(), b"x");
        assert!(read_in(&inside, Path::new("out"), 5).is_err());
    }
}
