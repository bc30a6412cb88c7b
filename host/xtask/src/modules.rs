//! `cargo xtask modules`: builds the components under `modules/` with `toolhold build`, the way any
//! author does.

mod check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::project::{self, Profile};
use crate::{interrupt, narrate};

#[derive(Args, Debug)]
pub struct Arguments {
    /// Which modules (default: all that have a recipe)
    names: Vec<String>,
    /// Which build of toolhold does the work; the components are the same
    #[arg(long, value_enum, default_value_t = Profile::Dev)]
    profile: Profile,
    /// Change nothing: build a copy, and fail if a committed component differs from its source
    #[arg(long)]
    check: bool,
}

/// Too large to commit, so a clone comes without its component.
pub const BUILT_ON_FIRST_USE: &str = "python";

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let names = chosen(&folder(), &arguments.names)?;
    let toolhold = project::build_toolhold(arguments.profile)?;
    if arguments.check {
        check::committed(&toolhold, names)?;
    } else {
        build(&toolhold, &project::root(), &names)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds them all, also after one failed: the author sees every fault at once.
pub fn build(toolhold: &Path, root: &Path, names: &[String]) -> Result<()> {
    let mut failed = Vec::new();
    for name in names {
        narrate::line(&format!("building modules/{name}"));
        let status = project::run(
            Command::new(toolhold)
                .arg("build")
                .arg(Path::new("modules").join(name))
                .current_dir(root),
        )?;
        if interrupt::happened() {
            bail!("interrupted while building modules/{name}");
        }
        if !status.success() {
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of {} modules did not build: {} (reasons above)",
        failed.len(),
        names.len(),
        failed.join(", ")
    )
}

pub fn folder() -> PathBuf {
    project::root().join("modules")
}

/// The modules with a recipe, in the order of their names; or the named ones, if they have one.
fn chosen(folder: &Path, wanted: &[String]) -> Result<Vec<String>> {
    let buildable = buildable(folder)?;
    if let Some(unknown) = wanted.iter().find(|name| !buildable.contains(name)) {
        bail!(
            "no module {unknown:?} with a [build] section in its module.toml; there are: {}",
            buildable.join(", ")
        );
    }
    Ok(if wanted.is_empty() {
        buildable
    } else {
        wanted.to_vec()
    })
}

fn buildable(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {}", folder.display()))?;
        // A folder without a manifest is no module: the guests' shared crate, say.
        let manifest = fs::read_to_string(entry.path().join("module.toml"));
        if manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == "[build]")) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(manifests: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, manifest) in manifests {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("module.toml"), manifest).unwrap();
        }
        fs::create_dir(folder.path().join("sdk")).unwrap();
        folder
    }

    #[test]
    fn modules_with_a_recipe_are_built_in_order() {
        let folder = modules(&[
            ("text", "[build]\n"),
            ("bare", "# [build] no\n"),
            ("calc", "a = 1\n[build]\nlang = \"rust\"\n"),
        ]);
        assert_eq!(chosen(folder.path(), &[]).unwrap(), ["calc", "text"]);
        assert_eq!(chosen(folder.path(), &["text".into()]).unwrap(), ["text"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let folder = modules(&[("text", "[build]\n"), ("calc", "[build]\n")]);
        let refused = chosen(folder.path(), &["txt".into()])
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("\"txt\"") && refused.contains("calc, text"),
            "{refused}"
        );
    }
}
