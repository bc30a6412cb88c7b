//! The kinds of events: one variant of [`EventKind`] for each thing that may happen in a run.

use super::end::{RunFailure, StopReason};
use super::shared::SharedWithPrevious;
use super::unusable::UnusableReply;
use crate::advisor::{Council, Dissent, Tally};
use crate::bound::BoundTools;
use crate::citation::Citation;
use crate::completion::{Completion, Delta};
use crate::context::SummaryMessage;
use crate::cost::Amount;
use crate::decision::{Decision, Pending};
use crate::failure::ToolFailure;
use crate::fallback::Stage;
use crate::job::JobProgress;
use crate::knowledge::RetrievedPassage;
use crate::meta::Meta;
use crate::reference::Path;
use crate::reply_offset::ReplyOffset;
use crate::request_fetch::RequestFetch;
use crate::result::{Cached, ToolUsage};
use crate::routing::Routing;
use crate::settings::RunRequest;
use crate::shield::{Judgement, ScreeningResult, ShieldPlace};
use crate::side_request::SideRequest;
use crate::solution::Call;
use crate::tool_retry::ToolRetry;
use crate::window::{Counted, Part, TokensByPart, WrittenSummary};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use strum::IntoStaticStr;
use toolhold_json::repair::Repair;
use toolhold_policy::pii::Kind;

/// The revision of records that do not name one.
fn first_prompts() -> u32 {
    1
}

