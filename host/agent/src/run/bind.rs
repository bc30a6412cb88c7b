//! What runs each tool, settled before a run begins: a name that means nothing is an error then, and
//! not when a model calls it (PROTOCOL.md, 3).

use crate::error::RunError;
use crate::protocol::context::Context;
use crate::protocol::tool::Execution;
use crate::protocol::{Annotations, Saved, Tool, advisor};
use crate::toolbox::{Activities, Module, Toolbox};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The module that is no module: a clean room for one call.
const ANONYMOUS: &str = "anonymous";

/// A tool and who runs its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    #[serde(flatten)]
    pub tool: Tool,
    pub runner: Runner,
}

/// Who runs a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// Nobody: the tool is latent.
    Model,
    /// The toolbox, under its own name for the tool.
    Module(String),
    Activity(String),
    /// A sub-agent with this Request.
    Request(Box<Saved>),
    /// A sub-agent with an empty context.
    CleanRoom,
    /// The advisor that the call names.
    Advisor,
}

/// Every tool of a run, the `offered` ones and those that its context defines, with its runner, in the
/// order in which they are offered, and what somebody should know about them.
///
/// # Errors
/// A tool that is none, or one whose `_module` or `_activity` names nothing that there is.
pub async fn bind(
    context: &Context,
    offered: Vec<Tool>,
    toolbox: &dyn Toolbox,
    activities: &Activities,
) -> Result<(Vec<Bound>, Vec<String>), RunError> {
    let mut warnings = Vec::new();
    let mut bound: Vec<Bound> = Vec::new();
    for tool in offered {
        if bound.iter().any(|known| known.tool.name == tool.name) {
            return Err(RunError::DuplicateTool { name: tool.name });
        }
        let runner = Runner::Module(tool.name.clone());
        bound.push(Bound { tool, runner });
    }
    for (name, schema) in &context.tools {
        let (tool, mut unknown) = Tool::parse(name, schema, |activity| {
            activities.named(activity).is_some()
        })?;
        warnings.append(&mut unknown);
        let one = runner(tool, toolbox, activities).await?;
        // The last definition of a name wins.
        match bound
            .iter_mut()
            .find(|known| known.tool.name == one.tool.name)
        {
            Some(known) => *known = one,
            None => bound.push(one),
        }
    }
    if let Some(consult) = advisor::consult_tool(&context.advisors) {
        bound.push(Bound {
            tool: Tool {
                description: consult.description,
                parameters: consult.parameters,
                execution: Execution::Consult,
                ..Tool::new(consult.name)
            },
            runner: Runner::Advisor,
        });
    }
    Ok((bound, warnings))
}

async fn runner(
    mut tool: Tool,
    toolbox: &dyn Toolbox,
    activities: &Activities,
) -> Result<Bound, RunError> {
    let failed = |tool: &Tool, reason: String| RunError::Binding {
        tool: tool.name.clone(),
        reason,
    };
    let runner = match &tool.execution {
        Execution::Latent => Runner::Model,
        Execution::Consult => Runner::Advisor,
        Execution::Activity(name) => {
            if activities.named(name).is_none() {
                let known: Vec<_> = activities.names().collect();
                let known = if known.is_empty() {
                    "none is registered".into()
                } else {
                    format!("there are {}", known.join(", "))
                };
                return Err(failed(
                    &tool,
                    format!("there is no activity named {name:?}; {known}"),
                ));
            }
            Runner::Activity(name.clone())
        }
        Execution::Module(name) if name == ANONYMOUS => Runner::CleanRoom,
        Execution::Module(name) => {
            let module = toolbox
                .module(name)
                .await
                .map_err(|reason| failed(&tool, reason))?;
            match module {
                Module::Tool(own) => {
                    // What the message leaves open is the component's to say.
                    if is_empty(&tool.parameters) {
                        tool.parameters = own.parameters;
                        tool.examples = own.examples;
                    }
                    // So is what it does to the world: approval depends on it.
                    tool.annotations = Annotations {
                        fire_and_forget: tool.annotations.fire_and_forget,
                        destructive: tool.annotations.destructive || own.annotations.destructive,
                        open_world: tool.annotations.open_world || own.annotations.open_world,
                        ..own.annotations
                    };
                    if tool.description.is_empty() {
                        tool.description = own.description;
                    }
                    tool.output = tool.output.or(own.output);
                    // What a call of it may do does not change with its name.
                    tool.annotations = Annotations {
                        fire_and_forget: tool.annotations.fire_and_forget,
                        ..own.annotations
                    };
                    Runner::Module(own.name)
                }
                Module::Request(saved) => Runner::Request(saved),
            }
        }
    };
    Ok(Bound { tool, runner })
}

fn is_empty(parameters: &Value) -> bool {
    parameters
        .get("properties")
        .is_none_or(|properties| *properties == json!({}))
}
