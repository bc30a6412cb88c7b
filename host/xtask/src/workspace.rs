//! The crates of the workspace, as cargo knows them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::project;

/// A crate under `host/`.
#[derive(Debug, Clone)]
pub struct Crate {
    /// Its folder under `host/`: `agent`.
    pub name: String,
    /// What cargo calls it: `toolhold-agent`.
    pub package: String,
    /// The `description` of its `Cargo.toml`; may be empty.
    pub description: String,
    /// The root files of its library and its binaries under `src/`.
    pub roots: Vec<PathBuf>,
    /// The names of its benches.
    pub benches: Vec<String>,
    /// Other crates under `host/` that it is built with, tests aside: their names.
    pub uses: Vec<String>,
    /// Crates from elsewhere that its `Cargo.toml` names, tests aside.
    pub external: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    manifest_path: PathBuf,
    description: Option<String>,
    dependencies: Vec<Dependency>,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing.
    kind: Option<String>,
    /// Its path, for crates of the workspace.
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

/// The crates of the workspace at `root`, by name.
pub fn crates(root: &Path) -> Result<Vec<Crate>> {
    let mut crates = from_metadata(&root.canonicalize()?, &metadata(root)?)?;
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(crates)
}

fn metadata(root: &Path) -> Result<Vec<u8>> {
    let mut command = project::cargo();
    command
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root);
    output(&mut command)
}

/// The output of a command.
///
/// # Errors
/// The command failed.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("could not run `{}`", project::shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", project::shown(command), output.status);
    }
    Ok(output.stdout)
}

fn from_metadata(root: &Path, json: &[u8]) -> Result<Vec<Crate>> {
    let metadata: Metadata =
        serde_json::from_slice(json).context("`cargo metadata` printed what we cannot read")?;
    let host = root.join("host");
    // A crate inside of another's folder belongs to that one.
    let name_of = |folder: &Path| {
        let inside = folder.strip_prefix(&host).ok()?;
        (inside.components().count() == 1).then(|| inside.to_string_lossy().into_owned())
    };
    let mut crates = Vec::new();
    for package in metadata.packages {
        let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
        let Some(name) = name_of(folder) else {
            continue;
        };
        let product = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        let (ours, external): (Vec<_>, Vec<_>) =
            product.partition(|dependency| dependency.path.is_some());
        let of_kind = |kinds: &'static [&str]| {
            let targets = package.targets.iter();
            targets.filter(move |target| {
                kinds
                    .iter()
                    .any(|kind| target.kind.iter().any(|it| it == kind))
            })
        };
        let roots = of_kind(&["lib", "bin"])
            .filter(|target| target.src_path.starts_with(folder.join("src")));
        crates.push(Crate {
            name,
            package: package.name,
            description: package.description.unwrap_or_default(),
            roots: roots.map(|target| target.src_path.clone()).collect(),
            benches: of_kind(&["bench"])
                .map(|target| target.name.clone())
                .collect(),
            uses: ours
                .iter()
                .filter_map(|dependency| name_of(dependency.path.as_deref()?))
                .collect(),
            external: external
                .iter()
                .map(|dependency| dependency.name.clone())
                .collect(),
        });
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_crate_is_among_them() {
        let crates = crates(&project::root()).unwrap();
        let xtask = crates.iter().find(|each| each.name == "xtask").unwrap();
        assert_eq!(xtask.package, "xtask");
        assert!(xtask.roots[0].ends_with("host/xtask/src/main.rs"));
        assert!(xtask.external.contains(&"anyhow".to_owned()));
        assert!(!xtask.external.contains(&"tempfile".to_owned()), "a test's");
        // `fuzz/smith` is part of `fuzz`.
        assert!(crates.iter().all(|each| each.name != "smith"));
    }

    #[test]
    fn dependencies_are_ours_or_from_elsewhere() {
        let json = br#"{"packages": [{
            "name": "toolhold-agent", "manifest_path": "/r/host/agent/Cargo.toml", "description": null,
            "dependencies": [
                {"name": "toolhold-model", "kind": null, "path": "/r/host/model"},
                {"name": "toolhold-tests", "kind": "dev", "path": "/r/tests"},
                {"name": "tokio", "kind": null}
            ],
            "targets": [
                {"name": "toolhold_agent", "kind": ["lib"], "src_path": "/r/host/agent/src/lib.rs"},
                {"name": "steps", "kind": ["bench"], "src_path": "/r/host/agent/benches/steps.rs"}
            ]
        }]}"#;
        let crates = from_metadata(Path::new("/r"), json).unwrap();
        assert_eq!(crates[0].uses, ["model"]);
        assert_eq!(crates[0].external, ["tokio"]);
        assert_eq!(crates[0].benches, ["steps"]);
        assert_eq!(crates[0].roots, [Path::new("/r/host/agent/src/lib.rs")]);
    }
}
