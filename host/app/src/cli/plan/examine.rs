//! Everything that can be said about a plan before it runs.

use crate::cli::progress::Loading;
use crate::config::Config;
use crate::host;
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toolhold_agent::guard::Validator;
use toolhold_agent::protocol::plan::{
    Graph, GraphError, Missing, Mode, Place, Plan, PlanError, Step, Warning, missing,
};
use toolhold_agent::protocol::reference::{Path, Segment};
use toolhold_sandbox::{Module, Registry, ToolSpec};

/// A plan with what is to be known about it.
#[derive(Debug)]
pub struct Examined {
    pub steps: usize,
    pub mode: Mode,
    /// Absent if the steps have no order.
    pub graph: Option<Graph>,
    /// The tools that were found, by the name under which the plan calls them.
    pub tools: BTreeMap<String, Found>,
    /// Why the plan cannot run.
    pub faults: Vec<Fault>,
    pub warnings: Vec<Warning>,
    /// Inputs that it needs, if it was not given any.
    pub needs: Vec<Missing>,
}

/// A tool that a plan calls.
#[derive(Debug)]
pub struct Found {
    pub spec: ToolSpec,
    pub module: Arc<Module>,
    validator: Validator,
}

/// One reason why a plan cannot run.
#[derive(Debug, Serialize)]
pub struct Fault {
    pub kind: FaultKind,
    /// Absent for what is wrong with the plan as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// With the place and what to do.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It is no plan.
    Form,
    UnknownTool,
    /// Nobody approved the tool's module.
    Disabled,
    Arguments,
    /// The steps have no order.
    Order,
    MissingInput,
}

/// Loads the modules that the plan in `value` names, and looks at everything. With `must_have_input`,
/// an input that is not there is a fault even if none was given.
pub async fn examine(
    config: &Config,
    value: &Value,
    input: Option<&Value>,
    must_have_input: bool,
) -> Result<Examined> {
    let plan = match Plan::parse(value) {
        Ok(plan) => plan,
        Err(error) => return Ok(unreadable(error)),
    };
    let registry = load(config, &plan.steps).await?;
    let mut faults = Vec::new();
    let tools = tools(&registry, &plan.steps, &mut faults);
    arguments(&plan.steps, &tools, &mut faults);

    let exists = |path: &Path, _: Option<&str>| input.is_some_and(|input| holds(input, path));
    let (count, mode) = (plan.steps.len(), plan.mode);
    let (graph, missing) = match Graph::new(plan.steps.clone()) {
        Ok(graph) => {
            let missing = graph.missing(exists);
            (Some(graph), missing)
        }
        Err(error) => {
            faults.push(unordered(&error));
            (None, missing(&plan.steps, exists).unwrap_or_default())
        }
    };
    let is_input = |missing: &Missing| missing.paths.iter().any(|path| path.kind == "input");
    let (needs, absent): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|missing| input.is_none() && !must_have_input && is_input(missing));
    faults.extend(absent.into_iter().map(|missing| Fault {
        kind: FaultKind::MissingInput,
        message: missing.to_string(),
        place: Some(missing.place),
    }));
    Ok(Examined {
        steps: count,
        mode,
        warnings: graph.as_ref().map(Graph::warnings).unwrap_or_default(),
        graph,
        tools,
        faults,
        needs,
    })
}

fn unreadable(error: PlanError) -> Examined {
    let faults = match error {
        PlanError::Steps(steps) => steps
            .into_iter()
            .map(|fault| Fault {
                kind: FaultKind::Form,
                message: fault.to_string(),
                place: Some(fault.place),
            })
            .collect(),
        whole => vec![Fault {
            kind: FaultKind::Form,
            place: None,
            message: whole.to_string(),
        }],
    };
    Examined {
        steps: 0,
        mode: Mode::default(),
        graph: None,
        tools: BTreeMap::new(),
        faults,
        warnings: Vec::new(),
        needs: Vec::new(),
    }
}

fn unordered(error: &GraphError) -> Fault {
    let place = match error {
        GraphError::TooManyLinks { place, .. } => Some(place.clone()),
        GraphError::Cycle(cycle) => cycle.hops.first().map(|hop| hop.place.clone()),
        GraphError::TooManySteps { .. } => None,
    };
    Fault {
        kind: FaultKind::Order,
        place,
        message: error.to_string(),
    }
}

async fn load(config: &Config, steps: &[Step]) -> Result<Registry> {
    let modules: BTreeSet<_> = steps
        .iter()
        .filter_map(|step| module_of(&step.tool))
        .collect();
    // The folder is asked by name alone: all versions of a module are loaded.
    let only = modules.iter().map(|module| name_of(module).to_owned());
    let only: Vec<String> = only.collect();
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, Some(&only), &|event| {
        loading.on_event(event);
    })
    .await?;
    Ok(registry)
}

