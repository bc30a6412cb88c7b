//! Components that come into the modules folder: whoever watches it sees all of one, or nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where a component goes, and what is in its way.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    Free(PathBuf),
    /// A file lies there.
    Taken(PathBuf),
    /// A folder of that name is a module already.
    Folder(PathBuf),
}

/// The place of `NAME` or `NAME@VERSION`.
pub fn place(folder: &Path, slot: &str) -> Place {
    let own = folder.join(slot);
    if own.join("module.toml").exists() || own.join(format!("{slot}.wasm")).exists() {
        return Place::Folder(own);
    }
    let place = folder.join(format!("{slot}.wasm"));
    if place.symlink_metadata().is_ok() {
        Place::Taken(place)
    } else {
        Place::Free(place)
    }
}

/// Writes a component, with `replaces` in the place of what lies there.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if something lies there that is not to be replaced.
pub fn put(place: &Path, component: &[u8], replaces: bool) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    // Not an ending that makes a module.
    let unfinished = place.with_extension(format!("{}.part", uuid::Uuid::now_v7()));
    let written = File::create_new(&unfinished)
        .and_then(|mut file| {
            file.write_all(component)?;
            file.sync_all()
        })
        .and_then(|()| {
            if replaces {
                fs::rename(&unfinished, place)
            } else {
                link(&unfinished, place)
            }
        });
    // After a rename it is gone already.
    let _ = fs::remove_file(&unfinished);
    written
}

/// Gives the file its name without replacing what came there meanwhile, as a rename would; which is
/// taken into account only where the file system knows no links.
fn link(unfinished: &Path, place: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(unfinished, place),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_by_chance_and_nothing_is_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("modules");
        let free = root.join("a@1.2.wasm");
        assert_eq!(place(&root, "a@1.2"), Place::Free(free.clone()));
        put(&free, b"first", false).unwrap();
        assert_eq!(place(&root, "a@1.2"), Place::Taken(free.clone()));
        let refused = put(&free, b"second", false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&free).unwrap(), b"first");
        put(&free, b"second", true).unwrap();
        assert_eq!(fs::read(&free).unwrap(), b"second");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);

        fs::create_dir(root.join("b")).unwrap();
        assert_eq!(place(&root, "b"), Place::Free(root.join("b.wasm")));
        fs::write(root.join("b/module.toml"), "").unwrap();
        assert_eq!(place(&root, "b"), Place::Folder(root.join("b")));
    }
}
