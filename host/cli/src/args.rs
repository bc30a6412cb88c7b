//! The command line as it is parsed.

use crate::commands::module_flags::ModuleArgs;
use crate::commands::{
    approvals, audit, chat, demo, eval, generate, keys, mcp, modules, plan, plan_capacity, policy,
    probe, run, runs, selftest, serve, stats,
};
use crate::config::{self, COMPILER_COMMAND, Flags};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use toolhold_runtime::config::LogFormat;

/// Runs LLM agents whose tools are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "toolhold",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, or what was compared or checked differs, 2 wrong usage, \
3 the endpoint or its model failed, 4 a limit of the run was reached, 5 the tool failed, 6 a shield blocked it, \
130 interrupted, 141 the reader of the output went away."
)]
pub struct Cli {
    /// Read this configuration file instead of ./toolhold.toml and the user's [env: TOOLHOLD_CONFIG].
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
        lang: toolhold_devkit::build::Language,
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
pub enum RequestCommand {
    /// Give a saved Request to a model, with an input.
    Run(Box<run::RequestArgs>),
    /// The saved Requests of the requests folder, and what they take.
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
            Self::Runs {
                command: Some(command),
            } => command.put(flags),
            Self::PlanCapacity(args) => args.put(flags),
            Self::Eval(args) => args.put(flags),
            _ => {}
        }
    }

    /// The log level without `TOOLHOLD_LOG`.
    pub fn log_level(&self) -> &'static str {
        match self {
            // Each of hundreds of attacks logs a warning, and the table reports all of them.
            Self::Selftest(_) => "off",
            _ => "warn",
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
        if let Command::CompileComponent = self.command {
            return LogFormat::Text;
        }
        let loaded = config::load(self.file().as_deref(), &Flags::default());
        loaded.map_or(LogFormat::Text, |loaded| loaded.configuration.log_format())
    }
}
