//! Calls from one module to another's tools: what the sandbox checks before [`NestedCalls`] executes one.

use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use toolhold_policy::restrictions::GrantRestrictions;
use toolhold_policy::{
    CallError, Invocation, MAX_CALL_DEPTH, NestedCall, NestedCalls, OwnedCaller,
};

/// The tools of other modules that one call may call. The default is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct OtherTools(Option<Arc<Granted>>);

#[derive(Debug)]
struct Granted {
    executor: Arc<dyn NestedCalls>,
    /// Full names of tools, or names of modules for all of theirs.
    tools: Vec<String>,
    /// Of the calling call.
    id: String,
    tool: String,
    caller: OwnedCaller,
    restrictions: Option<Arc<GrantRestrictions>>,
    depth: u8,
}

impl OtherTools {
    /// For a call of a module that was granted `tools`; `executor` is used unless the invocation has one.
    pub fn new(
        executor: impl FnOnce() -> Arc<dyn NestedCalls>,
        tools: &[String],
        invocation: &Invocation<'_>,
    ) -> Self {
        if tools.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(Granted {
            executor: invocation.nested.clone().unwrap_or_else(executor),
            tools: tools.to_vec(),
            id: invocation.id.to_owned(),
            tool: invocation.tool.to_owned(),
            caller: invocation.caller.to_owned(),
            restrictions: invocation.restrictions.clone(),
            depth: invocation.depth,
        })))
    }

    /// Calls `tool` within what is left until `deadline`; the result as JSON text.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &str,
        deadline: Instant,
    ) -> Result<String, CallError> {
        let module = tool.split(['.', '@']).next().unwrap_or_default();
        let granted = self
            .0
            .as_ref()
            .filter(|granted| {
                let mut tools = granted.tools.iter();
                tools.any(|name| name == tool || name == module)
            })
            .ok_or_else(|| CallError::Denied {
                reason: format!("this module was not granted the tool {tool:?}"),
            })?;
        if granted.depth >= MAX_CALL_DEPTH {
            return Err(CallError::Denied {
                reason: format!("calls may be nested {MAX_CALL_DEPTH} deep"),
            });
        }
        let arguments: Value =
            serde_json::from_str(arguments).map_err(|error| CallError::Arguments {
                reason: error.to_string(),
            })?;
        // The context and the reserved properties of the calling call stay with it: its scopes let values in for
        // its own tool only.
        let call = NestedCall {
            parent: granted.id.clone(),
            parent_tool: granted.tool.clone(),
            tool: tool.to_owned(),
            arguments,
            caller: granted.caller.clone(),
            restrictions: granted.restrictions.clone(),
            depth: granted.depth + 1,
            deadline,
        };
        let output = granted.executor.clone().call(call).await?;
        Ok(output.into_value().to_string())
    }
}