/// On the wire: `{"event": "tool_start", …}`.
///
/// All external inputs of the run are in `run`, `written`, `reply`, `model_failed`, `side_request`, `decided`,
/// `screened`, `retrieved`, `counted`, `summary_written`, `resumed` and `tool_result`, whole: from these alone the loop can be run again and
/// comes to the same events.
#[derive(Debug, Clone, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// The run begins: what it was asked and what it may use.
    Run {
        /// The format of the record that begins here: [`FORMAT`](super::FORMAT). Records of before there was a number
        /// have none, which is read as 0.
        #[serde(default)]
        format: u32,
        /// The revision of the texts of its requests: [`PROMPTS`](super::PROMPTS).
        #[serde(default = "first_prompts")]
        prompts: u32,
        /// The first user message.
        task: String,
        model: String,
        request: Box<RunRequest>,
        /// Shared by all that hold the event: of some hundred tools each clone would cost milliseconds.
        tools: BoundTools,
        host: String,
    },
    /// The verdict of one shield. It does not change the run by itself.
    Shield(Judgement),
    /// The combined verdict of all shields on the run's input or output, or on the arguments of a
    /// call.
    Screened {
        step: u32,
        place: ShieldPlace,
        /// The call whose arguments they were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        #[serde(flatten)]
        screened: ScreeningResult,
    },
    /// Passages were looked for in documents, before the model was asked. They are as the shields left them.
    Retrieved {
        step: u32,
        passages: Vec<RetrievedPassage>,
        /// Text for readers of the run, for example that a collection does not exist.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
        duration_ms: u64,
    },
    /// The passages that the output names, and whether what it quotes is in them.
    Cited { step: u32, citations: Vec<Citation> },
    /// How many values the model is not shown, of the whole run so far.
    Hidden {
        step: u32,
        counts: BTreeMap<Kind, usize>,
    },
    /// A Request goes to the model: the chat completion body, so that it can be sent again, without
    /// what it shares with the Request before it. [`Bodies`](super::Bodies) makes it whole.
    Request {
        step: u32,
        #[serde(default, skip_serializing_if = "SharedWithPrevious::is_nothing")]
        same: SharedWithPrevious,
        body: Value,
    },
    /// A saved Request at an address was fetched, or was not. It does not change the run by itself: what was composed of it
    /// is in the begin of the run or of the sub-agent.
    RequestFetched(RequestFetch),
    /// Something was decided on the way to the endpoint that answers. It changes nothing of the run.
    Routing(Routing),
    /// A model was asked on behalf of the run, beside its own Requests: by a shield, by the router, or for
    /// an answer that came from elsewhere first. What it took counts as the run's.
    SideRequest(SideRequest),
    /// The model wrote something.
    Delta {
        step: u32,
        #[serde(flatten)]
        delta: Delta,
        /// Place in the reply at which the piece begins, if it is shown and not recorded. Without it, the piece is an
        /// event of the record of an older version, and an input of its run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<ReplyOffset>,
    },
    /// Text of a reply on which the run acts before the reply is complete, or of one that broke off. It continues the text
    /// of the `written` before it; what follows is in the reply.
    Written {
        step: u32,
        /// Place in the reply at which the text begins.
        #[serde(default, skip_serializing_if = "ReplyOffset::is_beginning")]
        from: ReplyOffset,
        /// The text in the order in which it was written. Consecutive pieces of one text are one piece here; records of
        /// older versions have them as they came.
        pieces: Vec<Delta>,
    },
    /// The model's reply is complete.
    Reply { step: u32, completion: Completion },
    /// The model gave no reply, or not all of one.
    ModelFailed { step: u32, failure: RunFailure },
    /// All calls that the model requests.
    Plan { step: u32, calls: Vec<Call> },
    /// The words of the advisors, and the count of their votes.
    Council {
        step: u32,
        council: Box<Council>,
        /// The votes added up: for all, and for each instance that advisors spoke for.
        #[serde(default)]
        tallies: Vec<Tally>,
        /// Differences between the calls of this reply and the votes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dissent: Option<Dissent>,
        /// Whether calls of this reply were held because of that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        held: bool,
    },
    /// The version of what the run works on moved.
    Meta { step: u32, meta: Box<Meta> },
    /// A call waits for data that another call has yet to write.
    ToolWaits { step: u32, call: Call },
    /// A call waits for a person.
    Approval { step: u32, pending: Pending },
    /// A process continues a run whose process ended. `active_ms`: milliseconds for which the run had worked before this
    /// event, without the time between the two processes.
    Resumed {
        step: u32,
        active_ms: u64,
        /// Text for readers of the run, made of names and digests: modules that have another digest than those that the run
        /// worked with, or are not loaded, and MCP servers whose tools the run had and has no more.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A person decided about a call.
    Decided {
        step: u32,
        id: String,
        #[serde(flatten)]
        decision: Decision,
    },
    ToolStart {
        step: u32,
        #[serde(flatten)]
        call: Call,
        /// The arguments with their references replaced, if they had any.
        #[serde(skip_serializing_if = "Option::is_none")]
        filled: Option<Value>,
        /// True for a call that another call makes, if its tool only reads or may be repeated. The tool's module says so.
        /// False for a call of the run itself: the run's tools say it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_be_repeated: bool,
    },
    ToolResult {
        step: u32,
        id: String,
        tool: String,
        #[serde(flatten)]
        outcome: ToolOutcome,
        /// Paths of the context at which the result was written.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        written: Vec<Path>,
        usage: ToolUsage,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        printed: Vec<String>,
        /// SHA-256 of the module that ran, in hex, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        module: Option<String>,
        /// The host answered itself: the call was latent, or refused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_host: bool,
        /// The tool was not called: this is the result of an earlier call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cached: Option<Cached>,
    },
    /// An attempt of a call failed for now, and the call is made again after a wait.
    ToolRetry {
        step: u32,
        #[serde(flatten)]
        retry: ToolRetry,
    },
    /// A tool answered with a job, which continues without an instance, or a job made progress. The event does not change the
    /// run by itself; a resumed run asks about the job in the place of making the call again.
    Job {
        step: u32,
        #[serde(flatten)]
        job: JobProgress,
    },
    /// Another model is asked to make a call that the run's own kept getting wrong, or to give a reply of which
    /// something can be used.
    Fallback {
        step: u32,
        /// Absent: replies as a whole could not be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        #[serde(flatten)]
        stage: Stage,
    },
    /// The endpoint counted the tokens of texts in the next Request that it had not counted before.
    Counted {
        step: u32,
        #[serde(flatten)]
        counted: Counted,
    },
    /// The Request's share of the window. Absent window: its size is unknown.
    Budget {
        step: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
        /// Tokens that the reply may have.
        reply: u64,
        parts: TokensByPart,
        /// The parts that the endpoint counted. The others are estimates, corrected by what it counted
        /// of the prompts before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        exact: Vec<Part>,
    },
    /// The window was nearly full: the oldest turns of the history are shown as a summary from now on.
    Summarized {
        step: u32,
        turns: usize,
        tokens_before: u64,
        tokens_after: u64,
    },
    /// A model was asked to sum up the conversation before the task, and wrote this.
    SummaryWritten {
        step: u32,
        #[serde(flatten)]
        written: WrittenSummary,
    },
    /// The conversation before the task takes more than the window has: a summary stands in the place of its oldest
    /// messages, in this run and in those that go on from it.
    ConversationSummarized {
        step: u32,
        /// Number of messages of the run's context that the summary stands for:
        /// [`SummablePlaces`](crate::context::SummablePlaces) lists them.
        count: usize,
        /// Number of those that were added to it now.
        messages: usize,
        summary: Box<SummaryMessage>,
        tokens_before: u64,
        tokens_after: u64,
    },
    /// Something that happened in a sub-agent, on behalf of a call.
    Sub { call: String, what: Box<EventKind> },
    /// Tokens of the step's reply, as the endpoint counted; absent if it did not count. A reply that broke off, and may have
    /// a price, has no counts.
    Tokens {
        step: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        completion: Option<u64>,
        /// Tokens of the whole run so far.
        total: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_token_ms: Option<u64>,
        duration_ms: u64,
        /// Cost of the reply; absent without a price, or without the counts that the price needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano: Option<Amount>,
    },
    /// Something was put right that had one reading only: in the reply as a whole, or in the arguments of
    /// a call of `tool`.
    Repaired {
        step: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        repairs: Vec<Repair>,
    },
    /// A reply, or what came after its calls, could not be used.
    UnusableReply(UnusableReply),
    /// Information for people, such as a call that was intercepted. It quotes nothing that a model wrote.
    Notice { step: u32, message: String },
    /// The run is over.
    Done {
        reason: StopReason,
        output: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<RunFailure>,
        steps: u32,
        calls: u32,
        tokens: u64,
        /// The cost of all replies that came to their end or broke off; absent if the cost of one of them is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano: Option<Amount>,
        duration_ms: u64,
    },
}

