//! The files that are named, and those in the folders that are named, one at a time.
//!
//! Folders are listed and files are opened relative to the open folder, and no link in a folder is followed: what a
//! name means may change meanwhile, and leads to nothing outside (`docs/security.md`, "Names and handles").

use super::named::NamedPath;
use rustix::fs::{Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use toolhold_admission::detach;
use toolhold_files::ReadError;
use toolhold_runtime::document_addresses::AddressError;

/// Files that are read ahead: each may have [`Bounds::file_bytes`].
const READ_AHEAD: usize = 2;

/// What a walk may read.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Files of one command. A collection holds no more documents.
    pub files: usize,
    /// Names of the folders on the way to a file that are kept together: a folder is read whole, so that its files come
    /// in order.
    pub names: usize,
    /// Folders in each other, each of which is open.
    pub depth: usize,
}

impl Bounds {
    pub fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            files: 100_000,
            names: 200_000,
            depth: 64,
        }
    }
}

/// A file of the walk, or what could not be read.
#[derive(Debug)]
pub struct WalkedFile {
    pub path: PathBuf,
    /// Whether it was named, and not found in a folder.
    pub is_named: bool,
    pub content: Result<Vec<u8>, UnreadFile>,
    /// As a server gave it; empty for a file.
    pub media_type: String,
}

/// Why a file or a folder was not read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadFile {
    #[error("{0}")]
    Failed(#[from] ReadError),
    #[error("{0}")]
    Fetch(#[from] AddressError),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("there are more than {most} files: add its folders one after the other")]
    Files { most: usize },
    #[error("it and the folders that it is in have more than {most} entries")]
    Names { most: usize },
    #[error("it is deeper than {most} folders")]
    Depth { most: usize },
}

/// Reads on a thread of its own, and waits there while the receiver is behind. Ends when the receiver is dropped.
pub fn start(paths: Arc<[NamedPath]>, bounds: Bounds) -> mpsc::Receiver<WalkedFile> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    detach(move || {
        let mut walk = FileWalk {
            bounds,
            files: 0,
            send: |file| sender.blocking_send(file).is_ok(),
        };
        for path in &*paths {
            if !walk.path(path) {
                return;
            }
        }
    });
    receiver
}

struct FileWalk<F> {
    bounds: Bounds,
    /// Files that were sent.
    files: usize,
    send: F,
}

/// A folder whose files are being read.
struct OpenFolder {
    file: File,
    path: PathBuf,
    /// What is left of it, the first name last.
    names: Vec<OsString>,
}

/// What a name of a folder is.
#[derive(Debug)]
pub enum FolderEntry {
    Folder(File),
    File(File),
    /// A link, a device and the like.
    Other,
}

impl<F: FnMut(WalkedFile) -> bool> FileWalk<F> {
    /// Reads a named file or folder. Returns false if the walk is over.
    fn path(&mut self, named: &NamedPath) -> bool {
        let path = named.path().to_owned();
        match named.open() {
            Ok(FolderEntry::Folder(folder)) => self.folder(folder, path),
            Ok(FolderEntry::File(file)) => {
                let content = toolhold_files::read_to_end(file, self.bounds.file_bytes);
                self.send(path, true, content.map_err(UnreadFile::from))
            }
            Ok(FolderEntry::Other) => {
                let why = io::Error::other("it is no file and no folder");
                self.send(path, true, Err(why.into()))
            }
            Err(error) => self.send(path, true, Err(error.into())),
        }
    }

