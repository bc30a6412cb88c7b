//! The command line: parses, builds what a command needs, maps outcomes to exit codes.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where Toolhold talks to a terminal"
)]

pub mod approvals;
mod audit;
mod build;
mod chat;
mod columns;
mod config;
mod demo;
mod doctor;
mod endpoint;
mod eval;
mod generate;
mod given;
mod keys;
mod mcp;
pub mod modules;
mod pipe;
pub mod plan;
mod plan_capacity;
mod policy;
mod probe;
mod progress;
mod pull;
mod record;
mod run;
pub mod runs;
mod selftest;
mod serve;
mod serving;
mod show_config;
mod stats;
pub mod style;
mod terminal_approver;
mod usage;
mod view;

use crate::cli::config::{COMPILER_COMMAND, Flags};
use crate::config::LogFormat;
use crate::scaffold::{self, Offers};
use clap::{Args, Parser, Subcommand};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use toml::Value;

/// How a command ended, as a process says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// Something did not work, and stderr says what; or what was compared or checked is not as it should be, and
    /// stdout says how.
    Failed,
    /// The endpoint failed, did not answer, or its model wrote nothing that could be used.
    Endpoint,
    /// A limit of the run was reached before there was an output.
    Limit,
    /// The tool said no, or hit a limit of its own.
    Tool,
    /// A shield blocked the input or the output.
    Blocked,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // 2 is clap's, for a command line it does not understand.
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Endpoint => 3,
            Exit::Limit => 4,
            Exit::Tool => 5,
            Exit::Blocked => 6,
            Exit::Interrupted => 130,
        })
    }
}

/// Runs LLM agents whose tools are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "toolhold",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, or what was compared or checked differs, 2 wrong usage, \
3 the endpoint or its model failed, 4 a limit of the run was reached, 5 the tool failed, 6 a shield blocked it, \
130 interrupted, 141 nobody reads the output any more."
)]
struct Cli {
    /// Read this configuration file instead of ./toolhold.toml and the user's [env: TOOLHOLD_CONFIG].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    modules: ModuleArgs,
    #[command(subcommand)]
    command: Command,
}

