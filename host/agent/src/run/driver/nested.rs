//! Calls that the calls of a run make: approved like the run's own, counted in its budgets, and events of the run
//! under the call that makes them.

use super::CallEventSender;
use super::sink::within;
use crate::calls::pipeline::STEP;
use crate::calls::{
    CallBudget, CallDecider, CallEnd, CallPermit, CallRecorder, CallRecording, KeptBlobs, NewCall,
    NoBudget, NoDecision,
};
use crate::run::budget_tracker::BudgetTracker;
use crate::run::decider::Decider;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use toolhold_protocol::blob;
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{EventKind, ToolOutcome};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::solution::Call;
use uuid::Uuid;

/// Asks the decider of the run's own calls.
#[derive(Debug)]
pub(super) struct RunDecider {
    pub decider: Arc<dyn Decider>,
    /// The run as which the calls within a call are known ([`sub_run`]).
    pub run: Uuid,
    /// Of a sub-agent: [`RunRequest::agents`](toolhold_protocol::settings::RunRequest::agents).
    pub agents: Vec<String>,
}

impl CallDecider for RunDecider {
    fn agents(&self) -> &[String] {
        &self.agents
    }

    fn decide<'a>(&'a self, pending: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>> {
        Box::pin(async move { Ok(self.decider.decide(self.run, pending).await) })
    }

    fn within(&self, id: &str) -> Arc<dyn CallDecider> {
        Arc::new(Self {
            decider: self.decider.clone(),
            run: sub_run(self.run, id),
            agents: self.agents.clone(),
        })
    }
}

/// The run's budget of calls.
#[derive(Debug, Clone)]
pub(super) struct RunBudget(pub Arc<BudgetTracker>);

impl CallBudget for RunBudget {
    fn take(&self) -> Result<CallPermit, NoBudget> {
        self.0.take_call().map_err(NoBudget::Refused)?;
        Ok(Box::new(()))
    }

    fn take_again(&self) -> bool {
        self.0.take_call().is_ok()
    }

    fn within(&self) -> Arc<dyn CallBudget> {
        Arc::new(self.clone())
    }
}

/// Records calls as events of the run, under the calls that make them.
#[derive(Debug, Clone)]
pub(super) struct RunRecorder {
    pub events: CallEventSender,
    /// Keeps the bytes of results: the caller has them, and the record has references.
    pub blobs: KeptBlobs,
    pub budget: Arc<BudgetTracker>,
    /// The calls that they are nested in, the outermost first.
    pub within: Vec<String>,
}

impl RunRecorder {
    fn nested(&self, event: EventKind) -> EventKind {
        within(&self.within, event)
    }

    async fn record(&self, event: EventKind) {
        self.events.record(vec![self.nested(event)]).await;
    }
}

impl CallRecorder for RunRecorder {
    fn ready(&self) -> Result<(), ToolFailure> {
        // A run that cannot be recorded ends, and its calls with it.
        Ok(())
    }

    fn begin<'a>(&'a self, call: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>> {
        let recording: Box<dyn CallRecording> = Box::new(RunRecording {
            recorder: self.clone(),
            call: Some(Call {
                id: call.id.to_owned(),
                tool: call.tool.to_owned(),
                arguments: call.arguments.clone(),
                ..Call::default()
            }),
            may_be_repeated: call.may_be_repeated,
            gives_bytes: call.gives_bytes,
            is_told: false,
        });
        Box::pin(std::future::ready(recording))
    }

    fn within(&self, id: &str) -> Arc<dyn CallRecorder> {
        let mut inner = self.clone();
        inner.within.push(id.to_owned());
        Arc::new(inner)
    }
}

/// The question to a person. It holds the arguments whole once: what the person decides about. The call beside them
/// has the same, and takes nothing of the budget of calls if it is refused.
fn question(event: EventKind) -> EventKind {
    match event {
        EventKind::Approval { step, mut pending } => {
            pending.call.arguments = bounded(pending.call.arguments);
            EventKind::Approval { step, pending }
        }
        event => event,
    }
}

