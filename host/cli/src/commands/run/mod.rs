//! `toolhold run`, `toolhold request run` and `toolhold resume`: the commands that run an agent.

mod attached;
mod options;
mod resume;
mod watch;

pub use attached::Attached;
use attached::Piped;
pub use options::{EndpointAndOutput, Options, RequestArgs, ResumeArgs, RunArgs};
pub use resume::resume;
pub use watch::{Watched, cancel_on_ctrl_c, exit_of, redact, watch};

use crate::commands::{knowledge::OWNER as TERMINAL_OWNER, loaded, plan};
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::decider::TerminalDecider;
use crate::terminal::view::{EventPrinter, OutputOptions};
use crate::terminal::{input, output, style};
use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::calls::KeptBlobs;
use toolhold_agent::retrieval::Retriever;
use toolhold_agent::run::OperatorTexts;
use toolhold_agent::{Activities, Driver, language};
use toolhold_knowledge::Settings;
use toolhold_mcp::Servers;
use toolhold_protocol::context::Message;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::agents::intersect_names;
use toolhold_runtime::config::{Configuration, DEFAULT_AGENT};
use toolhold_runtime::dialect::ProbedDialects;
use toolhold_runtime::host;
use toolhold_runtime::knowledge;
use toolhold_runtime::models::Models;
use toolhold_runtime::requests;
use toolhold_runtime::requests::Requests;
use toolhold_runtime::retrieval::StoredRetriever;
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::Registry;
use toolhold_storage::{Label, ResultBlobs, Source, Store};
use toolhold_telemetry::{ObservedRun, Telemetry};
use uuid::Uuid;

pub async fn run(loaded: &Loaded, args: RunArgs) -> Result<Exit> {
    let agent = loaded.run_agent()?;
    let config = &*agent.configuration;
    let mut request = RunRequest::new(Uuid::now_v7(), "");
    request.context = match &args.context {
        Some(path) => {
            let value = input::json(path)?;
            Message::parse_all(&value).with_context(|| format!("--context {}", path.display()))?
        }
        None => Vec::new(),
    };
    let timeout = config.settings().timeout;
    let attached = Attached {
        files: args.file,
        piped: if args.task == "-" {
            None
        } else {
            Piped::stdin()
        },
    };
    request.context.extend(attached.messages(timeout).await?);
    let task = input::text(&args.task, "the task")?;
    let own = agent
        .instructions
        .as_ref()
        .filter(|_| args.instructions.is_none());
    let mut operator = OperatorTexts {
        instructions: own.cloned(),
        output_schema: None,
    };
    if let Some(instructions) = args.instructions.or_else(|| agent.instructions.clone()) {
        request.instructions = instructions;
    }
    if let Some(tag) = language::recognise(&task) {
        language::keep(&mut request, tag, false);
    }
    request.context.push(Message::user(task));
    request.retrieval = config.retrieval(None);
    match args.output_schema.as_deref() {
        Some(file) => request.output_schema = Some(input::json(file)?),
        None => {
            operator.output_schema.clone_from(&agent.output_schema);
            request.output_schema.clone_from(&agent.output_schema);
        }
    }
    Box::pin(start(loaded, request, None, operator, args.options)).await
}

