//! The gate that every call passes before it runs, and every result after (PROTOCOL.md, 7): is there
//! such a tool, do the arguments fit, was this very call made before; does the result fit.

use crate::error::{ErrorClass, RunError};
use crate::guard::validate::cut;
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
            let own = Schemas { arguments, output };
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

    /// Why `call` must not run, in words that tell the model which rule it broke.
    pub fn refusal(&self, call: &Call) -> Option<ToolFailure> {
        let Some(schemas) = self.schemas.get(&call.tool) else {
            let available = match self.names.as_slice() {
                [] => "there are no tools".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            let tool = cut(&call.tool, 64);
            return Some(correctable(
                "unknown_tool",
                format!("there is no tool named {tool:?}; {available}"),
            ));
        };
        if let Err(reason) = schemas.arguments.check(&call.arguments) {
            return Some(correctable(
                "arguments",
                format!("the arguments do not fit the tool's parameters: {reason}"),
            ));
        }
        let earlier = self.repeats.intercept(&call.tool, &call.arguments)?;
        Some(correctable(
            "repeated",
            format!(
                "this very call was made before and its result will not change: {earlier}. \
                 Use that result, or do something else"
            ),
        ))
    }

    /// The output of `tool`, if it is what the tool promised.
    pub fn output(&self, tool: &str, output: Value) -> Result<Value, ToolFailure> {
        let promised = self.schemas.get(tool).and_then(|s| s.output.as_ref());
        match promised.map_or(Ok(()), |schema| schema.check(&output)) {
            Ok(()) => Ok(output),
            Err(reason) => Err(correctable(
                "output_schema",
                format!(
                    "the tool returned something that does not fit its own output schema: {reason}"
                ),
            )),
        }
    }

    /// Remembers the text that the model is given for a call that ran. A refusal is not remembered:
    /// it costs nothing, and teaches.
    pub fn ran(&mut self, call: &Call, text: &str) {
        self.repeats.record(&call.tool, &call.arguments, text);
    }
}

fn correctable(kind: &str, message: String) -> ToolFailure {
    ToolFailure {
        kind: kind.to_owned(),
        class: ErrorClass::Correctable,
        message,
    }
}
