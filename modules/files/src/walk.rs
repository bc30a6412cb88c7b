//! Directory trees in a stable order.

use std::fs::{self, DirEntry, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// A tree larger than this is not walked to its end: a call has to answer.
pub const MAX_ENTRIES: usize = 100_000;

pub struct Entry {
    pub path: PathBuf,
    pub kind: FileType,
}

/// The entries of a directory, each directory followed by its own entries if `recursive`, by name.
/// Links are listed and never followed: they may lead in circles. A directory inside that cannot be
/// read is left out; `top` itself is an error.
pub fn walk(top: &Path, recursive: bool) -> io::Result<impl Iterator<Item = Entry>> {
    let mut pending = entries(top)?;
    Ok(std::iter::from_fn(move || {
        let entry = pending.pop()?;
        if recursive && entry.kind.is_dir() {
            pending.extend(entries(&entry.path).unwrap_or_default());
        }
        Some(entry)
    })
    .take(MAX_ENTRIES))
}

/// Last name first, as a stack wants it.
fn entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let describe = |entry: DirEntry| {
        Some(Entry {
            path: entry.path(),
            kind: entry.file_type().ok()?,
        })
    };
    let mut entries: Vec<_> = fs::read_dir(directory)?
        .filter_map(|entry| describe(entry.ok()?))
        .collect();
    entries.sort_by(|one, other| other.path.cmp(&one.path));
    Ok(entries)
}