/// Runs a saved Request (docs/protocol.md, 6).
pub async fn request(loaded: &Loaded, args: RequestArgs) -> Result<Exit> {
    let config = &*loaded.run_agent()?.configuration;
    let requests = Requests::new(config.requests_folder());
    let saved = saved(&requests, &args.request)?;
    let mut request = RunRequest::new(Uuid::now_v7(), "");
    // As for a sub-agent: modules that the Request does not name are no part of it.
    request.own_tools_only = args.options.tools.is_none();
    if let Some(input) = &args.input {
        let text = match input.strip_prefix('@') {
            Some(file) => input::file(file).with_context(|| format!("--input @{file}"))?,
            None => input::text(input, "the input")?,
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
    let operator = OperatorTexts::default();
    Box::pin(start(
        loaded,
        request,
        saved.max_steps,
        operator,
        args.options,
    ))
    .await
}

/// The Request of a file, or of the requests folder: `refund`, `refund.json` and `./folder/refund.json` are found in
/// both.
fn saved(requests: &Requests, name: &str) -> Result<SavedRequest> {
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let with_ending = format!("{stem}.json");
    let file = |path: &str| -> Result<SavedRequest> {
        requests::parse(&input::file(path)?).map_err(|reason| anyhow!("{path}: {reason}"))
    };
    if Path::new(name).is_file() {
        return file(name);
    }
    let below = format!("./{}", with_ending.trim_start_matches("./"));
    if let Some(found) = [name, stem, &below]
        .into_iter()
        .find_map(|it| requests.find(it))
    {
        return found.map_err(|reason| anyhow!(reason));
    }
    if Path::new(&with_ending).is_file() {
        return file(&with_ending);
    }
    bail!("{}; nor is it a file", requests.nothing(name))
}

/// The saved Requests of the requests folder.
pub fn requests(config: &Configuration) -> Exit {
    let requests = Requests::new(config.requests_folder());
    let mut exit = Exit::Ok;
    for (path, saved) in requests.all() {
        let name = style::bold(&style::line(path));
        match saved {
            Ok(saved) => {
                let input = match saved.input_schema() {
                    Some(schema) => format!("--input {schema}"),
                    None => "no input".into(),
                };
                println!(
                    "{name}  {}\n  {}",
                    style::line(&saved.description),
                    style::dim(&style::line(&input))
                );
            }
            Err(reason) => {
                exit = Exit::Failed;
                let reason = reason.trim_start_matches(path).trim_start_matches(": ");
                output::tell(&format!(
                    "{name}  {} {}",
                    style::bad("✗"),
                    style::line(reason)
                ));
            }
        }
    }
    exit
}

async fn start(
    loaded: &Loaded,
    mut request: RunRequest,
    max_steps: Option<u32>,
    operator: OperatorTexts,
    options: Options,
) -> Result<Exit> {
    let agent = loaded.run_agent()?;
    let config = &*agent.configuration;
    request.settings = config.settings();
    // The Request's limits may be lower than the operator's, not higher.
    let most = &mut request.settings.max_steps;
    *most = max_steps.unwrap_or(*most).min(*most);
    request.settings.dry_run = options.dry_run;
    request.allowed = intersect_names(agent.tools.as_deref(), options.tools.as_deref());
    let store = host::store(config).await?;
    let timeout = request.settings.timeout;
    let means = &options.means;
    let tools = AllowedTools {
        names: request.allowed.as_deref(),
        origin: match options.tools {
            Some(_) => "--tools",
            None => "tools of [agents.default]:",
        },
    };
    let own = request.own_tools_only;
    let (prepared, dialects) =
        Box::pin(driver((loaded, config), &store, means, tools, timeout, own)).await?;
    let PreparedRun {
        mut driver,
        servers,
        ..
    } = prepared;
    driver.operator = operator;
    driver.retriever = retriever(config, &store, &request).await?;
    dialects.adapt(&mut request.settings, config);
    let id = request.id;
    let telemetry = host::telemetry(config, false)?;
    let exit = launch(&store, &driver, request, means.shown(), &telemetry).await;
    telemetry.close().await;
    servers.close().await;
    let exit = exit?;
    if options.dry_run && exit == Exit::Ok && !means.json {
        plan::rehearsed(config, id, &store.read(&Source::Run(id)).await?).await?;
    }
    Ok(exit)
}

/// Runs a request with a journal, and shows it until it is over.
pub async fn launch(
    store: &Store,
    driver: &Driver,
    request: RunRequest,
    shown: OutputOptions,
    telemetry: &Telemetry,
) -> Result<Exit> {
    let observer = telemetry.observe(subject(request.id));
    let label = Label {
        trace: observer.trace(),
        ..Label::default()
    };
    let journal = store.journal(request.id, label);
    let (run, observer) = observer.begun(driver.start(request, Box::new(journal)).await)?;
    let id = run.id;
    let watched = watch(run, Some(store), observer, EventPrinter::of_run(shown)).await?;
    if !shown.json && watched != Watched::Interrupted {
        let before = format!("run {id}; ");
        output::say_command("", &before, "toolhold show last", " prints its steps");
    }
    Ok(watched.exit())
}

/// The parts of a run at a terminal.
fn subject(run: Uuid) -> ObservedRun {
    ObservedRun {
        run,
        agent: DEFAULT_AGENT.to_owned(),
        ..ObservedRun::default()
    }
}

/// The tools that a run may use.
#[derive(Debug, Clone, Copy)]
struct AllowedTools<'a> {
    /// Absent: all tools.
    names: Option<&'a [String]>,
    /// Name of the setting that names them, as an error says it.
    origin: &'a str,
}

/// The driver of a run at a terminal, and what it was made from.
#[derive(Debug)]
pub struct PreparedRun {
    pub driver: Driver,
    pub servers: Servers,
    pub registry: Registry,
}

/// The model, the modules, the MCP servers and the decider; and the probe results of the endpoints.
async fn driver(
    (loaded, config): (&Loaded, &Configuration),
    store: &Store,
    means: &EndpointAndOutput,
    allowed: AllowedTools<'_>,
    timeout: Duration,
    own_tools_only: bool,
) -> Result<(PreparedRun, ProbedDialects)> {
    let tools = allowed.names;
    let toolbox = if own_tools_only && !config.has_modules() {
        host::toolbox(config, host::registry(config)?)
    } else {
        toolbox(loaded, config, allowed).await?
    };
    let toolbox = toolbox.within(config.bounds());
    let registry = toolbox.components().registry().clone();
    let mut models = Models::new(config, timeout, means.record.as_deref())?
        .patient()
        .listing();
    let guards = models.guards().await?;
    let shields = shields(config, toolbox.components(), tools, &guards).await?;
    let servers = Servers::new(config.servers(), &config.pins(), tools);
    let (toolbox, notes) = servers.offered(toolbox).await;
    for note in notes {
        output::left_out(&note);
    }
    let selected = Box::pin(models.selected()).await?;
    let driver = Driver {
        decider: Arc::new(TerminalDecider::new(store.clone(), !means.json)),
        activities: servers.activities(Activities::default()),
        shields,
        candidates: selected.candidates,
        summarizer: selected.summarizer,
        outcomes: selected.outcomes,
        blobs: KeptBlobs::new(Arc::new(ResultBlobs::new(store.clone(), None))),
        ..Driver::new(selected.model, Arc::new(toolbox))
    };
    let prepared = PreparedRun {
        driver,
        servers,
        registry,
    };
    Ok((prepared, selected.known))
}

/// What finds documents, for a run that looks for some.
async fn retriever(
    config: &Configuration,
    store: &Store,
    request: &RunRequest,
) -> Result<Option<Arc<dyn Retriever>>> {
    if request.retrieval.is_none() {
        return Ok(None);
    }
    let knowledge = knowledge::open(config, store.clone(), Settings::default()).await?;
    let retriever = StoredRetriever::new(Arc::new(knowledge), store.clone(), TERMINAL_OWNER);
    Ok(Some(Arc::new(retriever)))
}

/// The loaded modules, or only those that `allowed` names.
async fn toolbox(
    loaded: &Loaded,
    config: &Configuration,
    tools: AllowedTools<'_>,
) -> Result<SandboxTools> {
    let allowed = tools.names;
    // With an allow-list, only the named modules are loaded.
    let only = allowed.map(loaded::modules_of);
    let registry = loaded::running_modules(loaded, config, only.as_deref()).await?;
    loaded::warn_of_failures(&registry);
    let mut toolbox = host::toolbox(config, registry);
    if let Some(allowed) = allowed {
        toolbox = toolbox.allowing(allowed);
    }
    let servers = config.servers();
    let is_server = |name: &str| {
        let server = name.split('.').next();
        servers.iter().any(|own| Some(own.name.as_str()) == server)
    };
    if let Some(first) = toolbox.unknown().into_iter().find(|name| !is_server(name)) {
        let origin = tools.origin;
        bail!("{origin} {first}: there is no such tool or module; see `toolhold modules list`");
    }
    Ok(toolbox)
}
