//! The requests folder: saved Requests, by name or by path (PROTOCOL.md, 6).
//!
//! It is read once, as a whole: a run sees the Requests that were there when it began.

use crate::components::ends_in;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::PathBuf;
use toolhold_agent::protocol::Saved;

/// The saved Requests of a folder, as they were when it was read. Nothing outside of it is ever read.
/// The default is no folder, and so no Requests.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    folder: PathBuf,
    /// By path, with `/` between folders: the text, or why it could not be had.
    files: BTreeMap<String, Result<String, String>>,
}

/// A Request that a person wrote has a few kilobytes; data belongs into its input.
const MAX_BYTES: u64 = 4 << 20;
/// Of all files together.
const MAX_TOTAL: u64 = 64 << 20;
const MAX_FILES: usize = 1_000;
/// Folders inside each other.
const MAX_DEPTH: usize = 8;

impl Requests {
    /// Reads the folder. If there is none, there are no Requests.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let mut requests = Self {
            folder: folder.into(),
            ..Self::default()
        };
        if let Ok(folder) = Dir::open_ambient_dir(&requests.folder, ambient_authority()) {
            let mut room = MAX_TOTAL;
            requests.read(&folder, "", 0, &mut room);
        }
        requests
    }

    /// Names that can be called, in order: `name`, or `./folder/name.json` for one further down.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        // Given back as they are kept, so that nothing needs to be made for it.
        self.files.keys().map(|path| {
            path.strip_suffix(".json")
                .filter(|name| !name.contains('/'))
                .unwrap_or(path)
        })
    }

    /// Every Request, or why it is none, by its path.
    pub fn all(&self) -> impl Iterator<Item = (&str, Result<Saved, String>)> {
        let paths = self.files.iter();
        paths.map(|(path, text)| (path.as_str(), read(path, text)))
    }

    /// The Request that `name` means: `NAME` for `NAME.json` in the folder, or `./path.json` below it.
    /// `None` if there is none of that name.
    pub fn find(&self, name: &str) -> Option<Result<Saved, String>> {
        let path = match name.strip_prefix("./") {
            Some(path) => path.to_owned(),
            None => format!("{name}.json"),
        };
        let (path, text) = self.files.get_key_value(&path)?;
        Some(read(path, text))
    }

    /// That there is no Request of this name, and which there are.
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

    fn read(&mut self, folder: &Dir, prefix: &str, depth: usize, room: &mut u64) {
        let Ok(entries) = folder.entries() else {
            return;
        };
        let names = entries.flatten().take(MAX_FILES);
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let Some(name) = name.to_str() else {
                continue;
            };
            let path = format!("{prefix}{name}");
            if self.files.len() >= MAX_FILES {
                return;
            }
            if ends_in(name, "json") {
                let text = text(folder, name, room).map_err(|error| {
                    format!("{path} in the requests folder cannot be read: {error}")
                });
                self.files.insert(path, text);
            } else if depth < MAX_DEPTH
                && folder
                    .symlink_metadata(name)
                    .is_ok_and(|entry| entry.is_dir())
                && let Ok(inner) = folder.open_dir(name)
            {
                self.read(&inner, &format!("{path}/"), depth + 1, room);
            }
        }
    }
}

/// A file's text. Links are followed as long as they stay in the folder.
fn text(folder: &Dir, name: &str, room: &mut u64) -> io::Result<String> {
    // Before it is opened: opening a pipe waits for whoever writes to it.
    let metadata = folder.metadata(name)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let most = MAX_BYTES.min(*room);
    let mut text = String::new();
    let read = folder
        .open(name)?
        .take(most + 1)
        .read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(io::Error::other(format!(
            "it has more than {most} bytes; data belongs into a Request's input"
        )));
    }
    *room -= read as u64;
    Ok(text)
}

fn read(path: &str, text: &Result<String, String>) -> Result<Saved, String> {
    let text = text.as_ref().map_err(Clone::clone)?;
    parse(text).map_err(|reason| format!("{path}: {reason}"))
}

/// Reads the text of a saved Request.
pub fn parse(text: &str) -> Result<Saved, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}"))?;
    Saved::parse(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
