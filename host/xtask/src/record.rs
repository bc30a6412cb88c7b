//! `cargo xtask record-demo`: records a new exchange for `toolhold demo`, with a real model.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::local_model::{LocalModel, Model};
use crate::narrate;
use crate::project::{self, Beside, Profile};

const RECORDING: &str = "host/devkit/src/demo/recording.jsonl";

pub fn run(model: &'static Model, profile: Profile) -> Result<ExitCode> {
    let toolhold = project::build_toolhold(profile, Beside::Nothing)?;
    let recording = project::root().join(RECORDING);
    // A recording that breaks off must not replace one that works.
    let new = project::target_folder()?.join("recording.jsonl");
    let local = LocalModel::borrow_or_start(model)?;
    narrate::line(&format!("recording {}", local.name));
    let status = project::run(
        Command::new(&toolhold)
            .args(["demo", "--record"])
            .arg(&new)
            .env("TOOLHOLD_BASE_URL", &local.base_url)
            .env("TOOLHOLD_MODEL", local.name)
            .current_dir(project::root()),
    )?;
    if status.success() {
        fs::copy(&new, &recording)
            .with_context(|| format!("could not write {}", recording.display()))?;
        narrate::line(&format!(
            "wrote {RECORDING}: look at what the model did, then commit it"
        ));
    } else {
        narrate::line(&format!("{RECORDING} stays as it was"));
    }
    Ok(project::exit_code(status))
}
