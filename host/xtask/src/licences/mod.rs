//! `cargo xtask licences`: writes `docs/third-party-notices.txt`, which `toolhold licences` prints. In it are the
//! packages of cargo that the binary and the modules in Rust are linked from, with the texts that lie in the packages;
//! and the parts that cargo does not know, from `host/xtask/licences/parts.toml`, which is kept by hand.

mod difference;
mod notices;
mod packages;
mod parts;
mod terms;
mod texts;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{narrate, project};
use notices::Notices;
use parts::ForeignParts;

#[derive(Args, Debug)]
pub struct LicencesArguments {
    /// Change nothing; fail if the committed notices are others than those that would be written
    #[arg(long)]
    check: bool,
}

/// The notices, below the repository's root.
const NOTICES: &str = "docs/third-party-notices.txt";

pub fn run(arguments: &LicencesArguments) -> Result<ExitCode> {
    let root = project::root();
    let made = made(&root)?;
    let path = root.join(NOTICES);
    if !arguments.check {
        fs::write(&path, &made).with_context(|| format!("could not write {}", path.display()))?;
        narrate::line(&format!("wrote {NOTICES}"));
        return Ok(ExitCode::SUCCESS);
    }
    let committed = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("could not read {}", path.display()))?,
    };
    if let Some(difference) = difference::between(&committed, &made) {
        narrate::block(&difference);
        bail!("{NOTICES} is not as `cargo xtask licences` writes it; run that and commit the file");
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of the notices.
fn made(root: &Path) -> Result<String> {
    let folder = project::xtask_folder().join("licences");
    let parts = ForeignParts::read(&folder.join("parts.toml"))?;
    parts.check_pins(root)?;
    let mut notices = Notices::default();
    let packages = packages::linked(root)?;
    let texts = folder.join("texts");
    notices.add_packages(&packages, &parts, &texts)?;
    notices.add_parts(&packages, &parts, &texts)?;
    Ok(notices.text())
}
