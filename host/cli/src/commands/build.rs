//! `toolhold build`, and building a module on its first use.

use crate::exit::Exit;
use crate::terminal::progress::Spinner;
use crate::terminal::style;
use std::path::{Path, PathBuf};
use toolhold_devkit::build;
use toolhold_devkit::build::BuildStep;
use toolhold_runtime::config::Configuration;

pub async fn build(config: &Configuration, folders: &[PathBuf]) -> anyhow::Result<Exit> {
    let mut exit = Exit::Ok;
    for folder in folders {
        match one(config, folder).await {
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
                    folder.display(),
                    style::chain(&error)
                );
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// Builds one module, with a spinner that shows the current step.
pub async fn one(config: &Configuration, folder: &Path) -> anyhow::Result<build::FinishedBuild> {
    let spinner = Spinner::start(format!("building {}", folder.display()));
    let (folder, toolchains) = (folder.to_owned(), config.cache_folder().join("toolchains"));
    let built = tokio::task::spawn_blocking(move || {
        build::build(&folder, &toolchains, &|step: BuildStep| {
            spinner.say(step.to_string());
        })
    })
    .await??;
    Ok(built)
}
