//! Binds each tool to its runner before a run begins, so that an unknown name is an error then and not when a
//! model calls it (docs/protocol.md, 3).

use crate::catalogue::{ToolCatalogue, unseen_name};
use crate::toolbox::{Activities, ResolvedModule, ToolSource};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_protocol::advisor;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::context::Context;
use toolhold_protocol::error::RunError;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::tool::{ANONYMOUS, Annotations, Execution, Resolve, Tool};

/// Every tool of a run, the `offered` ones and those that its context defines, with its runner, in the order
/// in which they are offered, and warnings about them. The list is the catalogue's own where the context defines none.
/// What was fetched on the way goes to `fetches`, also where it leads to an error.
///
/// # Errors
/// A tool that is none, one whose `_module` or `_activity` names nothing that there is, or one with a parameter whose name
/// no model can be shown (docs/protocol.md, 4.11).
pub async fn bind(
    context: &Context,
    offered: &ToolCatalogue,
    source: &dyn ToolSource,
    activities: &Activities,
    fetches: &mut Vec<RequestFetch>,
) -> Result<(BoundTools, Vec<String>), RunError> {
    let mut warnings = Vec::new();
    let consult = advisor::consult_tool(&context.advisors);
    if context.tools.is_empty() && consult.is_none() {
        offered.check_names()?;
        return Ok((offered.bound().clone(), warnings));
    }
    let mut bound: Vec<Bound> = offered.bound().to_vec();
    for (name, schema) in &context.tools {
        let (tool, mut unknown) = Tool::parse(name, schema, |activity| {
            activities.is_clients(activity) || activities.named(activity).is_some()
        })?;
        warnings.append(&mut unknown);
        let one = runner(tool, source, activities, fetches).await?;
        // The last definition of a name wins.
        match bound
            .iter_mut()
            .find(|known| known.tool.name == one.tool.name)
        {
            Some(known) => *known = one,
            None => bound.push(one),
        }
    }
    if let Some(consult) = consult {
        if bound.iter().any(|known| known.tool.name == consult.name) {
            return Err(RunError::Binding {
                tool: consult.name.to_owned(),
                reason:
                    "the host offers a tool of this name, by which advisors are asked; rename yours"
                        .into(),
            });
        }
        bound.push(Bound {
            tool: Arc::new(Tool {
                description: consult.description,
                parameters: consult.parameters,
                execution: Execution::Consult,
                ..Tool::new(consult.name)
            }),
            runner: Runner::Advisor,
        });
    }
    let was_checked = offered.check_names().is_ok();
    let is_known = |own: &&Bound| was_checked && offered.same(own).is_some();
    for own in bound.iter().filter(|own| !is_known(own)) {
        if let Some(reason) = unseen_name(&own.tool) {
            let tool = own.tool.name.clone();
            return Err(RunError::Binding { tool, reason });
        }
    }
    Ok((bound.into(), warnings))
}

/// Passes on what was fetched for a name when it is dropped: also where nobody waits for it any more.
struct ToldFetch<'a> {
    source: &'a dyn ToolSource,
    name: &'a str,
    fetches: &'a mut Vec<RequestFetch>,
}

impl Drop for ToldFetch<'_> {
    fn drop(&mut self) {
        self.fetches.extend(self.source.take_fetch(self.name));
    }
}