impl EventKind {
    /// Its `event` on the wire.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// True for a piece of a reply, of the run or of a sub-agent, that is shown and not recorded.
    pub fn is_shown_only(&self) -> bool {
        match self {
            Self::Delta { from, .. } => from.is_some(),
            Self::Sub { what, .. } => what.is_shown_only(),
            _ => false,
        }
    }

    /// True if calls begin with this event, or may be made again: those of the run, of a call in it, or of a sub-agent.
    pub fn begins_calls(&self) -> bool {
        match self {
            Self::ToolStart { .. } | Self::ToolRetry { .. } | Self::Resumed { .. } => true,
            Self::Sub { what, .. } => what.begins_calls(),
            _ => false,
        }
    }
}

/// The result of a call, or why there is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    Output(Value),
    Error(ToolFailure),
}

impl From<Result<Value, ToolFailure>> for ToolOutcome {
    fn from(outcome: Result<Value, ToolFailure>) -> Self {
        match outcome {
            Ok(value) => Self::Output(value),
            Err(failure) => Self::Error(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_event_is_read_as_it_was_written() {
        let written = json!({
            "event": "job", "step": 2, "id": "call_1", "tool": "video.render", "job": "j-7", "done": 3, "total": 9,
            "waited_ms": 1500,
        });
        let event: EventKind = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(event.name(), "job");
        assert!(
            !event.begins_calls(),
            "the journal of a cancelled run takes it"
        );
        assert_eq!(json!(event), written);
    }
}
