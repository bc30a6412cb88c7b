//! `cargo xtask modules`: builds the components of this repository with `toolhold build`, as any author
//! does. Small components are committed; the others are built here and by `cargo xtask test`.

mod check;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::project::{self, Beside, Profile};
use crate::{interrupt, narrate};

#[derive(Args, Debug)]
pub struct ModulesArguments {
    /// Names of the modules to build (default: all that have a recipe)
    names: Vec<String>,
    /// Profile of the toolhold binary that builds; the components are the same
    #[arg(long, value_enum, default_value_t = Profile::Dev)]
    profile: Profile,
    /// Change nothing: build a copy, and fail if a committed component differs from its source
    #[arg(long)]
    check: bool,
}

/// Where modules are: those that ship, the same tool in every language, what tests the SDK, and
/// components that know nothing of Toolhold.
const PLACES: [&str; 5] = [
    "modules",
    "modules/examples",
    "modules/sdk",
    "tests/components",
    "host/hostile",
];

/// A module's folder, relative to the repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleFolder(PathBuf);

impl ModuleFolder {
    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub fn folder(&self, root: &Path) -> PathBuf {
        root.join(&self.0)
    }

    pub fn component(&self, root: &Path) -> PathBuf {
        self.folder(root).join(format!("{}.wasm", self.name()))
    }

    /// Whether git ignores the component, so that a clone comes without it.
    pub fn is_ignored(&self) -> Result<bool> {
        let root = project::root();
        let ignored = Command::new("git")
            .args(["check-ignore", "--quiet"])
            .arg(self.component(&root))
            .current_dir(&root)
            .status()
            .context("could not ask git which components it ignores")?;
        Ok(ignored.success())
    }
}

impl fmt::Display for ModuleFolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(formatter)
    }
}

pub fn run(arguments: &ModulesArguments) -> Result<ExitCode> {
    let modules = chosen(all(&project::root())?, &arguments.names)?;
    // Who builds modules tests them next, with a binary that is built so.
    let beside = match arguments.profile {
        Profile::Dev => Beside::Tests,
        Profile::Release => Beside::Nothing,
    };
    let toolhold = project::build_toolhold(arguments.profile, beside)?;
    if arguments.check {
        check::committed(&toolhold, modules)?;
    } else {
        build(&toolhold, &project::root(), &modules)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds all of them, even after one failed, so that the author sees every fault at once.
pub fn build(toolhold: &Path, root: &Path, modules: &[ModuleFolder]) -> Result<()> {
    let mut failed = Vec::new();
    for module in modules {
        narrate::line(&format!("building {module}"));
        let status = project::run(
            Command::new(toolhold)
                .arg("build")
                .arg(&module.0)
                .current_dir(root),
        )?;
        if interrupt::happened() {
            bail!("interrupted while building {module}");
        }
        if !status.success() {
            failed.push(module.name());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of {} modules did not build: {} (reasons above)",
        failed.len(),
        modules.len(),
        failed.join(", ")
    )
}

pub fn folder() -> PathBuf {
    project::root().join("modules")
}

/// All modules with a recipe, in the order of their places and names.
pub fn all(root: &Path) -> Result<Vec<ModuleFolder>> {
    let mut modules = Vec::new();
    for place in PLACES {
        modules.extend(buildable(root, Path::new(place))?);
    }
    Ok(modules)
}

/// All of them, or the named ones.
fn chosen(all: Vec<ModuleFolder>, wanted: &[String]) -> Result<Vec<ModuleFolder>> {
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !all.iter().any(|module| module.name() == **name))
    {
        let known: Vec<_> = all.iter().map(ModuleFolder::name).collect();
        bail!(
            "no module {unknown:?} with a [build] section in its module.toml; there are: {}",
            known.join(", ")
        );
    }
    let is_wanted = |module: &ModuleFolder| wanted.is_empty() || wanted.contains(&module.name());
    Ok(all.into_iter().filter(is_wanted).collect())
}

fn buildable(root: &Path, place: &Path) -> Result<Vec<ModuleFolder>> {
    let folder = root.join(place);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries =
        fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut modules = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {}", folder.display()))?;
        // A folder without a manifest is no module: the guests' shared crate, say.
        let manifest = fs::read_to_string(entry.path().join("module.toml"));
        if manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == "[build]")) {
            modules.push(ModuleFolder(place.join(entry.file_name())));
        }
    }
    modules.sort();
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(manifests: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, manifest) in manifests {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join("module.toml"), manifest).unwrap();
        }
        fs::create_dir_all(root.path().join("modules/sdk")).unwrap();
        root
    }

    fn names(root: &tempfile::TempDir, wanted: &[&str]) -> Result<Vec<String>> {
        let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let chosen = chosen(all(root.path())?, &wanted)?;
        Ok(chosen.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn modules_with_a_recipe_are_built_in_order() {
        let root = repository(&[
            ("modules/text", "[build]\n"),
            ("modules/bare", "# [build] no\n"),
            ("modules/calc", "a = 1\n[build]\nlang = \"rust\"\n"),
            ("modules/examples/count_c", "[build]\n"),
        ]);
        assert_eq!(
            names(&root, &[]).unwrap(),
            ["modules/calc", "modules/text", "modules/examples/count_c"]
        );
        assert_eq!(
            names(&root, &["count_c"]).unwrap(),
            ["modules/examples/count_c"]
        );
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let root = repository(&[("modules/text", "[build]\n"), ("modules/calc", "[build]\n")]);
        let refused = names(&root, &["txt"]).unwrap_err().to_string();
        assert!(
            refused.contains("\"txt\"") && refused.contains("calc, text"),
            "{refused}"
        );
    }
}
