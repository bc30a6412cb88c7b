//! The seam between the loop and tools: a source that lists them, and a runner that makes calls.

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;
use toolhold_policy::{
    BeginCheck, GrantRestrictions, JobQuestion, Listener, NestedCalls, ToolSpec,
};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::Path;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::tool::{Annotations, Example, Execution, Tool};

/// Lists the tools of modules, and finds what `_module` names.
pub trait ToolSource: Send + Sync + Debug {
    /// Returns the tools that can be called without a tool message. Asked once, when a run starts: a run sees one set of
    /// tools. A tool that has not changed should be the same [`Arc`] each time: lists of the same ones share their
    /// compiled schemas ([`ToolCatalogue`](crate::catalogue::ToolCatalogue)).
    fn tools(&self) -> Vec<Arc<Tool>>;

    /// Returns the tool of this name, if it may be called; the name may say of which version of a module. By default one
    /// of [`Self::tools`].
    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    /// Returns the tool of this name and its runner: by default the [`ToolRunner`] of the same toolbox.
    fn bound(&self, name: &str) -> Option<Bound> {
        let runner = Runner::Module(name.to_owned());
        self.tool(name).map(|tool| Bound { tool, runner })
    }

    /// Finds the module that a tool message names as `_module`, before anything is asked or called.
    ///
    /// # Errors
    /// There is no such module, in words that say which there are.
    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>>;

    /// Returns the fetch that [`Self::module`] made for this name, a failed or interrupted one included; each fetch is
    /// returned once, for the record of the run that asked first. Without a default: a source that wraps another and
    /// forgot it would leave fetches out of the record.
    fn take_fetch(&self, name: &str) -> Option<RequestFetch>;

    /// Returns everything that the result of a call depends on besides its tool's name, its arguments and its context:
    /// the code, the grant, the client. Calls for which this is equal may share a result, where the run allows that.
    /// Absent, as by default: every call is made.
    fn result_depends_on(&self, _call: &ToolCall) -> Option<Value> {
        None
    }
}

/// Makes calls. The loop has already checked that the tool exists and the arguments fit.
pub trait ToolRunner: Send + Sync + Debug {
    /// Makes one call. Must return within `call.timeout`, in which the time does not count that a person takes who is
    /// asked about a nested call; must stop working when dropped. Called concurrently.
    ///
    /// The tool may answer with a job ([`ToolOutput::job`]). Then the same call is given again with a question about the job
    /// ([`ToolCall::job`]), as often as it takes.
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult>;

    /// Returns what is held while a call waits for its job, between questions about it. By default there is nothing that
    /// others could have meanwhile.
    fn idle(&self) -> Box<dyn Send> {
        Box::new(())
    }
}

/// The source and the runner of a run's tools.
#[derive(Debug, Clone)]
pub struct Toolbox {
    pub source: Arc<dyn ToolSource>,
    pub runner: Arc<dyn ToolRunner>,
}

/// One type may be both.
impl<T: ToolSource + ToolRunner + 'static> From<Arc<T>> for Toolbox {
    fn from(both: Arc<T>) -> Self {
        Self {
            source: both.clone(),
            runner: both,
        }
    }
}

/// A tool as a module describes it, run by the toolbox under its own name.
pub fn module_tool(spec: &ToolSpec) -> Tool {
    Tool {
        description: spec.description.raw().to_owned(),
        parameters: spec.input_schema.clone(),
        output: spec.output_schema.clone(),
        execution: Execution::Module(spec.name.clone()),
        annotations: Annotations {
            read_only: spec.annotations.read_only,
            idempotent: spec.annotations.idempotent,
            destructive: spec.annotations.destructive,
            open_world: spec.annotations.open_world,
            fire_and_forget: false,
        },
        examples: spec
            .examples
            .iter()
            .map(|example| Example {
                task: example.task.clone(),
                arguments: example.arguments.clone(),
                output: example.output.clone(),
                answer: example.answer.clone(),
            })
            .collect(),
        ..Tool::new(spec.name.clone())
    }
}

/// A host without modules: its tools are activities and latent ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModules;

impl ToolSource for NoModules {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { Err(format!("there is no module {name:?}; this host has none")) })
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }
}

impl ToolRunner for NoModules {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let message = format!("there is no tool {:?}", call.tool);
        let failed = ToolResult::failed(ToolFailure::correctable("unknown_tool", message));
        Box::pin(std::future::ready(failed))
    }
}

/// What a `_module` turned out to be.
#[derive(Debug, Clone)]
pub enum ResolvedModule {
    /// A tool of the toolbox; its name is what [`ToolCall::tool`] will say.
    Tool(Box<Tool>),
    /// A saved Request, which is run as a sub-agent.
    Request(Box<SavedRequest>),
}

