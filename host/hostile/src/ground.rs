//! The ground on which rows 10 and 11 are tried: granted directories beside forbidden ones, links
//! that lead from one to the other, and a picture of everything that must not change.

use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, directory};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use toolhold_policy::{Access, DirectoryGrant};

/// A text that no guest may read.
pub const SECRET: &str = "do-not-read-this";

/// ```text
/// inside/     granted as /data, read-write: file.txt, sub/, and links that lead out
/// second/     granted as /second, read-write
/// readable/   granted as /readable, read: file.txt
/// outside/    not granted: secret.txt, dir/secret.txt
/// ```
pub struct AttackFolders {
    folder: TempDir,
}

impl AttackFolders {
    pub fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        let ground = Self {
            folder: lab.folder()?,
        };
        let root = ground.root();
        for folder in ["inside/sub", "second", "readable/sub", "outside/dir"] {
            fs::create_dir_all(root.join(folder))?;
        }
        for file in [
            "inside/file.txt",
            "inside/sub/deep.txt",
            "readable/file.txt",
            "readable/sub/deep.txt",
        ] {
            fs::write(root.join(file), "granted")?;
        }
        for file in ["outside/secret.txt", "outside/dir/secret.txt"] {
            fs::write(root.join(file), SECRET)?;
        }
        let outside = root.join("outside");
        for (name, target) in [
            ("link", Path::new("../outside/secret.txt")),
            ("absolute-link", &outside.join("secret.txt")),
            ("chain", Path::new("link")),
            ("dir", Path::new("../outside")),
            ("absolute-dir", &outside),
            ("dangling", Path::new("../outside/new.txt")),
            ("loop", Path::new("loop")),
            ("zero", Path::new("/dev/zero")),
            ("environ", Path::new("/proc/self/environ")),
        ] {
            symlink(target, root.join("inside").join(name))?;
        }
        symlink("../outside/secret.txt", root.join("readable/link"))?;
        Ok(ground)
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn inside(&self, name: &str) -> PathBuf {
        self.root().join("inside").join(name)
    }

    pub fn directories(&self) -> Vec<DirectoryGrant> {
        vec![
            directory(&self.root().join("inside"), "/data", Access::ReadWrite),
            directory(&self.root().join("second"), "/second", Access::ReadWrite),
            directory(&self.root().join("readable"), "/readable", Access::Read),
        ]
    }

    /// Makes a special file in `inside/` with a system tool, since std cannot. `false` if this machine
    /// has no such tool, or does not let us.
    pub fn special(&self, program: &str, name: &str, arguments: &[&str]) -> bool {
        Command::new(program)
            .arg(self.inside(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// A snapshot of everything that must not change: files outside, and those granted for reading.
    pub fn picture(&self) -> Result<FolderSnapshot, AttackFailure> {
        let mut picture = FolderSnapshot::default();
        for name in ["outside", "readable"] {
            picture.take(&self.root().join(name))?;
        }
        // New neighbours would be seen here.
        for entry in fs::read_dir(self.root())? {
            let path = entry?.path();
            picture.0.entry(path).or_default();
        }
        Ok(picture)
    }
}

/// Files with their kind, permissions, links, owner, time of change, and content.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FolderSnapshot(BTreeMap<PathBuf, String>);

impl FolderSnapshot {
    /// Adds `path` and everything below it.
    pub fn take(&mut self, path: &Path) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        let content = if metadata.is_file() {
            String::from_utf8_lossy(&fs::read(path)?).into_owned()
        } else if metadata.is_symlink() {
            fs::read_link(path)?.display().to_string()
        } else {
            String::new()
        };
        let what = format!(
            "{:o} {} links, {}:{}, {}.{}: {content}",
            metadata.permissions().mode(),
            metadata.nlink(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        );
        self.0.insert(path.to_owned(), what);
        if metadata.is_dir() {
            for entry in fs::read_dir(path)? {
                self.take(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// [`AttackFailure::Broke`] that names what changed.
    pub fn ensure_same(&self, now: &Self) -> Result<(), AttackFailure> {
        let changed: Vec<_> = self
            .0
            .iter()
            .filter(|(path, what)| now.0.get(*path) != Some(what))
            .map(|(path, _)| path)
            .chain(now.0.keys().filter(|path| !self.0.contains_key(*path)))
            .collect();
        ensure(changed.is_empty(), || {
            format!("changed outside the grant: {changed:?}")
        })
    }
}
