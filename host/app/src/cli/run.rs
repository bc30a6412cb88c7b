//! `toolhold run`, `toolhold request run` and `toolhold resume`: whatever asks a model.

use crate::approver::AppApprover;
use crate::cli::endpoint::EndpointArgs;
use crate::cli::progress::Loading;
use crate::cli::view::View;
use crate::cli::{Exit, plan, runs, style};
use crate::config::{Config, DEFAULT_AGENT, Flags};
use crate::dialect::Known;
use crate::host;
use crate::mcp::Servers;
use crate::models::Models;
use crate::requests::{self, Requests};
use crate::shields::shields;
use crate::storage::{Label, Source, Store};
use crate::telemetry::{self, Observer, Subject, Telemetry};
use crate::tools::SandboxTools;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use serde_json::Value;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::model::Verdict;
use toolhold_agent::protocol::{Execution, Message};
use toolhold_agent::run::Runner;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver, Event, EventKind, Run, RunRequest, Settings, StopReason};
use toolhold_sandbox::{LoadError, Registry};
use uuid::Uuid;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// What is to be done; - reads it from stdin.
    task: String,
    /// A file with context messages (data, state, tools, advisors, a plan…) that come before the task.
    #[arg(long, value_name = "FILE")]
    context: Option<PathBuf>,
    /// What the model is told about its job, instead of the default.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// A file with the JSON Schema that the answer must satisfy.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Args)]
pub struct RequestArgs {
    /// A saved Request, {"context": […], "schema": {…}}, or its name in the requests folder.
    request: String,
    /// JSON that satisfies the Request's input schema; @FILE reads it from a file, - from stdin.
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run's id, the beginning of it, or last.
    run: String,
    #[command(flatten)]
    pub means: Means,
}

/// What a run needs whenever it is taken up, and how it is shown.
#[derive(Debug, Args)]
pub struct Means {
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// One event a line on stdout, instead of the view for people.
    #[arg(long)]
    json: bool,
    /// Show what each part of a request takes of the model's window.
    #[arg(long, conflicts_with = "json")]
    budget: bool,
    /// Append every exchange with the endpoint to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// One event a line.
    pub json: bool,
    /// What each part of a request takes.
    pub budget: bool,
}

/// With what a run begins. It keeps all but the means: they are in its record.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub means: Means,
    /// How the model is asked to call tools: auto, schema, tools or simple.
    #[arg(long, value_name = "NAME")]
    contract: Option<String>,
    /// exclusive: a reply holds calls or an answer; both: it may hold both.
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// The most requests to the model.
    #[arg(long, value_name = "N")]
    max_steps: Option<i64>,
    /// The most tokens of one reply.
    #[arg(long, value_name = "N")]
    max_tokens: Option<i64>,
    /// The most tokens of the whole run.
    #[arg(long, value_name = "N")]
    token_budget: Option<i64>,
    /// The most money of the whole run, in run.currency; the endpoint needs a price.
    #[arg(long, value_name = "AMOUNT")]
    max_cost: Option<String>,
    /// The most tool calls of the whole run.
    #[arg(long, value_name = "N")]
    max_tool_calls: Option<i64>,
    /// The most seconds of the whole run.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Failures in a row of one tool after which another model makes the call.
    #[arg(long, value_name = "N")]
    max_tool_failures: Option<i64>,
    /// Never have another model make a call.
    #[arg(long, conflicts_with_all = ["max_tool_failures", "fallback_tool_models"])]
    no_fallback_tool: bool,
    /// The models that make a call which the model keeps getting wrong, in this order.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fallback_tool_models: Option<Vec<String>>,
    /// Only these tools, or all tools of these modules.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Have the model plan, check the plan and print it; nothing of it is run.
    #[arg(long)]
    dry_run: bool,
}

impl Means {
    fn shown(&self) -> Shown {
        Shown {
            json: self.json,
            budget: self.budget,
        }
    }

