//! The bridge: implements the loop's [`ToolSource`] and [`ToolRunner`] with the sandbox's [`Registry`] and the requests folder.

use crate::components::{Components, Sources, ends_in};
use crate::described_tools::described;
use crate::narrowing::{LiveBounds, Narrowing};
use crate::remote_requests::{FetchedRequests, RemoteRequests, UntoldFetches};
use crate::requests::Requests;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;
use toolhold_agent::calls::{checked, validator};
use toolhold_agent::{ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_policy::names;
use toolhold_policy::{
    CallError, CallReport, Caller, Denial, Denials, GrantRestrictions, Invocation, Keep, Output,
    ProfileSlot, ToolSpec,
};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{DENIED, NOT_GRANTED, ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::tool::Tool;
use toolhold_sandbox::Registry;
use toolhold_schema::{CheckError, Validator};

/// How the interface is named by which a module asks about its call.
const CURRENT_CALL: &str = "/current-call";

/// The tools of a registry's modules, or those of them that a run may use, and saved Requests: what
/// [`toolhold_agent::Driver`] takes as its toolbox.
///
/// Resolves a tool's `_module` (docs/protocol.md, 6): a loaded module, one of its versions or tools, a component
/// by path or by reference as far as [`Sources`] allows it, or a saved Request. A module gets a call's scopes
/// as its context, and the reserved properties and the tool's schema if it asks for them. A message that it
/// returns chooses the path of its result; its error keeps its class.
#[derive(Debug)]
pub struct SandboxTools {
    components: Components,
    requests: Requests,
    remote: RemoteRequests,
    fetched: Mutex<FetchedRequests>,
    /// What nobody has taken for a record yet, by the names that it was fetched for.
    fetches: UntoldFetches,
    /// Tool names, or module names for all tools of a module. Absent: everything.
    allowed: Option<Vec<String>>,
    tenant: String,
    session: String,
    agent: String,
    narrowing: Narrowing,
    /// The argument schema that the module declared, if a tool message replaced it.
    bound: RwLock<HashMap<String, Arc<Validator>>>,
}

impl SandboxTools {
    /// All tools that `registry` has when a run begins, by name alone, without an owner.
    pub fn new(registry: Registry) -> Self {
        let fetches = UntoldFetches::default();
        Self {
            components: Components::new(registry, Sources::default()),
            requests: Requests::default(),
            remote: RemoteRequests::default(),
            fetched: Mutex::new(FetchedRequests::leaving(fetches.clone())),
            fetches,
            allowed: None,
            tenant: String::new(),
            session: String::new(),
            agent: String::new(),
            narrowing: Narrowing::default(),
            bound: RwLock::default(),
        }
    }

    /// Tools may name these Requests, which are run as sub-agents.
    pub fn with_requests(mut self, requests: Requests) -> Self {
        self.requests = requests;
        self
    }

    /// Tools may name Requests at these addresses, too.
    pub fn with_remote_requests(mut self, remote: RemoteRequests) -> Self {
        self.remote = remote;
        self
    }

    /// Allows tools to name modules by path and by reference, too.
    pub fn with_sources(mut self, sources: Sources) -> Self {
        let registry = self.components.registry().clone();
        self.components = Components::new(registry, sources);
        self
    }

    /// Restricts calls to these tools: `module.tool`, or `module` for all of a module's. The restriction
    /// concerns modules; the context's author names saved Requests and activities.
    pub fn allowing(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allowed = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Makes calls for this session of this tenant, with values, files and a share of the places of its own.
    pub fn on_behalf_of(mut self, tenant: impl Into<String>, session: impl Into<String>) -> Self {
        (self.tenant, self.session) = (tenant.into(), session.into());
        self
    }

    /// Makes calls for runs of this agent, with a memory of its own.
    pub fn of_agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = agent.into();
        self
    }

    /// Restricts the grants of modules, and of modules that they call, to `bounds`.
    pub fn within(self, bounds: GrantRestrictions) -> Self {
        let live = LiveBounds::default();
        live.set(bounds);
        self.narrowed(Narrowing::new(live, None))
    }

    /// The same, with bounds that may change while calls run.
    pub(crate) fn narrowed(mut self, narrowing: Narrowing) -> Self {
        self.narrowing = narrowing;
        self
    }

    /// Where the modules are.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Names in the allow-list that no loaded tool or module has.
    pub fn unknown(&self) -> Vec<&str> {
        let registry = self.components.registry();
        let named = |name: &str| registry.module(name).is_some() || registry.tool(name).is_some();
        self.allowed
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|name| !named(name))
            .collect()
    }

    fn is_allowed(&self, tool: &str) -> bool {
        names::allows(self.allowed.as_deref(), tool)
    }

    /// A component's only tool, or the tool named after `#`. A tool may also be named as in a call:
    /// `module.tool`.
    async fn component(&self, name: &str) -> Result<Option<Tool>, String> {
        let (reference, wanted) = match name.split_once('#') {
            Some((module, tool)) => (module, Some(tool)),
            None => (name, None),
        };
        let (module, wanted) = match self.components.find(reference).await? {
            Some(module) => (module, wanted),
            None => match name.rsplit_once('.') {
                Some((module, tool)) => match self.components.find(module).await? {
                    Some(module) => (module, Some(tool)),
                    None => return Ok(None),
                },
                None => return Ok(None),
            },
        };
        let pin_state = module.pin_state();
        if !pin_state.may_run() {
            return Err(format!(
                "the module {} is disabled: {}; toolhold modules approve {reference}",
                module.slot,
                pin_state.reason()
            ));
        }
        let own = |spec: &ToolSpec| spec.name.rsplit_once('.').map(|(_, tool)| tool.to_owned());
        let spec = match (wanted, module.tools.as_slice()) {
            (Some(wanted), tools) => tools
                .iter()
                .find(|spec| own(spec).as_deref() == Some(wanted)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let Some(spec) = spec else {
            let tools: Vec<_> = module
                .tools
                .iter()
                .filter_map(own)
                .map(|tool| format!("{reference}#{tool}"))
                .collect();
            return Err(format!(
                "{name:?} names no one tool; write one of {}",
                tools.join(", ")
            ));
        };
        if !self.is_allowed(&spec.name) {
            return Err(format!(
                "{} is not among the tools of this run (--tools)",
                spec.name
            ));
        }
        // With its version, so that a newer version beside it is not called instead.
        let name = match &module.version {
            Some(version) => format!(
                "{}@{version}.{}",
                module.name,
                own(spec).unwrap_or_default()
            ),
            None => spec.name.clone(),
        };
        let validator = validator(&spec.input_schema)
            .map_err(|reason| format!("the input schema of {name} cannot be used: {reason}"))?;
        self.bound
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), validator);
        let described = described(&module);
        let mut tools = described.iter().filter(|tool| tool.name == spec.name);
        Ok(tools.next().map(|tool| Tool {
            name,
            ..Tool::clone(tool)
        }))
    }

    fn nothing(&self, name: &str) -> String {
        let modules = self.components.registry().modules();
        let mut known: Vec<String> = modules
            .iter()
            .map(|module| {
                let namesakes = modules.iter().filter(|other| other.name == module.name);
                match &module.version {
                    Some(version) if namesakes.count() > 1 => format!("{}@{version}", module.name),
                    _ => module.name.clone(),
                }
            })
            .collect();
        known.extend(self.requests.names().map(str::to_owned));
        match known.as_slice() {
            [] => format!(
                "there is no module {name:?}: no component is loaded, and the requests folder is empty"
            ),
            known => format!(
                "there is no module {name:?}; there are {}",
                known.join(", ")
            ),
        }
    }

    /// Runs one call, and returns all details of it. `profile` takes its profile; absent, none is made.
    ///
    /// # Errors
    /// The arguments are none that the module takes.
    pub async fn report(
        &self,
        call: &ToolCall,
        profile: Option<Arc<ProfileSlot>>,
    ) -> Result<CallReport, ToolFailure> {
        self.check(call).await?;
        let context: Vec<(String, Value)> = call
            .context
            .iter()
            .map(|(path, value)| {
                let path = path.to_string();
                (path.trim_start_matches('†').to_owned(), value.clone())
            })
            .collect();
        let invocation = Invocation {
            context: &context,
            reserved: (!call.reserved.is_empty()).then_some(&call.reserved),
            tool_schema: call.schema.clone(),
            timeout: Some(call.timeout),
            caller: Caller {
                tenant: &self.tenant,
                session: &self.session,
            },
            agent: &self.agent,
            // The bounds of the outer call apply to a nested call.
            restrictions: match &call.restrictions {
                Some(restrictions) => Some(restrictions.clone()),
                None => self.narrowing.now(),
            },
            begin: call.begin.clone(),
            listener: call.listener.clone(),
            nested: call.nested.clone(),
            depth: call.depth,
            profile,
            job: call.job.as_ref(),
            ..Invocation::new(&call.id, &call.tool, &call.arguments)
        };
        Ok(self.components.registry().call(&invocation).await)
    }

    /// The module's own schema of a tool's arguments, where a tool message has another one.
    fn bound_to(&self, tool: &str) -> Option<Arc<Validator>> {
        let bound = self.bound.read().unwrap_or_else(PoisonError::into_inner);
        bound.get(tool).cloned()
    }

    /// The arguments satisfy the tool message's schema. The module expects that they satisfy its own, so that
    /// is validated here.
    async fn check(&self, call: &ToolCall) -> Result<(), ToolFailure> {
        let Some(own) = self.bound_to(&call.tool) else {
            return Ok(());
        };
        let fits = move |arguments: &Value| own.check(arguments);
        match checked(&call.tool, &call.arguments, fits).await {
            Ok(()) => Ok(()),
            Err(CheckError::Misfit(reason)) => Err(ToolFailure::correctable(
                "arguments",
                format!("the arguments do not fit what the module takes: {reason}"),
            )),
            Err(CheckError::TooCostly(unknown)) => Err(ToolFailure::correctable(
                "check_cost",
                format!("the arguments were not used: {unknown}"),
            )),
        }
    }
}

impl ToolSource for SandboxTools {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tools = Vec::new();
        for module in self.components.registry().offering() {
            let own = described(&module);
            let own = own.iter().filter(|tool| self.is_allowed(&tool.name));
            tools.extend(own.cloned());
        }
        tools
    }

    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let (_, own) = name.rsplit_once('.')?;
        let module = self.components.registry().module_of(name)?;
        let full = format!("{}.{own}", module.name);
        if !self.is_allowed(&full) {
            return None;
        }
        let tools = described(&module);
        tools.iter().find(|tool| tool.name == full).cloned()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move {
            if let Some(found) = self.remote.find(name, &self.fetched).await {
                let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
                fetches.extend(found.fetch.map(|fetch| (name.to_owned(), fetch)));
                return Ok(ResolvedModule::Request(Box::new(found.request?)));
            }
            if let Some(reason) = no_address(name) {
                return Err(reason);
            }
            let request = self.requests.find(name).transpose()?;
            if name.starts_with("./") && ends_in(name, "json") {
                return match request {
                    Some(saved) => Ok(ResolvedModule::Request(Box::new(saved))),
                    None => Err(self.requests.nothing(name)),
                };
            }
            match (self.component(name).await?, request) {
                (Some(_), Some(_)) => Err(format!(
                    "{name:?} is a component and a saved Request; write ./{name}.json if you mean the Request, or \
                     {name}#TOOL if you mean the component"
                )),
                (Some(tool), None) => Ok(ResolvedModule::Tool(Box::new(tool))),
                (None, Some(saved)) => Ok(ResolvedModule::Request(Box::new(saved))),
                (None, None) => Err(self.nothing(name)),
            }
        })
    }

    fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        let at = fetches.iter().position(|(address, _)| address == name)?;
        Some(fetches.swap_remove(at).1)
    }

    fn result_depends_on(&self, call: &ToolCall) -> Option<Value> {
        let module = self.components.registry().module_of(&call.tool)?;
        // The call says why it fails.
        if !module.pin_state().may_run() {
            return None;
        }
        let grant = module.grant();
        // Others change documents and facts.
        if grant.knowledge.is_some() {
            return None;
        }
        let scratch = grant.scratch.as_ref();
        let has_session = scratch.is_some_and(|scratch| scratch.keep == Keep::Session);
        let asks = module.imports.iter().any(|it| it.contains(CURRENT_CALL));
        let restrictions = match &call.restrictions {
            Some(restrictions) => Some(restrictions.clone()),
            None => self.narrowing.now(),
        };
        Some(json!({
            "module": module.digest.to_string(),
            "grant": *grant,
            "restrictions": restrictions.as_deref(),
            "tenant": self.tenant,
            "session": has_session.then_some(&self.session),
            "told": asks.then_some((&call.reserved, call.schema.as_deref())),
        }))
    }
}

