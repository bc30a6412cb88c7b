//! Source files that a module needs and does not contain, because they are large and third-party: taken from
//! a published Rust crate that bundles them, and checked against their digests.
//!
//! A crate, because cargo verifies and caches what it fetches and runs nothing of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_json::hex::sha256;

use super::command::Tool;
use super::{BuildError, Job, toolchain};

const CARGO: Tool = Tool {
    program: "cargo",
    language: "c",
    install: "install Rust through rustup: this module's `[build.sources]` are fetched with cargo",
};

/// `[build.sources]` of `module.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceArchives {
    /// The crate that bundles the files.
    #[serde(rename = "crate")]
    package: String,
    version: String,
    /// Paths inside the crate, and the SHA-256 of each in hexadecimal.
    sha256: BTreeMap<String, String>,
}

impl SourceArchives {
    /// The files, side by side in the folder that [`fetched`] returns.
    pub fn files(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        self.sha256.keys().map(|path| folder.join(name(path)))
    }

    /// The error of the section, if any: its texts become file names.
    pub fn fault(&self) -> Option<&'static str> {
        let plain = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
        };
        if !plain(&self.package) || !plain(&self.version) {
            return Some("a crate's name and exact version");
        }
        let inside = |path: &String| path.split('/').all(|part| plain(part) && part != "..");
        if !self.sha256.keys().all(inside) {
            return Some("relative paths of files inside the crate");
        }
        None
    }
}

/// The folder with the files; fetches them if it does not exist.
pub fn fetched(job: &Job<'_>, sources: &SourceArchives) -> Result<PathBuf, BuildError> {
    // The digests are part of the key: a module that pins other bytes gets another folder.
    let pins = sha256(format!("{:?}", sources.sha256));
    let key = format!("{}-{}", sources.version, &pins[..16]);
    toolchain::folder(job, &sources.package, &key, |folder| {
        fetch(job, sources, folder)
    })
}

fn fetch(job: &Job<'_>, sources: &SourceArchives, folder: &Path) -> Result<(), BuildError> {
    let package = folder.join("fetch");
    let write = |path: PathBuf, text: String| {
        let parent = path.parent().unwrap_or(&path).to_owned();
        fs::create_dir_all(&parent).map_err(BuildError::io("create", &parent))?;
        fs::write(&path, text).map_err(BuildError::io("write", &path))
    };
    write(package.join("src/lib.rs"), String::new())?;
    write(
        package.join("Cargo.toml"),
        format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n\
             [dependencies]\n{} = {{ version = \"={}\", default-features = false }}\n",
            sources.package, sources.version
        ),
    )?;
    job.log.run(
        CARGO
            .command()
            .current_dir(&package)
            .args(["vendor", "--quiet"]),
        CARGO,
        "check that cargo reaches its registry (network, proxy, `.cargo/config.toml`)",
    )?;
    for (path, expected) in &sources.sha256 {
        let from = package.join("vendor").join(&sources.package).join(path);
        let bytes = fs::read(&from).map_err(BuildError::io("read", &from))?;
        let found = sha256(&bytes);
        if !found.eq_ignore_ascii_case(expected) {
            return Err(BuildError::Digest {
                path: from,
                expected: expected.clone(),
                found,
            });
        }
        let to = folder.join(name(path));
        fs::write(&to, bytes).map_err(BuildError::io("write", &to))?;
    }
    fs::remove_dir_all(&package).map_err(BuildError::io("remove", &package))
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> SourceArchives {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn words_that_would_lead_out_of_the_cache_are_a_fault() {
        let good = "crate = \"x-sys\"\nversion = \"0.1.2\"\n[sha256]\n\"a/b.c\" = \"00\"";
        assert_eq!(sources(good).fault(), None);
        for (from, to) in [
            ("x-sys", "../x"),
            ("0.1.2", "1\\\"\\n[patch]"),
            ("a/b.c", "../b.c"),
            ("a/b.c", "/etc/passwd"),
        ] {
            assert!(sources(&good.replace(from, to)).fault().is_some(), "{to}");
        }
    }
}
