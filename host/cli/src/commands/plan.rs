//! `toolhold plan`: see, check, rehearse and run a saved plan without a model.

mod check;
mod dry_run;
mod examine;
mod found;
mod run;

pub use dry_run::rehearsed;
pub use run::driver;

use crate::exit::Exit;
use crate::terminal::input;
use crate::terminal::style::plain;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use toolhold_protocol::context::{Input, Message};
use toolhold_protocol::plan::{Graph, Plan};
use toolhold_runtime::config::Configuration;

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Draw a plan: the dependencies between its steps, and its inputs.
    Show {
        /// File with a plan message, a list of calls or a solution, as JSON; - reads stdin.
        file: String,
        /// Output format.
        #[arg(long, value_name = "NAME", value_enum, default_value_t)]
        format: Format,
    },
    /// Report all faults of a plan: tools, arguments, cycles, missing inputs. Exit code 1 if there are any.
    Check {
        #[command(flatten)]
        plan: PlanArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show what a plan would do, without running it: its order, parallel steps, missing inputs, and the
    /// capabilities of its tools. Exit code 1 if it could not run.
    DryRun {
        #[command(flatten)]
        plan: PlanArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run a plan without a model; the answer is the data that it writes. Exit code 1 if the plan cannot
    /// run, 5 if some of its calls failed.
    Run(Box<run::PlanRunArgs>),
}

/// A plan and what it works with.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// File with a plan message, a list of calls or a solution, as JSON; - reads stdin.
    file: String,
    /// Input of the plan: a JSON object, or a file with one.
    #[arg(long, value_name = "FILE_OR_JSON")]
    input: Option<String>,
    /// File with context messages that the plan uses: data, state, tools.
    #[arg(long, value_name = "FILE")]
    context: Option<String>,
}

/// How a plan is drawn.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Format {
    /// Text by layers, for a terminal.
    #[default]
    Outline,
    /// Mermaid, for Markdown and mermaid.live.
    Mermaid,
    /// DOT, for Graphviz.
    Dot,
}

pub async fn plan(config: &Configuration, command: PlanCommand) -> Result<Exit> {
    match command {
        PlanCommand::Show { file, format } => show(&file, format),
        PlanCommand::Check { plan, json } => check::check(config, &plan, json).await,
        PlanCommand::DryRun { plan, json } => dry_run::dry_run(config, &plan, json).await,
        PlanCommand::Run(args) => run::run(config, *args).await,
    }
}

fn show(file: &str, format: Format) -> Result<Exit> {
    let graph = Graph::new(Plan::parse(&value(file)?)?.steps)?;
    let drawing = match format {
        Format::Outline => graph.outline(),
        Format::Mermaid => graph.mermaid(),
        Format::Dot => graph.dot(),
    };
    print!("{}", plain(&drawing));
    Ok(Exit::Ok)
}

impl PlanArgs {
    fn plan(&self) -> Result<Value> {
        value(&self.file)
    }

    /// The context and input of `--context` and `--input`.
    fn messages(&self) -> Result<Vec<Message>> {
        let mut messages = match &self.context {
            Some(file) => {
                Message::parse_all(&value(file)?).with_context(|| format!("--context {file}"))?
            }
            None => Vec::new(),
        };
        let Some(argument) = &self.input else {
            return Ok(messages);
        };
        let given = input(argument)?;
        let place = messages.iter_mut().find_map(|message| match message {
            Message::Input(own) if own.instance.is_none() => Some(own),
            _ => None,
        });
        match place {
            // The context has the schema, and the input must satisfy it.
            Some(own) => own.input = given,
            None => messages.push(Message::Input(Input {
                input: given,
                schema: Value::Bool(true),
                description: None,
                instance: None,
            })),
        }
        Ok(messages)
    }
}

/// Parses the JSON in `file` or on stdin.
fn value(file: &str) -> Result<Value> {
    let text = input::file(file)?;
    serde_json::from_str(&text).with_context(|| format!("{file} is not JSON"))
}

/// Parses `--input`: JSON, a file, or a file after an @ as elsewhere.
fn input(argument: &str) -> Result<Value> {
    let input = if argument.trim_start().starts_with(['{', '[']) {
        serde_json::from_str(argument).context("--input is not JSON")?
    } else {
        value(argument.strip_prefix('@').unwrap_or(argument)).context("--input")?
    };
    if !input.is_object() {
        bail!("--input must be a JSON object, such as {{\"city\": \"Bern\"}}, or a file with one");
    }
    Ok(input)
}
