//! `toolhold plan`: see, check, rehearse and run a saved plan without a model.

mod check;
mod dry_run;
mod examine;
mod found;
mod run;

pub use dry_run::rehearsed;
pub use run::driver;

use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::input;
use crate::terminal::style::plain;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::Path;
use toolhold_protocol::context::{Context, Input, Message};
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::plan::{Graph, Plan};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Draw a plan: the dependencies between its steps, and its inputs.
    Show {
        /// File with a plan message, a list of calls or a solution, as JSON; - reads stdin. Or the id of a run
        /// with --dry-run, the beginning of the id, or last.
        #[arg(value_name = "FILE_OR_RUN")]
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
    /// File with a plan message, a list of calls or a solution, as JSON; - reads stdin. Or the id of a run with
    /// --dry-run, the beginning of the id, or last: its plan is used with its context.
    #[arg(value_name = "FILE_OR_RUN")]
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

pub async fn plan(loaded: &Loaded, command: PlanCommand) -> Result<Exit> {
    let agent = loaded.run_agent()?;
    match command {
        PlanCommand::Show { file, format } => show(&agent.configuration, &file, format).await,
        PlanCommand::Check { plan, json } => check::check(agent, &plan, json).await,
        PlanCommand::DryRun { plan, json } => dry_run::dry_run(agent, &plan, json).await,
        PlanCommand::Run(args) => Box::pin(run::run(loaded, *args)).await,
    }
}

async fn show(config: &Configuration, file: &str, format: Format) -> Result<Exit> {
    let saved = SavedPlan::find(config, file).await?;
    let context = Context::new(saved.context)?;
    let graph = in_order(&saved.plan, &context)?;
    let drawing = match format {
        Format::Outline => graph.outline(),
        Format::Mermaid => graph.mermaid(),
        Format::Dot => graph.dot(),
    };
    print!("{}", plain(&drawing));
    Ok(Exit::Ok)
}

/// A plan in its order over the data of a context, as a run of it has it.
fn in_order(plan: &Value, context: &Context) -> Result<Graph> {
    let steps = Plan::parse(plan)?.steps;
    let graph = Graph::over(steps, |path, instance| {
        examine::is_there(context, path, instance)
    })?;
    Ok(graph)
}

/// A plan, and the context that belongs to it.
#[derive(Debug)]
struct SavedPlan {
    plan: Value,
    context: Vec<Message>,
}

impl SavedPlan {
    /// The plan in a file or on stdin, which has no context, or that of a recorded run with `--dry-run`. A file of
    /// that name goes before a run.
    async fn find(config: &Configuration, name: &str) -> Result<Self> {
        let is_id = name.chars().all(|c| c.is_ascii_hexdigit() || c == '-') && name != "-";
        if !(name == "last" || is_id) || Path::new(name).exists() {
            return Ok(Self {
                plan: value(name)?,
                context: Vec::new(),
            });
        }
        let store = host::store(config).await?;
        let run = store.find(name).await;
        let run = run.with_context(|| format!("there is no file {name}"))?;
        let (mut plan, mut context) = (None, Vec::new());
        for event in store.read(&run).await? {
            match event.kind {
                EventKind::Run { request, .. } => context = request.context,
                EventKind::Done {
                    reason: StopReason::Planned,
                    output,
                    ..
                } => plan = Some(output).filter(|plan| !plan.is_null()),
                _ => {}
            }
        }
        let Some(plan) = plan else {
            bail!(
                "the run {name} made no plan: name one of `toolhold run --dry-run`, or a file with a plan"
            );
        };
        // What asked for a plan is no part of what the plan works with.
        context.retain(|message| !matches!(message, Message::Plan(_) | Message::Text(_)));
        Ok(Self { plan, context })
    }
}

impl PlanArgs {
    /// The plan, and the context for it with `--context` and `--input`.
    async fn saved(&self, config: &Configuration) -> Result<SavedPlan> {
        let SavedPlan { plan, context } = SavedPlan::find(config, &self.file).await?;
        let context = self.messages(context)?;
        Ok(SavedPlan { plan, context })
    }

    fn messages(&self, mut messages: Vec<Message>) -> Result<Vec<Message>> {
        if let Some(file) = &self.context {
            let more = Message::parse_all(&value(file)?);
            messages.extend(more.with_context(|| format!("--context {file}"))?);
        }
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
