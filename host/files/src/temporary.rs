//! Temporary files and folders: made anew under a name that nothing has.
//!
//! A process' number repeats, above all in containers: a name made of it may be that of a file that a killed process
//! left, with another call's data in it. So these names are random, and what has the name already is never taken.

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Names that are tried. One random name of 64 bits is taken only if the randomness is broken.
const ATTEMPTS: usize = 8;

/// `before`, 16 random hexadecimal digits, `after`.
///
/// # Errors
/// The system gives no randomness.
pub fn temporary_name(before: &str, after: &str) -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(format!(
        "{before}{:016x}{after}",
        u64::from_le_bytes(random)
    ))
}

/// Makes a folder in `parent` that only this user may enter. Its name begins with `before`.
///
/// # Errors
/// What the file system says.
pub fn temporary_folder(parent: &Path, before: &str) -> io::Result<PathBuf> {
    anew(before, "", |name| {
        let path = parent.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    })
}

/// Gives the file `name` this content in one step: readers see the old or the new one, also after a failure of the
/// machine. The unfinished file's name begins with a dot.
///
/// # Errors
/// What the file system says. The file is as it was.
pub fn replace_in(folder: &Dir, name: &str, content: &[u8]) -> io::Result<()> {
    let (unfinished, mut file) = anew(".", "", |name| {
        let file = folder.open_with(name, OpenOptions::new().write(true).create_new(true))?;
        Ok((name.to_owned(), file))
    })?;
    let written = file
        .write_all(content)
        // Otherwise the name may be on disk before the content is.
        .and_then(|()| file.sync_all())
        .and_then(|()| folder.rename(&unfinished, folder, name));
    if written.is_err() {
        // The first error says more.
        let _ = folder.remove_file(&unfinished);
    }
    written?;
    // The file is in its place whether or not the system can say that its name is on disk.
    if let Ok(folder) = folder.open(".") {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// As [`replace_in`], for a file that a person named.
///
/// # Errors
/// What the file system says. The file is as it was.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or(io::ErrorKind::InvalidFilename)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    replace_in(
        &Dir::open_ambient_dir(folder, ambient_authority())?,
        name,
        content,
    )
}

/// Calls `make` with other names as long as something has the name.
fn anew<T>(
    before: &str,
    after: &str,
    mut make: impl FnMut(&str) -> io::Result<T>,
) -> io::Result<T> {
    let mut taken = None;
    for _ in 0..ATTEMPTS {
        match make(&temporary_name(before, after)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            made => return made,
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cap_std::ambient_authority;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_has_the_name_already_is_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let mut names = ["left", "left", "new"].into_iter();
        let mut tried = 0;
        std::fs::create_dir(root.path().join("left")).unwrap();
        let made = anew("", "", |_| {
            tried += 1;
            let path = root.path().join(names.next().unwrap());
            std::fs::create_dir(&path).map(|()| path)
        });
        assert_eq!(made.unwrap(), root.path().join("new"));
        assert_eq!(tried, 3);
        let full = anew("", "", |_| std::fs::create_dir(root.path().join("left")));
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let denied = anew("", "", |_| {
            io::Result::<()>::Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn folders_are_private_and_names_differ() {
        let root = tempfile::tempdir().unwrap();
        let folders = [0, 1].map(|_| temporary_folder(root.path(), "call-").unwrap());
        assert_ne!(folders[0], folders[1]);
        for folder in folders {
            let mode = folder.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            let name = folder.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with("call-") && name.len() == 21, "{name}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let folder = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        for content in ["one", "two"] {
            replace_in(&folder, "file", content.as_bytes()).unwrap();
            assert_eq!(folder.read_to_string("file").unwrap(), content);
        }
        folder.create_dir("folder").unwrap();
        replace_in(&folder, "folder", b"three").unwrap_err();
        let left = folder.entries().unwrap().count();
        assert_eq!(left, 2, "no unfinished file is left");
    }
}
