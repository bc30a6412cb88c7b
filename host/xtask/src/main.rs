//! `cargo xtask`: what a developer, and `.ci/run`, does with this repository.
//!
//! All commands are the variants of [`Command`], and `cargo xtask help` lists them. To read: `quickstart` (a task
//! solved by a real model) and `test_run` (everything that must pass) stand on `project` (cargo, the `toolhold`
//! binary) and `local_model` (a small real model served on this machine); `rooms` (the walls) and `lines` stand
//! on `workspace` (crates) and `source` (their files); `prose` counts sentences that have to be read twice; `licences`
//! writes the third-party notices; `bench`, `fuzz` and `soak` run programs beside the crates.
//! Narration goes to standard error, so that standard output carries only what a command answers.
#![forbid(unsafe_code)]

mod bench;
mod fuzz;
mod interrupt;
mod left_out;
mod licences;
mod lines;
mod local_model;
mod long_tests;
mod modules;
mod narrate;
mod nextest;
mod project;
mod prose;
mod quickstart;
mod record;
mod rooms;
mod soak;
mod source;
mod test_budget;
mod test_run;
mod wheels;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use local_model::{Choice, commands};
use project::Profile;

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "Developer commands of Toolhold")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build Toolhold and watch a model solve a task by calling sandboxed Wasm tools
    Quickstart(quickstart::QuickstartArguments),
    /// Build what the tests need, serve a local model for the end-to-end ones, run all tests, or those named
    Test(test_run::TestArguments),
    /// Check the walls: no circle of modules inside of a crate, the order of crates, type names, the map's table
    Rooms(rooms::RoomsArguments),
    /// Count the lines of product code, by crate; compare with a revision
    Lines(lines::LinesArguments),
    /// Count signs of prose that has to be read twice, by crate; fail where a number is not the accepted one
    Prose(prose::ProseArguments),
    /// Measure the host's cost as ratios to yardsticks; compare with the accepted ratios
    Bench(bench::BenchArguments),
    /// Run the fuzz targets, which check properties that hold for any input
    Fuzz(fuzz::FuzzArguments),
    /// Run random hostile components beside benign callers, and compare what the process holds before and after
    Soak(soak::SoakArguments),
    /// Write the notices of what is in Toolhold by others, docs/third-party-notices.txt, or check them
    Licences(licences::LicencesArguments),
    /// Build the components under modules/ from their sources
    Modules(modules::ModulesArguments),
    /// Serve a small real model on this machine's CPU, OpenAI-compatible
    LocalModel {
        #[command(subcommand)]
        command: LocalModelCommand,
    },
    /// Record again what `toolhold demo` replays, with a local model
    RecordDemo {
        /// Model to record
        #[arg(long, value_enum, default_value_t = Choice::Larger)]
        model: Choice,
        /// Profile of the toolhold binary that records
        #[arg(long, value_enum, default_value_t = Profile::Release)]
        profile: Profile,
    },
}

#[derive(Debug, Subcommand)]
enum LocalModelCommand {
    /// Start it in the background, unless it runs; prints its base URL
    Start {
        #[arg(long, value_enum, default_value_t = Choice::Smaller)]
        model: Choice,
        /// The port to listen on (default: 18080, or a free one if that is taken)
        #[arg(long)]
        port: Option<u16>,
    },
    /// Stop the servers that `start` started
    Stop {
        /// Only this one (default: all)
        #[arg(long, value_enum)]
        model: Option<Choice>,
    },
    /// List the running servers; fails if there are none
    Status {
        /// Only this one (default: all)
        #[arg(long, value_enum)]
        model: Option<Choice>,
    },
}

fn main() -> ExitCode {
    if let Some(error) = fuzz::instrument::become_rustc() {
        narrate::line(&format!("error: {error:#}"));
        return ExitCode::FAILURE;
    }
    match interrupt::listen().and_then(|()| dispatch(Cli::parse())) {
        Ok(code) => code,
        Err(_) if interrupt::happened() => {
            narrate::line("interrupted");
            interrupt::exit_code()
        }
        Err(error) => {
            narrate::line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Quickstart(arguments) => quickstart::run(&arguments),
        Command::LocalModel { command } => match command {
            LocalModelCommand::Start { model, port } => commands::start(model.model()?, port),
            LocalModelCommand::Stop { model } => commands::stop(model),
            LocalModelCommand::Status { model } => commands::status(model),
        },
        Command::Modules(arguments) => modules::run(&arguments),
        Command::Licences(arguments) => licences::run(&arguments),
        Command::Test(arguments) => test_run::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Rooms(arguments) => rooms::run(&arguments),
        Command::Prose(arguments) => prose::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Lines(arguments) => lines::run(&arguments),
        Command::RecordDemo { model, profile } => record::run(model.model()?, profile),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn contributors_are_told_of_every_command() {
        let told = std::fs::read_to_string(project::root().join("CONTRIBUTING.md")).unwrap();
        for command in Cli::command().get_subcommands() {
            let row = format!("| `cargo xtask {}", command.get_name());
            assert!(told.contains(&row), "no row begins with {row}");
        }
    }
}