    /// A flag of those that say how a model is asked.
    fn asking(&self) -> Option<&'static str> {
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

pub async fn run(config: &Config, args: RunArgs) -> Result<Exit> {
    let mut request = RunRequest::new("");
    request.context = match &args.context {
        Some(path) => {
            let value = host::json_file(path)?;
            Message::parse_all(&value).with_context(|| format!("--context {}", path.display()))?
        }
        None => Vec::new(),
    };
    request
        .context
        .push(Message::user(text_or_stdin(&args.task, "the task")?));
    if let Some(instructions) = args.instructions {
        request.instructions = instructions;
    }
    request.output_schema = args
        .output_schema
        .as_deref()
        .map(host::json_file)
        .transpose()?;
    Box::pin(start(config, request, None, args.options)).await
}

/// Runs a saved Request (PROTOCOL.md, 6).
pub async fn request(config: &Config, args: RequestArgs) -> Result<Exit> {
    let requests = Requests::new(config.requests_folder());
    let path = PathBuf::from(&args.request);
    let saved = if path.is_file() {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        requests::parse(&text).map_err(|reason| anyhow!("{}: {reason}", path.display()))?
    } else {
        match requests.find(&args.request) {
            Some(found) => found.map_err(|reason| anyhow!(reason))?,
            None => bail!("{}; nor is it a file", requests.nothing(&args.request)),
        }
    };
    let mut request = RunRequest::new("");
    // As when it is a sub-agent: what is in the modules folder today is no part of it.
    request.own_tools_only = args.options.tools.is_none();
    if let Some(input) = &args.input {
        let text = match input.strip_prefix('@') {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("--input @{file}"))?
            }
            None => text_or_stdin(input, "the input")?,
        };
        let input = serde_json::from_str(&text).context("--input is not JSON")?;
        request.context = saved
            .with_input(input)
            .map_err(|error| anyhow!("--input: {}", error.reason))?;
    } else if saved.input_schema().is_some_and(|_| !saved.has_input()) {
        bail!(
            "this Request needs --input, JSON that satisfies {}",
            saved.input_schema().unwrap_or(&Value::Null)
        );
    } else {
        request.context.clone_from(&saved.context);
    }
    if let Some(instructions) = saved.instructions {
        request.instructions = instructions;
    }
    request.output_schema = saved.schema;
    Box::pin(start(config, request, saved.max_steps, args.options)).await
}

/// The saved Requests of the requests folder.
pub fn requests(config: &Config) -> Exit {
    let requests = Requests::new(config.requests_folder());
    let mut exit = Exit::Ok;
    for (path, saved) in requests.all() {
        let name = style::bold(&style::plain(path));
        match saved {
            Ok(saved) => {
                let input = match saved.input_schema() {
                    Some(schema) => format!("--input {schema}"),
                    None => "no input".into(),
                };
                println!(
                    "{name}  {}\n  {}",
                    style::plain(&saved.description),
                    style::dim(&style::plain(&input))
                );
            }
            Err(reason) => {
                exit = Exit::Failed;
                println!("{name}  {} {}", style::bad("✗"), style::plain(&reason));
            }
        }
    }
    exit
}

/// Goes on with a run whose process ended.
pub async fn resume(config: &Config, args: ResumeArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let id = store.find(&args.run).await?.run()?;
    let (mut journal, events) = store.reopen(id).await?;
    let replayed = replay(&events).with_context(|| format!("run {id}"))?;
    if replayed.is_done {
        bail!("this run is over; `toolhold show {id}` prints it");
    }
    let request = replayed.machine.request();
    let means = &args.means;
    let (driver, servers) = if request.plan.is_some() {
        if let Some(flag) = means.asking() {
            bail!("{flag} has no meaning here: the run is a saved plan's and asks no model");
        }
        plan::driver(config, &store, request, means.json).await?
    } else {
        let timeout = request.settings.timeout;
        let own = request.own_tools_only;
        let allowed = request.allowed.as_deref();
        let (driver, servers, known) =
            Box::pin(driver(config, &store, means, allowed, timeout, own)).await?;
        let change = Change {
            doubt: known.doubt(request.settings.contract, config),
            settings: &request.settings,
            before: began_with(&events),
            now: driver.model.name(),
        };
        if change.before != change.now || means.endpoint.given().is_some() {
            change.tell()?;
        }
        (driver, servers)
    };
    let policy = driver.shields.policy(&request.settings, request.depth);
    journal.under(&policy.hash);
    if policy.hash != request.policy.hash {
        let text = "the policy is another than the one that this run began under; the present one holds for its calls";
        eprintln!("{} {text}", style::warn("policy:"));
    }
    // What was loaded because a tool named it, by path or by reference, is loaded again.
    for bound in replayed.tools() {
        if let (Execution::Module(name), Runner::Module(_)) = (&bound.tool.execution, &bound.runner)
        {
            // Its calls will fail for this reason; the run may not need it any more.
            if let Err(reason) = driver.toolbox.module(name).await {
                let text = style::plain(&format!("{}: {reason}", bound.tool.name));
                eprintln!("{} {text}", style::warn("left out:"));
            }
        }
    }
    let telemetry = host::telemetry(config, false)?;
    let run = driver.resume(replayed, Box::new(journal));
    let observer = telemetry.observe(Subject {
        parent: telemetry::before(&store, run.id).await,
        ..subject(run.id)
    });
    let exit = watch(run, Some(&store), observer, means.shown()).await;
    telemetry.close().await;
    servers.close().await;
    exit
}

