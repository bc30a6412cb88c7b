//! The command line as people read it: help with what a command uses, in groups, and errors with suggestions.

use crate::args::{Cli, MAX_WIDTH};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser as _};
use std::fmt::Write as _;

/// The groups of the commands in the help, in its order.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Agents", &["run", "chat", "request", "plan", "resume"]),
    ("Records of runs", &["runs", "show", "stats"]),
    ("Documents and facts", &["knowledge", "memory"]),
    ("Modules", &["modules", "new-module", "build", "mcp"]),
    (
        "Server",
        &[
            "serve",
            "endpoints",
            "keys",
            "approvals",
            "audit",
            "backup",
            "restore",
        ],
    ),
    (
        "Checks",
        &["doctor", "selftest", "demo", "eval", "plan-capacity"],
    ),
    (
        "Configuration",
        &[
            "config", "secrets", "policy", "trust", "cache", "generate", "licences",
        ],
    ),
];

/// Commands that load modules, or show what they are given. The help of all others leaves [`MODULE_FLAGS`] out.
const WITH_MODULES: [&str; 14] = [
    "run",
    "chat",
    "request",
    "plan",
    "resume",
    "modules",
    "new-module",
    "build",
    "mcp",
    "serve",
    "eval",
    "doctor",
    "config",
    "policy",
];

/// Ids of the flags in [`ModuleArgs`](crate::commands::module_flags::ModuleArgs), which stand at every command.
const MODULE_FLAGS: [&str; 5] = [
    "folder",
    "directories",
    "environment",
    "trust_all",
    "offline",
];

/// The definition of the whole command line.
pub fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    let groups = groups(&command);
    command
        .mut_subcommands(|own| {
            if WITH_MODULES.contains(&own.get_name()) {
                own
            } else {
                without_module_flags(own)
            }
        })
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
        ))
}

/// Flags that a command does not use are taken, because they may be set for all, and are not in its help.
fn without_module_flags(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let is_of_modules = MODULE_FLAGS.contains(&arg.get_id().as_str());
            if is_of_modules { arg.hide(true) } else { arg }
        })
        .mut_subcommands(without_module_flags)
}

/// The commands under the headings of their groups, as clap lays them out.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let found = names
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        let mut group = Command::new("group")
            .disable_help_subcommand(true)
            .max_term_width(MAX_WIDTH)
            .help_template("{subcommands}")
            .subcommands(found.cloned());
        let listed = group.render_help().to_string();
        let _ = write!(text, "{heading}:\n{}\n\n", listed.trim_end());
    }
    text
}

/// Parses the command line; an error ends the process with exit code 2.
pub fn parse() -> Cli {
    // The texts of the help are made for those who need them: it takes longer than to parse a command line.
    if let Ok(cli) = Cli::try_parse()
        && cli.command.misplaced().is_none()
    {
        return cli;
    }
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let parsed = parsed.and_then(|cli: Cli| match cli.command.misplaced() {
        Some(advice) => Err(clap::Error::raw(ErrorKind::ArgumentConflict, advice)),
        None => Ok(cli),
    });
    parsed.unwrap_or_else(|error| advised(error.with_cmd(&command)).exit())
}

/// Adds advice to an error: the reason why a flag of `run` is not a flag of `resume`, and the place of a command that is
/// not where it was looked for.
fn advised(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let name = text(&error, ContextKind::InvalidSubcommand);
        let is_first = text(&error, ContextKind::Usage).contains("toolhold [OPTIONS]");
        let meant = if is_first {
            below_others(&name)
        } else if Cli::command().find_subcommand(&name).is_some() {
            vec![name]
        } else {
            Vec::new()
        };
        if !meant.is_empty() {
            error.insert(
                ContextKind::SuggestedSubcommand,
                ContextValue::Strings(meant),
            );
        }
    }
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

/// Returns the commands of this name below others, such as `runs replay`; none if there are many.
fn below_others(name: &str) -> Vec<String> {
    const MOST: usize = 3;
    let command = Cli::command();
    let above = command.get_subcommands().filter(|it| !it.is_hide_set());
    let found: Vec<_> = above
        .filter(|above| above.find_subcommand(name).is_some())
        .map(|above| format!("{} {name}", above.get_name()))
        .collect();
    if found.len() > MOST {
        return Vec::new();
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn unknown_command_is_found_below_another() {
        let mut command = command();
        for (line, tip) in [
            ("replay last", "'runs replay'"),
            ("licenses", "'licences'"),
            ("diff last last", "'runs diff'"),
            ("runs show last", "'show'"),
        ] {
            let words = ["toolhold"].into_iter().chain(line.split(' '));
            let error = command.try_get_matches_from_mut(words).unwrap_err();
            let error = advised(error.with_cmd(&command)).to_string();
            assert!(error.contains(tip), "{error}");
        }
    }

    #[test]
    fn a_command_that_loads_no_modules_does_not_name_their_flags() {
        let mut command = command();
        for (name, is_named) in [("selftest", false), ("keys", false), ("run", true)] {
            let own = command.find_subcommand_mut(name).expect("a command");
            let help = own.render_help().to_string();
            for flag in ["--dir", "--env", "--modules", "--trust-all", "--offline"] {
                assert_eq!(help.contains(flag), is_named, "{name} {flag}: {help}");
            }
        }
        let line = ["toolhold", "--dir", "a=b", "selftest", "--quick"];
        let parsed = command.try_get_matches_from_mut(line);
        assert!(parsed.is_ok(), "they are taken wherever they stand");
    }
}
