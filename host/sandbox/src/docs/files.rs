//! Finds the `.wit` files that belong to a module, within bounds and without leaving its folder.

use super::wit::WitPackage;
use cap_std::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::{ReadError, read_in};

/// One package. The largest that is published, wasi:http with all it uses, has half of this.
const MAX_PACKAGE_BYTES: u64 = 256 << 10;
const MAX_PACKAGES: usize = 32;
/// All packages of a module together.
const MAX_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 64;

/// The packages beside a component: for a component that is alone in its file, `STEM.wit`; for a
/// module's folder, the `.wit` files in it, those in `wit/`, and the packages in `wit/deps/`. What
/// could not be read is named in the notes: docs are never a reason to fail.
pub(crate) fn beside(folder: &Dir, stem: Option<&str>) -> (Vec<WitPackage>, Vec<String>) {
    let mut found = FoundPackages::default();
    if let Some(stem) = stem {
        let file = PathBuf::from(format!("{stem}.wit"));
        if folder.exists(&file) {
            found.package(folder, Path::new(""), vec![file]);
        }
        return (found.packages, found.notes);
    }
    found.folder(folder, Path::new(""));
    if let Ok(wit) = folder.open_dir("wit") {
        found.folder(&wit, Path::new("wit"));
        if let Ok(deps) = wit.open_dir("deps") {
            let at = Path::new("wit/deps");
            for file in named(&deps, is_wit) {
                found.package(&deps, at, vec![file]);
            }
            for name in named(&deps, |entry| !is_wit(entry)) {
                if let Ok(dep) = deps.open_dir(&name) {
                    found.folder(&dep, &at.join(&name));
                }
            }
        }
    }
    (found.packages, found.notes)
}

#[derive(Default)]
struct FoundPackages {
    packages: Vec<WitPackage>,
    /// Of all files that were read.
    bytes: u64,
    notes: Vec<String>,
}

impl FoundPackages {
    /// All `.wit` files of one folder are one package.
    fn folder(&mut self, folder: &Dir, at: &Path) {
        let files = named(folder, is_wit);
        if !files.is_empty() {
            self.package(folder, at, files);
        }
    }

    fn package(&mut self, folder: &Dir, at: &Path, files: Vec<PathBuf>) {
        if self.packages.len() == MAX_PACKAGES {
            return;
        }
        let mut left = MAX_PACKAGE_BYTES.min(MAX_BYTES - self.bytes);
        let mut package = WitPackage::default();
        for file in files {
            let name = at.join(&file).display().to_string();
            match read(folder, &file, left) {
                Ok(text) => {
                    left -= text.len() as u64;
                    self.bytes += text.len() as u64;
                    package.files.push((name, text));
                }
                Err(error) => return self.notes.push(format!("{name} is not read: {error}")),
            }
        }
        self.packages.push(package);
    }
}

fn is_wit(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "wit")
}

/// The entries that `wanted` wants, sorted, so that the same folder gives the same docs everywhere.
fn named(folder: &Dir, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = folder.entries() else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())))
        .filter(|name| wanted(name))
        .take(MAX_FILES)
        .collect();
    names.sort();
    names
}

fn read(folder: &Dir, file: &Path, limit: u64) -> io::Result<String> {
    let bytes = read_in(folder, file, limit).map_err(|error| match error {
        ReadError::Io(error) => error,
        ReadError::TooLarge { .. } => io::Error::other(format!(
            "a package has at most {MAX_PACKAGE_BYTES} bytes of WIT, and a module {MAX_BYTES}"
        )),
    })?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
