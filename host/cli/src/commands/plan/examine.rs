//! Static checks of a plan.

use super::PlanArgs;
use super::found::{CallRunner, CallableTool, Finder, UnusableCall, disabled, module_of, name_of};
use crate::commands::loaded;
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_agent::Activities;
use toolhold_agent::calls::ToolCheck;
use toolhold_agent::catalogue::ToolCatalogue;
use toolhold_agent::run::bind::bind;
use toolhold_mcp::Servers;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::context::Context;
use toolhold_protocol::error::RunError;
use toolhold_protocol::plan::{
    Graph, GraphError, MissingReference, Mode, Plan, PlanError, PlanPlace, Read, Step, Warning,
    missing,
};
use toolhold_protocol::reference::{Path, Source};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Scopes;
use toolhold_runtime::config::{AgentConfiguration, Configuration};
use toolhold_runtime::host;
use toolhold_sandbox::Registry;

/// A plan and its analysis.
#[derive(Debug)]
pub struct PlanReport {
    pub steps: usize,
    pub mode: Mode,
    /// Absent if the plan has a cycle.
    pub graph: Option<Graph>,
    /// The resolved tools, by the name that the plan uses.
    pub tools: BTreeMap<String, CallableTool>,
    /// Why the plan cannot run.
    pub faults: Vec<PlanFault>,
    pub warnings: Vec<Warning>,
    /// Inputs that the plan needs, if none were given.
    pub needs: Vec<MissingReference>,
}

/// One reason why a plan cannot run.
#[derive(Debug, Serialize)]
pub struct PlanFault {
    pub kind: FaultKind,
    /// Absent if the fault concerns the whole plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PlanPlace>,
    /// Names the place and the remedy.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The JSON is not a plan.
    Form,
    UnknownTool,
    /// The default agent may not use the tool.
    NotAllowed,
    /// The tool's module or server is not approved.
    Disabled,
    /// The tool's server cannot be reached or does not work.
    Unreachable,
    /// The tool has no implementation.
    NeedsModel,
    Arguments,
    /// The steps have a cycle.
    Order,
    MissingInput,
}

/// Loads the modules that the plan names, asks MCP servers for their tools, and checks everything. With
/// `is_rehearsal`, a missing input is a fault even if none was given, and servers must still offer what was
/// approved.
pub async fn examine(
    agent: &AgentConfiguration,
    args: &PlanArgs,
    is_rehearsal: bool,
) -> Result<PlanReport> {
    let config = &*agent.configuration;
    let saved = args.saved(config).await?;
    let plan = match Plan::parse(&saved.plan) {
        Ok(plan) => plan,
        Err(error) => return Ok(unreadable(error)),
    };
    let context = Context::new(saved.context)?;
    let registry = load(config, &plan.steps, !context.tools.is_empty()).await?;
    let servers = Servers::new(config.servers(), &config.pins(), None);
    let mut faults = Vec::new();
    let bound = match bound(agent, &context, &registry, &servers).await {
        Ok(bound) => bound,
        Err(error) => {
            faults.push(PlanFault {
                kind: FaultKind::UnknownTool,
                place: None,
                message: error.to_string(),
            });
            Vec::new()
        }
    };
    let mut finder = Finder::new(&registry, &servers, bound, is_rehearsal);
    finder.allowed = agent.tools.as_deref();
    let tools = tools(&mut finder, &context, &plan.steps, &mut faults).await;
    let steps = plan.steps.into_iter().enumerate();
    let steps: Vec<Step> = steps
        .map(|(index, step)| placed(index, step, &finder.bound))
        .collect();
    servers.close().await;
    arguments(&steps, &tools, &mut faults);
    places(&steps, &finder.bound, &mut faults);

    let exists = |path: &Path, instance: Option<&str>| is_there(&context, path, instance);
    let is_given = context.data.contains(&Path::root("input"), None);
    let (count, mode) = (steps.len(), plan.mode);
    let (graph, missing) = match Graph::over(steps.clone(), exists) {
        Ok(graph) => {
            let missing = graph.missing(exists);
            (Some(graph), missing)
        }
        Err(error) => {
            faults.push(unordered(&error));
            (None, missing(&steps, exists).unwrap_or_default())
        }
    };
    let is_input =
        |missing: &MissingReference| missing.paths.iter().any(|path| path.kind == "input");
    let (needs, absent): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|missing| !is_given && !is_rehearsal && is_input(missing));
    faults.extend(absent.into_iter().map(|missing| PlanFault {
        kind: FaultKind::MissingInput,
        message: missing.to_string(),
        place: Some(missing.place),
    }));
    Ok(PlanReport {
        steps: count,
        mode,
        warnings: graph.as_ref().map(Graph::warnings).unwrap_or_default(),
        graph,
        tools,
        faults,
        needs,
    })
}

