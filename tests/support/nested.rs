//! Nested calls for tests of the sandbox alone.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use toolhold_policy::{Invocation, NestedCall, NestedCalls, NestedResult};
use toolhold_sandbox::Registry;

/// Executes the calls that modules make of each other's tools straight in a registry, without the decisions, shields,
/// events and budgets of a run.
#[derive(Debug)]
pub struct UncheckedCalls(Registry);

impl UncheckedCalls {
    pub fn of(registry: &Registry) -> Arc<dyn NestedCalls> {
        Arc::new(Self(registry.clone()))
    }
}

impl NestedCalls for UncheckedCalls {
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
            self.0.call(&invocation).await.result
        })
    }
}
