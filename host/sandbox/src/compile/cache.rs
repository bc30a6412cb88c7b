//! Compiled components on disk. The only file with `unsafe`.
//!
//! A compiled artefact is native code: who can write one can run anything as us. So an entry is
//! loaded only if a keyed BLAKE3 over its bytes, the component's digest and the engine's
//! compatibility hash checks out. The key lies outside the cache folder. Anything else about an
//! entry (its name, its size, a flipped bit, another engine's version) makes it worthless, and the
//! component is compiled again. `docs/security.md`, promise 5.
//!
//! A component is copied into memory that is sealed, checked there and mapped from there (`compile/sealed.rs`). The entry
//! itself is not mapped: its pages would change with the file after the check.
//!
//! An entry is the length of the artefact (8 bytes, little endian), the MAC of that length, the MAC of the artefact,
//! and the artefact. The length is checked first, so that a huge file in the place of an entry is never read.
//!
//! Lists of edits (`compile/edits.rs`) are entries like that, with the digest of their module's folder in the place of a
//! component's; the MAC of one kind does not verify for the other.

use super::process::Artefact;
use super::sealed::SealedCopy;
use super::unused;
use crate::disk::private_folder;
use crate::engine::Engine;
use crate::error::LoadError;
use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use toolhold_files::{Links, temporary_name};
use toolhold_policy::Digest;
use wasmtime::component::Component;

const LENGTH_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const HEADER_BYTES: usize = LENGTH_BYTES + 2 * MAC_BYTES;
/// The context in which entries' names are derived from the key. Another layout of entries gets another one.
const NAME_DERIVATION_CONTEXT: &str = "toolhold 2026 names of compiled cache entries, version 2";

/// A folder of compiled components that this host made itself.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    key: [u8; 32],
    /// Of all clones together.
    tally: Arc<CacheCounters>,
}

#[derive(Debug, Default)]
struct CacheCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    /// Whether this process looked for entries that nothing uses any more.
    is_pruned: AtomicBool,
}

/// How often an entry was looked for, and there and sound, or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheLookupCounts {
    pub hits: u64,
    pub misses: u64,
}

