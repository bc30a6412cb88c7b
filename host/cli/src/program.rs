//! This program's own file, which runs again as its compiler, its supervisor of builds and its attacks.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Found once: the system names a file that an upgrade has replaced by a path that does not exist.
static OWN: LazyLock<Option<PathBuf>> = LazyLock::new(|| std::env::current_exe().ok());

/// Absent if the system does not tell.
pub fn own() -> Option<&'static Path> {
    OWN.as_deref()
}
