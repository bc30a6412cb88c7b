//! Tools prepared for calls: schemas are compiled once.

use crate::calls::ToolCheck;
use crate::calls::check::{SchemaError, unknown};
use crate::toolbox::ToolSource;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::tool::Tool;

/// A tool, with its schemas compiled.
#[derive(Debug)]
pub struct CallableTool {
    pub bound: Bound,
    pub check: Arc<ToolCheck>,
}

impl CallableTool {
    /// A tool that a toolbox runs under its own name.
    ///
    /// # Errors
    /// A schema of the tool is no valid JSON Schema.
    pub fn new(tool: Tool) -> Result<Self, SchemaError> {
        let runner = Runner::Module(tool.name.clone());
        let tool = Arc::new(tool);
        Self::bound(Bound { tool, runner })
    }

    fn bound(bound: Bound) -> Result<Self, SchemaError> {
        let check = Arc::new(ToolCheck::new(&bound.tool)?);
        Ok(Self { bound, check })
    }

    /// True for a tool that has not changed. Toolboxes that share their tools are compared by address.
    fn is_of(&self, bound: &Bound) -> bool {
        let is_shared = Arc::ptr_eq(&self.bound.tool, &bound.tool);
        self.bound.runner == bound.runner && (is_shared || self.bound.tool == bound.tool)
    }
}

/// Tools that modules called, by the names by which they did. Only names of existing tools are kept, so their
/// number is bounded.
#[derive(Debug, Default)]
pub struct CallableTools(Mutex<HashMap<String, Arc<CallableTool>>>);

impl CallableTools {
    /// The tool that `name` means now. One that changed since it was called is prepared again.
    ///
    /// # Errors
    /// There is no such tool, in words that say what there is, or it cannot be called.
    pub fn find(
        &self,
        source: &dyn ToolSource,
        name: &str,
    ) -> Result<Arc<CallableTool>, ToolFailure> {
        let Some(bound) = source.bound(name) else {
            let tools = source.tools();
            return Err(unknown(name, tools.iter().map(|tool| tool.name.as_str())));
        };
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(name).cloned();
        if let Some(known) = known.filter(|known| known.is_of(&bound)) {
            return Ok(known);
        }
        let callable = CallableTool::bound(bound).map_err(|error| {
            let message = format!("the tool {name:?} cannot be called: {error}");
            ToolFailure::correctable("unknown_tool", message)
        })?;
        let callable = Arc::new(callable);
        lock().insert(name.to_owned(), callable.clone());
        Ok(callable)
    }
}
