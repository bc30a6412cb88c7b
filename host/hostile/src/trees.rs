//! Folders nested deeper than any path is long: made and removed with one level of recursion and few open
//! files, because what removes such a tree carelessly dies of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Levels that are made by one path.
const STRETCH: usize = 50;
/// Bytes of a path, below the folder, at which what it names is moved up: the system takes 4 096, and walks
/// every step of it each time.
const LONG_PATH: usize = 100;

/// Makes a tree of at least `levels` folders, each in the last one, at `top`, which must not exist yet.
pub fn deepen(top: &Path, levels: usize) -> io::Result<()> {
    let above = top.with_extension("above");
    fs::create_dir(top)?;
    for _ in 0..levels.div_ceil(STRETCH) {
        // A stretch is put above what is there, so that every path is short.
        fs::create_dir(&above)?;
        let mut deepest = above.clone();
        for _ in 0..STRETCH {
            deepest.push("d");
            fs::create_dir(&deepest)?;
        }
        fs::rename(top, deepest.join("d"))?;
        fs::rename(&above, top)?;
    }
    Ok(())
}

/// Removes everything in `folder`, however deep: a stretch below the top is moved up before it is removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    let mut moved = 0_u64;
    let mut pending: Vec<PathBuf> = children(folder)?;
    while let Some(path) = pending.pop() {
        if !fs::symlink_metadata(&path)?.is_dir() {
            fs::remove_file(&path)?;
            continue;
        }
        make_writable(&path);
        if path.as_os_str().len() > folder.as_os_str().len() + LONG_PATH {
            moved += 1;
            let up = folder.join(format!("moved-up-{moved}"));
            fs::rename(&path, &up)?;
            pending.insert(0, up);
            continue;
        }
        let below = children(&path)?;
        if below.is_empty() {
            fs::remove_dir(&path)?;
        } else {
            pending.push(path);
            pending.extend(below);
        }
    }
    Ok(())
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// An attack may have taken the permission away.
fn make_writable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_tree_is_made_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        deepen(&folder.path().join("deep"), 5_000).unwrap();
        remove(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
