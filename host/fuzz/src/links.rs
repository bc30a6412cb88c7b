//! Granted paths among links: a path leads where the system says it leads, nothing is reached outside of a granted
//! directory, and a guest that does not get a directory on the way of a granted path cannot change where that leads.

use arbitrary::{Result, Unstructured};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use toolhold_files::{Directory, EntryId};

pub fn run(data: &[u8]) {
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured) -> Result<()> {
    let Ok(folder) = tempfile::tempdir() else {
        return Ok(());
    };
    // The system's folder for temporary files may be a link itself.
    let Ok(root) = folder.path().canonicalize() else {
        return Ok(());
    };
    let Ok(inside) = Dir::open_ambient_dir(&root, ambient_authority()) else {
        return Ok(());
    };
    for _ in 0..u.int_in_range(0..=24)? {
        exchange(u, &inside, &root)?;
    }
    let (granted, writable) = (root.join(path(u)?), root.join(path(u)?));
    let (before, guest) = (resolved(&granted), resolved(&writable));
    // A link may lead out of the folder, and nothing of this machine is touched.
    let Some((guest, _)) = guest.filter(|(guest, _)| guest.path().starts_with(&root)) else {
        return Ok(());
    };
    let Ok(handle) = guest.file().try_clone() else {
        return Ok(());
    };
    let handle = Dir::from_std_file(handle);
    for _ in 0..u.int_in_range(0..=12)? {
        exchange(u, &handle, &root)?;
        stays_inside(&handle, &path(u)?, guest.path());
    }
    // What `OpenDirectories` of the sandbox refuses is what is left out here.
    if let Some((before, way)) = before
        && !way.contains(&guest.id())
    {
        let after = Directory::resolve(&granted).directory;
        let after = after.map(|after| (after.id(), after.path().to_owned()));
        let same = after
            .as_ref()
            .is_ok_and(|after| *after == (before.id(), before.path().to_owned()));
        assert!(same, "{}: {after:?}", granted.display());
    }
    Ok(())
}

/// Where `path` leads, which must be where the system says.
fn resolved(path: &Path) -> Option<(Directory, Vec<EntryId>)> {
    let resolution = Directory::resolve(path);
    let expected = path.canonicalize().ok().filter(|path| path.is_dir());
    let found = resolution.directory.ok();
    let at = found.as_ref().map(|found| found.path().to_owned());
    assert_eq!(at, expected, "{}", path.display());
    let found = found?;
    let metadata = [found.file().metadata(), fs::metadata(found.path())];
    let [Ok(opened), Ok(named)] = metadata else {
        return None;
    };
    assert_eq!((opened.dev(), opened.ino()), (named.dev(), named.ino()));
    let way = resolution.way.into_iter();
    Some((found, way.map(|lookup| lookup.directory).collect()))
}

/// Something that a guest may do in its directory. What cannot be done is not done.
fn exchange(u: &mut Unstructured, guest: &Dir, root: &Path) -> Result<()> {
    let path = path(u)?;
    let _ = match u.int_in_range(0..=7)? {
        0 | 1 => guest.create_dir_all(&path),
        2 => guest.rename(&path, guest, self::path(u)?),
        3 => guest.remove_file(&path),
        4 => guest.remove_dir(&path),
        5 => guest.write(&path, "text"),
        _ => guest.symlink_contents(target(u, root)?, &path),
    };
    Ok(())
}

/// What cap-std opens below a directory is below it.
fn stays_inside(guest: &Dir, path: &Path, at: &Path) {
    let Ok(opened) = guest.open_dir(path) else {
        return;
    };
    let (Ok(opened), Ok(real)) = (opened.dir_metadata(), at.join(path).canonicalize()) else {
        return;
    };
    assert!(real.starts_with(at), "{} is outside", real.display());
    let Ok(real) = fs::metadata(real) else {
        return;
    };
    let opened = cap_std::fs::MetadataExt::ino(&opened);
    assert_eq!(opened, real.ino(), "{}", path.display());
}

/// One to three names; some lead up.
fn path(u: &mut Unstructured) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    for _ in 0..u.int_in_range(1..=3)? {
        path.push(u.choose(&["a", "b", "c", "d", "..", "."])?);
    }
    Ok(path)
}

/// Where a link leads.
fn target(u: &mut Unstructured, root: &Path) -> Result<PathBuf> {
    let path = path(u)?;
    Ok(match u.int_in_range(0..=2)? {
        0 => root.join(path),
        1 => Path::new("..").join(path),
        _ => path,
    })
}
