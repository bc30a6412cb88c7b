//! What can be said on the command line of a run.

use crate::commands::endpoint::EndpointArgs;
use crate::config::Flags;
use crate::terminal::view::OutputOptions;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The task; - reads it from stdin. Beside another task, what is piped in is a part of it.
    pub(super) task: String,
    /// Text or image that goes with the task; it may be given up to 32 times, with 4 MiB of text in all, and up to 16
    /// images (PNG, JPEG, GIF, WebP) of 5 MiB each and 10 MiB in all.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Vec<PathBuf>,
    /// File with context messages (data, state, tools, advisors, a plan…), placed before the task.
    #[arg(long, value_name = "FILE")]
    pub(super) context: Option<PathBuf>,
    /// Instructions for the model, instead of the default ones.
    #[arg(long, value_name = "TEXT")]
    pub(super) instructions: Option<String>,
    /// File with the JSON Schema that the answer must satisfy.
    #[arg(long, value_name = "FILE")]
    pub(super) output_schema: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Args)]
pub struct RequestArgs {
    /// File of a saved Request, {"context": […], "schema": {…}}, or its name in the requests folder.
    pub(super) request: String,
    /// Input as JSON that satisfies the Request's input schema; @FILE reads a file, - reads stdin.
    #[arg(long, value_name = "JSON")]
    pub(super) input: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Id of the run, the beginning of the id, or last.
    pub(super) run: String,
    #[command(flatten)]
    pub means: EndpointAndOutput,
}

/// What a run needs whenever it is taken up, and how it is shown.
#[derive(Debug, Args)]
pub struct EndpointAndOutput {
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Print one JSON event per line on stdout instead of the view for people.
    #[arg(long)]
    pub(super) json: bool,
    /// Show what the model writes as it writes it, and what each step and call took.
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    /// Show how many tokens of the model's window each part of a request takes.
    #[arg(long, conflicts_with = "json")]
    budget: bool,
    /// Append every exchange with the endpoint to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
}

/// The initial parameters of a run. All but the means of showing it are in its record.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub means: EndpointAndOutput,
    /// Contract by which the model calls tools: auto, schema, tools or simple.
    #[arg(long, value_name = "NAME")]
    contract: Option<String>,
    /// Shape of a reply: exclusive (calls or an answer) or both [default: run.shape].
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// Maximum number of requests to the model [default: run.max_steps].
    #[arg(long, value_name = "N")]
    max_steps: Option<i64>,
    /// Maximum number of tokens of one reply [default: run.max_tokens].
    #[arg(long, value_name = "N")]
    max_tokens: Option<i64>,
    /// Maximum number of tokens of the whole run [default: run.token_budget].
    #[arg(long, value_name = "N")]
    token_budget: Option<i64>,
    /// Maximum cost of the whole run, in run.currency; the endpoint needs a price [default: run.max_cost].
    #[arg(long, value_name = "AMOUNT")]
    max_cost: Option<String>,
    /// Maximum number of tool calls of the whole run [default: run.max_tool_calls].
    #[arg(long, value_name = "N")]
    max_tool_calls: Option<i64>,
    /// Maximum duration of the whole run, in seconds [default: run.timeout_ms].
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Number of failures of one tool in a row after which another model makes the call.
    #[arg(long, value_name = "N")]
    max_tool_failures: Option<i64>,
    /// Never let another model make a call.
    #[arg(long, conflicts_with_all = ["max_tool_failures", "fallback_tool_models"])]
    no_fallback_tool: bool,
    /// Models that make a call after the run's own model failed repeatedly, in this order.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fallback_tool_models: Option<Vec<String>>,
    /// Offer only these tools, or all tools of these modules.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) tools: Option<Vec<String>>,
    /// Let the model write a plan, check it and print it, without running it.
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl EndpointAndOutput {
    pub(super) fn shown(&self) -> OutputOptions {
        OutputOptions {
            json: self.json,
            verbose: self.verbose,
            budget: self.budget,
        }
    }

    /// A flag about how a model is asked.
    pub(super) fn asking(&self) -> Option<&'static str> {
        let record = self.record.is_some().then_some("--record");
        self.endpoint.given().or(record)
    }
}

impl Options {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        self.means.endpoint.put(flags);
        flags.set(
            "--contract",
            "endpoints.{endpoint}.contract",
            self.contract.clone(),
        );
        flags.set("--shape", "run.shape", self.shape.clone());
        flags.set("--max-steps", "run.max_steps", self.max_steps);
        flags.set("--max-tokens", "run.max_tokens", self.max_tokens);
        flags.set("--token-budget", "run.token_budget", self.token_budget);
        flags.set("--max-cost", "run.max_cost", self.max_cost.clone());
        flags.set(
            "--max-tool-calls",
            "run.max_tool_calls",
            self.max_tool_calls,
        );
        flags.set(
            "--max-tool-failures",
            "fallback.max_tool_failures",
            self.max_tool_failures,
        );
        flags.set(
            "--fallback-tool-models",
            "fallback.models",
            self.fallback_tool_models.clone(),
        );
        flags.set(
            "--no-fallback-tool",
            "fallback.enabled",
            self.no_fallback_tool.then_some(false),
        );
        flags.set(
            "--timeout",
            "run.timeout_ms",
            self.timeout.map(|s| (s * 1_000.0).ceil() as i64),
        );
    }
}
