//! The service and its methods, the same for all clients and transports.

use super::catalog::{Catalog, FolderRequest};
use super::client_sender::ClientSender;
use super::decision::DecisionPrompts;
use super::mask::Mask;
use super::refusals::Refusals;
use super::revision::{
    MODERN, ProtocolEra, RequestMetadata, SERVER_INFO_KEY, SUBSCRIPTION_KEY, level, server_info,
};
use super::seams::{CallRecords, ModuleHost, RecordedCaller, RecordedClient, RequestRunner};
use super::session::ClientSession;
use super::settings::Settings;
use super::unread::UnreadAnswers;
use crate::rpc::{self, Id, InvalidMessage, METHOD_NOT_FOUND, RpcError, RpcRequest};
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use toolhold_admission::FairQueue;
use toolhold_agent::calls::{CallRules, CallableTools};

/// How long a client may cache a list.
const LIST_TTL_MS: u64 = 60_000;
pub const INSTRUCTIONS: &str = "Every tool is a sandboxed WebAssembly component. A failed call says what was wrong \
                                and what to write instead; limits that it names are the host's and do not change when \
                                the call is repeated.";

/// Settings of all calls that begin now.
#[derive(Debug)]
pub struct Rules {
    pub calls: Arc<CallRules>,
    /// Data that is hidden from clients.
    pub mask: Arc<Mask>,
    /// Runs saved Requests.
    pub requests: Arc<dyn RequestRunner>,
    /// Hash of the policy.
    pub policy: Arc<str>,
}

/// Slots by source and session: no call waits for one.
pub(super) type CallSlotQueue = FairQueue<IpAddr, Arc<str>>;

/// The modules and saved Requests of a host, as a service for clients.
#[derive(Debug)]
pub struct Service {
    pub(super) modules: Arc<dyn ModuleHost>,
    pub(super) records: Arc<dyn CallRecords>,
    rules: RwLock<Arc<Rules>>,
    pub(super) settings: Settings,
    pub(super) asking: Arc<DecisionPrompts>,
    /// Slots for calls in progress, which sources and sessions share.
    pub(super) slots: Arc<CallSlotQueue>,
    pub(super) answers: UnreadAnswers,
    pub(super) refusals: Refusals,
    /// Finds the tools that modules call.
    pub(super) tools: Arc<CallableTools>,
    allowed: Option<Vec<String>>,
    catalog: watch::Sender<Arc<Catalog>>,
}

impl Service {
    /// Serves the tools that `modules` has now, and these saved Requests, as far as `allowed` names them.
    pub fn new(
        modules: Arc<dyn ModuleHost>,
        requests: &[FolderRequest],
        rules: Rules,
        allowed: Option<Vec<String>>,
        settings: Settings,
        records: Arc<dyn CallRecords>,
    ) -> Self {
        let tools = modules.tools();
        let catalog = Catalog::new(tools, requests, allowed.as_deref(), &rules.mask, 1);
        let answers = UnreadAnswers::new(&modules.kept());
        Self {
            modules,
            refusals: Refusals::new(records.clone()),
            records,
            rules: RwLock::new(Arc::new(rules)),
            allowed,
            asking: Arc::new(DecisionPrompts::new(settings.ask, settings.answer_timeout)),
            slots: CallSlotQueue::of_members(settings.calls, 0),
            answers,
            tools: Arc::default(),
            settings,
            catalog: watch::Sender::new(Arc::new(catalog)),
        }
    }

    /// The settings for a call that begins now.
    pub(super) fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Replaces the settings for later calls.
    pub fn renew(&self, rules: Rules) {
        *self.rules.write() = Arc::new(rules);
    }

    /// Whether a tool takes arguments of so many bytes: known before they are read.
    ///
    /// # Errors
    /// Why not, for the client.
    pub(super) fn takes(&self, tool: &str, bytes: usize) -> Result<(), String> {
        match self.catalog().find(tool) {
            // The input of a run is as large as a message may be.
            Some(offered) if offered.request.is_some() => Ok(()),
            Some(offered) => match self.modules.argument_bytes(&offered.name) {
                Some(most) if bytes as u64 > most => Err(format!(
                    "the arguments of {} have {bytes} bytes, and {most} are the most that it takes \
                     (limits.argument_bytes); send less",
                    shorten(tool)
                )),
                _ => Ok(()),
            },
            None => Err(self.unknown(tool)),
        }
    }

