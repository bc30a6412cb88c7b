//! The gate that every call passes before it runs, and every result after (PROTOCOL.md, 7): is there
//! such a tool, do the arguments fit, was this very call made before; does the result fit.

use crate::error::RunError;
use crate::guard::coerce::coerce;
use crate::guard::repair::Repair;
use crate::guard::validate::{Fault, cut};
use crate::guard::{Repeats, Validator};
use crate::protocol::{Call, Tool};
use crate::toolbox::ToolFailure;
use serde_json::Value;
use std::collections::HashMap;

/// The checks of one run, compiled once.
#[derive(Debug)]
pub struct Gate {
    /// In the tools' order, for messages.
    names: Vec<String>,
    schemas: HashMap<String, Schemas>,
    repeats: Repeats,
}

#[derive(Debug)]
struct Schemas {
    is_latent: bool,
    parameters: Value,
    arguments: Validator,
    output: Option<Validator>,
}

impl Gate {
    /// # Errors
    /// A schema that is none, or two tools of one name.
    pub fn new(tools: &[Tool]) -> Result<Self, RunError> {
        let mut schemas = HashMap::new();
        for tool in tools {
            let failed = |reason| RunError::ToolSchema {
                tool: tool.name.clone(),
                reason,
            };
            let arguments = Validator::new(&tool.parameters).map_err(failed)?;
            let output = tool.output.as_ref().map(Validator::new);
            let output = output.transpose().map_err(failed)?;
            let own = Schemas {
                is_latent: tool.is_latent(),
                parameters: tool.parameters.clone(),
                arguments,
                output,
            };
            if schemas.insert(tool.name.clone(), own).is_some() {
                return Err(RunError::DuplicateTool {
                    name: tool.name.clone(),
                });
            }
        }
        Ok(Self {
            names: tools.iter().map(|tool| tool.name.clone()).collect(),
            schemas,
            repeats: Repeats::default(),
        })
    }

    /// # Errors
    /// There is no tool of this name, in words that say what there is.
    pub fn known(&self, tool: &str) -> Result<(), ToolFailure> {
        if self.schemas.contains_key(tool) {
            return Ok(());
        }
        let available = match self.names.as_slice() {
            [] => "there are no tools".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        let tool = cut(tool, 64);
        Err(ToolFailure::correctable(
            "unknown_tool",
            format!("there is no tool named {tool:?}; {available}"),
        ))
    }

    /// `arguments` of a call of `tool` with light faults put right, and what was done. Arguments that
    /// fit, and those that would not fit even so, are left as they are.
    pub fn put_right(&self, tool: &str, arguments: Value) -> (Value, Vec<Repair>) {
        let Some(schemas) = self.schemas.get(tool) else {
            return (arguments, Vec::new());
        };
        if schemas.arguments.check(&arguments).is_ok() {
            return (arguments, Vec::new());
        }
        match coerce(&schemas.parameters, &arguments) {
            Some(coerced) if schemas.arguments.check(&coerced.arguments).is_ok() => {
                (coerced.arguments, coerced.repairs)
            }
            _ => (arguments, Vec::new()),
        }
    }

    /// Judges a call of a known tool; `arguments` are its own, with references replaced by what they
    /// stand for.
    ///
    /// # Errors
    /// Which rule it breaks, in words that the model can act on.
    pub fn check(&self, call: &Call, arguments: &Value) -> Result<(), ToolFailure> {
        if let Some(schemas) = self.schemas.get(&call.tool)
            && let Err(reason) = schemas.arguments.check(arguments)
        {
            return Err(ToolFailure::correctable(
                "arguments",
                format!("the arguments do not fit the tool's parameters: {reason}"),
            ));
        }
        match self.repeats.intercept(call, arguments) {
            None => Ok(()),
            Some(earlier) => Err(ToolFailure::correctable(
                "repeated",
                format!(
                    "this very call was made before and its result will not change: {earlier}. \
                     Use that result, or do something else"
                ),
            )),
        }
    }

    /// What is wrong with the arguments of a planned call of `tool`. What the references at `open`
    /// (JSON pointers) stand for may be anything.
    pub fn faults(&self, tool: &str, arguments: &Value, open: &[&str]) -> Vec<Fault> {
        self.schemas.get(tool).map_or_else(Vec::new, |schemas| {
            schemas.arguments.faults(arguments, open)
        })
    }

    /// Judges a call that the model answers itself: what its references at `open` (JSON pointers) stand
    /// for need not be known.
    ///
    /// # Errors
    /// As [`Gate::check`].
    pub fn check_latent(
        &self,
        tool: &str,
        arguments: &Value,
        open: &[&str],
    ) -> Result<(), ToolFailure> {
        let faults = self
            .schemas
            .get(tool)
            .map(|schemas| schemas.arguments.faults(arguments, open));
        match faults.iter().flatten().next() {
            None => Ok(()),
            Some(fault) => Err(ToolFailure::correctable(
                "arguments",
                format!("the arguments do not fit the tool's parameters: {fault}"),
            )),
        }
    }

    /// The output of `tool`, if it is what the tool promised.
    pub fn output(&self, tool: &str, output: Value) -> Result<Value, ToolFailure> {
        let Some(schemas) = self.schemas.get(tool) else {
            return Ok(output);
        };
        let promised = schemas.output.as_ref();
        let Err(reason) = promised.map_or(Ok(()), |schema| schema.check(&output)) else {
            return Ok(output);
        };
        let message = if schemas.is_latent {
            format!(
                "\"_output\" does not fit its schema: {reason}; make the call again with one that does"
            )
        } else {
            format!("the tool returned something that does not fit its own output schema: {reason}")
        };
        Err(ToolFailure::correctable("output_schema", message))
    }

    /// Remembers the text that the model is given for a call that ran. A refusal is not remembered:
    /// it costs nothing, and teaches.
    pub fn ran(&mut self, call: &Call, arguments: &Value, text: &str) {
        self.repeats.record(call, arguments, text);
    }
}
