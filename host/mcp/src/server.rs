//! One server: started when it is first used, restarted when it died, and held to its pin.

use crate::content;
use crate::error::Failure;
use crate::offer::{Checks, Offer, OfferedTool};
use crate::pin::{ServerPins, is_revoked, refused};
use crate::settings::{Secrets, ServerSettings, redactor};
use crate::wire::session::McpSession;
use crate::wire::stderr::Stderr;
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use toolhold_admission::Backoff;
use toolhold_agent::calls::checked;
use toolhold_policy::{PinState, Redactor};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::tool::Tool;
use toolhold_schema::CheckError;

/// Delays before a restart, after consecutive starts without a successful call.
const RESTART: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
/// Interval at which a running call looks whether its server's pin was revoked. A person who revokes it waits no longer than
/// for the pin of a module, which is within about two seconds.
const PIN_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a call's arguments: the same limit as for modules.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// Numbers the sessions of the process.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// A server, with at most one session.
#[derive(Debug)]
pub struct McpServer {
    /// What the operator decided.
    pub settings: ServerSettings,
    pins: ServerPins,
    secrets: Secrets,
    redactor: Redactor,
    stderr: Arc<Stderr>,
    state: Mutex<ConnectionState>,
    /// Tools as runs were offered them last, by name.
    offered: sync::Mutex<BTreeMap<String, Arc<Tool>>>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    ready: Option<Arc<ReadySession>>,
    /// Consecutive starts without a successful call.
    futile_starts: u32,
    /// When the next start may happen.
    not_before: Option<Instant>,
}

/// A session whose tools were read and compared with the pin.
#[derive(Debug)]
pub struct ReadySession {
    session: Arc<McpSession>,
    /// Of no other session of the process. One whose tools were read anew has another number.
    number: u64,
    /// What the server offers.
    pub offer: Offer,
    /// Whether it may run.
    pub pin_state: PinState,
    checks: BTreeMap<String, Arc<Checks>>,
    has_worked: AtomicBool,
}

impl McpServer {
    /// A server that is not started yet.
    pub fn new(settings: ServerSettings, pins: ServerPins) -> Self {
        let secrets = settings.secrets.clone();
        let redactor = secrets.as_deref().map_err(Clone::clone).and_then(redactor);
        let (secrets, redactor) = match redactor {
            Ok(redactor) => (secrets, redactor),
            Err(reason) => (Err(reason), Redactor::default()),
        };
        Self {
            settings,
            pins,
            secrets,
            redactor,
            stderr: Arc::default(),
            state: Mutex::default(),
            offered: sync::Mutex::default(),
        }
    }

    /// Returns the tool as runs share it: the one that was offered last, if it is equal. The operator names the
    /// tools of a server, so their number is bounded.
    pub(super) fn shared(&self, tool: Tool) -> Arc<Tool> {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = offered.get(&tool.name).filter(|known| ***known == tool) {
            return known.clone();
        }
        let tool = Arc::new(tool);
        offered.insert(tool.name.clone(), tool.clone());
        tool
    }

