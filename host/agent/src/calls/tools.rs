//! Tools that modules call by name, prepared for calls.

use crate::calls::check::unknown;
use crate::catalogue::{CallableTool, ToolCatalogue};
use crate::toolbox::ToolSource;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_protocol::failure::ToolFailure;

/// Tools that modules called, by the names by which they did. Only names of existing tools are kept, so their
/// number is bounded.
#[derive(Debug, Default)]
pub struct CallableTools {
    /// Tools that are prepared already.
    catalogue: Arc<ToolCatalogue>,
    others: Mutex<HashMap<String, Arc<CallableTool>>>,
}

impl CallableTools {
    /// The tools that modules call in a run with these tools.
    pub fn of_run(catalogue: Arc<ToolCatalogue>) -> Self {
        Self {
            catalogue,
            others: Mutex::default(),
        }
    }

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
        if let Some(known) = self.catalogue.same(&bound) {
            return Ok(known.clone());
        }
        let lock = || self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(name).cloned();
        if let Some(known) = known.filter(|known| known.is_of(&bound)) {
            return Ok(known);
        }
        let callable = CallableTool::of(bound).map_err(|error| {
            let message = format!("the tool {name:?} cannot be called: {error}");
            ToolFailure::correctable("unknown_tool", message)
        })?;
        let callable = Arc::new(callable);
        lock().insert(name.to_owned(), callable.clone());
        Ok(callable)
    }
}
