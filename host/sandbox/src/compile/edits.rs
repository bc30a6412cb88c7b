//! What an author's edits leave in the cache: each is another component, whose compiled code nobody needs after the next
//! one, and of an interpreter it is dozens of megabytes.

use super::cache::{Cache, EntryKind, FolderName};
use crate::engine::Engine;
use std::fs;
use std::io;
use toolhold_policy::Digest;

/// Compiled components of one folder that stay: the one in use, and the one before, so that an edit that is taken back
/// compiles nothing.
const KEPT_EDITS: usize = 2;

impl Cache {
    /// Notes that the component in this folder is used by its author, and removes what was compiled so before, but for
    /// what was used last.
    ///
    /// # Errors
    /// What the file system says. Entries that stay are removed when nothing used them for long.
    pub(super) fn replace_edit(
        &self,
        engine: &Engine,
        folder: &FolderName,
        digest: &Digest,
    ) -> io::Result<()> {
        let now = self.path(engine, EntryKind::Component, digest);
        let now = now.file_name().unwrap_or_default().to_string_lossy();
        let before = self.read(engine, EntryKind::Edits, folder.digest());
        let before = String::from_utf8(before.unwrap_or_default()).unwrap_or_default();
        if before.lines().next_back() == Some(&*now) {
            return Ok(());
        }
        let mut kept: Vec<&str> = before.lines().filter(|name| *name != now).collect();
        kept.push(&now);
        let removed = kept.len().saturating_sub(KEPT_EDITS);
        let mut fault = Ok(());
        for name in kept.drain(..removed) {
            match fs::remove_file(self.folder().join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => fault = Err(error),
                _ => {}
            }
        }
        // Also if one could not be removed: the others go on to be replaced.
        let list = kept.join("\n");
        self.write(engine, EntryKind::Edits, folder.digest(), list.as_bytes())?;
        fault
    }
}
