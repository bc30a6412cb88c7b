//! The session of a client that began with `initialize`.

use super::client_sender::ClientSender;
use super::in_flight::InFlightRequests;
use super::revision::{
    BATCHED, HERE, ProtocolEra, RequestMetadata, client, elicits, negotiated_version, progress,
    server_info, trace,
};
use super::service::INSTRUCTIONS;
use crate::rpc::{self, Id, RpcError, RpcRequest};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use toolhold_agent::Toolbox;
use toolhold_policy::LogLevel;

/// Most open questions to the user of one client.
const MAX_OPEN_QUESTIONS: usize = 32;

#[derive(Debug)]
pub struct ClientSession {
    pub id: Arc<str>,
    pub version: &'static str,
    elicits: bool,
    client: Option<Arc<Value>>,
    least: Mutex<LogLevel>,
    next: AtomicU64,
    questions: Mutex<HashMap<u64, oneshot::Sender<Option<Value>>>>,
    /// Runs the calls of the session, from the first one on.
    toolbox: OnceLock<Toolbox>,
    pub in_flight: Arc<InFlightRequests>,
}

/// The outcome of a question.
#[derive(Debug)]
pub enum ElicitationOutcome {
    Given(Value),
    /// The client cannot ask, or is gone.
    Nothing,
    TooLate,
    TooMany,
}

impl ClientSession {
    /// Begins the session that `initialize` asks for. `in_flight` holds its requests.
    pub fn new(
        id: Arc<str>,
        request: &RpcRequest,
        in_flight: Arc<InFlightRequests>,
    ) -> Result<Self, RpcError> {
        let version = request
            .params
            .get("protocolVersion")
            .and_then(Value::as_str);
        let version =
            version.ok_or_else(|| RpcError::params("initialize needs a \"protocolVersion\""))?;
        let capabilities = request.params.get("capabilities");
        Ok(Self {
            id,
            version: negotiated_version(version),
            elicits: capabilities.is_some_and(elicits),
            client: request.params.get("clientInfo").and_then(client),
            least: Mutex::new(LogLevel::Info),
            next: AtomicU64::new(1),
            questions: Mutex::default(),
            toolbox: OnceLock::new(),
            in_flight,
        })
    }

    /// The result of `initialize`.
    pub fn welcome(&self) -> Value {
        json!({
            "protocolVersion": self.version,
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        })
    }

    /// Whether the client may send batches.
    pub fn has_batches(&self) -> bool {
        BATCHED.contains(&self.version)
    }

    /// The metadata of a request of this session.
    pub fn metadata(&self, params: &Map<String, Value>) -> RequestMetadata {
        RequestMetadata {
            era: ProtocolEra::Legacy,
            elicits: self.elicits,
            least: Some(*self.least.lock()),
            progress: progress(params),
            session: self.id.clone(),
            source: HERE,
            owner: "",
            client: self.client.clone(),
            trace: trace(params),
            begin: None,
        }
    }

    /// The toolbox of the session's calls. `make` makes it for the first one.
    pub fn toolbox(&self, make: impl FnOnce() -> Toolbox) -> Toolbox {
        self.toolbox.get_or_init(make).clone()
    }

    pub fn set_level(&self, least: LogLevel) {
        *self.least.lock() = least;
    }

    /// Asks the client's user to fill in a form. Dropping the future withdraws the question.
    pub async fn ask(
        &self,
        form: Value,
        client_sender: &ClientSender,
        time: Duration,
    ) -> ElicitationOutcome {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut questions = self.questions.lock();
            if questions.len() >= MAX_OPEN_QUESTIONS {
                return ElicitationOutcome::TooMany;
            }
            questions.insert(id, answer);
        }
        let _question = AskedQuestion {
            session: self,
            client_sender,
            id,
        };
        let asked = async {
            let request = rpc::request(id, "elicitation/create", form);
            client_sender.send(request).await.ok()?;
            answered.await.ok().flatten()
        };
        match tokio::time::timeout(time, asked).await {
            Ok(Some(answer)) => ElicitationOutcome::Given(answer),
            Ok(None) => ElicitationOutcome::Nothing,
            Err(_) => ElicitationOutcome::TooLate,
        }
    }

    /// Takes the answer to a question. An answer with an unknown id is ignored.
    pub fn answer(&self, id: &Id, result: Option<Value>) {
        let asked = id.number().and_then(|id| self.questions.lock().remove(&id));
        if let Some(asked) = asked {
            let _ = asked.send(result);
        }
    }
}

/// An open question. Answered questions are removed from the session.
struct AskedQuestion<'a> {
    session: &'a ClientSession,
    client_sender: &'a ClientSender,
    id: u64,
}

impl Drop for AskedQuestion<'_> {
    fn drop(&mut self) {
        if self.session.questions.lock().remove(&self.id).is_some() {
            let params = json!({"requestId": self.id, "reason": "the call is over"});
            self.client_sender
                .note(rpc::notification("notifications/cancelled", params));
        }
    }
}