impl Cache {
    /// Opens the cache in `folder` with the key in `key_file`, making both (0700, 0600) if they are
    /// not there.
    ///
    /// # Errors
    /// What the file system says, with the path at fault in the message.
    pub fn open(folder: &Path, key_file: &Path) -> io::Result<Self> {
        own_folder(folder).map_err(|e| at(folder, &e))?;
        if let Some(parent) = key_file.parent() {
            own_folder(parent).map_err(|e| at(parent, &e))?;
        }
        let key = read_or_make_key(key_file).map_err(|e| at(key_file, &e))?;
        Ok(Self {
            folder: folder.to_owned(),
            key,
            tally: Arc::default(),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How often this host looked for an entry.
    pub fn lookups(&self) -> CacheLookupCounts {
        CacheLookupCounts {
            hits: self.tally.hits.load(Ordering::Relaxed),
            misses: self.tally.misses.load(Ordering::Relaxed),
        }
    }

    /// The compiled form of the component with this digest, if there is a sound entry for this
    /// engine. A missing, foreign or damaged entry is `None`: compiling is always the way out.
    pub fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let found = self.sound(engine, digest);
        let counted = if found.is_some() {
            &self.tally.hits
        } else {
            &self.tally.misses
        };
        counted.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn sound(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let kind = EntryKind::Component;
        let entry = self.opened(engine, kind, digest)?;
        let checked = entry.checked(self.hasher(engine, kind, digest, EntryPart::Held));
        let code = entry.note_check(digest, checked)?;
        code.load(engine)
            .inspect_err(
                |error| tracing::warn!(%digest, %error, "a compiled cache entry did not load"),
            )
            .ok()
    }

    /// Keeps a compiled component. The first entry that a process makes takes the place of those that nothing used for
    /// a month.
    ///
    /// # Errors
    /// What the file system says; a host that cannot write its cache still runs, only slower.
    pub(crate) fn store(
        &self,
        engine: &Engine,
        digest: &Digest,
        artefact: &[u8],
    ) -> io::Result<()> {
        self.write(engine, EntryKind::Component, digest, artefact)?;
        if !self.tally.is_pruned.swap(true, Ordering::Relaxed) {
            // The entry is in its place all the same.
            let _ = unused::prune(&self.folder, unused::KEPT_UNUSED)
                .inspect_err(|error| tracing::warn!(%error, "old cache entries are still there"));
        }
        Ok(())
    }

    /// What a sound entry holds.
    pub(super) fn read(
        &self,
        engine: &Engine,
        kind: EntryKind,
        digest: &Digest,
    ) -> Option<Vec<u8>> {
        let entry = self.opened(engine, kind, digest)?;
        let held = entry.read(self.hasher(engine, kind, digest, EntryPart::Held));
        entry.note_check(digest, held)
    }

    /// The entry with this name, if there is one and the MAC of its length is right.
    fn opened(&self, engine: &Engine, kind: EntryKind, digest: &Digest) -> Option<OpenEntry> {
        let file = toolhold_files::open(&self.path(engine, kind, digest), Links::Refuse).ok()?;
        let entry = self.header(file, engine, kind, digest);
        if entry.is_none() {
            warn_of_unsound(digest);
        }
        entry
    }

    fn header(
        &self,
        mut file: fs::File,
        engine: &Engine,
        kind: EntryKind,
        digest: &Digest,
    ) -> Option<OpenEntry> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).ok()?;
        let (length, macs) = header.split_first_chunk::<LENGTH_BYTES>()?;
        let (of_length, macs) = macs.split_first_chunk::<MAC_BYTES>()?;
        let of_held = macs.first_chunk::<MAC_BYTES>()?;
        // `blake3::Hash` compares in constant time.
        if self.mac(engine, kind, digest, EntryPart::Length, length)
            != blake3::Hash::from_bytes(*of_length)
        {
            return None;
        }
        Some(OpenEntry {
            file,
            length: u64::from_le_bytes(*length),
            mac: blake3::Hash::from_bytes(*of_held),
        })
    }

    /// Readers see the whole entry or none.
    pub(super) fn write(
        &self,
        engine: &Engine,
        kind: EntryKind,
        digest: &Digest,
        held: &[u8],
    ) -> io::Result<()> {
        let path = self.path(engine, kind, digest);
        let temporary = unfinished(&path)?;
        let mut file = create(&temporary)?;
        let length = (held.len() as u64).to_le_bytes();
        let mac = |part, bytes: &[u8]| self.mac(engine, kind, digest, part, bytes);
        file.write_all(&length)?;
        file.write_all(mac(EntryPart::Length, &length).as_bytes())?;
        file.write_all(mac(EntryPart::Held, held).as_bytes())?;
        file.write_all(held)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    }

    /// Hosts with keys of their own that share the folder leave each other's entries alone.
    pub(super) fn path(&self, engine: &Engine, kind: EntryKind, digest: &Digest) -> PathBuf {
        let mut name = StableHasher(blake3::Hasher::new_derive_key(NAME_DERIVATION_CONTEXT));
        name.write(&self.key);
        name.write(&compatibility(engine).to_le_bytes());
        let ending = match kind {
            EntryKind::Component => unused::COMPONENT_ENDING,
            EntryKind::Edits => unused::EDITS_ENDING,
        };
        self.folder
            .join(format!("{digest}-{:016x}.{ending}", name.finish()))
    }

    fn mac(
        &self,
        engine: &Engine,
        kind: EntryKind,
        digest: &Digest,
        part: EntryPart,
        bytes: &[u8],
    ) -> blake3::Hash {
        let mut hasher = self.hasher(engine, kind, digest, part);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// Makes the MAC of a part of an entry from that part's bytes.
    fn hasher(
        &self,
        engine: &Engine,
        kind: EntryKind,
        digest: &Digest,
        part: EntryPart,
    ) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(digest.as_bytes())
            .update(&compatibility(engine).to_le_bytes())
            .update(&[kind as u8 + part as u8]);
        hasher
    }
}

/// An entry that was read up to what it holds. Its length is the one that this host wrote.
struct OpenEntry {
    file: fs::File,
    length: u64,
    /// MAC of the bytes that it holds.
    mac: blake3::Hash,
}

impl OpenEntry {
    /// A byte more than there may be: it shows that the file is longer.
    fn rest(&self) -> io::Take<&fs::File> {
        (&self.file).take(self.length + 1)
    }

