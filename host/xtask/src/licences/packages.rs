//! The packages of cargo that the binary and the modules in Rust are linked from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::project;
use crate::workspace::output;

/// A package from elsewhere.
#[derive(Debug, Clone)]
pub struct LinkedPackage {
    pub name: String,
    pub version: String,
    /// SPDX expression; empty if the package names none.
    pub licence: String,
    pub authors: Vec<String>,
    pub repository: String,
    pub folder: PathBuf,
    /// The products that link it: [`TOOLHOLD`], [`MODULES`].
    pub used_in: BTreeSet<&'static str>,
}

impl LinkedPackage {
    /// `serde 1.0.2`.
    pub fn label(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// The binary.
const TOOLHOLD: &str = "toolhold";
/// The modules in Rust. Those that ship are in the binary, too, as components.
const MODULES: &str = "modules";

/// Platforms that binaries are built for, as in `.config/deny.toml`.
const PLATFORMS: [&str; 3] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
];

/// Packages by name and version.
pub type LinkedPackages = BTreeMap<(String, String), LinkedPackage>;

/// The packages that the binary, with its default features, and the modules link. Dependencies of tests and of build
/// scripts are left out; procedural macros are included, because they write code that is linked.
pub fn linked(root: &Path) -> Result<LinkedPackages> {
    let mut packages = LinkedPackages::new();
    let workspaces = [
        (
            TOOLHOLD,
            "Cargo.toml",
            &["--package", "toolhold-cli"][..],
            &PLATFORMS[..],
        ),
        (
            MODULES,
            "modules/Cargo.toml",
            &["--workspace"],
            &["wasm32-wasip2"],
        ),
    ];
    for (used_in, manifest, of, platforms) in workspaces {
        let manifest = root.join(manifest);
        let mut known = described(&manifest, platforms)?;
        for key in names(&manifest, of, platforms)? {
            // A package without a source is one of ours.
            let Some(package) = known.remove(&key) else {
                continue;
            };
            let package = packages.entry(key).or_insert(package);
            package.used_in.insert(used_in);
        }
    }
    Ok(packages)
}

/// Names and versions, as `cargo tree` resolves them: the features are those of a build of these packages alone, which
/// `cargo metadata` cannot tell.
fn names(manifest: &Path, of: &[&str], platforms: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let mut tree = project::cargo();
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path"])
        .arg(manifest)
        .args(of);
    for platform in platforms {
        tree.args(["--target", platform]);
    }
    let lines = String::from_utf8(output(&mut tree)?).context("`cargo tree` printed no text")?;
    Ok(lines.lines().filter_map(name_and_version).collect())
}

/// `serde v1.0.2 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let (name, version) = (words.next()?, words.next()?);
    Some((name.to_owned(), version.strip_prefix('v')?.to_owned()))
}

#[derive(Deserialize)]
struct ManifestsOfGraph {
    packages: Vec<DescribedPackage>,
}

#[derive(Deserialize)]
struct DescribedPackage {
    name: String,
    version: String,
    /// The registry; absent for a crate of the workspace.
    source: Option<String>,
    license: Option<String>,
    #[serde(default)]
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

/// Packages from elsewhere, with what their manifests say.
fn described(manifest: &Path, platforms: &[&str]) -> Result<LinkedPackages> {
    let mut command = project::cargo();
    command
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--manifest-path",
        ])
        .arg(manifest);
    for platform in platforms {
        command.args(["--filter-platform", platform]);
    }
    let metadata: ManifestsOfGraph = serde_json::from_slice(&output(&mut command)?)
        .context("`cargo metadata` printed what we cannot read")?;
    let external = metadata
        .packages
        .into_iter()
        .filter(|package| package.source.is_some());
    Ok(external
        .map(|package| {
            let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
            let described = LinkedPackage {
                licence: package.license.unwrap_or_default(),
                authors: package.authors,
                repository: package.repository.unwrap_or_default(),
                folder: folder.to_path_buf(),
                used_in: BTreeSet::new(),
                name: package.name.clone(),
                version: package.version.clone(),
            };
            ((package.name, package.version), described)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_names_and_versions() {
        let read = |line| name_and_version(line).map(|(name, version)| format!("{name} {version}"));
        assert_eq!(
            read("serde v1.0.2 (proc-macro) (*)").unwrap(),
            "serde 1.0.2"
        );
        assert_eq!(read("zip v9.0.0").unwrap(), "zip 9.0.0");
        assert_eq!(read(""), None);
    }
}
