//! Listings of directories: read at once as wasmtime does it, but no further than what the host may keep.

use super::files::Store;
use super::replaced::ReplacedInterface;
use crate::blocking::Stop;
use crate::call::CallState;
use crate::call::meter::{KeptBytes, KeptTooMuch};
use cap_std::fs::{Dir, FileType, FileTypeExt as _};
use std::fs::File;
use std::io;
use std::vec;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

/// A listing without entries.
const LISTING_BYTES: u64 = 128;
/// An entry besides its name: two places in a list that grows, and an allocation.
const ENTRY_BYTES: u64 = 96;

type ListedEntry = Result<DirectoryEntry, ErrorCode>;

/// The entries of a directory that the guest has not taken yet.
struct Listing {
    entries: vec::IntoIter<ListedEntry>,
    _kept: KeptBytes,
}

/// Why a directory is not listed.
#[derive(Debug)]
enum ListError {
    Io(io::Error),
    TooLarge,
}

impl From<io::Error> for ListError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<KeptTooMuch> for ListError {
    fn from(_: KeptTooMuch) -> Self {
        Self::TooLarge
    }
}

/// Puts the counted functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = ReplacedInterface::new(linker, "filesystem/types");
    types.resource(
        "directory-entry-stream",
        ResourceType::host::<Listing>(),
        |mut store: Store<'_>, handle| {
            let listing = Resource::<Listing>::new_own(handle);
            store.data_mut().entered().table.delete(listing)?;
            Ok(())
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.read-directory",
        |mut store: Store<'_>, (fd,): (Resource<Descriptor>,)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                state.revocation.check()?;
                let folder = match state.table.get(&fd)? {
                    Descriptor::Dir(folder) => folder.dir.clone(),
                    Descriptor::File(_) => return Ok((Err(ErrorCode::NotDirectory),)),
                };
                let kept = state.gauge.keep(LISTING_BYTES)?;
                let work = move |stop: &Stop| list(&folder, kept, stop);
                let listed = state.work.run(work).await;
                Ok((match listed {
                    Ok(listing) => Ok(state.table.push(listing)?),
                    Err(ListError::TooLarge) => Err(ErrorCode::InsufficientMemory),
                    Err(ListError::Io(error)) => Err(FsError::from(error).downcast()?),
                },))
            })
        },
    )?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: Store<'_>, (listing,): (Resource<Listing>,)| {
            let state = store.data_mut().entered();
            state.revocation.check()?;
            let next = state.table.get_mut(&listing)?.entries.next();
            Ok((next.transpose(),))
        },
    )?;
    Ok(())
}

fn list(folder: &File, mut kept: KeptBytes, stop: &Stop) -> Result<Listing, ListError> {
    let mut entries = Vec::new();
    for entry in Dir::from_std_file(folder.try_clone()?).entries()? {
        stop.check().map_err(io::Error::from)?;
        let entry = entry?;
        let name = entry.file_name();
        kept.grow(ENTRY_BYTES + name.len() as u64)?;
        let kind = entry.file_type().map(descriptor_type);
        entries.push(match (name.into_string(), kind) {
            (Ok(name), Ok(type_)) => Ok(DirectoryEntry { type_, name }),
            (Err(_), _) => Err(ErrorCode::IllegalByteSequence),
            (_, Err(error)) => Err(error.into()),
        });
    }
    Ok(Listing {
        entries: entries.into_iter(),
        _kept: kept,
    })
}

fn descriptor_type(of: FileType) -> DescriptorType {
    if of.is_dir() {
        DescriptorType::Directory
    } else if of.is_symlink() {
        DescriptorType::SymbolicLink
    } else if of.is_file() {
        DescriptorType::RegularFile
    } else if of.is_block_device() {
        DescriptorType::BlockDevice
    } else if of.is_char_device() {
        DescriptorType::CharacterDevice
    } else if of.is_fifo() {
        DescriptorType::Fifo
    } else if of.is_socket() {
        DescriptorType::Socket
    } else {
        DescriptorType::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::meter::{Gauge, RefusedResource};
    use rustix::fs::{CWD, FileType as Kind, Mode};
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;

    fn gauge(kept_bytes: u64, ceiling: &MemoryCeiling) -> Gauge {
        let limits = Limits {
            kept_bytes,
            ..Limits::default()
        };
        Gauge::new(&limits, ceiling.of(""))
    }

    #[test]
    fn a_directory_is_read_as_far_as_it_may_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::os::unix::fs::symlink("inner", folder.path().join("link")).unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, fifo, Kind::Fifo, Mode::RUSR, 0).unwrap();
        for n in 0..1_000 {
            std::fs::write(folder.path().join(format!("file-{n:04}")), "").unwrap();
        }
        let opened = File::open(folder.path()).unwrap();
        let ceiling = MemoryCeiling::new(1 << 20);

        let go = Stop::default();
        let roomy = gauge(1 << 20, &ceiling);
        for _ in 0..2 {
            let listing = list(&opened, roomy.keep(LISTING_BYTES).unwrap(), &go).unwrap();
            assert!(ceiling.taken() >= 1_003 * ENTRY_BYTES);
            let mut found: Vec<_> = listing.entries.map(|entry| entry.unwrap()).collect();
            found.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(found.len(), 1_003);
            let (first, second) = (&found[0], &found[1]);
            assert_eq!((&*first.name, &*second.name), ("fifo", "file-0000"));
            assert!(matches!(first.type_, DescriptorType::Fifo));
            let kinds: Vec<_> = found
                .iter()
                .rev()
                .take(3)
                .map(|entry| entry.type_)
                .collect();
            assert!(
                matches!(
                    kinds.as_slice(),
                    [
                        DescriptorType::SymbolicLink,
                        DescriptorType::Directory,
                        DescriptorType::RegularFile
                    ]
                ),
                "{kinds:?}"
            );
        }
        assert_eq!(ceiling.taken(), 0);

        let narrow = gauge(10_000, &ceiling);
        let listed = list(&opened, narrow.keep(LISTING_BYTES).unwrap(), &go);
        assert!(matches!(listed, Err(ListError::TooLarge)));
        assert_eq!(
            narrow.refused(),
            Some(RefusedResource::KeptBytes { limit: 10_000 })
        );
        assert_eq!(ceiling.taken(), 0);
        let stop = Stop::default();
        stop.leave();
        let listed = list(&opened, roomy.keep(LISTING_BYTES).unwrap(), &stop);
        assert!(matches!(listed, Err(ListError::Io(_))));
    }
}