    /// Reads the bytes that it holds, if they have the right MAC.
    fn read(&self, mut hasher: blake3::Hasher) -> Option<Vec<u8>> {
        let mut held = Vec::with_capacity(usize::try_from(self.length).ok()?);
        self.rest().read_to_end(&mut held).ok()?;
        hasher.update(&held);
        (hasher.finalize() == self.mac).then_some(held)
    }

    /// Returns the code that it holds, if it has the right MAC: in sealed memory, or read where there is none.
    fn checked(&self, mut hasher: blake3::Hasher) -> Option<CheckedCode> {
        let copy = match SealedCopy::of(&mut self.rest()) {
            Ok(copy) => copy,
            Err(error) => {
                tracing::debug!(%error, "compiled code is read and not mapped");
                let mut file = &self.file;
                file.seek(SeekFrom::Start(HEADER_BYTES as u64)).ok()?;
                return self.read(hasher).map(CheckedCode::Read);
            }
        };
        if copy.length().ok()? != self.length {
            return None;
        }
        // After the seal: what is checked here cannot be changed any more.
        hasher.update_reader(copy.reader().ok()?).ok()?;
        (hasher.finalize() == self.mac).then_some(CheckedCode::Sealed(copy))
    }

    /// Marks the entry as used if it was sound, and says so if it was not.
    fn note_check<T>(&self, digest: &Digest, sound: Option<T>) -> Option<T> {
        match &sound {
            Some(_) => unused::mark(&self.file),
            None => warn_of_unsound(digest),
        }
        sound
    }
}

fn warn_of_unsound(digest: &Digest) {
    tracing::warn!(%digest, "an entry of the compile cache failed its check; it is made anew");
}

/// Code whose MAC was verified over these very bytes. They cannot change between that check and their use.
enum CheckedCode {
    /// In memory that takes no writes any more.
    Sealed(SealedCopy),
    /// In memory of this process.
    Read(Vec<u8>),
}

impl CheckedCode {
    /// # Errors
    /// wasmtime's.
    fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        let bytes = match self {
            Self::Read(bytes) => Cow::Borrowed(bytes.as_slice()),
            Self::Sealed(copy) => {
                if let Some(component) = mapped(engine, copy) {
                    return Ok(component);
                }
                let mut bytes = Vec::new();
                copy.reader()?.read_to_end(&mut bytes)?;
                Cow::Owned(bytes)
            }
        };
        // SAFETY: `deserialize` runs whatever code the bytes hold, so they must come from `Component::serialize` of a
        // compatible engine. The keyed MAC of a `CheckedCode` proves that this host wrote them for this digest and this
        // engine: without the key, which is not in the cache folder, such an entry cannot be made. The bytes cannot
        // change between check and use: they are in memory of this process, or come from a copy that was sealed before.
        #[expect(
            unsafe_code,
            reason = "loading compiled code is unsafe by nature; see above"
        )]
        unsafe {
            Component::deserialize(engine.wasmtime(), &bytes)
        }
    }
}

/// Maps the code of a [`CheckedCode::Sealed`]. Absent if it cannot be mapped: it can still be read.
fn mapped(engine: &Engine, checked: &SealedCopy) -> Option<Component> {
    let path = checked.path()?;
    // SAFETY: `deserialize_file` maps the file and runs whatever code it holds, so it must come from
    // `Component::serialize` of a compatible engine and never change. The MAC of a `CheckedCode` proves the first, as
    // above. It was verified over a copy that had been sealed before, and that cannot be unsealed, so no handle, open or
    // new, changes it now. The path is the kernel's name for this very copy, which `checked` keeps open during the call.
    #[expect(
        unsafe_code,
        reason = "loading compiled code is unsafe by nature; see above"
    )]
    let component = unsafe { Component::deserialize_file(engine.wasmtime(), path) };
    component
        .inspect_err(|error| {
            tracing::debug!(
                error = format!("{error:#}"),
                "compiled code cannot be mapped"
            );
        })
        .ok()
}

