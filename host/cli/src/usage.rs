//! Errors of invalid command lines, with suggestions.

use crate::args::Cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

/// Parses the command line; an error ends the process with exit code 2.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| advised(error).exit())
}

/// `error` with the reason why a flag of `run` is not a flag of `resume`.
fn advised(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && text(&error, ContextKind::Usage).contains("toolhold resume")
        && is_of_run(&text(&error, ContextKind::InvalidArg))
    {
        let advice = "a run goes on with what it was started with; its record has that, and resume takes only how \
                      the model is reached and how the run is shown";
        let advice = ContextValue::StyledStrs(vec![advice.into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    error.get(kind).map(ToString::to_string).unwrap_or_default()
}

/// Whether `toolhold run` has this flag.
fn is_of_run(flag: &str) -> bool {
    let command = Cli::command();
    let Some(run) = command.find_subcommand("run") else {
        return false;
    };
    let name = flag.trim_start_matches("--").split(['=', ' ']).next();
    run.get_arguments().any(|own| own.get_long() == name)
}
