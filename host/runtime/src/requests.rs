//! The requests folder: saved Requests, by name or by path (docs/protocol.md, 6).
//!
//! The folder is read as a whole: a run sees the Requests of the moment when it began. A process that begins
//! many runs keeps a [`RequestsFolder`], which reads the folder again only after a change.

use crate::components::ends_in;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Mutex;
use toolhold_admission::{SharedRead, WorkKind};
use toolhold_files::{FileStamp, ReadError, read_in};
use toolhold_json::bounded;
use toolhold_protocol::saved::SavedRequest;

/// Saved Requests that are looked up in their folder.
const FOLDERS: WorkKind = WorkKind::new("folders of saved Requests", 16);

/// The saved Requests of a folder when it was read. Files outside of it are never read. The default has no
/// folder and no Requests. Clones share the content.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    folder: PathBuf,
    /// By path, with `/` between folders: the text, or why it could not be read.
    files: Arc<RequestFiles>,
}

type RequestFiles = BTreeMap<String, Result<String, String>>;

/// Most bytes of a file. A Request that a person wrote has a few kilobytes; data belongs into its input.
const MAX_BYTES: u64 = 4 << 20;
/// Most bytes of all files together.
const MAX_TOTAL: u64 = 64 << 20;
const MAX_FILES: usize = 1_000;
/// Most levels of nested folders.
const MAX_DEPTH: usize = 8;

impl Requests {
    /// Reads the folder. A missing folder has no Requests.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let (mut files, mut room) = (RequestFiles::new(), MAX_TOTAL);
        visit_all(&folder, &mut |folder, name, path| {
            let text = match name.to_str() {
                Some(name) => text(folder, name, &mut room).map_err(|error| error.to_string()),
                None => Err("its name is not UTF-8; rename it".to_owned()),
            };
            let text = text.map_err(|reason| {
                format!("{path} in the requests folder cannot be read: {reason}")
            });
            files.insert(path, text);
        });
        Self {
            folder,
            files: Arc::new(files),
        }
    }

    /// Callable names, sorted: `name`, or `./folder/name.json` in a subfolder.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        // Borrowed from the keys, without allocation.
        self.files.keys().map(|path| {
            path.strip_suffix(".json")
                .filter(|name| !name.contains('/'))
                .unwrap_or(path)
        })
    }

    /// Every Request, or why it is invalid, by its path.
    pub fn all(&self) -> impl Iterator<Item = (&str, Result<SavedRequest, String>)> {
        let paths = self.files.iter();
        paths.map(|(path, text)| (path.as_str(), read(path, text)))
    }

    /// The Request that `name` means: `NAME` for `NAME.json` in the folder, or `./path.json` below it. `None`
    /// if it does not exist.
    pub fn find(&self, name: &str) -> Option<Result<SavedRequest, String>> {
        let path = match name.strip_prefix("./") {
            Some(path) => path.to_owned(),
            None => format!("{name}.json"),
        };
        let (path, text) = self.files.get_key_value(&path)?;
        Some(read(path, text))
    }

    /// The error for an unknown Request, which lists the existing ones.
    pub fn nothing(&self, name: &str) -> String {
        let folder = self.folder.display();
        let names: Vec<_> = self.names().collect();
        if names.is_empty() {
            return format!("there is no Request {name:?}: {folder} holds none (requests.folder)");
        }
        format!(
            "there is no Request {name:?} in {folder} (requests.folder); there are {}",
            names.join(", ")
        )
    }
}

/// A requests folder that is read on demand, and again after a change. Clones share it.
#[derive(Debug, Clone)]
pub struct RequestsFolder {
    path: PathBuf,
    read: Arc<Mutex<Option<(FolderStamp, Requests)>>>,
    /// Runs that begin at the same time read the folder together: each read takes a thread, and one is made at a time.
    shared: Arc<SharedRead<Requests>>,
}