impl ToolRunner for SandboxTools {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            match self.report(call, None).await {
                Ok(report) => result(report),
                Err(failure) => ToolResult::failed(failure),
            }
        })
    }
}

/// The outcome of a call in the loop's types.
pub fn result(report: CallReport) -> ToolResult {
    let printed = printed(&report);
    let module = report.module.map(|digest| digest.to_string());
    let failed = report.result.as_ref().err();
    let never_began = failed.is_some_and(CallError::never_began);
    let outcome = match report.result {
        Ok(_) if report.job.is_some() => Ok(ToolOutput {
            job: report.job,
            ..ToolOutput::default()
        }),
        Ok(Output::Value(value)) => Ok(ToolOutput::from(value)),
        Ok(Output::Message(message)) => message_of(message),
        Err(error) => Err(failure(&error)),
    };
    let usage = ToolUsage {
        never_began,
        ..usage(report.usage)
    };
    ToolResult {
        outcome,
        usage,
        printed,
        module,
        cached: None,
    }
}

/// The failure of a call in the loop's types.
pub fn failure(error: &CallError) -> ToolFailure {
    ToolFailure {
        kind: error.kind().to_owned(),
        class: error.class(),
        message: error.to_string(),
    }
}

pub fn usage(usage: toolhold_policy::CallUsage) -> ToolUsage {
    ToolUsage {
        duration_us: u64::try_from(usage.duration.as_micros()).unwrap_or(u64::MAX),
        fuel: usage.fuel,
        memory_bytes: usage.memory_bytes,
        ..ToolUsage::default()
    }
}

