//! The command line as it is parsed.

use crate::commands::module_flags::ModuleArgs;
use crate::commands::{
    approvals, audit, backup, build, cache, chat, demo, endpoints, eval, generate, keys, knowledge,
    licences, mcp, memory, modules, plan, plan_capacity, policy, probe, run, runs, secrets,
    selftest, serve, stats, trust,
};
use crate::config::secrets::Needs;
use crate::config::{self, COMPILER_COMMAND, ConfigError, Flags, Loaded};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use toolhold_runtime::config::LogFormat;

/// Most columns of help.
pub const MAX_WIDTH: usize = 100;

/// Runs LLM agents whose tools are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "toolhold",
    version,
    max_term_width = MAX_WIDTH,
    after_help = "Exit codes: 0 done; 1 failed, or a check or comparison found a difference; 2 wrong usage; \
3 the endpoint or its model failed; 4 a limit of the run was reached; 5 a tool failed; 6 a shield blocked the run \
or call; 130 interrupted; 141 the reader of the output closed it."
)]
pub struct Cli {
    /// Read this configuration file instead of ./toolhold.toml and the user's file [env: TOOLHOLD_CONFIG].
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub modules: ModuleArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give a task to a model that may call the modules' tools.
    Run(Box<run::RunArgs>),
    /// Run a saved Request.
    #[command(subcommand)]
    Request(RequestCommand),
    /// Resume a run whose process ended, with the limits and tools that it was started with.
    Resume(Box<run::ResumeArgs>),
    /// List recorded runs; follow, stop, replay, compare, export and delete them.
    Runs {
        #[command(flatten)]
        list: runs::RunListArgs,
        #[command(subcommand)]
        command: Option<runs::RunsCommand>,
    },
    /// Print the steps of a recorded run.
    Show {
        /// Id of the run, the beginning of the id, or last.
        run: String,
        /// Print one JSON event per line.
        #[arg(long)]
        json: bool,
    },
    /// Show the usage of runs: tokens, time, tools, cost.
    Stats(stats::StatsArgs),
    /// Chat with an agent in a session of several turns.
    Chat(Box<chat::ChatArgs>),
    /// Generate shell completions, manual pages and the configuration reference.
    #[command(subcommand)]
    Generate(generate::GenerateCommand),
    /// Print the licences of what is in this program by others.
    Licences(licences::LicencesArgs),
    /// Serve the agents over HTTP: as an OpenAI-compatible API, with sessions, events and decisions.
    Serve(Box<serve::ServeArgs>),
    /// Show which endpoints a running server leaves alone, and have it ask one again.
    Endpoints(endpoints::EndpointsArgs),
    /// Create, list and revoke the API keys of the server.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// List calls that wait for a person's decision, and decide about them.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Search and verify the audit log of calls, decisions, pins and keys.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Write what this host keeps into one file, also while servers run: the database, approvals, grants, kept values.
    Backup(backup::BackupArgs),
    /// Read a backup into an empty state folder.
    Restore(backup::RestoreArgs),
    /// Keep documents in collections, and find passages in them.
    #[command(subcommand)]
    Knowledge(knowledge::KnowledgeCommand),
    /// List, show and forget the facts that agents remember.
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Inspect, approve and call modules without a model.
    #[command(subcommand)]
    Modules(modules::ModulesCommand),
    /// Serve the modules as MCP tools, over stdio or HTTP; inspect and approve the MCP servers whose tools
    /// runs may call.
    #[command(after_help = mcp::AFTER_HELP)]
    Mcp(mcp::McpArgs),
    /// Draw, check, rehearse and run a plan of calls without a model.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Build modules from source, as their module.toml says.
    Build {
        /// Folders of the modules, or names of modules in the modules folder.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
        /// Make dev builds of modules in Python, in seconds, for trying an edit; what is shipped is built without.
        #[arg(long)]
        dev: bool,
        /// Build sources natively that a module may have written: you have read them.
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        limit: build::BuildLimit,
    },
    /// Create a module from a template.
    NewModule {
        /// Name of the module: lower case letters, digits and _.
        name: String,
        #[arg(long, value_name = "LANGUAGE", help = "rust, c, go, python, js or ts")]
        lang: toolhold_devkit::build::Language,
        /// Create a shield, which screens inputs and outputs of runs and tools, instead of tools; rust only.
        #[arg(long)]
        shield: bool,
        /// Build the module at once.
        #[arg(long)]
        build: bool,
    },
    /// Replay a recorded exchange of a real model against the live sandbox.
    Demo(demo::DemoArgs),
    /// Give a set of tasks to a model, repeatedly, and count the solved attempts.
    Eval(Box<eval::EvalArgs>),
    /// Check endpoint, modules, MCP servers, cache and toolchains, and print what to fix.
    Doctor(probe::DoctorArgs),
    /// Estimate latency, throughput, replicas and cost.
    PlanCapacity(Box<plan_capacity::CapacityArgs>),
    /// Show the effective policy: shields, privacy, decision rules, grants, and the hash that records refer to.
    Policy(policy::PolicyArgs),
    /// Keep keys and passwords that the configuration refers to, such as those of hosted models.
    #[command(subcommand)]
    Secrets(secrets::SecretsCommand),
    /// Trust ./toolhold.toml as it is now, after showing what it sets. Until then only what cannot harm holds.
    Trust(trust::TrustArgs),
    /// The compiler's process, which this program starts itself.
    #[command(name = COMPILER_COMMAND, hide = true)]
    CompileComponent,
    /// The supervisor's process, under which this program runs each command of a build.
    #[command(name = build::SUPERVISOR_COMMAND, hide = true)]
    SuperviseBuild {
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Attack the sandbox on this machine with the hostile suite, and print the results.
    Selftest(selftest::SelftestArgs),
    /// Show how large the cache is: compiled modules, compilers, fetched components.
    Cache(cache::CacheArgs),
    /// Show the effective configuration and where each value comes from.
    Config {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum RequestCommand {
    /// Run a saved Request with an input.
    Run(Box<run::RequestArgs>),
    /// List the saved Requests of the requests folder, and their inputs.
    List,
}

impl Command {
    /// The flags of the run that the command starts or resumes, if any.
    pub fn put(&self, flags: &mut Flags) {
        match self {
            Self::Run(args) => args.options.put(flags),
            Self::Request(RequestCommand::Run(args)) => args.options.put(flags),
            Self::Resume(args) => args.means.endpoint.put(flags),
            Self::Serve(args) => args.put(flags),
            Self::Chat(args) => args.put(flags),
            Self::PlanCapacity(args) => args.put(flags),
            Self::Eval(args) => args.put(flags),
            _ => {}
        }
    }

    /// What to do about flags that stand before the command that they are of. Flags of all commands may stand there.
    pub fn misplaced(&self) -> Option<&'static str> {
        match self {
            Self::Runs {
                list,
                command: Some(_),
            } if list.is_given() => Some(
                "--last and --json before the command are those of `toolhold runs` alone; put them behind it\n",
            ),
            _ => None,
        }
    }

    /// Whether the command may go on if a found file is not trusted, and a part of the configuration does not hold.
    pub fn trust_check(&self) -> fn(&Loaded) -> Result<(), ConfigError> {
        match self {
            own if own.serves() => Loaded::servable,
            Self::Run(_)
            | Self::Request(RequestCommand::Run(_))
            | Self::Resume(_)
            | Self::Chat(_)
            | Self::Plan(plan::PlanCommand::Run(_))
            | Self::Modules(modules::ModulesCommand::Call { .. }) => Loaded::protected,
            _ => |_| Ok(()),
        }
    }

    /// What it does with secrets. One that is not looked at here uses them.
    pub fn needs(&self) -> Needs {
        match self {
            Self::Build { .. }
            | Self::NewModule { .. }
            | Self::Cache(_)
            | Self::Selftest(_)
            | Self::Licences(_)
            | Self::Endpoints(_)
            | Self::Config { .. } => Needs::None,
            Self::Request(RequestCommand::List)
            | Self::Show { .. }
            | Self::Runs { .. }
            | Self::Stats(_)
            | Self::Approvals(_)
            | Self::Audit(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Keys(_)
            | Self::Policy(_) => Needs::Database,
            Self::Modules(command) => command.needs(),
            Self::Mcp(args) => args.needs(),
            _ => Needs::All,
        }
    }

    /// The log level without `TOOLHOLD_LOG`.
    pub fn log_level(&self) -> &'static str {
        match self {
            // Each of hundreds of attacks logs a warning, and the table reports all of them.
            Self::Selftest(_) => "off",
            // Nobody watches it: what fails, and what ends without an answer, is in its log alone.
            Self::Serve(_) => "warn,toolhold=info",
            _ => "warn",
        }
    }

    /// Whether the command serves clients until it is stopped. Its stderr is its log then.
    pub fn serves(&self) -> bool {
        match self {
            Self::Serve(_) => true,
            Self::Mcp(args) => args.serves(),
            _ => false,
        }
    }
}

impl Cli {
    pub fn file(&self) -> Option<PathBuf> {
        let named = self.config.clone();
        named.or_else(|| std::env::var_os("TOOLHOLD_CONFIG").map(PathBuf::from))
    }

    /// Errors of the configuration are reported by the command that needs it.
    pub fn log_format(&self) -> LogFormat {
        if let Command::CompileComponent | Command::SuperviseBuild { .. } = self.command {
            return LogFormat::Text;
        }
        config::log_format(self.file().as_deref()).unwrap_or(LogFormat::Text)
    }
}