    /// Records the call that an invalid message asks for, if its arguments were refused unread: in their place stand
    /// their size and digest.
    pub(super) async fn note_refused(
        &self,
        message: &InvalidMessage,
        source: IpAddr,
        owner: &str,
        session: &str,
    ) {
        let Some(refused) = message.refused.as_deref() else {
            return;
        };
        let caller = RecordedCaller {
            policy: self.rules().policy.clone(),
            owner: owner.to_owned(),
            client: Some(RecordedClient {
                session: session.into(),
                description: None,
            }),
            ..RecordedCaller::default()
        };
        let unread = json!({"bytes": refused.argument_bytes, "sha256": refused.digest});
        self.refusals
            .record(source, caller, &refused.tool, &unread, &message.reason)
            .await;
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }

    /// Notified when the list changes.
    pub fn changes(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    /// Reads the registry again with these saved Requests, and notifies clients if their list changed.
    pub fn refresh(&self, requests: &[FolderRequest]) {
        let generation = self.catalog.borrow().generation + 1;
        let rules = self.rules();
        let mut now = Catalog::new(
            self.modules.tools(),
            requests,
            self.allowed.as_deref(),
            &rules.mask,
            generation,
        );
        self.catalog.send_if_modified(|catalog| {
            let is_other = !catalog.is_same(&now);
            if !is_other {
                now.generation = catalog.generation;
            }
            // A tool may be replaced without a visible change.
            *catalog = Arc::new(now);
            is_other
        });
    }

    /// Answers a request. Messages before the reply go through `client_sender`. `session` is present in the
    /// era with sessions.
    pub async fn answer(
        &self,
        request: RpcRequest,
        metadata: RequestMetadata,
        session: Option<&Arc<ClientSession>>,
        client_sender: &ClientSender,
    ) -> Result<Value, RpcError> {
        client_sender.room().await?;
        let RpcRequest { id, method, params } = request;
        let result = match (metadata.era, method.as_str()) {
            (_, "tools/list") => self.list(metadata.era, &params),
            (_, "tools/call") => {
                Box::pin(self.call(params, &metadata, session, client_sender)).await
            }
            (ProtocolEra::Legacy, "ping") => Ok(json!({})),
            (ProtocolEra::Legacy, "logging/setLevel") => {
                let least = level(params.get("level").unwrap_or(&Value::Null))?;
                if let Some(session) = session {
                    session.set_level(least);
                }
                Ok(json!({}))
            }
            (ProtocolEra::Modern, "server/discover") => Ok(discover()),
            (ProtocolEra::Modern, "subscriptions/listen") => {
                self.listen(&id, &params, client_sender).await
            }
            _ => Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("there is no method {:?} here", shorten(&method)),
            )),
        };
        match metadata.era {
            ProtocolEra::Legacy => result,
            ProtocolEra::Modern => result.map(signed),
        }
    }

    fn list(&self, era: ProtocolEra, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let mut page = self.catalog().page(era, params.get("cursor"))?;
        if era == ProtocolEra::Modern {
            page.insert("ttlMs".into(), LIST_TTL_MS.into());
            page.insert("cacheScope".into(), "public".into());
        }
        Ok(page.into())
    }

    /// Sends change notifications until it is dropped.
    async fn listen(
        &self,
        id: &Id,
        params: &Map<String, Value>,
        client_sender: &ClientSender,
    ) -> Result<Value, RpcError> {
        let Some(Value::Object(wanted)) = params.get("notifications") else {
            return Err(RpcError::params(
                "subscriptions/listen needs \"notifications\", an object",
            ));
        };
        let tools = wanted.get("toolsListChanged") == Some(&Value::Bool(true));
        let mut changes = self.changes();
        let meta = json!({SUBSCRIPTION_KEY: id});
        let ended = || json!({"_meta": {SUBSCRIPTION_KEY: id}});
        let honoured = if tools {
            json!({"toolsListChanged": true})
        } else {
            json!({})
        };
        let params = json!({"_meta": meta, "notifications": honoured});
        let acknowledged = rpc::notification("notifications/subscriptions/acknowledged", params);
        if client_sender.send(acknowledged).await.is_err() {
            return Ok(ended());
        }
        while changes.changed().await.is_ok() {
            let changed =
                rpc::notification("notifications/tools/list_changed", json!({"_meta": meta}));
            if tools && client_sender.send(changed).await.is_err() {
                break;
            }
        }
        Ok(ended())
    }
}

fn discover() -> Value {
    json!({
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "public",
    })
}

/// A result of the modern era names its type and this server.
fn signed(mut result: Value) -> Value {
    if let Some(fields) = result.as_object_mut() {
        fields
            .entry("resultType")
            .or_insert_with(|| "complete".into());
        if let Some(meta) = fields
            .entry("_meta")
            .or_insert_with(|| json!({}))
            .as_object_mut()
        {
            meta.insert(SERVER_INFO_KEY.into(), server_info());
        }
    }
    result
}

/// The beginning of a client's text.
pub fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}