/// Characters of the arguments of a refused call that the record has at most.
const MAX_REFUSED_CHARS: usize = 16_384;

/// The arguments, or the beginning of their text where they are long.
fn bounded(arguments: Value) -> Value {
    let mut text = arguments.to_string();
    let end = text.char_indices().nth(MAX_REFUSED_CHARS);
    let Some((end, _)) = end else {
        return arguments;
    };
    let left_out = text.len() - end;
    text.truncate(end);
    format!("{text}… ({left_out} more bytes)").into()
}

/// The result that an event tells of.
fn result_of(mut event: &mut EventKind) -> Option<&mut Value> {
    while let EventKind::Sub { what, .. } = event {
        event = what;
    }
    match event {
        EventKind::ToolResult {
            outcome: ToolOutcome::Output(value),
            ..
        } => Some(value),
        _ => None,
    }
}

struct RunRecording {
    recorder: RunRecorder,
    /// Until it has ended.
    call: Option<Call>,
    may_be_repeated: bool,
    /// True if its tool has no bytes by their name.
    gives_bytes: bool,
    /// Whether the record has its begin, and with that its arguments.
    is_told: bool,
}

impl RunRecording {
    /// Returns the events of the end of a call. One that was refused had no event with its arguments, and takes
    /// nothing of the budget of calls: the record has the beginning of long ones.
    fn end(&self, call: Call, end: &CallEnd) -> Vec<EventKind> {
        let told = (!self.is_told).then(|| EventKind::Plan {
            step: STEP,
            calls: vec![Call {
                arguments: bounded(call.arguments.clone()),
                ..call.clone()
            }],
        });
        let events = told.into_iter().chain([Self::result(call, end)]);
        events.map(|event| self.recorder.nested(event)).collect()
    }

    fn result(call: Call, end: &CallEnd) -> EventKind {
        let ToolResult {
            outcome,
            usage,
            printed,
            module,
            cached,
        } = &end.result;
        EventKind::ToolResult {
            step: STEP,
            id: call.id,
            tool: call.tool,
            outcome: match outcome {
                Ok(output) => ToolOutcome::Output(output.value.clone()),
                Err(failure) => ToolOutcome::Error(failure.clone()),
            },
            written: Vec::new(),
            usage: *usage,
            printed: printed.clone(),
            module: module.clone(),
            by_host: end.by_host,
            cached: cached.clone(),
        }
    }
}

impl CallRecording for RunRecording {
    fn event(&mut self, event: EventKind) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.recorder.budget.note(&event);
            match event {
                event @ EventKind::Approval { .. } => self.recorder.record(question(event)).await,
                event @ EventKind::Job { .. } => self.recorder.record(event).await,
                event => self.recorder.events.tell(self.recorder.nested(event)).await,
            }
        })
    }

    fn started<'a>(
        &'a mut self,
        others: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async move {
            if let Some(call) = self.call.clone() {
                let started = EventKind::ToolStart {
                    step: STEP,
                    call,
                    filled: others.cloned(),
                    may_be_repeated: self.may_be_repeated,
                };
                self.recorder.record(started).await;
                self.is_told = true;
            }
            // A run that cannot be recorded ends, and this call with it.
            Ok(())
        })
    }

    fn ended(mut self: Box<Self>, end: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            if let Some(call) = self.call.take() {
                let mut events = self.end(call, end);
                for event in &mut events {
                    if let Some(value) = result_of(event) {
                        // A person who answered in the tool's place may name bytes.
                        if self.gives_bytes && !end.by_host {
                            blob::refuse_names(value);
                        }
                        *value = self.recorder.blobs.kept(value.take()).await;
                    }
                }
                self.recorder.events.record(events).await;
            }
            Ok(())
        })
    }

    fn forget(mut self: Box<Self>) {
        if !self.is_told {
            self.call = None;
        }
    }
}