    /// Calls a tool, and starts the server if needed. `most` bounds both, and so does the operator's timeout. A call ends soon
    /// after the server's pin is revoked.
    ///
    /// # Errors
    /// The call failed, by a fault of the server, the arguments or this host.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        most: Duration,
    ) -> Result<Value, Failure> {
        let most = most.min(self.settings.timeout);
        let call = timeout(most, self.perform(tool, arguments));
        tokio::select! {
            biased;
            called = call => called.unwrap_or(Err(Failure::Deadline(most))),
            () = self.revoked() => Err(Failure::Revoked),
        }
    }

    /// Waits until a person has revoked the pin. Never ends for a server that needs none.
    async fn revoked(&self) {
        if !self.pins.asks(&self.settings) {
            return pending().await;
        }
        loop {
            sleep(PIN_LOOK_INTERVAL).await;
            let pin = self.pins.record(&self.settings).await;
            if pin.is_some_and(|pin| is_revoked(&pin)) {
                return;
            }
        }
    }

    /// The failure as the model reads it, without secrets.
    pub fn told(&self, failure: &Failure) -> ToolFailure {
        let told = failure.told(&self.settings.name);
        match self.redactor.clean(told.message.as_bytes()) {
            None => told,
            Some(cleaned) => ToolFailure {
                message: String::from_utf8_lossy(&cleaned.bytes).into_owned(),
                ..told
            },
        }
    }

    async fn perform(&self, tool: &str, arguments: &Value) -> Result<Value, Failure> {
        if arguments.to_string().len() > MAX_ARGUMENT_BYTES {
            return Err(Failure::Arguments(format!(
                "they have more than {MAX_ARGUMENT_BYTES} bytes"
            )));
        }
        let ready = self.ready(true).await?;
        if !ready.pin_state.may_run() {
            return Err(refused(&self.settings, &ready.pin_state));
        }
        let checks = ready.checks.get(tool).ok_or_else(|| ready.unknown(tool))?;
        let own = checks.clone();
        let fits = move |arguments: &Value| own.arguments.check(arguments);
        let fits = checked(tool, arguments, fits).await;
        fits.map_err(|error| match error {
            CheckError::Misfit(reason) => Failure::Arguments(reason),
            CheckError::TooCostly(unknown) => Failure::CheckCost(unknown),
        })?;
        let result = ready
            .session
            .call(ready.server_name(tool), arguments)
            .await?;
        ready.has_worked.store(true, Ordering::Relaxed);
        let (own, most) = (checks.clone(), self.settings.max_result_bytes);
        let read = move |result: &Value| content::read(result, &own, most);
        checked(tool, &self.clean(result)?, read).await
    }

    /// The tools that models may see: as they were pinned, without starting the server, or as they are seen
    /// for the first time.
    ///
    /// # Errors
    /// The server may not be started, or does not work.
    pub async fn tools(&self) -> Result<Vec<OfferedTool>, Failure> {
        self.usable()?;
        if let Some(tools) = self.pins.known(&self.settings).await {
            return Ok(tools);
        }
        self.live_tools().await
    }

    /// Waits until the server has listed its tools, at the begin of a process. A server that something else starts may come
    /// up later than this process, so it is asked again while it cannot be reached, until its own timeout is over.
    ///
    /// # Errors
    /// As [`McpServer::tools`].
    pub async fn comes_up(&self) -> Result<(), Failure> {
        let most = self.settings.timeout;
        let mut last = Failure::Deadline(most);
        let comes_up = async {
            loop {
                match self.tools().await {
                    // The next attempt waits, as after every start that leads to nothing.
                    Err(failure @ Failure::Unreachable(_)) => last = failure,
                    listed => return listed.map(drop),
                }
            }
        };
        let listed = timeout(most, comes_up).await;
        listed.unwrap_or(Err(last))
    }

    /// Starts the server if it may be started, and reads its tools. [`ReadySession::pin_state`] says whether they are
    /// the approved ones.
    ///
    /// # Errors
    /// It may not be started, cannot be started, or breaks the protocol.
    pub async fn reach(&self) -> Result<Arc<ReadySession>, Failure> {
        self.started(true).await
    }

    /// The tools that the server offers now, if they are the approved ones.
    ///
    /// # Errors
    /// As [`McpServer::reach`]; or the tools changed.
    pub async fn live_tools(&self) -> Result<Vec<OfferedTool>, Failure> {
        let ready = self.reach().await?;
        if ready.pin_state.may_run() {
            Ok(ready.offer.tools.clone())
        } else {
            Err(refused(&self.settings, &ready.pin_state))
        }
    }

    /// Starts the server on a person's request, approved or not, and reads its tools.
    ///
    /// # Errors
    /// It cannot be started, or breaks the protocol.
    pub async fn look(&self) -> Result<Arc<ReadySession>, Failure> {
        self.started(false).await
    }

    /// The number of the open session, if the server may run.
    pub(crate) fn working_session(&self) -> Option<u64> {
        // A call that begins or reads tools holds it for long: then nothing is known.
        let state = self.state.try_lock().ok()?;
        let ready = state.ready.as_ref()?;
        let works = ready.session.is_open() && ready.pin_state.may_run();
        works.then_some(ready.number)
    }

    /// Why a tool cannot be used, if the open session lists it.
    pub(crate) fn refusal(&self, tool: &str) -> Option<String> {
        let state = self.state.try_lock().ok()?;
        let ready = state.ready.as_ref()?;
        let mut refused = ready.offer.refused.iter();
        let (_, reason) = refused.find(|(name, _)| name == tool)?;
        Some(reason.clone())
    }

    pub fn pins(&self) -> &ServerPins {
        &self.pins
    }

    /// Takes the server's stderr output since the previous call, for people.
    pub fn printed(&self) -> Vec<String> {
        self.stderr.take(&self.redactor)
    }

    /// Ends the session: orderly, or at once if a call is in progress.
    pub async fn close(&self) {
        let Some(ready) = self.state.lock().await.ready.take() else {
            return;
        };
        let mut session = ready.session.clone();
        drop(ready);
        match Arc::get_mut(&mut session) {
            Some(session) => session.close().await,
            None => session.kill(),
        }
    }

    async fn started(&self, is_asked: bool) -> Result<Arc<ReadySession>, Failure> {
        let most = self.settings.timeout;
        let started = timeout(most, self.ready(is_asked)).await;
        started.unwrap_or(Err(Failure::Deadline(most)))
    }

    fn usable(&self) -> Result<&[(String, SecretString)], Failure> {
        if let Some(fault) = &self.settings.fault {
            return Err(Failure::Settings(fault.clone()));
        }
        match &self.secrets {
            Ok(secrets) => Ok(secrets),
            Err(reason) => Err(Failure::Settings(reason.clone())),
        }
    }

    /// The open session; started, or compared with the pin again, if needed. `is_judged`: only if the server is approved.
    async fn ready(&self, is_judged: bool) -> Result<Arc<ReadySession>, Failure> {
        let secrets = self.usable()?;
        let mut state = self.state.lock().await;
        if let Some(ready) = state.ready.take() {
            if ready.session.is_open() {
                if is_judged {
                    // A person may have revoked the pin since. Then the session ends with the calls that it has.
                    self.pins.may_start(&self.settings).await?;
                }
                // The tools may have changed, or a person may have approved them meanwhile.
                let ready = if ready.session.tools_changed() || !ready.pin_state.may_run() {
                    self.judged(ready.session.clone()).await?
                } else {
                    ready
                };
                state.ready = Some(ready.clone());
                return Ok(ready);
            }
            if ready.has_worked.load(Ordering::Relaxed) {
                state.futile_starts = 0;
            }
        }
        if is_judged {
            self.pins.may_start(&self.settings).await?;
        }
        if let Some(moment) = state.not_before {
            sleep_until(moment).await;
        }
        // Noted before the start, so that a start that fails, hangs or is cancelled counts, too.
        state.futile_starts = state.futile_starts.saturating_add(1);
        state.not_before = Some(Instant::now() + RESTART.after(state.futile_starts));
        let session = McpSession::open(&self.settings, secrets, self.stderr.clone()).await?;
        tracing::debug!(
            server = self.settings.name,
            says = session.server,
            "started"
        );
        let ready = self.judged(Arc::new(session)).await?;
        state.ready = Some(ready.clone());
        Ok(ready)
    }

    async fn judged(&self, session: Arc<McpSession>) -> Result<Arc<ReadySession>, Failure> {
        let listed = session.tools().await?.into_iter();
        let listed = listed
            .map(|tool| self.clean(tool))
            .collect::<Result<_, _>>()?;
        let offer = Offer::read(listed, &self.settings.tools);
        Ok(Arc::new(ReadySession {
            pin_state: self.pins.judge(&self.settings, &offer).await,
            checks: offer
                .checks()
                .into_iter()
                .map(|(tool, own)| (tool, Arc::new(own)))
                .collect(),
            session,
            number: SESSIONS.fetch_add(1, Ordering::Relaxed),
            offer,
            has_worked: AtomicBool::new(false),
        }))
    }

    /// Removes the server's secrets from `result`.
    fn clean(&self, result: Value) -> Result<Value, Failure> {
        if self.redactor.is_empty() {
            return Ok(result);
        }
        match self.redactor.clean(result.to_string().as_bytes()) {
            None => Ok(result),
            Some(cleaned) => {
                tracing::warn!(
                    server = self.settings.name,
                    times = cleaned.redactions,
                    "a secret was taken out of a result"
                );
                serde_json::from_slice(&cleaned.bytes).map_err(|_| {
                    Failure::Output("it holds a secret that cannot be taken out".into())
                })
            }
        }
    }
}

impl ReadySession {
    /// The server's own name and version.
    pub fn server(&self) -> &str {
        &self.session.server
    }

    /// The server's name for the tool that the operator calls `tool`.
    fn server_name<'a>(&'a self, tool: &'a str) -> &'a str {
        let offered = self.offer.tools.iter().find(|offered| offered.name == tool);
        offered.map_or(tool, OfferedTool::server_name)
    }

    fn unknown(&self, tool: &str) -> Failure {
        let refused = self.offer.refused.iter().find(|(name, _)| name == tool);
        let known: Vec<_> = self.checks.keys().map(String::as_str).collect();
        Failure::UnknownTool {
            tool: tool.to_owned(),
            known: match (refused, known.as_slice()) {
                (Some((_, reason)), _) => format!(": {reason}"),
                (None, []) => "; it has none".into(),
                (None, known) => format!("; there are {}", known.join(", ")),
            },
        }
    }
}
