//! What calls keep on this host's disk: scratch directories, keys and values, and the quotas of both and of
//! granted directories.

pub(crate) mod byte_lock;
mod copy;
pub(crate) mod folder_use;
pub(crate) mod key_value;
pub(crate) mod measure;
pub(crate) mod quota;
mod removal_queue;
mod remove;
mod scratch;

pub use remove::remove_tree;

pub(crate) use scratch::{Scratch, SessionFiles};

use std::io;
use std::path::{Path, PathBuf};

/// Where the host keeps what modules may leave behind. Absent: such grants cannot be given.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    pub scratch: Option<PathBuf>,
    pub key_value: Option<PathBuf>,
}

impl Storage {
    /// Removes scratch files of calls and sessions that are over, for at most ten minutes, and none that a call of any
    /// process of this machine uses. Nothing that it meets is fatal: what stays behind is logged. Blocks on the file
    /// system; call it in the background when a host starts.
    pub fn sweep(&self) {
        if let Some(root) = &self.scratch {
            scratch::sweep(root);
        }
    }
}

/// Whether two paths name the same directory of this host. Blocks on the file system.
pub fn same_directory(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Makes a folder, and those above it, that only this user may enter.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
