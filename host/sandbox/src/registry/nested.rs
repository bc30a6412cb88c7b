//! Nested calls without a pipeline: straight to the registry. For programs that embed the sandbox alone.

use super::{Registry, RegistryState};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use toolhold_policy::{Invocation, NestedCall, NestedCalls, NestedResult};

impl Registry {
    /// Executes the calls that modules make of each other's tools straight in this registry, without approval,
    /// shields, events or budgets. An [`Invocation`] that carries nothing makes no such calls.
    pub fn nested_calls(&self) -> Arc<dyn NestedCalls> {
        self.shared.clone()
    }
}

impl NestedCalls for RegistryState {
    fn call(self: Arc<Self>, call: NestedCall) -> BoxFuture<'static, NestedResult> {
        Box::pin(async move {
            let invocation = Invocation {
                timeout: Some(call.clock.remaining()),
                caller: call.caller.borrowed(),
                restrictions: call.restrictions.clone(),
                depth: call.depth,
                nested: Some(self.clone()),
                ..Invocation::new(&call.parent, &call.tool, &call.arguments)
            };
            self.invoke(&invocation).await.result
        })
    }
}
