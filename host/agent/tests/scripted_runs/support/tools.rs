//! What the model may call, and the functions behind it.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use toolhold_agent::{ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::context::Message;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::tool::Tool;

/// A tool message for activities, each with its annotations. They take anything as `of` and `and`.
pub fn tools(tools: &[(&str, Value)]) -> Message {
    let tools: serde_json::Map<String, Value> = tools
        .iter()
        .map(|(name, annotations)| {
            let schema = json!({
                "type": "object", "description": format!("Does {name}."),
                "properties": {"of": {}, "and": {}, "n": {"type": "integer"}},
                "annotations": annotations,
            });
            ((*name).to_owned(), schema)
        })
        .collect();
    Message::parse_all(&json!([{"type": "tool", "tool": tools}]))
        .expect("a tool message")
        .remove(0)
}

/// Plain tools without annotations.
pub fn plain_tools(names: &[&str]) -> Message {
    let named: Vec<_> = names.iter().map(|name| (*name, json!({}))).collect();
    tools(&named)
}

/// A state, so that a dagger begins a reference.
pub fn some_data() -> Message {
    Message::parse_all(&json!([{"type": "state", "state": {"begun": true}}]))
        .expect("a state message")
        .remove(0)
}

/// An activity that returns its argument `of`, and counts.
#[derive(Debug, Clone, Default)]
pub struct Echo {
    pub made: Arc<Mutex<Vec<Value>>>,
    running: Arc<Mutex<(usize, usize)>>,
    pub takes: Duration,
}

impl Echo {
    pub fn taking(millis: u64) -> Self {
        Self {
            takes: Duration::from_millis(millis),
            ..Self::default()
        }
    }

    pub fn activity(
        &self,
    ) -> impl Fn(Value) -> BoxFuture<'static, Result<Value, ToolFailure>> + use<> {
        let echo = self.clone();
        move |arguments| {
            let echo = echo.clone();
            Box::pin(async move {
                {
                    let mut running = echo.running.lock().unwrap();
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                }
                tokio::time::sleep(echo.takes).await;
                echo.made.lock().unwrap().push(arguments.clone());
                echo.running.lock().unwrap().0 -= 1;
                Ok(arguments["of"].clone())
            })
        }
    }

    /// The most that ran at the same time.
    pub fn most(&self) -> usize {
        self.running.lock().unwrap().1
    }

    pub fn count(&self) -> usize {
        self.made.lock().unwrap().len()
    }
}

/// No modules: tools are activities here.
#[derive(Debug)]
pub struct NoModules;

impl ToolSource for NoModules {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { Err(format!("there is no module {name:?}")) })
    }
}

impl ToolRunner for NoModules {
    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { ToolResult::failed(ToolFailure::correctable("none", "no modules")) })
    }
}
