//! Calls from one module to another's tools.

use crate::bounds::Bounds;
use crate::call::{Invocation, Output, OwnedCaller};
use crate::error::CallError;
use crate::registry::Shared;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// How deep calls may call calls. Each level holds a place for a running call.
const MAX_DEPTH: u8 = 4;

/// The tools that a call may call, and on whose behalf.
#[derive(Clone, Default)]
pub(crate) struct Peers(Option<Arc<Inner>>);

struct Inner {
    registry: Arc<Shared>,
    allowed: Vec<String>,
    caller: OwnedCaller,
    bounds: Option<Arc<Bounds>>,
    call: String,
    depth: u8,
}

impl Peers {
    /// For a call at `depth` of a module that was granted `allowed`.
    pub fn new(
        registry: &Arc<Shared>,
        allowed: &[String],
        invocation: &Invocation<'_>,
        depth: u8,
    ) -> Self {
        if allowed.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(Inner {
            registry: registry.clone(),
            allowed: allowed.to_vec(),
            caller: invocation.caller.to_owned(),
            bounds: invocation.bounds.clone(),
            call: invocation.id.to_owned(),
            depth,
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
        let inner = self
            .0
            .as_ref()
            .filter(|inner| {
                inner
                    .allowed
                    .iter()
                    .any(|name| name == tool || name == module)
            })
            .ok_or_else(|| CallError::Denied {
                reason: format!("this module was not granted the tool {tool:?}"),
            })?;
        if inner.depth >= MAX_DEPTH {
            return Err(CallError::Denied {
                reason: format!("calls may be nested {MAX_DEPTH} deep"),
            });
        }
        let arguments: Value =
            serde_json::from_str(arguments).map_err(|error| CallError::Arguments {
                reason: error.to_string(),
            })?;
        // Nothing of the calling call but its id, on whose behalf it is and what narrows it: what its scopes
        // let in and why a model made it are not for others.
        let invocation = Invocation {
            timeout: Some(deadline.saturating_duration_since(Instant::now())),
            caller: inner.caller.borrowed(),
            bounds: inner.bounds.clone(),
            ..Invocation::new(&inner.call, tool, &arguments)
        };
        let report = Box::pin(inner.registry.call(&invocation, inner.depth + 1)).await;
        report.result.map(|output| match output {
            Output::Value(value) | Output::Message(value) => value.to_string(),
        })
    }
}
