//! Copies of the files that examples find, so that what an example writes stays in the copy.
//!
//! The author of a module that nobody approved decides what is in its folder. So nothing is followed out of it: neither
//! a link in `testdata`, nor `testdata` itself as a link, also where a name is exchanged while it is copied.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toolhold_files::open_in;

/// The folder beside `module.toml` whose files the examples find.
const TESTDATA: &str = "testdata";
/// Maximum files and folders that are copied for one example.
const MAX_ENTRIES: usize = 1_000;
/// Maximum bytes that are copied for one example.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum folders within each other.
const MAX_DEPTH: usize = 16;

/// Makes each folder of `to`, with copies of the regular files below `testdata` in the folder `of`, if there is such a
/// folder. Blocks.
///
/// # Errors
/// `testdata` is no folder, a file cannot be read or written, is a link or something else than a file, or all copies
/// together are more than the bounds let through.
pub fn copy(of: Option<&Path>, to: &[PathBuf]) -> io::Result<()> {
    let from = of.map(testdata).transpose()?.flatten();
    let mut left = Left {
        entries: MAX_ENTRIES,
        bytes: MAX_BYTES,
    };
    for to in to {
        fs::create_dir_all(to)?;
        if let Some(from) = &from {
            left.copy(from, Path::new(TESTDATA), to, MAX_DEPTH)?;
        }
    }
    Ok(())
}

fn testdata(of: &Path) -> io::Result<Option<Dir>> {
    let folder = Dir::open_ambient_dir(of, ambient_authority())?;
    match folder.symlink_metadata(TESTDATA) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(it) if it.is_dir() => folder.open_dir(TESTDATA).map(Some),
        Ok(_) => Err(wrong("it is no folder; a link is not followed".into())),
    }
}

/// What may still be copied.
struct Left {
    entries: usize,
    bytes: u64,
}

impl Left {
    /// `at`: where `from` is, for people.
    fn copy(&mut self, from: &Dir, at: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            let what = format!("more than {MAX_DEPTH} folders within each other");
            return Err(too_much(at, &what));
        };
        for entry in from.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let (at, to) = (at.join(&name), to.join(&name));
            let Some(entries) = self.entries.checked_sub(1) else {
                return Err(too_much(&at, &format!("more than {MAX_ENTRIES} files")));
            };
            self.entries = entries;
            // Of the entry itself, and not of what a link leads to.
            let kind = from.symlink_metadata(&name)?.file_type();
            if kind.is_dir() {
                fs::create_dir(&to)?;
                self.copy(&from.open_dir(&name)?, &at, &to, depth)?;
            } else if kind.is_file() {
                // Nothing that has taken the name since leads out of the folder, or waits.
                let mut bytes = open_in(from, Path::new(&name))?.take(self.bytes + 1);
                let copied = io::copy(&mut bytes, &mut File::create_new(&to)?)?;
                let Some(bytes) = self.bytes.checked_sub(copied) else {
                    return Err(too_much(&at, &format!("more than {MAX_BYTES} bytes")));
                };
                self.bytes = bytes;
            } else {
                return Err(wrong(format!("{} is no regular file", at.display())));
            }
        }
        Ok(())
    }
}

fn too_much(at: &Path, what: &str) -> io::Error {
    wrong(format!(
        "up to {} there are {what} to copy for one example; examples need less",
        at.display()
    ))
}

fn wrong(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A module's folder, and a place for copies.
    fn places() -> (TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let (module, to) = (root.path().join("module"), root.path().join("to"));
        fs::create_dir_all(module.join(TESTDATA)).unwrap();
        (root, module, to)
    }

    fn refused(module: &Path, to: &[PathBuf]) -> String {
        copy(Some(module), to).unwrap_err().to_string()
    }

    #[test]
    fn files_are_copied_and_links_are_refused() {
        let (root, module, to) = places();
        let testdata = module.join(TESTDATA);
        fs::create_dir_all(testdata.join("notes")).unwrap();
        fs::write(testdata.join("notes/a.txt"), "one").unwrap();
        copy(Some(&module), &[to.join("0"), to.join("1")]).unwrap();
        for copied in ["0/notes/a.txt", "1/notes/a.txt"] {
            assert_eq!(fs::read_to_string(to.join(copied)).unwrap(), "one");
        }
        copy(None, &[root.path().join("empty")]).unwrap();
        assert_eq!(fs::read_dir(root.path().join("empty")).unwrap().count(), 0);

        symlink("/etc/hostname", testdata.join("link")).unwrap();
        let error = refused(&module, &[to.join("2")]);
        assert!(
            error.contains("testdata/link is no regular file"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_copied() {
        let (root, module, to) = places();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("key"), "secret").unwrap();
        fs::remove_dir(module.join(TESTDATA)).unwrap();
        symlink(&outside, module.join(TESTDATA)).unwrap();
        let error = refused(&module, std::slice::from_ref(&to));
        assert!(error.contains("it is no folder"), "{error}");
        assert!(!to.join("key").exists());
        fs::remove_file(module.join(TESTDATA)).unwrap();
        copy(Some(&module), &[to]).unwrap();
    }

    #[test]
    fn a_copy_is_bounded() {
        let (_root, module, to) = places();
        let testdata = module.join(TESTDATA);
        let many = testdata.join("many");
        fs::create_dir(&many).unwrap();
        for number in 0..MAX_ENTRIES / 2 {
            fs::write(many.join(number.to_string()), "").unwrap();
        }
        copy(Some(&module), &[to.join("0")]).unwrap();
        // The bound is one of all directories of an example.
        let error = refused(&module, &[to.join("1"), to.join("2")]);
        assert!(error.contains("more than 1000 files"), "{error}");
        fs::remove_dir_all(many).unwrap();

        let file = File::create(testdata.join("hole")).unwrap();
        file.set_len(MAX_BYTES / 2 + 1).unwrap();
        copy(Some(&module), &[to.join("3")]).unwrap();
        let error = refused(&module, &[to.join("4"), to.join("5")]);
        assert!(error.contains("bytes"), "{error}");
        fs::remove_file(testdata.join("hole")).unwrap();

        let path = (0..MAX_DEPTH).fold(testdata, |path, _| path.join("a"));
        fs::create_dir_all(path).unwrap();
        let error = refused(&module, &[to.join("6")]);
        assert!(error.contains("within each other"), "{error}");
    }
}
