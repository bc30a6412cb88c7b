//! Traits that the serving program implements: its modules, the runner of saved Requests, and the recorder of
//! calls.

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::sync::Arc;
use toolhold_admission::MemoryCeiling;
use toolhold_agent::Toolbox;
use toolhold_agent::calls::CallRecorder;
use toolhold_agent::run::decider::Decider;
use toolhold_policy::{BeginCheck, Listener, ToolSpec};
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::saved::SavedRequest;
use uuid::Uuid;

/// The modules whose tools clients may call.
pub trait ModuleHost: Send + Sync + Debug {
    /// The tools that may be called now.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Whether a module of this name exists and may not run.
    fn disabled(&self, module: &str) -> Option<Disabled>;

    /// Most bytes of arguments that a module's tool takes; absent: there is no such tool.
    fn argument_bytes(&self, tool: &str) -> Option<u64>;

    /// What the process may keep for calls and clients together.
    fn kept(&self) -> MemoryCeiling;

    /// The source and the runner of a session's tools. A module's session state belongs to that session.
    fn toolbox(&self, session: &str) -> Toolbox;
}

/// A module that waits until a person approves it.
#[derive(Debug)]
pub struct Disabled {
    /// The name by which it is approved.
    pub slot: String,
    pub reason: String,
}

/// Runs saved Requests.
pub trait RequestRunner: Send + Sync + Debug {
    /// Runs a Request to its end. Dropping the future cancels the run.
    fn run<'a>(&'a self, call: RequestCall<'a>) -> BoxFuture<'a, ToolResult>;
}

/// A call of a saved Request.
#[derive(Debug)]
pub struct RequestCall<'a> {
    /// Id of the run.
    pub id: Uuid,
    /// Name of the Request.
    pub name: &'a str,
    pub saved: &'a SavedRequest,
    /// Absent: the file's own input.
    pub input: Option<Value>,
    pub session: &'a str,
    /// Owner, for the record; empty for the user of this machine.
    pub owner: &'a str,
    /// The trace to continue.
    pub trace: &'a opentelemetry::Context,
    pub listener: Option<Arc<dyn Listener>>,
    /// Asked by the run's calls before they begin.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// Asks the client's user. The first decision counts, here or by `toolhold approvals`.
    pub decider: Arc<dyn Decider>,
}

/// Records calls.
pub trait CallRecords: Send + Sync + Debug {
    /// The recorder for one caller's calls.
    fn of(&self, caller: RecordedCaller) -> Arc<dyn CallRecorder>;
}

/// The caller whose calls are recorded.
#[derive(Debug, Clone, Default)]
pub struct RecordedCaller {
    /// Hash of the policy of the calls.
    pub policy: Arc<str>,
    /// Empty for the user of this machine.
    pub owner: String,
    /// The client of the MCP server. Absent: a person at the terminal.
    pub client: Option<RecordedClient>,
    /// Further members of the rows.
    pub way: Map<String, Value>,
    /// The trace to continue.
    pub trace: opentelemetry::Context,
}

/// The client of an MCP server as the rows of its calls name it.
#[derive(Debug, Clone)]
pub struct RecordedClient {
    pub session: Arc<str>,
    /// The client's description of itself.
    pub description: Option<Arc<Value>>,
}

impl RecordedCaller {
    /// The members of a row that tell how a call came. They are made for a row, and not where none is written.
    pub fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        if let Some(client) = &self.client {
            members.insert("via".to_owned(), "mcp".into());
            members.insert("session".to_owned(), Value::from(&*client.session));
            if let Some(description) = &client.description {
                members.insert("client".to_owned(), Value::clone(description));
            }
        }
        members.extend(self.way.clone());
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_names_the_session_and_the_client_and_what_else_there_is() {
        let client = |description: Option<Value>| {
            Some(RecordedClient {
                session: "s".into(),
                description: description.map(Arc::new),
            })
        };
        let further = Map::from_iter([("left_out".to_owned(), json!(3))]);
        for (client, way, expected) in [
            (None, further.clone(), json!({"left_out": 3})),
            (
                client(None),
                further,
                json!({"via": "mcp", "session": "s", "left_out": 3}),
            ),
            (
                client(Some(json!({"name": "n"}))),
                Map::new(),
                json!({"via": "mcp", "session": "s", "client": {"name": "n"}}),
            ),
        ] {
            let caller = RecordedCaller {
                client,
                way,
                ..RecordedCaller::default()
            };
            assert_eq!(Value::from(caller.members()), expected);
        }
    }
}