impl RequestsFolder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            read: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// The present Requests. A blocking thread reads the disk.
    pub async fn now(&self) -> Requests {
        self.shared.of(self.read_now()).await
    }

    async fn read_now(&self) -> Requests {
        let mut read = self.read.clone().lock_owned().await;
        let path = self.path.clone();
        let found = FOLDERS.run(None, move || {
            let stamp = FolderStamp::of(&path);
            if let Some((seen, requests)) = &*read
                && *seen == stamp
                && stamp.is_settled()
            {
                return requests.clone();
            }
            let requests = Requests::new(path);
            *read = Some((stamp, requests.clone()));
            requests
        });
        found.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the requests folder cannot be read");
            Requests {
                folder: self.path.clone(),
                ..Requests::default()
            }
        })
    }
}

/// Stamps of a folder's files, and when they were taken.
#[derive(Debug)]
struct FolderStamp {
    files: Vec<(String, Option<FileStamp>)>,
    seen: SystemTime,
}

impl PartialEq for FolderStamp {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl FolderStamp {
    fn of(folder: &Path) -> Self {
        let seen = SystemTime::now();
        let mut files = Vec::new();
        visit_all(folder, &mut |folder, name, path| {
            let stamp = folder.metadata(name).ok().as_ref().map(FileStamp::of);
            files.push((path, stamp));
        });
        Self { files, seen }
    }

    /// A file that was just written may change again without a change of its stamp.
    fn is_settled(&self) -> bool {
        let mut stamps = self.files.iter().filter_map(|(_, stamp)| *stamp);
        stamps.all(|stamp| stamp.is_settled(self.seen))
    }
}

type Visit<'a> = dyn FnMut(&Dir, &OsStr, String) + 'a;

/// Every file that may be a Request: its folder, its name, and its path with `/` between folders. `None` if
/// the folder does not exist.
fn visit_all(folder: &Path, each: &mut Visit<'_>) {
    if let Ok(folder) = Dir::open_ambient_dir(folder, ambient_authority()) {
        let mut left = MAX_FILES;
        visit(&folder, "", 0, &mut left, each);
    }
}

fn visit(folder: &Dir, prefix: &str, depth: usize, left: &mut usize, each: &mut Visit<'_>) {
    let Ok(entries) = folder.entries() else {
        return;
    };
    let names = entries.flatten().take(MAX_FILES);
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        let path = format!("{prefix}{}", name.display());
        if *left == 0 {
            return;
        }
        if ends_in(&path, "json") {
            *left -= 1;
            each(folder, &name, path);
        } else if depth < MAX_DEPTH
            && folder
                .symlink_metadata(&name)
                .is_ok_and(|entry| entry.is_dir())
            && let Ok(inner) = folder.open_dir(&name)
        {
            visit(&inner, &format!("{path}/"), depth + 1, left, each);
        }
    }
}

/// Reads a file. Links are followed as long as they stay in the folder.
fn text(folder: &Dir, name: &str, room: &mut u64) -> io::Result<String> {
    let most = MAX_BYTES.min(*room);
    let read = read_in(folder, name.as_ref(), most).map_err(|error| match error {
        ReadError::Io(error) => error,
        ReadError::TooLarge { most, .. } => io::Error::other(format!(
            "it has more than {most} bytes; data belongs into a Request's input"
        )),
    })?;
    *room -= read.len() as u64;
    String::from_utf8(read).map_err(|_| io::Error::other("it is not UTF-8"))
}

fn read(path: &str, text: &Result<String, String>) -> Result<SavedRequest, String> {
    let text = text.as_ref().map_err(Clone::clone)?;
    parse(text).map_err(|reason| format!("{path}: {reason}"))
}

