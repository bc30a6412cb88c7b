//! Writes components into the modules folder atomically: a watcher sees a whole file or none.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The target of a component, and what is there.
#[derive(Debug, PartialEq, Eq)]
pub enum InstallPlace {
    Free(PathBuf),
    /// A file exists.
    Taken(PathBuf),
    /// A module's folder of that name exists.
    Folder(PathBuf),
}

/// The target of `NAME` or `NAME@VERSION`.
pub fn place(folder: &Path, slot: &str) -> InstallPlace {
    let own = folder.join(slot);
    if own.join("module.toml").exists() || own.join(format!("{slot}.wasm")).exists() {
        return InstallPlace::Folder(own);
    }
    let place = folder.join(format!("{slot}.wasm"));
    if place.symlink_metadata().is_ok() {
        InstallPlace::Taken(place)
    } else {
        InstallPlace::Free(place)
    }
}

/// Writes a component; `replaces` allows to replace the existing file.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if a file exists that must not be replaced.
pub fn put(place: &Path, component: &[u8], replaces: bool) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    // An extension that does not make it a module.
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
    // After a rename it no longer exists.
    let _ = fs::remove_file(&unfinished);
    written
}

/// Renames the file without replacing one that was created meanwhile. A file system without hard links falls
/// back to a plain rename.
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
        assert_eq!(place(&root, "a@1.2"), InstallPlace::Free(free.clone()));
        put(&free, b"first", false).unwrap();
        assert_eq!(place(&root, "a@1.2"), InstallPlace::Taken(free.clone()));
        let refused = put(&free, b"second", false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&free).unwrap(), b"first");
        put(&free, b"second", true).unwrap();
        assert_eq!(fs::read(&free).unwrap(), b"second");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);

        fs::create_dir(root.join("b")).unwrap();
        assert_eq!(place(&root, "b"), InstallPlace::Free(root.join("b.wasm")));
        fs::write(root.join("b/module.toml"), "").unwrap();
        assert_eq!(place(&root, "b"), InstallPlace::Folder(root.join("b")));
    }
}