fn began_with(events: &[Event]) -> &str {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::Run { model, .. }) => model,
        _ => "",
    }
}

/// A run that goes on elsewhere. Its settings stay as they are in its record: a replay comes to the same
/// Requests by them alone.
struct Change<'a> {
    /// Who may answer and was found to do otherwise than the run's contract says.
    doubt: Option<(&'a str, &'a Verdict)>,
    settings: &'a Settings,
    before: &'a str,
    now: &'a str,
}

impl Change<'_> {
    /// Says what the run keeps that the endpoint may do otherwise.
    ///
    /// # Errors
    /// The endpoint was found to refuse what the run asks it for.
    fn tell(&self) -> Result<()> {
        let contract = self.settings.contract;
        let mut doubt = String::new();
        match self.doubt {
            Some((endpoint, Verdict::Refused { reason })) => bail!(
                "the run goes on under the {} contract that it began with, and toolhold doctor --probe found that the \
                 endpoint {endpoint:?} refuses it: {reason}. Resume it with an endpoint that knows it, or begin a new \
                 run",
                contract.name()
            ),
            Some((endpoint, Verdict::Ignored { .. })) => {
                doubt = format!(", which the endpoint {endpoint:?} was found to accept and ignore");
            }
            _ => {}
        }
        let window = match self.settings.window.tokens {
            Some(tokens) => format!("a window of {tokens} tokens"),
            None => "no known window".into(),
        };
        let price = match self.settings.price {
            Some(_) => "the price that it began with",
            None => "no price",
        };
        let text = format!(
            "{} goes on with what {} began; kept from the record, by which the run can be replayed: the {} \
             contract{doubt}, {window}, {price}, at most {} tokens a reply",
            self.now,
            self.before,
            contract.name(),
            self.settings.max_tokens
        );
        eprintln!("{} {}", style::warn("note:"), style::plain(&text));
        Ok(())
    }
}

async fn start(
    config: &Config,
    mut request: RunRequest,
    max_steps: Option<u32>,
    options: Options,
) -> Result<Exit> {
    request.settings = config.settings();
    // A saved Request may ask for less than the operator allows, and not for more.
    let most = &mut request.settings.max_steps;
    *most = max_steps.unwrap_or(*most).min(*most);
    request.settings.dry_run = options.dry_run;
    request.allowed.clone_from(&options.tools);
    let store = host::store(config).await?;
    let timeout = request.settings.timeout;
    let (means, tools) = (&options.means, options.tools.as_deref());
    let own = request.own_tools_only;
    let (driver, servers, dialects) =
        Box::pin(driver(config, &store, means, tools, timeout, own)).await?;
    dialects.adapt(&mut request.settings, config);
    let id = request.id;
    let telemetry = host::telemetry(config, false)?;
    let exit = launch(&store, &driver, request, means.shown(), &telemetry).await;
    telemetry.close().await;
    servers.close().await;
    let exit = exit?;
    if options.dry_run && exit == Exit::Ok && !means.json {
        plan::rehearsed(config, &store.read(&Source::Run(id)).await?).await?;
    }
    Ok(exit)
}

/// Runs a request with a journal, and shows it until it is over.
pub async fn launch(
    store: &Store,
    driver: &Driver,
    request: RunRequest,
    shown: Shown,
    telemetry: &Telemetry,
) -> Result<Exit> {
    let observer = telemetry.observe(subject(request.id));
    let label = Label {
        trace: observer.trace(),
        ..Label::default()
    };
    let journal = store.journal(request.id, label);
    let run = match driver.start(request, Box::new(journal)).await {
        Ok(run) => run,
        Err(refused) => {
            observer.not_begun();
            return Err(refused.into());
        }
    };
    let id = run.id;
    let exit = watch(run, Some(store), observer, shown).await?;
    if !shown.json {
        eprintln!(
            "{}",
            style::dim(&format!("run {id}; toolhold show last prints it again"))
        );
    }
    Ok(exit)
}

/// What a person runs at a terminal.
fn subject(run: Uuid) -> Subject {
    Subject {
        run,
        agent: DEFAULT_AGENT.to_owned(),
        ..Subject::default()
    }
}