    fn folder(&mut self, folder: File, path: PathBuf) -> bool {
        let mut open = Vec::new();
        if let Err((path, why)) = self.enter(&mut open, folder, path) {
            return self.send(path, true, Err(why));
        }
        while let Some(folder) = open.last_mut() {
            let Some(name) = folder.names.pop() else {
                open.pop();
                continue;
            };
            let path = folder.path.join(&name);
            let goes_on = match entry(&folder.file, &name) {
                Ok(FolderEntry::Folder(file)) => match self.enter(&mut open, file, path) {
                    Ok(()) => true,
                    Err((path, why)) => self.send(path, false, Err(why)),
                },
                Ok(FolderEntry::File(file)) => {
                    let content = toolhold_files::read_to_end(file, self.bounds.file_bytes);
                    self.send(path, false, content.map_err(UnreadFile::from))
                }
                Ok(FolderEntry::Other) => true,
                Err(error) => self.send(path, false, Err(error.into())),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Reads the names of a folder, and goes on in it.
    fn enter(
        &self,
        open: &mut Vec<OpenFolder>,
        file: File,
        path: PathBuf,
    ) -> Result<(), (PathBuf, UnreadFile)> {
        if open.len() >= self.bounds.depth {
            let most = self.bounds.depth;
            return Err((path, UnreadFile::Depth { most }));
        }
        let held: usize = open.iter().map(|folder| folder.names.len()).sum();
        match names(&file, self.bounds.names.saturating_sub(held)) {
            Ok(Some(names)) => {
                open.push(OpenFolder { file, path, names });
                Ok(())
            }
            Ok(None) => {
                let most = self.bounds.names;
                Err((path, UnreadFile::Names { most }))
            }
            Err(error) => Err((path, error.into())),
        }
    }

    fn send(
        &mut self,
        path: PathBuf,
        is_named: bool,
        content: Result<Vec<u8>, UnreadFile>,
    ) -> bool {
        self.files += 1;
        let is_over = self.files > self.bounds.files;
        let most = self.bounds.files;
        let content = if is_over {
            Err(UnreadFile::Files { most })
        } else {
            content
        };
        let file = WalkedFile {
            path,
            is_named: is_named || is_over,
            content,
            media_type: String::new(),
        };
        (self.send)(file) && !is_over
    }
}

/// The names in a folder, the last one first, without hidden ones. Absent: there are more than `most`.
fn names(folder: &File, most: usize) -> io::Result<Option<Vec<OsString>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let is_known_other = !matches!(
            entry.file_type(),
            FileType::RegularFile | FileType::Directory | FileType::Unknown
        );
        let name = entry.file_name().to_bytes();
        if is_known_other || name.starts_with(b".") {
            continue;
        }
        if names.len() >= most {
            return Ok(None);
        }
        names.push(OsString::from_vec(name.to_vec()));
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(Some(names))
}

/// Opens the file or folder of this name in `folder`. A link is not followed.
///
/// # Errors
/// What the file system says.
pub fn entry(folder: &File, name: &OsStr) -> io::Result<FolderEntry> {
    let name = CString::new(name.as_bytes())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(folder, &name, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        // A link, or a socket: by the time it is opened, the name may be another thing's.
        Err(Errno::LOOP | Errno::NXIO) => return Ok(FolderEntry::Other),
        Err(error) => return Err(error.into()),
    };
    let kind = opened.metadata()?.file_type();
    Ok(if kind.is_dir() {
        FolderEntry::Folder(opened)
    } else if kind.is_file() {
        FolderEntry::File(opened)
    } else {
        FolderEntry::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const BOUNDS: Bounds = Bounds {
        file_bytes: 10,
        files: 20,
        names: 12,
        depth: 3,
    };

    /// What a walk finds, each as its path below the folder and its content or why it has none.
    fn walked(folder: &Path, bounds: Bounds) -> Vec<String> {
        let mut found = Vec::new();
        let mut walk = FileWalk {
            bounds,
            files: 0,
            send: |file: WalkedFile| {
                let path = file
                    .path
                    .strip_prefix(folder)
                    .unwrap()
                    .display()
                    .to_string();
                let content = match file.content {
                    Ok(bytes) => String::from_utf8(bytes).unwrap(),
                    Err(why) => why.to_string(),
                };
                found.push(format!("{path}: {content}"));
                true
            },
        };
        walk.path(&NamedPath::of(vec![folder.to_owned()], false)[0]);
        found
    }

    #[test]
    fn files_come_in_order_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("b/c")).unwrap();
        fs::create_dir_all(at(".git")).unwrap();
        for (name, text) in [
            ("z", "last"),
            ("a", "first"),
            ("b/c/d", "deep"),
            ("b/long", "12345678901"),
            (".git/config", "hidden"),
            ("e.pdf", "%PDF"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        symlink(outside.path(), at("folder")).unwrap();
        symlink(outside.path().join("secret"), at("b/link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let found = walked(folder.path(), BOUNDS);
        assert_eq!(
            found,
            [
                "a: first".to_owned(),
                "b/c/d: deep".to_owned(),
                "b/long: it has 11 bytes, and may have 10".to_owned(),
                "e.pdf: %PDF".to_owned(),
                "z: last".to_owned(),
            ]
        );
        // What was listed is opened without being followed, too.
        let folder = File::open(folder.path()).unwrap();
        for name in ["folder", "fifo"] {
            let opened = entry(&folder, OsStr::new(name)).unwrap();
            assert!(matches!(opened, FolderEntry::Other), "{name}");
        }
    }

    #[test]
    fn a_walk_ends_at_its_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("1/2/3/4")).unwrap();
        fs::create_dir_all(at("many")).unwrap();
        for number in 0..12 {
            fs::write(at(&format!("many/{number}")), "x").unwrap();
        }
        let mut expected = vec!["1/2/3: it is deeper than 3 folders".to_owned()];
        expected.extend((0..12).map(|number| format!("many/{number}: x")));
        // By their bytes: 10 comes before 2.
        expected.sort_by_key(|line| line.replace(": x", ""));
        assert_eq!(walked(folder.path(), BOUNDS), expected);
        let few = Bounds {
            names: 11,
            ..BOUNDS
        };
        let found = walked(folder.path(), few);
        assert!(
            found[1].starts_with("many: it and the folders that it is in have more than 11"),
            "{found:?}"
        );
        let few = Bounds { files: 4, ..BOUNDS };
        let found = walked(folder.path(), few);
        assert_eq!(found.len(), 5);
        assert!(found[4].contains("more than 4 files"), "{found:?}");
    }

    #[tokio::test]
    async fn nothing_is_read_for_a_receiver_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::write(folder.path().join(number.to_string()), "x").unwrap();
        }
        let mut files = start(NamedPath::of(vec![folder.path().to_owned()], false), BOUNDS);
        assert!(files.recv().await.is_some());
        files.close();
        let mut left = 0;
        while files.recv().await.is_some() {
            left += 1;
        }
        assert!(left <= READ_AHEAD, "{left}");
    }
}
