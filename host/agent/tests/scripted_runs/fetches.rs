//! docs/protocol.md, 6.1: what was fetched for a run's tools is in its record.

use super::support::{Script, driver, json_of, request, rest};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{NoJournal, StopReason};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::tool::Tool;

const ADDRESS: &str = "https://agents.example.com/refund";

/// A saved Request at an address.
#[derive(Debug)]
struct Web;

impl ToolSource for Web {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn module<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async {
            let saved = json!({"context": [{"role": "user", "content": "Refund it."}]});
            let saved = SavedRequest::parse(&saved)?;
            Ok(ResolvedModule::Request(Box::new(saved)))
        })
    }

    fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
        Some(RequestFetch {
            address: name.to_owned(),
            call: None,
            digest: Some("0".repeat(64)),
            bytes: 7,
            duration_ms: 1,
            attempts: 1,
            error: None,
        })
    }
}

impl ToolRunner for Web {
    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        unreachable!("there are no modules")
    }
}

/// A run may end with its first events: its task is too long for the model.
#[tokio::test]
async fn a_run_that_ends_at_once_has_its_fetches_before_its_end() {
    // The second property means nothing, which is a notice.
    let tool = json!([{"type": "tool", "tool": {"refund": {
        "type": "object",
        "properties": {"_module": {"const": ADDRESS}, "_odd": {"type": "string"}},
    }}}]);
    let mut request = request(Message::parse_all(&tool).unwrap());
    request
        .context
        .push(Message::user("Refund it. ".repeat(5_000)));
    request.settings.window.max_prompt = Some(1_000);
    let driver = Driver {
        toolbox: Arc::new(Web).into(),
        ..driver(&Script::new([]), Activities::default())
    };
    let run = driver.start(request, Box::new(NoJournal)).await.unwrap();
    let events = rest(run).await;
    let said: Vec<Value> = events.iter().map(json_of).collect();
    let names: Vec<_> = said.iter().map(|it| it["event"].as_str()).collect();
    assert_eq!(
        names[..3],
        ["run", "notice", "request_fetched"].map(Some),
        "{names:?}"
    );
    assert_eq!(names.last(), Some(&Some("done")), "{names:?}");
    assert_eq!(said[2]["address"], ADDRESS, "{}", said[2]);
    let replayed = replay(&events).unwrap();
    assert!(replayed.is_done);
    let last = said.last().unwrap();
    assert_eq!(last["reason"], json!(StopReason::TokenBudget), "{last}");
}
