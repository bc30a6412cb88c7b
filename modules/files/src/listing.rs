//! What is in one directory, names that are no text included: the standard library ends a listing at such a name, and
//! does not say which entries are FIFOs.

#[cfg(target_os = "wasi")]
pub use wasi::Directories;

#[cfg(not(target_os = "wasi"))]
pub use native::Directories;

#[cfg(target_os = "wasi")]
mod wasi {
    use crate::walk::{Entry, Kind, Listed};
    use std::io;
    use std::path::{Path, PathBuf};
    use wasip2::filesystem::preopens::get_directories;
    use wasip2::filesystem::types::{
        Descriptor, DescriptorFlags, DescriptorType, ErrorCode, OpenFlags, PathFlags,
    };

    /// The granted directories.
    pub struct Directories(Vec<(Descriptor, PathBuf)>);

    impl Directories {
        pub fn open() -> Self {
            let granted = get_directories().into_iter();
            Self(granted.map(|(dir, path)| (dir, path.into())).collect())
        }

        pub fn list(&self, directory: &Path) -> io::Result<Listed> {
            let mut granted = self.0.iter();
            let (root, inside) = granted
                .find_map(|(root, path)| Some((root, directory.strip_prefix(path).ok()?)))
                .ok_or(io::ErrorKind::NotFound)?;
            let opened;
            let read = match inside.to_str() {
                Some("") => root,
                Some(inside) => {
                    let (follow, read) = (PathFlags::SYMLINK_FOLLOW, DescriptorFlags::READ);
                    opened = root
                        .open_at(follow, inside, OpenFlags::DIRECTORY, read)
                        .map_err(error)?;
                    &opened
                }
                None => return Err(io::ErrorKind::InvalidInput.into()),
            };
            let stream = read.read_directory().map_err(error)?;
            let mut listed = Listed::default();
            loop {
                match stream.read_directory_entry() {
                    Ok(Some(entry)) => listed.entries.push(Entry {
                        path: directory.join(entry.name),
                        kind: kind(entry.type_),
                    }),
                    Ok(None) => return Ok(listed),
                    Err(ErrorCode::IllegalByteSequence) => listed.unnamed += 1,
                    // The entry is gone meanwhile, or cannot be looked at.
                    Err(_) => {}
                }
            }
        }
    }

    fn kind(of: DescriptorType) -> Kind {
        match of {
            DescriptorType::RegularFile => Kind::File,
            DescriptorType::Directory => Kind::Directory,
            DescriptorType::SymbolicLink => Kind::Link,
            DescriptorType::Fifo => Kind::Fifo,
            DescriptorType::Socket => Kind::Socket,
            DescriptorType::BlockDevice | DescriptorType::CharacterDevice => Kind::Device,
            DescriptorType::Unknown => Kind::Other,
        }
    }

    fn error(code: ErrorCode) -> io::Error {
        let kind = match code {
            ErrorCode::NoEntry => io::ErrorKind::NotFound,
            ErrorCode::NotDirectory => io::ErrorKind::NotADirectory,
            ErrorCode::Access | ErrorCode::NotPermitted => io::ErrorKind::PermissionDenied,
            ErrorCode::Busy => io::ErrorKind::ResourceBusy,
            other => return io::Error::other(other.message()),
        };
        kind.into()
    }
}

#[cfg(not(target_os = "wasi"))]
mod native {
    use crate::walk::{Entry, Kind, Listed};
    use std::fs::{self, FileType};
    use std::io;
    use std::os::unix::fs::FileTypeExt as _;
    use std::path::Path;

    /// Natively, in tests, paths need no handle.
    pub struct Directories;

    impl Directories {
        pub fn open() -> Self {
            Self
        }

        #[expect(
            clippy::unused_self,
            reason = "a guest lists by the handles that it holds"
        )]
        pub fn list(&self, directory: &Path) -> io::Result<Listed> {
            let mut listed = Listed::default();
            for entry in fs::read_dir(directory)?.flatten() {
                let (path, Ok(of)) = (entry.path(), entry.file_type()) else {
                    continue;
                };
                if path.file_name().is_none_or(|name| name.to_str().is_none()) {
                    listed.unnamed += 1;
                } else {
                    let kind = kind(of);
                    listed.entries.push(Entry { path, kind });
                }
            }
            Ok(listed)
        }
    }

    fn kind(of: FileType) -> Kind {
        if of.is_file() {
            Kind::File
        } else if of.is_dir() {
            Kind::Directory
        } else if of.is_symlink() {
            Kind::Link
        } else if of.is_fifo() {
            Kind::Fifo
        } else if of.is_socket() {
            Kind::Socket
        } else if of.is_block_device() || of.is_char_device() {
            Kind::Device
        } else {
            Kind::Other
        }
    }
}