/// Why an address that is neither a registry's nor one of the web names nothing here.
fn no_address(name: &str) -> Option<String> {
    let (scheme, _) = name.split_once("://")?;
    (scheme != "oci").then(|| {
        format!(
            "{name:?} is an address, and nothing is fetched from those with {scheme}://; put the saved Request into \
             the requests folder and name it, or name a component by its oci:// reference"
        )
    })
}

/// A data message: `data` is the result, and `_outputPath` (its own, or that of a whole call in `_call`) is
/// the chosen path among those of the call. A message that names only its `kind` is used as a whole.
fn message_of(mut message: Value) -> Result<ToolOutput, ToolFailure> {
    let wrong = |reason: &str| {
        let message = format!(
            "the tool returned a message that is none: {reason}; its author must return {{\"type\": \"data\", \
             \"data\": …, \"_outputPath\": \"†…\"}}"
        );
        ToolFailure::correctable("message", message)
    };
    if message.get("type").is_some_and(|ty| ty != "data") {
        return Err(wrong("its type is not \"data\""));
    }
    let path = ["/_outputPath", "/_call/_outputPath"]
        .iter()
        .find_map(|place| message.pointer(place));
    let output_path = match (path, message.get("kind")) {
        (Some(Value::String(path)), _) => Some(path.clone()),
        (Some(_), _) => return Err(wrong("its _outputPath is no text")),
        (None, Some(Value::String(kind))) => Some(format!("†{kind}")),
        (None, _) => None,
    };
    let is_named = path.is_none() && output_path.is_some();
    match message.get_mut("data") {
        Some(data) => Ok(ToolOutput {
            value: data.take(),
            is_named,
            output_path,
            job: None,
        }),
        None => Err(wrong("it has no data")),
    }
}