/// A model, the modules, the MCP servers and whoever approves; and what is known of the endpoints.
async fn driver(
    config: &Config,
    store: &Store,
    means: &Means,
    tools: Option<&[String]>,
    timeout: Duration,
    own_tools_only: bool,
) -> Result<(Driver, Servers, Known)> {
    let has_modules = config.modules_folder().exists() || config.sources().next().is_some();
    let toolbox = if own_tools_only && !has_modules {
        SandboxTools::new(host::registry(config)?)
            .with_sources(host::sources(config))
            .with_requests(Requests::new(config.requests_folder()))
    } else {
        toolbox(config, tools).await?
    };
    let mut models = Models::new(config, timeout, means.record.as_deref())?;
    let guards = models.guards().await?;
    let shields = shields(config, toolbox.components(), tools, &guards).await?;
    let servers = Servers::new(config.servers(), &config.pins(), tools);
    let (toolbox, notes) = servers.offered(toolbox).await;
    for note in notes {
        eprintln!("{} {}", style::warn("left out:"), style::plain(&note));
    }
    let selected = Box::pin(models.selected()).await?;
    let driver = Driver {
        approver: Arc::new(AppApprover::new(store.clone(), !means.json)),
        activities: servers.activities(Activities::default()),
        shields,
        candidates: selected.candidates,
        ..Driver::new(selected.model, Arc::new(toolbox))
    };
    Ok((driver, servers, selected.known))
}

/// The loaded modules, or those that `allowed` names.
pub async fn toolbox(config: &Config, allowed: Option<&[String]>) -> Result<SandboxTools> {
    let registry = host::registry(config)?;
    let loading = Loading::default();
    // With an allow-list, only the modules it names are loaded at all.
    let only: Option<Vec<String>> = allowed.map(|tools| {
        let module = |tool: &String| tool.split('.').next().unwrap_or_default().to_owned();
        tools.iter().map(module).collect()
    });
    host::load(&registry, config, only.as_deref(), &|event| {
        loading.on_event(event);
    })
    .await?;
    warn_of_failures(&registry);
    let mut toolbox = SandboxTools::new(registry)
        .with_sources(host::sources(config))
        .with_requests(Requests::new(config.requests_folder()));
    if let Some(allowed) = allowed {
        toolbox = toolbox.allowing(allowed);
    }
    let servers = config.servers();
    let is_server = |name: &str| {
        let server = name.split('.').next();
        servers.iter().any(|own| Some(own.name.as_str()) == server)
    };
    if let Some(first) = toolbox.unknown().into_iter().find(|name| !is_server(name)) {
        bail!("--tools {first}: there is no such tool or module; see `toolhold modules list`");
    }
    Ok(toolbox)
}

/// Shows a run until it is over. Ctrl-C cancels it, and so does `toolhold runs cancel` if it is recorded;
/// the run still says how it ended. A second Ctrl-C ends the process.
pub async fn watch(
    mut run: Run,
    store: Option<&Store>,
    mut observer: Observer,
    shown: Shown,
) -> Result<Exit> {
    if let Some(store) = store.cloned() {
        let (cancel, id) = (run.cancel.clone(), run.id);
        tokio::spawn(async move {
            runs::heed(&store, id).await;
            cancel.cancel();
        });
    }
    let cancel = run.cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            cancel.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    let mut view = View::default();
    view.show_budget(shown.budget);
    let mut exit = Exit::Failed;
    while let Some(event) = run.events.recv().await {
        observer.take(&event);
        if shown.json {
            println!("{}", serde_json::to_string(&event)?);
        } else {
            view.show(&event);
        }
        if let EventKind::Done { reason, .. } = event.kind {
            exit = exit_of(reason);
        }
    }
    run.finished().await?;
    Ok(exit)
}

pub fn exit_of(reason: StopReason) -> Exit {
    match reason {
        StopReason::Output | StopReason::Planned => Exit::Ok,
        StopReason::Model => Exit::Endpoint,
        StopReason::Cancelled => Exit::Interrupted,
        StopReason::Incomplete => Exit::Tool,
        StopReason::Blocked => Exit::Blocked,
        StopReason::MaxSteps
        | StopReason::TokenBudget
        | StopReason::MaxCost
        | StopReason::MaxToolCalls
        | StopReason::Timeout
        | StopReason::Unusable => Exit::Limit,
    }
}

fn text_or_stdin(text: &str, what: &str) -> Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin()
        .read_to_string(&mut read)
        .with_context(|| format!("{what} cannot be read from stdin"))?;
    Ok(read)
}

/// One bad module never hides the others, and never goes unnoticed.
pub fn warn_of_failures(registry: &Registry) {
    for failed in registry.failures() {
        let text = style::plain(&format!("{}: {}", failed.origin, failed.error));
        let mark = match failed.error {
            LoadError::Missing { .. } => style::dim("not built:"),
            _ => style::warn("left out:"),
        };
        eprintln!("{mark} {text}");
    }
    for module in registry.modules() {
        let standing = module.standing();
        if !standing.may_run() {
            eprintln!(
                "{} {}: {}; toolhold modules approve {}",
                style::warn("disabled:"),
                module.slot,
                style::plain(&standing.reason()),
                module.slot
            );
        }
    }
}