async fn runner(
    mut tool: Tool,
    source: &dyn ToolSource,
    activities: &Activities,
    fetches: &mut Vec<RequestFetch>,
) -> Result<Bound, RunError> {
    let failed = |tool: &Tool, reason: String| RunError::Binding {
        tool: tool.name.clone(),
        reason,
    };
    let runner = match &tool.execution {
        Execution::Latent => Runner::Model,
        Execution::Consult => Runner::Advisor,
        Execution::Activity(name) if activities.is_clients(name) => Runner::Client,
        Execution::Activity(name) => {
            if activities.named(name).is_none() {
                let known: Vec<_> = activities.names().collect();
                let known = if known.is_empty() {
                    "no activity is registered".into()
                } else {
                    format!("there are {}", known.join(", "))
                };
                return Err(failed(
                    &tool,
                    format!("there is no activity named {name:?}; {known}"),
                ));
            }
            let promised = activities
                .named(name)
                .and_then(|activity| activity.annotations());
            if let Some(promised) = promised {
                tool.annotations = both(tool.annotations, promised);
            }
            Runner::Activity(name.clone())
        }
        Execution::Module(name) if name == ANONYMOUS => Runner::CleanRoom,
        Execution::Module(name) => {
            let told = ToldFetch {
                source,
                name,
                fetches,
            };
            let module = source.module(name).await;
            drop(told);
            let module = module.map_err(|reason| failed(&tool, reason))?;
            match module {
                ResolvedModule::Tool(own) => {
                    tool.annotations = both(tool.annotations, own.annotations);
                    let runner = Runner::Module(own.name.clone());
                    complete(&mut tool, *own);
                    runner
                }
                ResolvedModule::Request(saved) => {
                    let own = saved.tool(&tool.name);
                    if tool.resolve == Resolve::Upfront {
                        tool.parameters = merged(&tool.parameters, &own.parameters)
                            .map_err(|reason| failed(&tool, format!("{name}: {reason}")))?;
                    }
                    complete(&mut tool, own);
                    Runner::Request(saved)
                }
            }
        }
    };
    let tool = Arc::new(tool);
    Ok(Bound { tool, runner })
}

/// Fills what the message leaves open from the module's own description.
fn complete(tool: &mut Tool, own: Tool) {
    let accepts_objects = own.parameters.get("type").is_some_and(|ty| ty == "object");
    if is_empty(&tool.parameters) && accepts_objects {
        tool.parameters = own.parameters;
        tool.examples = own.examples;
    }
    if tool.description.is_empty() {
        tool.description = own.description;
    }
    tool.output = tool.output.take().or(own.output);
    tool.takes_turns = own.takes_turns;
    tool.module_digest = own.module_digest;
}

/// Claims make a person be asked more often, never less: a message cannot make a tool harmless that
/// does not say so of itself.
fn both(message: Annotations, module: Annotations) -> Annotations {
    Annotations {
        read_only: module.read_only,
        idempotent: module.idempotent,
        destructive: message.destructive || module.destructive,
        open_world: message.open_world || module.open_world,
        fire_and_forget: message.fire_and_forget,
    }
}

/// The input schema of a saved Request as the parameters of the tool that it runs: what satisfies
/// them satisfies it. The message may describe a parameter in its own words, narrow it, and add some
/// where the Request takes more than it names.
fn merged(message: &Value, request: &Value) -> Result<Value, String> {
    let Value::Object(mut merged) = request.clone() else {
        return Err("its input schema is no object, so its parameters have no names".into());
    };
    if merged.get("type").is_some_and(|ty| ty != "object") {
        return Err("its input is no object, so it cannot be resolved upfront".into());
    }
    merged.insert("type".into(), json!("object"));
    let is_closed = merged.get("additionalProperties") == Some(&Value::Bool(false));
    let mut properties = match merged.get_mut("properties").map(Value::take) {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let own = message.get("properties").and_then(Value::as_object);
    for (name, schema) in own.into_iter().flatten() {
        match properties.get_mut(name) {
            Some(Value::Object(known)) => {
                for (keyword, value) in schema.as_object().into_iter().flatten() {
                    if keyword == "description" || !known.contains_key(keyword) {
                        known.insert(keyword.clone(), value.clone());
                    }
                }
            }
            Some(_) => {}
            None if is_closed => {
                let known: Vec<_> = properties.keys().map(String::as_str).collect();
                return Err(format!(
                    "its input has no {name:?}; it takes {}",
                    known.join(", ")
                ));
            }
            None => drop(properties.insert(name.clone(), schema.clone())),
        }
    }
    merged.insert("properties".into(), Value::Object(properties));
    let mut required: Vec<Value> = Vec::new();
    for schema in [request, message] {
        let names = schema.get("required").and_then(Value::as_array);
        for name in names.into_iter().flatten() {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
    }
    if !required.is_empty() {
        merged.insert("required".into(), required.into());
    }
    Ok(Value::Object(merged))
}

fn is_empty(parameters: &Value) -> bool {
    parameters
        .get("properties")
        .is_none_or(|properties| *properties == json!({}))
}
