//! A folder for one build's own files, within the toolchain cache because the module's folder may be watched.

use std::fs;
use std::path::{Path, PathBuf};

use toolhold_files::temporary_folder;

use super::{BuildError, Job};

/// Removed when the build is over.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn create(job: &Job<'_>) -> Result<Self, BuildError> {
        let parent = job.toolchains.join("builds");
        fs::create_dir_all(&parent).map_err(BuildError::io("create", &parent))?;
        let folder = temporary_folder(&parent, &format!("{}.", job.manifest.name));
        folder.map(Self).map_err(BuildError::io("create", &parent))
    }

    /// Any folder, which is removed too.
    #[cfg(test)]
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, BuildError> {
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(BuildError::io("create", parent))?;
        }
        fs::write(&path, text).map_err(BuildError::io("write", &path))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is a cache: what stays is removed with it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
