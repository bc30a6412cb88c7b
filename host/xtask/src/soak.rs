//! `cargo xtask soak`: random hostile components beside benign callers, for minutes (`host/fuzz/src/soak`).

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::fuzz::instrument;
use crate::narrate;
use crate::project;

#[derive(Args, Debug)]
#[command(
    after_help = "Hot reloads, calls with random arguments, cancellation and revoked grants, all at once. Fails if \
    a benign call comes back later than 250 ms after its deadline, or if more memory, threads, descriptors or files \
    are left than there were at the start.\n\nNo part of .ci/run. Have the machine do nothing else meanwhile."
)]
pub struct SoakArguments {
    /// Minutes to run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Seed of all choices (default: another one each time)
    // The generator of components takes as much.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seed: Option<u32>,
}

pub fn run(arguments: &SoakArguments) -> Result<ExitCode> {
    let mut build = project::cargo();
    // Both at once: features are unified over all packages of a build.
    build.args(["build", "--package", "toolhold-cli", "--bin", "toolhold"]);
    build.args(["--package", "toolhold-fuzz", "--bin", "soak"]);
    project::require(&mut build)?;
    let target_folder = project::target_folder()?;
    let binaries = target_folder.join("debug");
    let components = target_folder.join("fuzz/soak");
    narrate::line("generating components");
    instrument::smith(&binaries, &components, arguments.seed)?;

    let mut soak = Command::new(binaries.join("soak"));
    soak.args(["--seconds", &(arguments.minutes * 60).to_string()]);
    soak.arg("--toolhold").arg(binaries.join("toolhold"));
    soak.arg("--components").arg(components);
    if let Some(seed) = arguments.seed {
        soak.args(["--seed", &seed.to_string()]);
    }
    Ok(project::exit_code(project::run(&mut soak)?))
}
