//! Which state of its source a module was built from, for those who build whatever changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manifest::BuildManifest;
use super::{BuildError, npm};

/// Files and folders of a module; one with more is not watched, because each change lists them all.
const MAX_FILES: usize = 20_000;

/// Folders that builds fill, in the module's folder itself: deeper ones of these names are source.
const MADE: [&str; 2] = ["target", npm::INSTALLED];

/// What interpreters write beside each source.
const CACHED: &str = "__pycache__";

/// Files that builds write anew when what they list changed.
const LOCKS: [&str; 4] = ["Cargo.lock", "go.mod", "go.sum", "package-lock.json"];

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
        Self::of_at_most(module_dir, MAX_FILES)
    }

    fn of_at_most(module_dir: &Path, limit: usize) -> Result<Option<Self>, BuildError> {
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
        let mut looked_at = 0_usize;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(BuildError::io("list", &folder))? {
                let entry = entry.map_err(BuildError::io("list", &folder))?;
                let (name, path) = (entry.file_name(), entry.path());
                let is_hidden = name.to_string_lossy().starts_with('.');
                let is_made = name == CACHED
                    || (folder == manifest.directory && MADE.iter().any(|made| name == *made));
                looked_at += 1;
                if looked_at > limit {
                    return Err(BuildError::TooManyFiles {
                        path: manifest.directory,
                        limit,
                    });
                }
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

    /// The files that changed, came or went since `before`, without the locks that builds write themselves.
    pub fn changes_since<'a>(&'a self, before: &'a Self) -> Vec<&'a Path> {
        let came = self.files.iter();
        let came = came.filter(|(path, file)| before.files.get(*path) != Some(*file));
        let went = before.files.keys();
        let went = went.filter(|path| !self.files.contains_key(*path));
        let paths = came.map(|(path, _)| path).chain(went);
        paths
            .map(PathBuf::as_path)
            .filter(|path| {
                let name = path.file_name().unwrap_or_default();
                !LOCKS.iter().any(|lock| name == *lock)
            })
            .collect()
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
        // `module.toml`, `src`, and `a.h` in it.
        assert!(SourceStamp::of_at_most(&folder, 3).is_ok());
        // Empty folders count too, and so do those that are skipped.
        for number in 0..3 {
            fs::create_dir_all(folder.join(format!("src/{number}/.git"))).unwrap();
        }
        assert!(SourceStamp::of_at_most(&folder, 9).is_ok());
        let error = SourceStamp::of_at_most(&folder, 8).unwrap_err().to_string();
        assert!(error.contains("more than 8 files and folders"), "{error}");
    }

    #[test]
    fn folders_that_builds_fill_are_source_below_the_top() {
        let (_parent, folder) = module();
        fs::create_dir(folder.join("src/target")).unwrap();
        let before = stamp(&folder);
        fs::write(folder.join("src/target/mod.rs"), "").unwrap();
        assert_ne!(stamp(&folder), before);
        fs::create_dir(folder.join("src/__pycache__")).unwrap();
        let before = stamp(&folder);
        fs::write(folder.join("src/__pycache__/a.pyc"), "").unwrap();
        assert_eq!(stamp(&folder), before);
    }

    #[test]
    fn locks_are_no_change_of_the_author() {
        let (_parent, folder) = module();
        fs::write(folder.join("gone.h"), "").unwrap();
        let before = stamp(&folder);
        fs::write(folder.join("Cargo.lock"), "").unwrap();
        let after = stamp(&folder);
        assert_ne!(after, before);
        assert!(after.changes_since(&before).is_empty());
        fs::remove_file(folder.join("gone.h")).unwrap();
        fs::write(folder.join("new.h"), "").unwrap();
        let after = stamp(&folder);
        let names: Vec<_> = after.changes_since(&before);
        let names: Vec<_> = names.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["new.h", "gone.h"]);
    }
}
