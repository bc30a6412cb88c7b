//! One `tools/call` of an MCP client, through the same pipeline as every other call.

use super::catalog::ListedTool;
use super::client_sender::{ClientSender, forward_notes, guest_listener};
use super::decision::CallerDecider;
use super::elicitation::{ElicitationDecider, run_with_questions};
use super::request::{OfferedRequest, note_run};
use super::result;
use super::revision::RequestMetadata;
use super::seams::{RecordedCaller, RecordedClient, RequestCall};
use super::service::{CallSlotQueue, Rules, Service, shorten};
use super::session::ClientSession;
use crate::rpc::{INTERNAL_ERROR, RpcError};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use toolhold_admission::Lane;
use toolhold_agent::calls::{
    CallBudget, CallEnd, CallPermit, CallPipeline, CallRequest, NoBudget, NotCalled, OpenJobs,
    Unlimited,
};
use toolhold_agent::{NoModules, ToolCall, ToolRunner, Toolbox};
use toolhold_protocol::result::ToolResult;
use uuid::Uuid;

impl Service {
    pub(super) async fn call(
        &self,
        mut params: Map<String, Value>,
        metadata: &RequestMetadata,
        session: Option<&Arc<ClientSession>>,
        client_sender: &ClientSender,
    ) -> Result<Value, RpcError> {
        let name = params.get("name").and_then(Value::as_str);
        let Some(name) = name.map(str::to_owned) else {
            return Err(RpcError::params("tools/call needs the \"name\" of a tool"));
        };
        let catalog = self.catalog();
        let refuse = async |arguments: &Value, reason: String| {
            let caller = caller(&self.rules(), metadata);
            self.refusals
                .record(metadata.source, caller, &name, arguments, &reason)
                .await;
            Err(RpcError::params(reason))
        };
        let Some(offered) = catalog.find(&name) else {
            let arguments = params.get("arguments").unwrap_or(&Value::Null);
            return refuse(arguments, self.unknown(&name)).await;
        };
        let arguments = match params.get("arguments") {
            None | Some(Value::Null | Value::Object(_)) => params.remove("arguments"),
            Some(other) => {
                return refuse(other, "\"arguments\" must be an object".into()).await;
            }
        };
        let arguments = match arguments {
            Some(Value::Object(arguments)) => offered.own_arguments(arguments),
            _ => Value::Object(Map::new()),
        };
        let (rules, run) = (self.rules(), Uuid::now_v7());
        let id = run.to_string();
        let decider = Arc::new(CallerDecider::new(
            self.asking.clone(),
            metadata,
            session.cloned(),
            client_sender.clone(),
            params,
            rules.mask.clone(),
        ));
        let pipeline = CallPipeline {
            toolbox: match &offered.request {
                None => {
                    let make = || self.modules.toolbox(&metadata.session);
                    session.map_or_else(make, |session| session.toolbox(make))
                }
                Some(request) => Toolbox {
                    source: Arc::new(NoModules),
                    runner: Arc::new(RequestTool {
                        run,
                        request: request.clone(),
                        rules: rules.clone(),
                        metadata: metadata.clone(),
                        session: session
                            .filter(|_| metadata.elicits && self.settings.ask)
                            .cloned(),
                        client_sender: client_sender.clone(),
                        answer_timeout: self.settings.answer_timeout,
                    }),
                },
            },
            tools: self.tools.clone(),
            rules: rules.calls.clone(),
            decider: decider.clone(),
            budget: Arc::new(CallSlots {
                slots: self.slots.clone(),
                lane: Lane {
                    group: metadata.source,
                    member: metadata.session.clone(),
                    depth: 0,
                },
            }),
            recorder: self.records.of(caller(&rules, metadata)),
            jobs: OpenJobs::default(),
            hiding: Some(rules.mask.clone()),
            call_depth: 0,
        };
        let (listener, heard) = guest_listener(metadata).unzip();
        let call = pipeline.call(CallRequest {
            id: id.clone(),
            tool: offered.callable.clone(),
            name: offered.name.clone(),
            arguments,
            // A repeated call with a decision has another id.
            asked_as: String::new(),
            callers: Vec::new(),
            timeout: None,
            restrictions: None,
            begin: metadata.begin.clone(),
            listener,
        });
        let came = match heard {
            Some(heard) => {
                forward_notes(
                    call,
                    heard,
                    &offered.name,
                    metadata,
                    &rules.mask,
                    client_sender,
                )
                .await
            }
            None => call.await,
        };
        let end = match came {
            Ok(end) => end,
            Err(NotCalled::HandedBack) => return decider.handed_back(),
            Err(NotCalled::Busy(message)) => return Err(RpcError::new(INTERNAL_ERROR, message)),
            Err(NotCalled::NotRecorded(failure)) => {
                return Err(RpcError::new(INTERNAL_ERROR, failure.message));
            }
            Err(NotCalled::Lost { was_made }) => return Err(lost(was_made)),
        };
        let mut result = told(end, offered, metadata);
        if offered.request.is_some() {
            note_run(&mut result, &id);
        }
        Ok(result)
    }

