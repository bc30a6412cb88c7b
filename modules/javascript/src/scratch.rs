//! The scratch directory: input files go in before the code runs, what it wrote comes out after.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::Error;

/// Where the host puts the directory, if the operator granted it.
const GUEST: &str = "/scratch";
/// A written file up to this size comes back with its content.
const MAX_CONTENT: u64 = 64 << 10;
/// So many written files come back with their content; the rest are named.
const MAX_CONTENTS: usize = 20;
/// So many written files are named at all.
const MAX_NAMED: usize = 200;
/// Larger files are compared by size and time, smaller ones by content: a file system's clock is
/// too coarse to see a file rewritten within milliseconds.
const MAX_HASHED: u64 = 1 << 20;
/// Files deeper than this are not looked for.
const MAX_DEPTH: usize = 16;

/// A file that the caller sends.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// A relative path, such as `data.csv`.
    path: String,
    /// The content, if it is text.
    #[serde(default)]
    #[schemars(extend("type" = "string"))]
    content: Option<String>,
    /// The content in base64, if it is not text.
    #[serde(default)]
    #[schemars(extend("type" = "string"))]
    base64: Option<String>,
}

/// A file that the code wrote.
#[derive(Serialize, JsonSchema, Debug, PartialEq)]
pub struct Written {
    /// The path in the scratch directory.
    path: String,
    /// Its size in bytes.
    size: u64,
    /// Its content, if it is text of at most 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "string"))]
    content: Option<String>,
    /// Its content in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "string"))]
    base64: Option<String>,
}

/// What a file was like, to see whether it changed.
#[derive(PartialEq)]
pub enum Mark {
    Content(u64),
    Times(u64, Option<SystemTime>),
}

/// The marks of all files by their paths.
pub type Snapshot = HashMap<String, Mark>;

pub struct Scratch {
    root: PathBuf,
}

impl Scratch {
    /// The directory, if this instance was granted one.
    pub fn granted() -> Option<Self> {
        Self::at(Path::new(GUEST))
    }

    pub fn at(root: &Path) -> Option<Self> {
        root.is_dir().then(|| Self {
            root: root.to_owned(),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes the files that came with the call.
    pub fn put(&self, files: &[File]) -> Result<(), Error> {
        for file in files {
            let path = resolve(&self.root, &file.path).map_err(Error::correctable)?;
            let bytes = match (&file.content, &file.base64) {
                (Some(text), None) => text.clone().into_bytes(),
                (None, Some(text)) => BASE64.decode(text).map_err(|error| {
                    Error::correctable(format!("`base64` of {:?}: {error}", file.path))
                })?,
                _ => {
                    return Err(Error::correctable(format!(
                        "{:?} needs either `content` (text) or `base64` (bytes)",
                        file.path
                    )));
                }
            };
            write(&path, &bytes, false).map_err(|error| {
                Error::correctable(format!("{:?} cannot be written: {error}", file.path))
            })?;
        }
        Ok(())
    }

    pub fn snapshot(&self) -> Snapshot {
        let files = walk(&self.root);
        files
            .into_iter()
            .filter_map(|(name, path)| Some((name, mark(&path)?)))
            .collect()
    }

    /// The files that are new or other than in `before`, in the order of their paths.
    pub fn written_since(&self, before: &Snapshot) -> Vec<Written> {
        let mut written = Vec::new();
        let mut contents = 0;
        for (name, path) in walk(&self.root) {
            let Some(mark) = mark(&path) else { continue };
            if before.get(&name) == Some(&mark) {
                continue;
            }
            if written.len() == MAX_NAMED {
                break;
            }
            let size = path.metadata().map_or(0, |file| file.len());
            let bytes = (contents < MAX_CONTENTS && size <= MAX_CONTENT)
                .then(|| fs::read(&path).ok())
                .flatten();
            contents += usize::from(bytes.is_some());
            let (content, base64) = match bytes.map(String::from_utf8) {
                Some(Ok(text)) => (Some(text), None),
                Some(Err(error)) => (None, Some(BASE64.encode(error.as_bytes()))),
                None => (None, None),
            };
            written.push(Written {
                path: name,
                size,
                content,
                base64,
            });
        }
        written
    }
}

/// A path that code or a caller wrote, in the directory: relative, or absolute under its guest name.
pub fn resolve(root: &Path, path: &str) -> Result<PathBuf, String> {
    let asked = Path::new(path);
    let inside = asked.strip_prefix(GUEST).unwrap_or(asked);
    let mut resolved = root.to_owned();
    let mut depth = 0_usize;
    for component in inside.components() {
        match component {
            Component::Normal(name) => {
                resolved.push(name);
                depth += 1;
            }
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => {
                resolved.pop();
                depth -= 1;
            }
            _ => {
                return Err(format!(
                    "{path:?} is outside the scratch directory: use a relative path"
                ));
            }
        }
    }
    Ok(resolved)
}

/// Writes a file, and the folders above it.
pub fn write(path: &Path, bytes: &[u8], append: bool) -> std::io::Result<()> {
    use std::io::Write;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = fs::OpenOptions::new();
    options.create(true).append(append).write(true);
    options.truncate(!append).open(path)?.write_all(bytes)
}

/// All files below `root`: their names in it and their paths, sorted. Links are not followed.
pub fn walk(root: &Path) -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    collect(root, root, MAX_DEPTH, &mut files);
    files.sort();
    files
}

fn collect(root: &Path, folder: &Path, depth: usize, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 {
            collect(root, &path, depth - 1, files);
        } else if kind.is_file()
            && let Ok(name) = path.strip_prefix(root)
        {
            files.push((name.display().to_string(), path));
        }
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let file = path.metadata().ok()?;
    if file.len() > MAX_HASHED {
        return Some(Mark::Times(file.len(), file.modified().ok()));
    }
    let mut hasher = DefaultHasher::new();
    fs::read(path).ok()?.hash(&mut hasher);
    Some(Mark::Content(hasher.finish()))
}