/// Explicit code that runs calls, registered under a name (docs/protocol.md, 1).
pub trait Activity: Send + Sync {
    /// Makes one call, under the rules of [`ToolRunner::call`].
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult>;

    /// What it promises of itself: then a tool message cannot promise more. Absent where the same
    /// party registers it and writes the message.
    fn annotations(&self) -> Option<Annotations> {
        None
    }
}

/// The activities of a host, by name.
#[derive(Clone, Default)]
pub struct Activities {
    by_name: BTreeMap<String, Arc<dyn Activity>>,
    clients: BTreeSet<String>,
}

/// A call that passed every check, with its references replaced by what they stand for.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub id: String,
    /// The toolbox's own name for the tool.
    pub tool: String,
    pub arguments: Value,
    pub instance: Option<String>,
    /// The part of the context that the call's scopes name, and nothing else.
    pub context: Vec<(Path, Value)>,
    /// The call's reserved properties by their names on the wire, `_tool` first (docs/protocol.md, 3):
    /// where the tool fixes one, what is in force, and otherwise what the model wrote.
    pub reserved: Map<String, Value>,
    /// The tool as the run defines it, as [`toolhold_protocol::tool::Tool::schema`] gives it. Absent where no run defines it: then it
    /// is as the toolbox itself describes it.
    pub schema: Option<Arc<Value>>,
    pub timeout: Duration,
    /// How many calls wait for it: those that it is nested in, and those that its run is nested in.
    pub depth: u8,
    /// Whether a call of the same run makes it. Then its time is what that call has left.
    pub is_nested: bool,
    /// What restricts what the tool may reach. Absent: what the toolbox knows of.
    pub restrictions: Option<Arc<GrantRestrictions>>,
    /// Asked before the tool begins, where it waits for its turn. Absent: it begins in any case.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// Makes the calls that the tool makes of other tools. Absent: it can make none.
    pub nested: Option<Arc<dyn NestedCalls>>,
    /// Told what the tool logs and how far it is, while it works.
    pub listener: Option<Arc<dyn Listener>>,
    /// Question about the job as which the call continues. Absent: the call is made.
    pub job: Option<JobQuestion>,
}

/// The most time for a call of which nothing else is said.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

impl ToolCall {
    /// A call that nothing else is said of.
    pub fn new(id: impl Into<String>, tool: impl Into<String>, arguments: Value) -> Self {
        Self {
            id: id.into(),
            tool: tool.into(),
            arguments,
            instance: None,
            context: Vec::new(),
            reserved: Map::new(),
            schema: None,
            timeout: CALL_TIMEOUT,
            depth: 0,
            is_nested: false,
            restrictions: None,
            begin: None,
            nested: None,
            listener: None,
            job: None,
        }
    }
}

impl Activities {
    /// Registers `activity`; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, activity: impl Activity + 'static) -> Self {
        self.by_name.insert(name.into(), Arc::new(activity));
        self
    }

    /// The client of the run makes calls of `name`: it ends with them
    /// ([`toolhold_protocol::event::StopReason::ToolCalls`]). An activity of the same name is hidden.
    #[must_use]
    pub fn with_clients(mut self, name: impl Into<String>) -> Self {
        self.clients.insert(name.into());
        self
    }

    /// For sub-agents: they have no client that could make a call.
    #[must_use]
    pub fn without_clients(mut self) -> Self {
        self.clients.clear();
        self
    }

    /// Replaces each activity with what `wrap` makes of it.
    #[must_use]
    pub fn wrapped(mut self, wrap: impl Fn(Arc<dyn Activity>) -> Arc<dyn Activity>) -> Self {
        for activity in self.by_name.values_mut() {
            *activity = wrap(activity.clone());
        }
        self
    }

    pub fn is_clients(&self, name: &str) -> bool {
        self.clients.contains(name)
    }

    pub fn named(&self, name: &str) -> Option<&Arc<dyn Activity>> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl Debug for Activities {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// An asynchronous function of the arguments is an activity.
impl<F, R> Activity for F
where
    F: Fn(Value) -> R + Send + Sync,
    R: Future<Output = Result<Value, ToolFailure>> + Send,
{
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let started = std::time::Instant::now();
            let outcome =
                match tokio::time::timeout(call.timeout, self(call.arguments.clone())).await {
                    Ok(outcome) => outcome.map(ToolOutput::from),
                    Err(_) => Err(ToolFailure::deadline(call.timeout)),
                };
            let duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            ToolResult {
                outcome,
                usage: ToolUsage {
                    duration_us,
                    ..ToolUsage::default()
                },
                printed: Vec::new(),
                module: None,
                cached: None,
            }
        })
    }
}
