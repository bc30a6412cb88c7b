//! From the command line to the command: log, runtime, configuration, exit code.

use crate::args::{Cli, Command, RequestCommand};
use crate::commands::{
    approvals, audit, backup, build, cache, chat, demo, doctor, endpoints, eval, generate, keys,
    knowledge, licences, mcp, memory, modules, plan, plan_capacity, policy, probe, record, run,
    runs, secrets, selftest, serve, show_config, stats, trust,
};
use crate::config::{self, COMPILER_COMMAND, ConfigError, Flags};
use crate::descriptors;
use crate::exit::Exit;
use crate::terminal::{
    log::{EscapedLog, holds_no_secret},
    output::{self, NoteMark},
    stderr, style,
};
use crate::usage;
use rustix::process::Signal;
use std::ffi::OsString;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use toolhold_devkit::build::DEFAULT_BUILD_TIMEOUT;
use toolhold_devkit::scaffold::{self, Offers};
use toolhold_runtime::config::LogFormat;
use tracing::Level;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// True for the command line by which this program starts itself as its compiler. A component compiles in milliseconds, of
/// which the parsing of the command line and the set-up of the log would be a large part.
pub fn is_compiler(command_line: impl Iterator<Item = OsString>) -> bool {
    let mut arguments = command_line.skip(1);
    let is_named = arguments.next().is_some_and(|own| own == COMPILER_COMMAND);
    is_named && arguments.next().is_none()
}

/// The compiler's process: it has no runtime, log and configuration.
pub fn compiler() -> ExitCode {
    match toolhold_sandbox::compiler_process() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            output::say_whole(&reason);
            ExitCode::FAILURE
        }
    }
}

/// Runs the command in a runtime of its own, and prints its error to stderr.
pub fn command(cli: Cli) -> ExitCode {
    let format = cli.log_format();
    let named = std::env::var("TOOLHOLD_LOG").ok();
    let (filter, fault) = filter(named.as_deref(), cli.command.log_level());
    let log = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(holds_no_secret));
    let events = fmt::layer()
        .log_internal_errors(true)
        .with_writer(move || EscapedLog { format });
    match format {
        LogFormat::Json => log.with(events.json().flatten_event(true)).init(),
        LogFormat::Text => {
            let events = events.with_ansi(style::has_colours());
            log.with(events.without_time().with_target(false)).init();
        }
    }
    if format == LogFormat::Json && cli.command.serves() {
        stderr::become_events();
    }
    if let Command::CompileComponent = cli.command {
        return compiler();
    }
    if let Command::SuperviseBuild { command } = &cli.command {
        return match toolhold_devkit::build::supervise(command) {
            Ok(code) => ExitCode::from(code),
            Err(reason) => {
                output::say_whole(&reason);
                ExitCode::FAILURE
            }
        };
    }
    if let Some(fault) = fault {
        output::note(NoteMark::Warn("TOOLHOLD_LOG:"), &fault);
    }
    descriptors::raise();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        // Look for events after every other task: a spinning guest holds its thread for a tick of
        // the epoch each time, and at the default of 61 a benign call waited for 61 of them
        // (`cargo bench -p toolhold-sandbox --bench capacity`).
        .event_interval(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let outcome = runtime.block_on(dispatch(cli));
            // A blocking build or compilation must not delay the exit of a cancelled command.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            let code = exit_of(&error);
            output::failed(&error, "");
            code.into()
        }
    }
}

/// The filter of the log: the levels that `TOOLHOLD_LOG` names, and notices in any case. Where the variable is wrong, the
/// usual level holds, and the fault is returned.
fn filter(named: Option<&str>, usual: &str) -> (Targets, Option<String>) {
    let with_notices = |levels: &str| {
        let levels = levels.split(',').map(str::trim);
        // An empty one would be a level for all.
        let levels: Vec<&str> = levels.filter(|level| !level.is_empty()).collect();
        if let Some(level) = levels.iter().find(|level| !names_a_target(level)) {
            return Err(format!(
                "{level:?} names no target, which has only letters, digits, `_`, `:`, `-` and `.`; divide levels by commas"
            ));
        }
        let targets = levels.join(",").parse::<Targets>();
        let targets = targets.map_err(|error| error.to_string())?;
        Ok(targets.with_target(stderr::NOTICE, Level::INFO))
    };
    let named = named.filter(|levels| !levels.trim().is_empty());
    let (levels, fault) = match named.map(with_notices) {
        Some(Ok(filter)) => return (filter, None),
        Some(Err(error)) => (usual, Some(format!("{error}; {usual} is logged"))),
        None => (usual, None),
    };
    (with_notices(levels).unwrap_or_default(), fault)
}