/// Where modules come from and what they are given.
#[derive(Debug, Args)]
struct ModuleArgs {
    /// The folder whose components become tools [default: modules].
    #[arg(long = "modules", global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Let a module see a directory: MODULE=HOST[:GUEST[:rw]], such as files=./notes:/data:rw.
    #[arg(long = "dir", global = true, value_name = "GRANT")]
    directories: Vec<String>,
    /// Let a module see a variable: MODULE=NAME=VALUE, such as clock=TZ=UTC.
    #[arg(long = "env", global = true, value_name = "GRANT")]
    environment: Vec<String>,
    /// Run modules that nobody approved: for authors.
    #[arg(long, global = true)]
    trust_all: bool,
    /// Use components from registries only as they were fetched before, without any network.
    #[arg(long, global = true)]
    offline: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give a task to a model that may call the modules' tools.
    Run(Box<run::RunArgs>),
    /// Run a saved Request.
    #[command(subcommand)]
    Request(RequestCommand),
    /// Go on with a run whose process ended, under the limits and with the tools that it was started
    /// with.
    Resume(Box<run::ResumeArgs>),
    /// List the runs that were made; follow, stop or delete them.
    Runs {
        #[command(subcommand)]
        command: Option<runs::RunsCommand>,
    },
    /// Print the steps of a run again.
    Show {
        /// The run's id, the beginning of it, or last.
        run: String,
        /// One event a line.
        #[arg(long)]
        json: bool,
    },
    /// Say what runs took: tokens, time, tools, money.
    Stats(stats::StatsArgs),
    /// Run a run's record again, without endpoint and tools, and compare.
    Replay { run: String },
    /// Say where two runs part.
    Diff { left: String, right: String },
    /// Talk with an agent: a session of several turns.
    Chat(Box<chat::ChatArgs>),
    /// Make completions, manual pages, the configuration reference.
    #[command(subcommand)]
    Generate(generate::GenerateCommand),
    /// Serve the agents over HTTP: as an OpenAI-compatible API, with sessions, events and approvals.
    Serve(Box<serve::ServeArgs>),
    /// Make, list and revoke the keys of the server.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// See and decide calls that wait for a person.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// See and verify the log of what was done: calls, decisions, approvals, keys.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// See and call modules without a model.
    #[command(subcommand)]
    Modules(modules::ModulesCommand),
    /// Serve the modules as MCP tools, over stdio or HTTP; see and approve MCP servers of others, whose
    /// tools may be called beside those of modules.
    #[command(after_help = mcp::AFTER_HELP)]
    Mcp(mcp::McpArgs),
    /// See, check, rehearse and run a plan of calls without a model.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Build modules from their source, as their module.toml says.
    Build {
        /// The module's folder; several may be named.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Start a new module from a template.
    NewModule {
        /// Lower case letters, digits and _.
        name: String,
        #[arg(long, value_name = "LANGUAGE", help = "rust, c, go, python, js or ts")]
        lang: crate::build::Language,
        /// A shield, which screens what runs and tools say, instead of tools: in rust.
        #[arg(long)]
        shield: bool,
        /// Build it right away.
        #[arg(long)]
        build: bool,
    },
    /// Replay a recorded exchange of a real model against the live sandbox.
    Demo(demo::DemoArgs),
    /// Give a set of tasks to a model, several times, and count what it solves.
    Eval(Box<eval::EvalArgs>),
    /// Check endpoint, modules, MCP servers, cache and toolchains, and say what to do.
    Doctor(probe::DoctorArgs),
    /// Estimate latency, throughput, replicas and cost.
    PlanCapacity(Box<plan_capacity::CapacityArgs>),
    /// Show the policy that holds: what screens runs, what is hidden from whom, which calls wait for a
    /// person, what was granted, and the hash by which records name it.
    Policy(policy::PolicyArgs),
    /// The compiler's own process: started by this program, not by people.
    #[command(name = COMPILER_COMMAND, hide = true)]
    CompileComponent,
    /// Attack the sandbox on this machine with the hostile suite, and print what happened.
    Selftest(selftest::SelftestArgs),
    /// Show the effective configuration and where each value comes from.
    Config {
        /// One JSON array.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum RequestCommand {
    /// Give a saved Request to a model, with an input.
    Run(Box<run::RequestArgs>),
    /// The saved Requests of the requests folder, and what they take.
    List,
}

impl Command {
    /// The flags of the run that it starts or goes on with, if it does.
    fn put(&self, flags: &mut Flags) {
        match self {
            Self::Run(args) => args.options.put(flags),
            Self::Request(RequestCommand::Run(args)) => args.options.put(flags),
            Self::Resume(args) => args.means.endpoint.put(flags),
            Self::Serve(args) => args.put(flags),
            Self::Chat(args) => args.put(flags),
            Self::Runs {
                command: Some(command),
            } => command.put(flags),
            Self::PlanCapacity(args) => args.put(flags),
            Self::Eval(args) => args.put(flags),
            _ => {}
        }
    }

    /// What is logged unless `TOOLHOLD_LOG` says otherwise.
    fn log_level(&self) -> &'static str {
        match self {
            // Each of hundreds of attacks is worth a warning, and all of them are in the table.
            Self::Selftest(_) => "off",
            _ => "warn",
        }
    }
}

impl Cli {
    fn file(&self) -> Option<PathBuf> {
        let named = self.config.clone();
        named.or_else(|| std::env::var_os("TOOLHOLD_CONFIG").map(PathBuf::from))
    }

    /// What is wrong with the configuration is said where it is needed.
    fn log_format(&self) -> LogFormat {
        if let Command::CompileComponent = self.command {
            return LogFormat::Text;
        }
        let loaded = config::load(self.file().as_deref(), &Flags::default());
        loaded.map_or(LogFormat::Text, |loaded| {
            loaded.configuration.telemetry.log_format
        })
    }
}

/// The process.
pub fn main() -> ExitCode {
    let cli = usage::parse();
    pipe::quietly(|| command(cli))
}

fn command(cli: Cli) -> ExitCode {
    let level = std::env::var("TOOLHOLD_LOG").unwrap_or_else(|_| cli.command.log_level().into());
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::new(level));
    match cli.log_format() {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log
            .with_ansi(style::has_colours())
            .without_time()
            .with_target(false)
            .init(),
    }
    if let Command::CompileComponent = cli.command {
        return match toolhold_sandbox::compiler_process() {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        };
    }
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
            // A build or a compilation in a blocking thread must not keep a cancelled command.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            let code = exit_of(&error);
            eprintln!("{} {}", style::bad("error:"), style::chain(&error));
            code.into()
        }
    }
}

fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<toolhold_agent::model::ModelError>() {
        Some(_) => Exit::Endpoint,
        None => Exit::Failed,
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    // A file that may not grow (ulimit -f) is a disk that is full, and no reason to be killed.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let mut flags = Flags::default();
    cli.modules.put(&mut flags)?;
    cli.command.put(&mut flags);
    let file = cli.file();
    let load = |flags: &Flags| config::load(file.as_deref(), flags);
    match cli.command {
        Command::Run(args) => run::run(&load(&flags)?.configuration, *args).await,
        Command::Request(RequestCommand::Run(args)) => {
            run::request(&load(&flags)?.configuration, *args).await
        }
        Command::Request(RequestCommand::List) => Ok(run::requests(&load(&flags)?.configuration)),
        Command::Resume(args) => Box::pin(run::resume(&load(&flags)?.configuration, *args)).await,
        Command::Runs { command: None } => {
            runs::list(&load(&flags)?.configuration, None, false).await
        }
        Command::Runs {
            command: Some(command),
        } => Box::pin(runs::runs(&load(&flags)?.configuration, command)).await,
        Command::Show { run, json } => record::show(&load(&flags)?.configuration, &run, json).await,
        Command::Stats(args) => stats::stats(&load(&flags)?.configuration, &args).await,
        Command::Replay { run } => record::replayed(&load(&flags)?.configuration, &run).await,
        Command::Diff { left, right } => {
            record::diff(&load(&flags)?.configuration, [&left, &right]).await
        }
        Command::Approvals(command) => {
            approvals::approvals(&load(&flags)?.configuration, command).await
        }
        Command::Audit(command) => audit::audit(&load(&flags)?.configuration, command).await,
        Command::Chat(args) => Box::pin(chat::chat(&load(&flags)?.configuration, *args)).await,
        Command::Generate(command) => generate::generate(&command),
        Command::Serve(_) => serve::serve(&load(&flags)?).await,
        Command::Keys(command) => keys::keys(&load(&flags)?.configuration, command).await,
        Command::Modules(command) => modules::modules(&load(&flags)?, command).await,
        Command::Mcp(args) => Box::pin(mcp::mcp(&load(&flags)?, args)).await,
        Command::Plan(command) => plan::plan(&load(&flags)?.configuration, command).await,
        Command::Build { folders } => build::build(&load(&flags)?.configuration, &folders).await,
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
            let folder = scaffold::create(config.modules_folder(), &name, lang, offers)?;
            println!("made {}; its README.md says how it works", folder.display());
            if build {
                return build::build(&config, &[folder]).await;
            }
            println!("build it with: toolhold build {}", folder.display());
            Ok(Exit::Ok)
        }
        Command::Demo(args) => demo::demo(&load(&flags)?.configuration, args).await,
        Command::PlanCapacity(args) => {
            plan_capacity::plan_capacity(&load(&flags)?.configuration, *args).await
        }
        // Handled before there is a runtime: it needs none.
        Command::CompileComponent => Ok(Exit::Ok),
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
        Command::Config { json } => show_config::show(&load(&flags)?.settings, json),
    }
}

impl ModuleArgs {
    fn put(&self, flags: &mut Flags) -> anyhow::Result<()> {
        flags.set(
            "--modules",
            "modules.folder",
            self.folder.as_ref().map(|f| f.display().to_string()),
        );
        let approval = self.trust_all.then_some("never");
        flags.set("--trust-all", "modules.approval", approval);
        flags.set("--offline", "oci.offline", self.offline.then_some(true));
        for (module, grants) in grouped(&self.directories, "--dir", "MODULE=HOST[:GUEST[:rw]]")? {
            let list: Vec<Value> = grants.iter().map(|grant| directory(grant)).collect();
            flags.set("--dir", format!("module.{module}.directories"), Some(list));
        }
        for (module, grants) in grouped(&self.environment, "--env", "MODULE=NAME=VALUE")? {
            let mut table = toml::Table::new();
            for grant in grants {
                let Some((name, value)) = grant.split_once('=') else {
                    anyhow::bail!("--env {module}={grant}: expected MODULE=NAME=VALUE");
                };
                table.insert(name.to_owned(), Value::String(value.to_owned()));
            }
            flags.set("--env", format!("module.{module}.environment"), Some(table));
        }
        Ok(())
    }
}

/// `a=x a=y b=z` → a: x, y; b: z.
fn grouped<'a>(
    grants: &'a [String],
    flag: &str,
    form: &str,
) -> anyhow::Result<Vec<(&'a str, Vec<&'a str>)>> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for grant in grants {
        let Some((module, rest)) = grant
            .split_once('=')
            .filter(|(m, r)| !m.is_empty() && !r.is_empty())
        else {
            anyhow::bail!("{flag} {grant}: expected {form}");
        };
        match groups.iter_mut().find(|(name, _)| *name == module) {
            Some((_, list)) => list.push(rest),
            None => groups.push((module, vec![rest])),
        }
    }
    Ok(groups)
}

/// `HOST[:GUEST[:rw|:ro]]` as a configuration value; the guest path defaults to /data.
fn directory(grant: &str) -> Value {
    let mut parts = grant.split(':');
    let host = parts.next().unwrap_or_default();
    let guest = parts
        .next()
        .filter(|guest| !guest.is_empty())
        .unwrap_or("/data");
    let access = match parts.next() {
        Some("rw") => "read-write",
        None | Some("ro") => "read",
        // Left for the configuration's own check, which says what is allowed.
        Some(other) => other,
    };
    let mut table = toml::Table::new();
    table.insert("host".into(), host.into());
    table.insert("guest".into(), guest.into());
    table.insert("access".into(), access.into());
    Value::Table(table)
}
