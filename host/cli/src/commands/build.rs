//! `toolhold build`, and building a module on its first use.

use crate::exit::Exit;
use crate::terminal::progress::Spinner;
use crate::terminal::style;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use toolhold_devkit::build;
use toolhold_devkit::build::BuildStep;
use toolhold_policy::is_name;
use toolhold_runtime::config::Configuration;

pub async fn build(config: &Configuration, folders: &[PathBuf]) -> Result<Exit> {
    let mut exit = Exit::Ok;
    for said in folders {
        let built = match located(config, said) {
            Ok(folder) => one(config, &folder).await,
            Err(error) => Err(error),
        };
        match built {
            Ok(built) => println!(
                "{} {} ({})",
                style::good("built"),
                built.component.display(),
                style::bytes(built.bytes)
            ),
            Err(error) => {
                eprintln!(
                    "{} {}: {}",
                    style::bad("error:"),
                    said.display(),
                    style::chain(&error)
                );
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// The folder as it is written, or the module of that name in the modules folder.
fn located(config: &Configuration, said: &Path) -> Result<PathBuf> {
    let is_module = |folder: &Path| folder.join("module.toml").is_file();
    if is_module(said) || !said.to_str().is_some_and(is_name) {
        return Ok(said.to_owned());
    }
    let inside = config.modules_folder().join(said);
    if !is_module(&inside) {
        let (said, inside) = (said.display(), inside.display());
        bail!(
            "there is no such module: neither {said} nor {inside} has a module.toml; --modules names another folder"
        );
    }
    Ok(inside)
}

/// Builds one module, with a spinner that shows the current step.
pub async fn one(config: &Configuration, folder: &Path) -> Result<build::FinishedBuild> {
    let spinner = Spinner::start(format!("building {}", folder.display()));
    let (folder, toolchains) = (folder.to_owned(), config.toolchains_folder());
    let built = tokio::task::spawn_blocking(move || {
        build::build(&folder, &toolchains, &|step: BuildStep| {
            spinner.say(step.to_string());
        })
    })
    .await??;
    Ok(built)
}