/// Digest of a module's folder, under which the list of its author's edits is kept.
#[derive(Debug, Clone)]
pub(super) struct FolderName(Digest);

impl FolderName {
    /// Absent: there is no such folder. Blocks.
    pub fn of(folder: &Path) -> Option<Self> {
        let folder = fs::canonicalize(folder).ok()?;
        Some(Self(Digest::of(folder.as_os_str().as_encoded_bytes())))
    }

    /// The name for the bases of the module in the folder.
    pub fn of_base(folder: &Path) -> Option<Self> {
        let Self(folder) = Self::of(folder)?;
        Some(Self(Digest::of(format!("bases of {folder}").as_bytes())))
    }

    pub fn digest(&self) -> &Digest {
        &self.0
    }
}

/// What an entry holds. Added to [`EntryPart`], so that each pair of both is another number.
#[derive(Debug, Clone, Copy)]
pub(super) enum EntryKind {
    /// Compiled, under the component's digest.
    Component = 0,
    /// The names of the entries that an author's edits made, under the module's [`FolderName`].
    /// Not 2, which older versions gave to native code.
    Edits = 4,
}

/// Part of an entry that a MAC is over. The length has a MAC of its own, checked before anything else is read.
#[derive(Debug, Clone, Copy)]
enum EntryPart {
    Length = 0,
    Held = 1,
}

/// Loads code that the compiler made a moment ago.
pub(crate) fn adopt(engine: &Engine, artefact: &Artefact) -> Result<Component, LoadError> {
    // SAFETY: `deserialize` runs whatever code the bytes hold, so they must come from
    // `Component::serialize` of a compatible engine. An `Artefact` has no other constructor than
    // `process::compile`, which takes its bytes from this engine's compiler: in this process, or in a
    // child running this host's own executable, over a private pipe.
    #[expect(
        unsafe_code,
        reason = "loading compiled code is unsafe by nature; see above"
    )]
    let component = unsafe { Component::deserialize(engine.wasmtime(), artefact.bytes()) };
    component.map_err(|error| LoadError::Compile {
        reason: format!("{error:#}"),
    })
}

/// wasmtime's version, features, settings and target CPU in one number.
fn compatibility(engine: &Engine) -> u64 {
    let mut hasher = StableHasher(blake3::Hasher::new());
    engine
        .wasmtime()
        .precompile_compatibility_hash()
        .hash(&mut hasher);
    hasher.finish()
}

/// `DefaultHasher` promises nothing between Rust versions; file names and MACs should not change for
/// no reason.
struct StableHasher(blake3::Hasher);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

fn read_or_make_key(path: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match toolhold_files::open(path, Links::Refuse) {
        Ok(mut file) => {
            file.read_exact(&mut key)?;
            return Ok(key);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    // Written aside and linked into place: of two hosts that start together, one key wins, whole.
    let temporary = unfinished(path)?;
    let mut file = create(&temporary)?;
    file.write_all(&key)?;
    file.sync_all()?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            toolhold_files::open(path, Links::Refuse)?.read_exact(&mut key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// A name beside `path` that nothing has.
fn unfinished(path: &Path) -> io::Result<PathBuf> {
    Ok(path.with_extension(temporary_name("", ".tmp")?))
}

/// A folder that only this user may write to.
fn own_folder(path: &Path) -> io::Result<()> {
    private_folder(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if fs::metadata(path)?.permissions().mode() & 0o022 != 0 {
            let reason = "others can write to this folder; make it 0700";
            return Err(io::Error::other(reason));
        }
    }
    Ok(())
}

/// A new file. What has the name already is an error.
fn create(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