/// Parses the text of a saved Request.
pub fn parse(text: &str) -> Result<SavedRequest, String> {
    let value: Value =
        bounded::from_str(text).map_err(|error| format!("this is not JSON: {error}"))?;
    SavedRequest::parse(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_folder_is_read_again_when_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // The size and the modification time of a file never change.
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).unwrap();
            let file = fs::File::options().append(true).open(path.join(name));
            file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        let requests = RequestsFolder::new(path);
        assert_eq!(requests.now().await.names().count(), 0);
        fs::create_dir(path.join("sub")).unwrap();
        write("a.json", r#"{"context": []}"#);
        write("sub/b.json", r#"{"context": []}"#);
        // Until their stamps tell all later changes.
        tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
        let first = requests.now().await;
        assert_eq!(first.names().collect::<Vec<_>>(), ["a", "sub/b.json"]);
        let again = requests.clone().now().await;
        assert!(
            Arc::ptr_eq(&first.files, &again.files),
            "nothing is another"
        );
        write("sub/b.json", r#"{"context": 12}"#);
        let other = requests.now().await;
        assert!(other.find("./sub/b.json").unwrap().is_err());
        assert!(first.find("./sub/b.json").unwrap().is_ok());
        fs::remove_file(path.join("a.json")).unwrap();
        let fewer = requests.now().await;
        assert!(fewer.find("a").is_none());
        // Twice within the resolution of a file system's times.
        write("sub/b.json", r#"{"context": []}"#);
        assert!(requests.now().await.find("./sub/b.json").unwrap().is_ok());
        write("sub/b.json", r#"{"context": 12}"#);
        assert!(requests.now().await.find("./sub/b.json").unwrap().is_err());
    }

    #[tokio::test]
    async fn runs_that_begin_during_a_read_share_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        // Its stamp is so new that each read makes its own Requests.
        fs::write(folder.path().join("a.json"), r#"{"context": []}"#).unwrap();
        let requests = RequestsFolder::new(folder.path());
        let other = requests.clone();
        let (first, second, third) = tokio::join!(requests.now(), other.now(), requests.now());
        assert!(!Arc::ptr_eq(&first.files, &second.files));
        assert!(Arc::ptr_eq(&second.files, &third.files));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_file_whose_name_is_not_utf8_is_named() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::from_bytes(b"a\xff.json");
        fs::write(folder.path().join(name), r#"{"context": []}"#).unwrap();
        let requests = RequestsFolder::new(folder.path()).now().await;
        let all: Vec<_> = requests.all().collect();
        assert_eq!(all.len(), 1);
        assert!(all[0].1.as_ref().unwrap_err().contains("UTF-8"), "{all:?}");
    }

    #[test]
    fn names_and_paths_lead_to_files_of_the_folder_and_nowhere_else() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let request = r#"{"context": []}"#;
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(path.join("good.json"), request).unwrap();
        fs::write(path.join("sub/inner.json"), request).unwrap();
        fs::write(path.join("broken.json"), "{").unwrap();
        fs::write(path.join("notes.txt"), "no Request").unwrap();
        fs::write(outside.path().join("secret.json"), request).unwrap();
        let huge = " ".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
        fs::write(path.join("huge.json"), huge).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink("good.json", path.join("link.json")).unwrap();
            symlink(outside.path().join("secret.json"), path.join("out.json")).unwrap();
            symlink(outside.path(), path.join("far")).unwrap();
        }
        let requests = Requests::new(path);
        fs::write(path.join("later.json"), request).unwrap();
        for name in ["good", "./good.json", "./sub/inner.json", "link"] {
            assert!(requests.find(name).unwrap().is_ok(), "{name}");
        }
        for name in [
            "later",
            "sub/inner.txt",
            "inner",
            "notes",
            "../good",
            "./../good.json",
            "./far/secret.json",
            "/good",
            "",
        ] {
            assert!(requests.find(name).is_none(), "{name}");
        }
        for (name, expect) in [
            ("broken", "broken.json: this is not JSON"),
            ("out", "cannot be read"),
            ("huge", "more than 4194304 bytes"),
        ] {
            let error = requests.find(name).unwrap().unwrap_err();
            assert!(error.contains(expect), "{name}: {error}");
        }
        let names: Vec<_> = requests.names().collect();
        assert_eq!(
            names,
            ["broken", "good", "huge", "link", "out", "sub/inner.json"]
        );
        assert!(requests.nothing("x").contains("broken, good"));
    }
}