fn unreadable(error: PlanError) -> PlanReport {
    let faults = match error {
        PlanError::Steps(steps) => steps
            .into_iter()
            .map(|fault| PlanFault {
                kind: FaultKind::Form,
                message: fault.to_string(),
                place: Some(fault.place),
            })
            .collect(),
        whole => vec![PlanFault {
            kind: FaultKind::Form,
            place: None,
            message: whole.to_string(),
        }],
    };
    PlanReport {
        steps: 0,
        mode: Mode::default(),
        graph: None,
        tools: BTreeMap::new(),
        faults,
        warnings: Vec::new(),
        needs: Vec::new(),
    }
}

fn unordered(error: &GraphError) -> PlanFault {
    let place = match error {
        GraphError::TooManyLinks { place, .. } => Some(place.clone()),
        GraphError::Cycle(cycle) => cycle.hops.first().map(|hop| hop.place.clone()),
        GraphError::TooManySteps { .. } => None,
    };
    PlanFault {
        kind: FaultKind::Order,
        place,
        message: error.to_string(),
    }
}

async fn load(config: &Configuration, steps: &[Step], all: bool) -> Result<Registry> {
    let modules: BTreeSet<_> = steps
        .iter()
        .filter_map(|step| module_of(&step.tool))
        .collect();
    // Only the name matters for the folder: all versions of a module are loaded.
    let only = modules.iter().map(|module| name_of(module).to_owned());
    let only: Vec<String> = only.collect();
    // A tool that the context defines may belong to any module.
    let only = (!all).then_some(only.as_slice());
    loaded::modules(config, only).await
}

/// The tools that the context defines, with their implementations, as a run of the plan resolves them.
async fn bound(
    agent: &AgentConfiguration,
    context: &Context,
    registry: &Registry,
    servers: &Servers,
) -> Result<Vec<Bound>, RunError> {
    let mut toolbox = host::toolbox(&agent.configuration, registry.clone());
    if let Some(names) = &agent.tools {
        toolbox = toolbox.allowing(names);
    }
    let activities = servers.activities(Activities::default());
    // Nothing runs, so no record tells what was fetched: the log does.
    let mut fetches = Vec::new();
    let offered = ToolCatalogue::default();
    let (bound, _) = bind(context, &offered, &toolbox, &activities, &mut fetches).await?;
    Ok(bound.to_vec())
}

