//! The files of a package that say under which terms it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::terms::Licence;

/// A file below a package's folder.
#[derive(Debug)]
pub struct LicenceFile {
    /// Relative to the package's folder, with `/`.
    pub path: String,
    pub licence: Licence,
}

/// Beginnings of the names of licence files, in lower case.
const NAMES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "notice",
    "unlicense",
    "copyright",
];
/// Endings of files that are code, even if their names begin like a licence.
const OTHERS: [&str; 9] = [
    ".rs", ".py", ".go", ".c", ".h", ".yml", ".yaml", ".html", ".toml",
];
/// Folders that are not compiled into a package.
const NOT_SHIPPED: [&str; 7] = [
    "tests",
    "test",
    "test_data",
    "testdata",
    "benches",
    "examples",
    "target",
];
/// Least characters of a licence. A shorter file is the rest of a symbolic link, which packages cannot hold.
const FEWEST_CHARS: usize = 40;

/// The licences below a package's folder, sorted by path.
pub fn of_package(folder: &Path) -> Result<Vec<LicenceFile>> {
    let mut paths = Vec::new();
    collect(folder, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let licence = read(&path)?;
        if licence.whole.chars().count() < FEWEST_CHARS {
            continue;
        }
        let inside = path.strip_prefix(folder).unwrap_or(&path);
        let parts = inside.iter().map(|part| part.to_string_lossy());
        files.push(LicenceFile {
            path: parts.collect::<Vec<_>>().join("/"),
            licence,
        });
    }
    Ok(files)
}

/// A licence in a file. Some are of an age in which texts were not UTF-8.
pub fn read(path: &Path) -> Result<Licence> {
    let bytes = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(Licence::of(&String::from_utf8_lossy(&bytes)))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let at = || format!("could not list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(at)? {
        let entry = entry.with_context(at)?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let kind = entry.file_type().with_context(at)?;
        if kind.is_dir() {
            if !name.starts_with('.') && !NOT_SHIPPED.contains(&name.as_str()) {
                collect(&entry.path(), paths)?;
            }
        } else if kind.is_file() && (is_licence(&name) || is_of_licences(folder)) {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// `name` is in lower case.
fn is_licence(name: &str) -> bool {
    NAMES.iter().any(|begin| name.starts_with(begin))
        && !OTHERS.iter().any(|end| name.ends_with(end))
}

/// Whether a folder has licences and nothing else, each named by its SPDX id: the REUSE specification.
fn is_of_licences(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    ["licenses", "licences"]
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_found_below_and_links_and_tests_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let long = "Permission is hereby granted, free of charge, to any person.";
        for (path, text) in [
            ("LICENSE-MIT", long),
            ("LICENSE-APACHE", "../LICENSE-APACHE"),
            ("src/license.rs", long),
            ("vendor/engine/COPYING", long),
            ("vendor/LICENSES/MIT.txt", long),
            ("tests/LICENSE", long),
            (".github/copyrights.txt", long),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = of_package(folder.path()).unwrap();
        let paths: Vec<_> = found.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "LICENSE-MIT",
                "vendor/LICENSES/MIT.txt",
                "vendor/engine/COPYING"
            ]
        );
    }
}