    pub(super) fn unknown(&self, name: &str) -> String {
        let shown = shorten(name);
        let module = name
            .rsplit_once(['.', '-'])
            .and_then(|(module, _)| self.modules.disabled(module));
        match module {
            Some(module) => format!(
                "Unknown tool: {shown}; its module is disabled until a person approves it: {} (toolhold modules \
                 approve {})",
                module.reason, module.slot
            ),
            None => format!("Unknown tool: {shown}; tools/list says which there are"),
        }
    }
}

/// The caller, for the record.
fn caller(rules: &Rules, metadata: &RequestMetadata) -> RecordedCaller {
    RecordedCaller {
        policy: rules.policy.clone(),
        owner: metadata.owner.to_owned(),
        client: Some(RecordedClient {
            session: metadata.session.clone(),
            description: metadata.client.clone(),
        }),
        way: Map::new(),
        trace: metadata.trace.clone(),
    }
}

/// The result of an ended call, as the client gets it.
fn told(end: CallEnd, offered: &ListedTool, metadata: &RequestMetadata) -> Value {
    match end.result.outcome {
        Ok(output) => {
            tracing::info!(tool = offered.name, "called");
            result::complete(metadata.era, offered, output.value)
        }
        Err(failure) => {
            tracing::info!(
                tool = offered.name,
                kind = failure.kind,
                "called, and failed"
            );
            result::failed(&failure)
        }
    }
}

fn lost(was_made: bool) -> RpcError {
    let message = if was_made {
        "the call was made, but it could not be written into the audit log, so its result is not given out; \
         the operator of this server finds the reason in its log"
    } else {
        "nothing was called, and that could not be written into the audit log; the operator of this server finds \
         the reason in its log"
    };
    RpcError::new(INTERNAL_ERROR, message)
}

/// Slots for calls of all clients that run at the same time. A nested call runs within the slot of its outer
/// call.
#[derive(Debug)]
struct CallSlots {
    slots: Arc<CallSlotQueue>,
    lane: Lane<IpAddr, Arc<str>>,
}

impl CallBudget for CallSlots {
    fn take(&self) -> Result<CallPermit, NoBudget> {
        match self.slots.try_enter(self.lane.clone(), usize::MAX) {
            Some(slot) => Ok(Box::new(slot)),
            None => Err(NoBudget::Busy(format!(
                "{} calls are running, which is all that this server takes of its clients, or of this one \
                 (mcp_server.calls); try again later",
                self.slots.permits() - self.slots.free()
            ))),
        }
    }

    fn within(&self) -> Arc<dyn CallBudget> {
        Arc::new(Unlimited)
    }
}

/// A call of a saved Request: a run that may ask questions of its own.
#[derive(Debug)]
struct RequestTool {
    run: Uuid,
    request: OfferedRequest,
    rules: Arc<Rules>,
    metadata: RequestMetadata,
    /// The session whose user is asked.
    session: Option<Arc<ClientSession>>,
    client_sender: ClientSender,
    answer_timeout: Duration,
}

impl ToolRunner for RequestTool {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let (questions, asked) = mpsc::channel(1);
            let time = self.answer_timeout;
            let run = self.rules.requests.run(RequestCall {
                id: self.run,
                name: &self.request.name,
                saved: &self.request.saved,
                input: self.request.input(call.arguments.clone()),
                session: &self.metadata.session,
                owner: self.metadata.owner,
                trace: &self.metadata.trace,
                listener: call.listener.clone(),
                begin: call.begin.clone(),
                decider: Arc::new(ElicitationDecider::new(questions, time)),
            });
            run_with_questions(
                run,
                asked,
                self.session.as_deref(),
                &self.client_sender,
                &self.rules.mask,
                time,
            )
            .await
        })
    }
}
