//! `cargo xtask modules --check`: compares committed components with a fresh build of the source
//! beside them, because reviewers do not read their bytes. `toolhold build` keeps paths
//! of the machine out of a component; the same compiler then makes the same bytes in any folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ModuleFolder;
use crate::{narrate, project};

/// The copied folders: the modules, and the WIT of their bindings.
const SOURCES: [&str; 4] = [
    "modules",
    "tests/components",
    "host/hostile/attacker",
    "wit",
];

pub fn committed(toolhold: &Path, modules: Vec<ModuleFolder>) -> Result<()> {
    let mut committed = Vec::new();
    for module in modules {
        if !module.is_ignored()? {
            committed.push(module);
        }
    }
    // In the target folder, so that cargo reuses the dependencies of the last check.
    let copy = project::target_folder()?.join("modules-check");
    if copy.exists() {
        fs::remove_dir_all(&copy)
            .with_context(|| format!("could not remove {}", copy.display()))?;
    }
    for folder in SOURCES {
        copy_sources(&project::root().join(folder), &copy.join(folder))?;
    }
    super::build(toolhold, &copy, &committed)?;

    let differing = differing(&project::root(), &copy, &committed)?;
    if differing.is_empty() {
        narrate::line(&format!(
            "{} committed components are what their sources compile to",
            committed.len()
        ));
        return Ok(());
    }
    bail!(
        "{}: the committed component is not what its source compiles to. Either the source was \
         changed and `cargo xtask modules` was not run, or another compiler built it; this one is {}",
        differing.join(", "),
        compiler()
    )
}

fn differing(root: &Path, copy: &Path, modules: &[ModuleFolder]) -> Result<Vec<String>> {
    let mut differing = Vec::new();
    for module in modules {
        let (committed, built) = (module.component(root), module.component(copy));
        let read = |path: &Path| {
            fs::read(path).with_context(|| format!("could not read {}", path.display()))
        };
        if read(&committed)? != read(&built)? {
            differing.push(module.to_string());
        }
    }
    Ok(differing)
}

/// Copies everything but build outputs, so that a component that is not built is missing.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not create {}", to.display()))?;
    let entries =
        fs::read_dir(from).with_context(|| format!("could not list {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {}", from.display()))?;
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" {
                copy_sources(&path, &to.join(name))?;
            }
        } else if path.extension().is_none_or(|extension| extension != "wasm") {
            fs::copy(&path, to.join(name))
                .with_context(|| format!("could not copy {}", path.display()))?;
        }
    }
    Ok(())
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, name: &str, bytes: &[u8]) {
        let path = root.join("modules").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_component_of_another_source_is_named() {
        let (root, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, committed, built) in [("calc", b"1", b"1"), ("text", b"1", b"2")] {
            put(root.path(), &format!("{name}/{name}.wasm"), committed);
            put(copy.path(), &format!("{name}/{name}.wasm"), built);
        }
        let modules = ["modules/calc", "modules/text"].map(|path| ModuleFolder(path.into()));
        assert_eq!(
            differing(root.path(), copy.path(), &modules).unwrap(),
            ["modules/text"]
        );
    }

    #[test]
    fn a_copy_has_sources_only() {
        let (root, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["calc/src/lib.rs", "calc/calc.wasm", "target/x.rlib"] {
            put(root.path(), name, b"");
        }
        let to = copy.path().join("modules");
        copy_sources(&root.path().join("modules"), &to).unwrap();
        assert!(to.join("calc/src/lib.rs").exists());
        assert!(!to.join("calc/calc.wasm").exists() && !to.join("target").exists());
    }
}
