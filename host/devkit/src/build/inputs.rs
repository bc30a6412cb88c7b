//! Places from which a native build takes sources: a module that may write one of them decides what the build runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::Value;

use super::BuildError;

/// Entries that are looked at; a module with more has to be read by a person.
const MAX_ENTRIES: usize = 20_000;
/// Folders that builds fill themselves.
const MADE: [&str; 3] = ["target", "node_modules", ".git"];
const MANIFEST: &str = "Cargo.toml";

/// Folder of the module, links in it, and what manifests of Cargo name by path, also in each other. Blocks.
///
/// # Errors
/// A folder or a manifest cannot be read, or there are too many entries.
pub fn inputs(module_dir: &Path) -> Result<BTreeSet<PathBuf>, BuildError> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![module_dir.to_owned()];
    let mut entries = 0;
    while let Some(root) = waiting.pop() {
        if !found.insert(root.clone()) {
            continue;
        }
        let mut folders = vec![root];
        while let Some(folder) = folders.pop() {
            let list = match fs::read_dir(&folder) {
                // A file that a manifest names, or nothing yet: the path itself is looked at.
                Err(error) if is_no_folder(&error) => continue,
                list => list.map_err(BuildError::io("list", &folder))?,
            };
            for entry in list {
                let entry = entry.map_err(BuildError::io("list", &folder))?;
                entries += 1;
                if entries > MAX_ENTRIES {
                    return Err(BuildError::TooManyFiles {
                        path: module_dir.to_owned(),
                        limit: MAX_ENTRIES,
                    });
                }
                let (name, path) = (entry.file_name(), entry.path());
                let kind = entry
                    .file_type()
                    .map_err(BuildError::io("look at", &path))?;
                if kind.is_symlink() {
                    waiting.push(path);
                } else if kind.is_dir() && !MADE.iter().any(|made| name == *made) {
                    folders.push(path);
                } else if name == MANIFEST {
                    waiting.extend(named(&path)?);
                }
            }
        }
    }
    Ok(found)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Paths in a manifest: dependencies, patches, targets, the script of a build.
fn named(manifest: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let text = fs::read_to_string(manifest).map_err(BuildError::io("read", manifest))?;
    // Cargo says what is wrong with one that cannot be parsed, before it runs anything.
    let Ok(table) = text.parse::<toml::Table>() else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    collect(&Value::Table(table), &mut paths);
    let folder = manifest.parent().unwrap_or(Path::new("."));
    Ok(paths.iter().map(|path| folder.join(path)).collect())
}

fn collect(value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                match value {
                    Value::String(path)
                        if ["path", "build", "workspace"].contains(&key.as_str()) =>
                    {
                        paths.push(path.clone());
                    }
                    other => collect(other, paths),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, paths)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_packages_by_path_are_inputs() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for folder in ["words/src", "helper", "deep"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let manifest = "[package]\nbuild = \"../make.rs\"\n[dependencies]\nhelper = { path = \"../helper\" }\n";
        fs::write(at("words/Cargo.toml"), manifest).unwrap();
        let manifest = "[target.'cfg(unix)'.build-dependencies.deep]\npath = \"../deep\"\n";
        fs::write(at("helper/Cargo.toml"), manifest).unwrap();
        symlink(at("elsewhere"), at("words/src/linked")).unwrap();
        let found = inputs(&at("words")).unwrap();
        for expected in [
            "words",
            "words/src/linked",
            "words/../make.rs",
            "words/../helper",
            "words/../helper/../deep",
        ] {
            assert!(found.contains(&at(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn packages_that_name_each_other_come_to_an_end() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for (one, other) in [("a", "b"), ("b", "a")] {
            fs::create_dir_all(at(one)).unwrap();
            let manifest = format!(
                "[dependencies]\nit = {{ path = \"{}\" }}\n",
                at(other).display()
            );
            fs::write(at(one).join("Cargo.toml"), manifest).unwrap();
        }
        assert_eq!(inputs(&at("a")).unwrap(), [at("a"), at("b")].into());
    }
}
