//! Directory trees in a stable order.

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::listing::Directories;

/// A tree larger than this is not walked to its end: a call has to answer.
pub const MAX_ENTRIES: usize = 100_000;

pub struct Entry {
    pub path: PathBuf,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    Device,
    Other,
}

/// The entries of a directory.
#[derive(Default)]
pub struct Listed {
    pub entries: Vec<Entry>,
    /// Entries whose names are no text, and which no call can name.
    pub unnamed: usize,
}

/// A walk over a tree.
pub struct Walk {
    directories: Directories,
    /// Last name first.
    pending: Vec<Entry>,
    recursive: bool,
    left: usize,
    /// Entries that were met so far and whose names are no text.
    pub unnamed: usize,
}

/// The entries of a directory, each directory followed by its own entries if `recursive`, by name.
/// Links are listed and never followed: they may lead in circles. A directory inside that cannot be
/// read is left out; `top` itself is an error.
pub fn walk(top: &Path, recursive: bool) -> io::Result<Walk> {
    let mut walk = Walk {
        directories: Directories::open(),
        pending: Vec::new(),
        recursive,
        left: MAX_ENTRIES,
        unnamed: 0,
    };
    let listed = walk.directories.list(top)?;
    walk.push(listed);
    Ok(walk)
}

impl Walk {
    fn push(&mut self, mut listed: Listed) {
        listed
            .entries
            .sort_by(|one, other| other.path.cmp(&one.path));
        self.pending.append(&mut listed.entries);
        self.unnamed += listed.unnamed;
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.pending.pop()?;
        if self.recursive && entry.kind == Kind::Directory {
            let listed = self.directories.list(&entry.path).unwrap_or_default();
            self.push(listed);
        }
        Some(entry)
    }
}