/// Whether a directive has a level alone, or a target that may be one. The library takes any text for a target, and one
/// that matches nothing would log nothing.
fn names_a_target(directive: &str) -> bool {
    let target = directive.split('=').next().unwrap_or_default();
    target
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_:.-".contains(c))
}

fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<toolhold_model::ModelError>() {
        Some(_) => Exit::Endpoint,
        None => Exit::Failed,
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    // A file that may not grow (ulimit -f) is handled as a full disk: its signal is ignored.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let mut flags = Flags::default();
    cli.modules.put(&mut flags)?;
    cli.command.put(&mut flags);
    let file = cli.file();
    let check_trust = cli.command.trust_check();
    let needs = cli.command.needs();
    let load = |flags: &Flags| {
        let loaded = config::load(file.as_deref(), flags, needs)?;
        check_trust(&loaded)?;
        trust::note(&loaded);
        secrets::note(&loaded, needs);
        Ok::<_, ConfigError>(loaded)
    };
    match cli.command {
        Command::Run(args) => Box::pin(run::run(&load(&flags)?, *args)).await,
        Command::Request(RequestCommand::Run(args)) => {
            Box::pin(run::request(&load(&flags)?, *args)).await
        }
        Command::Request(RequestCommand::List) => Ok(run::requests(&load(&flags)?.configuration)),
        Command::Resume(args) => Box::pin(run::resume(&load(&flags)?, *args)).await,
        Command::Runs {
            command: None,
            list,
        } => runs::list(&load(&flags)?.configuration, &list).await,
        Command::Runs {
            command: Some(command),
            ..
        } => Box::pin(runs::runs(&load(&flags)?.configuration, command)).await,
        Command::Show { run, json } => record::show(&load(&flags)?.configuration, &run, json).await,
        Command::Stats(args) => stats::stats(&load(&flags)?.configuration, &args).await,
        Command::Approvals(command) => {
            approvals::approvals(&load(&flags)?.configuration, command).await
        }
        Command::Audit(command) => audit::audit(&load(&flags)?.configuration, command).await,
        Command::Backup(args) => {
            backup::backup(&load(&flags)?.configuration, file.as_deref(), args).await
        }
        Command::Restore(args) => backup::restore(&load(&flags)?.configuration, args).await,
        Command::Chat(args) => Box::pin(chat::chat(&load(&flags)?, *args)).await,
        Command::Generate(command) => generate::generate(&command, usage::command()),
        Command::Licences(args) => Ok(licences::licences(&args)),
        Command::Serve(args) => serve::serve(&args, &load(&flags)?).await,
        Command::Endpoints(args) => endpoints::endpoints(&load(&flags)?.serve, args).await,
        Command::Keys(command) => keys::keys(&load(&flags)?.configuration, command).await,
        Command::Knowledge(command) => {
            Box::pin(knowledge::knowledge(&load(&flags)?.configuration, command)).await
        }
        Command::Memory(command) => memory::memory(&load(&flags)?.configuration, command).await,
        Command::Modules(command) => Box::pin(modules::modules(&load(&flags)?, command)).await,
        Command::Mcp(args) => Box::pin(mcp::mcp(&load(&flags)?, args)).await,
        Command::Plan(command) => plan::plan(&load(&flags)?, command).await,
        Command::Build {
            folders,
            dev,
            yes,
            limit,
        } => {
            let mut config = load(&flags)?.configuration;
            let runner = if dev {
                config.serve_author();
                Some(build::base_runner(&config)?)
            } else {
                None
            };
            let sources = if yes {
                build::SourceReview::Read
            } else {
                build::SourceReview::Unread
            };
            let timeout = limit.timeout();
            let built = build::build(&config, &folders, timeout, runner.as_ref(), sources);
            build::until_stopped(built).await
        }
        Command::NewModule {
            name,
            lang,
            shield,
            build,
        } => {
            let config = load(&flags)?.configuration;
            let offers = if shield {
                Offers::Shield
            } else {
                Offers::Tools
            };
            let folder = scaffold::create(config.new_modules_folder(), &name, lang, offers)?;
            println!("made {}; its README.md says how it works", folder.display());
            if build {
                let folders = [folder];
                // They are the template's, which was written just now.
                let sources = build::SourceReview::Read;
                let built = build::build(&config, &folders, DEFAULT_BUILD_TIMEOUT, None, sources);
                return build::until_stopped(built).await;
            }
            println!("build it with: toolhold build {}", folder.display());
            Ok(Exit::Ok)
        }
        Command::Demo(args) => demo::demo(&load(&flags)?.configuration, args).await,
        Command::PlanCapacity(args) => {
            plan_capacity::plan_capacity(&load(&flags)?.configuration, *args).await
        }
        // Handled before a runtime exists, because it needs none.
        Command::CompileComponent | Command::SuperviseBuild { .. } => Ok(Exit::Ok),
        Command::Eval(args) => eval::eval(file.as_deref(), &flags, *args).await,
        Command::Doctor(args) => {
            args.put(&mut flags);
            if args.probe {
                probe::probe(&load(&flags)?.configuration, args.json).await
            } else {
                doctor::doctor(file.as_deref(), &flags).await
            }
        }
        Command::Policy(args) => policy::policy(&load(&flags)?.configuration, &args).await,
        Command::Selftest(args) => selftest::selftest(&load(&flags)?.configuration, args).await,
        Command::Cache(args) => cache::cache(&load(&flags)?.configuration, args).await,
        Command::Secrets(command) => secrets::secrets(file.as_deref(), &flags, command).await,
        Command::Config { json } => show_config::show(&load(&flags)?, json),
        Command::Trust(args) => trust::trust(file.as_deref(), &flags, &args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_started_by_its_command_alone() {
        for (line, expect) in [
            (&["toolhold", COMPILER_COMMAND][..], true),
            (&["toolhold"], false),
            (&[COMPILER_COMMAND], false),
            (&["toolhold", "run", COMPILER_COMMAND], false),
            (&["toolhold", COMPILER_COMMAND, "--help"], false),
        ] {
            let command_line = line.iter().map(OsString::from);
            assert_eq!(is_compiler(command_line), expect, "{line:?}");
        }
    }

    #[test]
    fn the_log_has_the_levels_that_are_named_and_notices() {
        const USUAL: &str = "warn,toolhold=info";
        for (named, target, level, is_logged) in [
            (None, "toolhold_server", Level::INFO, true),
            (None, "toolhold_server", Level::DEBUG, false),
            (None, "hyper", Level::WARN, true),
            (None, "hyper", Level::INFO, false),
            (Some(" "), "hyper", Level::WARN, true),
            (Some("error"), "toolhold_server", Level::WARN, false),
            (Some("info, hyper=debug ,"), "hyper", Level::DEBUG, true),
            (Some("info, hyper=debug ,"), "h2", Level::INFO, true),
            (Some("info, hyper=debug ,"), "h2", Level::DEBUG, false),
            (Some("hyper=debug"), "h2", Level::ERROR, false),
            (Some("off"), stderr::NOTICE, Level::INFO, true),
            (
                Some("toolhold::access=debug"),
                "toolhold::access",
                Level::DEBUG,
                true,
            ),
        ] {
            let (filter, fault) = filter(named, USUAL);
            let seen = filter.would_enable(target, &level);
            assert_eq!(seen, is_logged, "{named:?}: {target} {level}");
            assert_eq!(fault, None, "{named:?}");
        }
    }

    #[test]
    fn a_log_filter_that_would_match_nothing_is_told_and_the_usual_one_holds() {
        for named in [
            "hyper=loud",
            "toolhold[run]=debug",
            "toolhold[{run}]=debug",
            "info toolhold=debug",
            "info,hyper debug",
            "toolhold=info;hyper=debug",
        ] {
            let (filter, fault) = filter(Some(named), "warn,toolhold=info");
            let fault = fault.unwrap();
            assert!(fault.ends_with("; warn,toolhold=info is logged"), "{fault}");
            assert!(filter.would_enable("hyper", &Level::WARN), "{named}");
            assert!(!filter.would_enable("hyper", &Level::INFO), "{named}");
            assert!(
                filter.would_enable("toolhold_server", &Level::INFO),
                "{named}"
            );
        }
    }
}
