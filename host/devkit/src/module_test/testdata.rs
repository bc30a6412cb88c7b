//! Copies of the files that examples find, so that what an example writes stays in the copy.

use std::fs;
use std::io;
use std::path::Path;

/// Maximum files and folders that are copied.
const MAX_ENTRIES: usize = 1_000;
/// Maximum bytes that are copied.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum folders within each other.
const MAX_DEPTH: usize = 16;

/// Makes the folder `to`, with copies of the regular files below `from` if there is such a folder. Blocks.
///
/// # Errors
/// A file cannot be read or written, is a link or something else than a file, or there is more than the bounds let
/// through.
pub fn copy(from: Option<&Path>, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut left = Left {
        entries: MAX_ENTRIES,
        bytes: MAX_BYTES,
    };
    from.map_or(Ok(()), |from| left.copy(from, to, MAX_DEPTH))
}

/// What may still be copied.
struct Left {
    entries: usize,
    bytes: u64,
}

impl Left {
    fn copy(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(too_much(
                from,
                &format!("more than {MAX_DEPTH} folders within each other"),
            ));
        };
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (path, target) = (entry.path(), to.join(entry.file_name()));
            let Some(entries) = self.entries.checked_sub(1) else {
                return Err(too_much(&path, &format!("more than {MAX_ENTRIES} files")));
            };
            self.entries = entries;
            // Of the entry itself, and not of what a link leads to.
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                fs::create_dir(&target)?;
                self.copy(&path, &target, depth)?;
            } else if metadata.is_file() {
                let Some(bytes) = self.bytes.checked_sub(metadata.len()) else {
                    return Err(too_much(&path, &format!("more than {MAX_BYTES} bytes")));
                };
                self.bytes = bytes;
                fs::copy(&path, &target)?;
            } else {
                let message = format!("{} is no regular file", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        Ok(())
    }
}

fn too_much(at: &Path, what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "up to {} there are {what}; examples need less",
            at.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_and_links_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir_all(from.join("notes")).unwrap();
        fs::write(from.join("notes/a.txt"), "one").unwrap();
        copy(Some(&from), &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("notes/a.txt")).unwrap(), "one");
        copy(None, &root.path().join("empty")).unwrap();
        assert_eq!(fs::read_dir(root.path().join("empty")).unwrap().count(), 0);

        std::os::unix::fs::symlink("/etc/hostname", from.join("link")).unwrap();
        let error = copy(Some(&from), &root.path().join("again")).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn a_copy_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let many = root.path().join("many");
        fs::create_dir(&many).unwrap();
        for number in 0..=MAX_ENTRIES {
            fs::write(many.join(number.to_string()), "").unwrap();
        }
        let error = copy(Some(&many), &root.path().join("to")).unwrap_err();
        assert!(
            error.to_string().contains("more than 1000 files"),
            "{error}"
        );

        let large = root.path().join("large");
        fs::create_dir(&large).unwrap();
        let file = fs::File::create(large.join("hole")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        let error = copy(Some(&large), &root.path().join("to2")).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");

        let deep = root.path().join("deep");
        let path = (0..MAX_DEPTH).fold(deep.clone(), |path, _| path.join("a"));
        fs::create_dir_all(path).unwrap();
        let error = copy(Some(&deep), &root.path().join("to3")).unwrap_err();
        assert!(error.to_string().contains("within each other"), "{error}");
    }
}