impl Drop for RunRecording {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else {
            return;
        };
        let end = CallEnd::dropped(self.is_told);
        for event in self.end(call, &end) {
            self.recorder.events.tell_if_room(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::failure::UNFINISHED;

    #[test]
    fn the_record_has_the_beginning_of_long_arguments_of_a_refused_call() {
        let short = json!({"a": 1});
        assert_eq!(bounded(short.clone()), short);
        let long = bounded(json!({"a": "é".repeat(1 << 20)}));
        let text = long.as_str().unwrap();
        assert!(text.starts_with("{\"a\":\"éé") && text.ends_with(" more bytes)"));
        assert!(text.chars().count() < MAX_REFUSED_CHARS + 40);
    }

    #[tokio::test]
    async fn a_call_of_a_run_that_has_begun_cannot_be_forgotten() {
        let (sender, mut events) = CallEventSender::channel(8);
        let recorder = RunRecorder {
            events: sender,
            blobs: KeptBlobs::default(),
            budget: Arc::default(),
            within: vec!["outer".to_owned()],
        };
        let arguments = json!({});
        let call = |id| NewCall {
            id,
            tool: "m.f",
            arguments: &arguments,
            may_be_repeated: false,
            gives_bytes: true,
        };
        recorder.begin(call("new")).await.forget();
        let mut recording = recorder.begin(call("begun")).await;
        let started = async {
            recording.started(None).await.expect("the begin is taken");
            recording.forget();
        };
        let recorded = async {
            let begin = events.recv().await.expect("the begin");
            let is_recorded = begin.recorded.expect("a begin is waited for");
            is_recorded.send(()).expect("it is waited for");
            begin.kind
        };
        let ((), begin) = tokio::join!(started, recorded);
        drop(recorder);
        let end = events.recv().await.expect("the end").kind;
        assert!(events.recv().await.is_none(), "the other call has no event");
        let own = |event| match event {
            EventKind::Sub { what, .. } => *what,
            event => event,
        };
        let EventKind::ToolStart { call, .. } = own(begin) else {
            panic!("its begin is the first event");
        };
        let EventKind::ToolResult {
            id,
            outcome,
            by_host,
            ..
        } = own(end)
        else {
            panic!("its end is the second event");
        };
        assert_eq!((call.id.as_str(), id.as_str()), ("begun", "begun"));
        let ToolOutcome::Error(failure) = outcome else {
            panic!("it has no output");
        };
        assert_eq!((failure.kind.as_str(), by_host), (UNFINISHED, false));
    }

    #[tokio::test]
    async fn the_record_of_a_nested_call_refuses_names_of_bytes_that_its_tool_gives() {
        let name = format!("blob:sha256:{}", "0".repeat(64));
        let reference = json!({"mime": "image/png", "base64": name, "bytes": 70});
        for (gives_bytes, by_host, is_refused) in [
            (true, false, true),
            // A person answered in the place of the tool.
            (true, true, false),
            // A saved Request has the names of the run's bytes.
            (false, false, false),
        ] {
            let (sender, mut events) = CallEventSender::channel(8);
            let recorder = RunRecorder {
                events: sender,
                blobs: KeptBlobs::default(),
                budget: Arc::default(),
                within: vec!["outer".to_owned()],
            };
            let arguments = json!({});
            let call = NewCall {
                id: "outer.1",
                tool: "m.f",
                arguments: &arguments,
                may_be_repeated: false,
                gives_bytes,
            };
            let recording = recorder.begin(call).await;
            let end = CallEnd {
                by_host,
                ..CallEnd::answered(reference.clone())
            };
            let recorded = async {
                loop {
                    let event = events.recv().await.expect("its events");
                    if let Some(is_recorded) = event.recorded {
                        is_recorded.send(()).expect("it is waited for");
                        break event.kind;
                    }
                }
            };
            let (ended, mut kind) = tokio::join!(recording.ended(&end), recorded);
            ended.expect("the end is taken");
            let value = result_of(&mut kind).expect("the end with its output");
            assert_eq!(value["error"] == "blob_name", is_refused, "{value}");
            assert_eq!(*value == reference, !is_refused, "{value}");
        }
    }
}