/// What the call was denied, and the output and the log lines of a guest, one a line, labelled with their source.
pub fn printed(report: &CallReport) -> Vec<String> {
    let mut lines = denied(&report.denials);
    for (name, captured) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
        lines.extend(captured.text.lines().map(|line| format!("{name}: {line}")));
        if captured.dropped_bytes > 0 {
            lines.push(format!(
                "{name}: {} more bytes were dropped",
                captured.dropped_bytes
            ));
        }
    }
    lines.extend(
        report
            .logs
            .iter()
            .map(|line| format!("log {:?}: {}", line.level, line.message)),
    );
    if report.dropped_logs > 0 {
        lines.push(format!(
            "log: {} more lines were dropped",
            report.dropped_logs
        ));
    }
    lines
}

/// What a call asked for and was not given, one a line, with what would allow it.
pub fn denied(denials: &Denials) -> Vec<String> {
    let kept = denials.kept.iter();
    let line = |denial: &Denial| {
        let what = if denial.is_refused {
            DENIED
        } else {
            NOT_GRANTED
        };
        format!("{what}{denial}")
    };
    let mut lines: Vec<_> = kept.map(line).collect();
    if denials.dropped > 0 {
        lines.push(format!("{DENIED}{} more times", denials.dropped));
    }
    lines
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
