//! Grants made ready for calls: [`Prepared`] checks a [`Grant`](toolhold_policy::Grant) once per module and
//! gives each call what was granted.

mod chance;
mod prepared;
mod scratch;

pub(crate) use prepared::Prepared;
pub use prepared::Storage;
pub(crate) use scratch::{Scratch, SessionFiles};

use std::path::Path;

/// Whether two paths name the same directory of this host. Blocks on the file system.
pub fn same_directory(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}