async fn tools(
    finder: &mut Finder<'_>,
    context: &Context,
    steps: &[Step],
    faults: &mut Vec<PlanFault>,
) -> BTreeMap<String, CallableTool> {
    let mut tools = BTreeMap::new();
    let mut unusable: BTreeMap<&str, UnusableCall> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        let name = step.tool.as_str();
        let is_defined = context.tools.iter().any(|(known, _)| known == name);
        if is_defined && !finder.bound.iter().any(|bound| bound.tool.name == name) {
            // The context's tools are wrong, which was reported.
            continue;
        }
        if !tools.contains_key(name) && !unusable.contains_key(name) {
            match finder.find(name).await {
                Ok(found) => {
                    if let CallRunner::Module(module) = &found.by
                        && let Some(reason) = disabled(module)
                    {
                        let kind = FaultKind::Disabled;
                        unusable.insert(name, UnusableCall { kind, reason });
                    }
                    tools.insert(name.to_owned(), found);
                }
                Err(reason) => drop(unusable.insert(name, reason)),
            }
        }
        if let Some(UnusableCall { kind, reason }) = unusable.get(name) {
            let place = PlanPlace::step(index);
            let is_latent = *kind == FaultKind::UnknownTool && step.call.get("_output").is_some();
            let latent = if is_latent {
                "; a model wrote its _output, and a saved plan runs without one"
            } else {
                ""
            };
            faults.push(PlanFault {
                kind: *kind,
                message: format!("{place}: {reason}{latent}"),
                place: Some(place),
            });
        }
    }
    tools
}

/// The step with what its tool's author fixed: output path and shown data.
fn placed(index: usize, step: Step, bound: &[Bound]) -> Step {
    let Some(bound) = bound.iter().find(|bound| bound.tool.name == step.tool) else {
        return step;
    };
    let mut call = step.call.clone();
    if let (Some(target), Some(call)) = (bound.tool.fixed_output_path(), call.as_object_mut()) {
        call.insert("_outputPath".into(), target.to_string().into());
    }
    let mut step = Step::new(index, &call).unwrap_or(step);
    if let Scopes::Provisioned(paths) = &bound.tool.scopes {
        step.reads.extend(paths.iter().map(|path| Read {
            pointer: "/_scopes".into(),
            source: Source::First(vec![path.clone()]),
        }));
    }
    step
}

/// Arguments that violate their tool's schemas. A reference may stand for any value.
fn arguments(steps: &[Step], tools: &BTreeMap<String, CallableTool>, faults: &mut Vec<PlanFault>) {
    for (index, step) in steps.iter().enumerate() {
        let Some(found) = tools.get(&step.tool) else {
            continue;
        };
        let reads = step.reads.iter();
        let open: Vec<_> = reads.map(|read| read.pointer.as_str()).collect();
        let mut said = BTreeSet::new();
        for check in &found.checks {
            let found_faults = check.validator.faults(&step.arguments(), &open);
            for fault in found_faults.unwrap_or_else(|unknown| vec![unknown.into()]) {
                // Two schemas usually report the same fault.
                if !said.insert(fault.pointer.clone()) {
                    continue;
                }
                let place = PlanPlace::new(index, fault.pointer);
                faults.push(PlanFault {
                    kind: FaultKind::Arguments,
                    message: format!("{place}: {}; see {}", fault.reason, check.see),
                    place: Some(place),
                });
            }
        }
    }
}

/// Output paths that the authors of the context's tools do not allow.
fn places(steps: &[Step], bound: &[Bound], faults: &mut Vec<PlanFault>) {
    for (index, step) in steps.iter().enumerate() {
        let Some(bound) = bound.iter().find(|bound| bound.tool.name == step.tool) else {
            continue;
        };
        // A tool with a schema that is none, and a step that is no call, are faults of their own.
        let (Ok(check), Ok(call)) = (ToolCheck::new(&bound.tool), Call::read(step.call.clone()))
        else {
            continue;
        };
        if let Err(failure) = check.place(&call) {
            let place = PlanPlace::new(index, "/_outputPath");
            faults.push(PlanFault {
                kind: FaultKind::Arguments,
                message: format!("{place}: {}", failure.message),
                place: Some(place),
            });
        }
    }
}

/// Whether the context has a value at `path`, for each item that a step is applied to.
pub(super) fn is_there(context: &Context, path: &Path, instance: Option<&str>) -> bool {
    if instance.is_some() || context.instances.is_empty() {
        return context.data.contains(path, instance);
    }
    let mut instances = context.instances.iter();
    instances.all(|instance| context.data.contains(path, Some(instance)))
}