/// `calc@1.2` of `calc@1.2.add`.
pub fn module_of(tool: &str) -> Option<&str> {
    tool.rsplit_once('.').map(|(module, _)| module)
}

/// `calc` of `calc@1.2`.
pub fn name_of(module: &str) -> &str {
    module.split('@').next().unwrap_or(module)
}

fn tools(registry: &Registry, steps: &[Step], faults: &mut Vec<Fault>) -> BTreeMap<String, Found> {
    let mut tools = BTreeMap::new();
    let mut unusable: BTreeMap<&str, (FaultKind, String)> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        if !tools.contains_key(&step.tool) && !unusable.contains_key(step.tool.as_str()) {
            match find(registry, &step.tool) {
                Ok(found) => {
                    if let Some(reason) = disabled(&found.module) {
                        unusable.insert(&step.tool, (FaultKind::Disabled, reason));
                    }
                    tools.insert(step.tool.clone(), found);
                }
                Err(reason) => {
                    unusable.insert(&step.tool, (FaultKind::UnknownTool, reason));
                }
            }
        }
        if let Some((kind, reason)) = unusable.get(step.tool.as_str()) {
            let place = Place::step(index);
            let is_latent = *kind == FaultKind::UnknownTool && step.call.get("_output").is_some();
            let latent = if is_latent {
                "; a model made up its _output, and without a model nobody can"
            } else {
                ""
            };
            faults.push(Fault {
                kind: *kind,
                message: format!("{place}: {reason}{latent}"),
                place: Some(place),
            });
        }
    }
    tools
}

pub fn find(registry: &Registry, tool: &str) -> Result<Found, String> {
    let shown: String = tool.chars().take(64).collect();
    let Some(name) = module_of(tool) else {
        return Err(format!(
            "there is no tool {shown:?}; write MODULE.TOOL, see `toolhold modules list`"
        ));
    };
    let Some(module) = registry.module(name) else {
        let failed = registry.failures();
        let failed = failed
            .iter()
            .find(|failed| name_of(&failed.name) == name_of(name));
        return Err(match failed {
            Some(failed) => format!(
                "the module of {shown:?} could not be loaded: {}",
                failed.error
            ),
            None => {
                format!("there is no module for the tool {shown:?}; see `toolhold modules list`")
            }
        });
    };
    let Some(spec) = registry.tool(tool) else {
        let names: Vec<_> = module.tools.iter().map(|spec| spec.name.as_str()).collect();
        return Err(format!(
            "there is no tool {shown:?}; module {} has {}",
            module.name,
            names.join(", ")
        ));
    };
    let validator = Validator::new(&spec.input_schema)
        .map_err(|error| format!("the schema of {shown:?} is none: {error}"))?;
    Ok(Found {
        spec,
        module,
        validator,
    })
}

pub fn disabled(module: &Module) -> Option<String> {
    let standing = module.standing();
    (!standing.may_run()).then(|| {
        format!(
            "module {} is disabled: {}; toolhold modules approve {}",
            module.slot,
            standing.reason(),
            module.slot
        )
    })
}

/// Arguments that do not satisfy their tool's schema. What a reference stands for may be anything.
fn arguments(steps: &[Step], tools: &BTreeMap<String, Found>, faults: &mut Vec<Fault>) {
    for (index, step) in steps.iter().enumerate() {
        let Some(found) = tools.get(&step.tool) else {
            continue;
        };
        let open: Vec<_> = step
            .reads
            .iter()
            .map(|read| read.pointer.as_str())
            .collect();
        for fault in found.validator.faults(&step.arguments(), &open) {
            let place = Place::new(index, fault.pointer);
            faults.push(Fault {
                kind: FaultKind::Arguments,
                message: format!(
                    "{place}: {}; see `toolhold modules inspect {}`",
                    fault.reason, found.module.name
                ),
                place: Some(place),
            });
        }
    }
}

/// Whether the plan's input, which is all the data there is, has something at `path`.
fn holds(input: &Value, path: &Path) -> bool {
    let deeper = |value, segment: &Segment| match segment {
        Segment::Key(key) => Value::get(value, key),
        Segment::Index(index) => Value::get(value, index),
    };
    path.kind == "input" && path.segments.iter().try_fold(input, deeper).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_names_its_module() {
        assert_eq!(module_of("calc.add"), Some("calc"));
        assert_eq!(module_of("calc@1.2.add"), Some("calc@1.2"));
        assert_eq!(module_of("add"), None);
        assert_eq!(name_of("calc@1.2"), "calc");
    }

    #[test]
    fn input_is_found_by_path() {
        let input = json!({"a": [{"b": null}]});
        for (path, expect) in [
            ("†input", true),
            ("†input.a[0].b", true),
            ("†input.a[1]", false),
            ("†input.a.b", false),
            ("†input.c", false),
            ("†state.a", false),
        ] {
            assert_eq!(holds(&input, &path.parse().unwrap()), expect, "{path}");
        }
    }
}
