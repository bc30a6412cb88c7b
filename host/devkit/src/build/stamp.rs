//! Which state of its source a module was built from, for those who build whatever changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manifest::BuildManifest;
use super::{BuildError, npm};

/// Files of a module with its packages beside it; one with more is not watched, because each change lists them all.
const MAX_FILES: usize = 20_000;

/// Folders that builds and interpreters fill.
const MADE: [&str; 3] = ["target", npm::INSTALLED, "__pycache__"];

/// Size and time of each source file of a module. It differs from another if a file changed, came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStamp {
    files: BTreeMap<PathBuf, (SystemTime, u64)>,
    component: PathBuf,
}

impl SourceStamp {
    /// The stamp of the source in `module_dir`; `None` if its `module.toml` has no `[build]`, or is not there.
    ///
    /// What builds make, and what begins with a dot, is no source. Links are not followed. Blocks.
    ///
    /// # Errors
    /// `module.toml` or the folder cannot be read, or there are too many files.
    pub fn of(module_dir: &Path) -> Result<Option<Self>, BuildError> {
        if !module_dir.join("module.toml").is_file() {
            return Ok(None);
        }
        let manifest = match BuildManifest::read(module_dir) {
            Err(BuildError::NoRecipe { .. }) => return Ok(None),
            manifest => manifest?,
        };
        let mut stamp = Self {
            files: BTreeMap::new(),
            component: manifest.component,
        };
        let mut folders = vec![manifest.directory.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(BuildError::io("list", &folder))? {
                let entry = entry.map_err(BuildError::io("list", &folder))?;
                let (name, path) = (entry.file_name(), entry.path());
                let is_hidden = name.to_string_lossy().starts_with('.');
                let is_made = MADE.iter().any(|made| name == *made);
                // One that vanished meanwhile is none.
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if is_hidden || (is_made && metadata.is_dir()) || stamp.is_output(&path) {
                    continue;
                }
                if metadata.is_dir() {
                    folders.push(path);
                } else if let Ok(modified) = metadata.modified() {
                    stamp.files.insert(path, (modified, metadata.len()));
                }
                if stamp.files.len() + folders.len() > MAX_FILES {
                    return Err(BuildError::TooManyFiles {
                        path: manifest.directory,
                        limit: MAX_FILES,
                    });
                }
            }
        }
        Ok(Some(stamp))
    }

    /// Whether the component is missing, or older than a file of its source.
    pub fn is_newer_than_component(&self) -> bool {
        let built = fs::metadata(&self.component).and_then(|file| file.modified());
        let newest = self.files.values().map(|(modified, _)| *modified).max();
        built.map_or(true, |built| newest.is_some_and(|newest| newest > built))
    }

    /// Whether it is the component, or one that is being written.
    fn is_output(&self, path: &Path) -> bool {
        let is_part = path.extension().is_some_and(|end| end == "part");
        let stem = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let component = stem(&self.component).unwrap_or_default();
        let component = component.trim_end_matches(".wasm");
        *path == self.component
            || (is_part && stem(path).is_some_and(|name| name.starts_with(component)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("words");
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("module.toml"), "[build]\nlanguage = \"c\"\n").unwrap();
        fs::write(folder.join("src/a.h"), "1").unwrap();
        (parent, folder)
    }

    fn stamp(folder: &Path) -> SourceStamp {
        SourceStamp::of(folder).unwrap().unwrap()
    }

    #[test]
    fn only_the_source_changes_a_stamp() {
        let (_parent, folder) = module();
        let before = stamp(&folder);
        for made in ["target", "node_modules", "__pycache__", ".git"] {
            fs::create_dir(folder.join(made)).unwrap();
            fs::write(folder.join(made).join("file"), "made").unwrap();
        }
        for made in ["words.wasm", "words.wasm.1.part", ".words.swp"] {
            fs::write(folder.join(made), "made").unwrap();
        }
        assert_eq!(stamp(&folder), before);
        fs::write(folder.join("src/a.h"), "22").unwrap();
        let edited = stamp(&folder);
        assert_ne!(edited, before);
        fs::write(folder.join("src/b.h"), "").unwrap();
        assert_ne!(stamp(&folder), edited, "a new file");
        fs::remove_file(folder.join("src/b.h")).unwrap();
        assert_eq!(stamp(&folder), edited, "and without it");
    }

    #[test]
    fn a_component_is_compared_by_its_time() {
        let (_parent, folder) = module();
        assert!(stamp(&folder).is_newer_than_component());
        let component = fs::File::create(folder.join("words.wasm")).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_mins(1);
        component.set_modified(later).unwrap();
        assert!(!stamp(&folder).is_newer_than_component());
        let source = fs::File::create(folder.join("a.c")).unwrap();
        let latest = later + std::time::Duration::from_mins(1);
        source.set_modified(latest).unwrap();
        assert!(stamp(&folder).is_newer_than_component());
    }

    #[test]
    fn a_folder_without_a_recipe_has_no_stamp() {
        let (_parent, folder) = module();
        fs::write(folder.join("module.toml"), "name = \"words\"\n").unwrap();
        assert_eq!(SourceStamp::of(&folder).unwrap(), None);
        fs::remove_file(folder.join("module.toml")).unwrap();
        assert_eq!(SourceStamp::of(&folder).unwrap(), None);
    }

    #[test]
    fn a_folder_with_too_many_files_is_refused() {
        let (_parent, folder) = module();
        for number in 0..MAX_FILES {
            fs::File::create(folder.join(format!("{number}.h"))).unwrap();
        }
        let error = SourceStamp::of(&folder).unwrap_err().to_string();
        assert!(error.contains("more than 20000 files"), "{error}");
    }
}
