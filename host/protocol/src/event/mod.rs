//! What happens in a run, as one ordered stream with many readers: terminal, page, journal, replay.
//! There is no second logging path.

mod bodies;
mod removed;
mod so_far;

pub use bodies::{Bodies, BodyError, SharedWithPrevious};
pub use removed::{MAX_NAMED, RemovedSource, RemovedTexts};
pub use so_far::{ReplySoFar, ShownText, TextMissing};

use crate::advisor::{Council, Dissent, Tally};
use crate::bound::BoundTools;
use crate::citation::Citation;
use crate::completion::{Completion, ContextOverflow, Delta};
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
use futures_util::future::BoxFuture;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter};
use std::io;
use strum::{IntoStaticStr, VariantArray};
use thiserror::Error;
use toolhold_json::depth::{self, READABLE};
use toolhold_json::hex::hex;
use toolhold_json::repair::Repair;
use toolhold_policy::ErrorClass;
use toolhold_policy::pii::Kind;
use uuid::Uuid;

/// The format of the records that this version writes. The crate's root says when it is raised.
pub const FORMAT: u32 = 5;

/// The oldest format of records that this version replays.
pub const OLDEST_FORMAT: u32 = 3;

/// The revision of the texts that this version asks models with (their order, headings, fences and bars) and of the parts
/// that they are counted in. A record of another revision is replayed from its inputs, and the bodies of its requests are
/// not compared.
pub const PROMPTS: u32 = 5;

/// The revision of records that do not name one.
fn first_prompts() -> u32 {
    1
}

/// One thing that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    pub run: Uuid,
    /// 0, 1, 2… without gaps. A piece of a reply that is shown and not recorded has the number of the event before it.
    pub seq: u64,
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    #[serde(flatten)]
    pub kind: EventKind,
    /// Present if texts were taken out of it after the run had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedTexts>,
    /// See [`Seal`]. Absent from pieces of a reply, which are not recorded.
    #[serde(default, skip_serializing_if = "Seal::is_none")]
    pub seal: Seal,
}

/// Sixteen hex digits over the JSON text of an event and the seal of the one before it: a record in which
/// anything was changed, lost or put somewhere else does not fit together. It reveals damage and careless
/// edits, but not an attacker who seals every event anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seal(String);

/// How the JSON text of an event ends, around its seal.
const SEAL: (&str, &str) = (r#","seal":""#, r#""}"#);

impl Seal {
    fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The seal of the event whose JSON text is `line`, with whatever seal it has itself. `None` if
    /// this is no event's text.
    pub fn of(line: &str, before: &Self) -> Option<Self> {
        let (open, close) = SEAL;
        let (event, _) = line.strip_suffix(close)?.rsplit_once(open)?;
        let mut digest = Sha256::new();
        digest.update(&before.0);
        digest.update(event);
        let digest = digest.finalize();
        Some(Self(hex(digest.first_chunk::<8>()?)))
    }
}

impl Event {
    /// Seals the event, as the one after that with the seal `before`.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn sealed(self, before: &Seal) -> Result<Self, serde_json::Error> {
        self.sealed_with_line(before).map(|(event, _)| event)
    }

    /// Seals the event as [`Self::sealed`] does, and returns its JSON text, too, which is made for the seal.
    ///
    /// # Errors
    /// It is no JSON, or is nested so deep that it could not be read again.
    pub fn sealed_with_line(mut self, before: &Seal) -> Result<(Self, String), serde_json::Error> {
        // Any seal: the line has one, and it is no part of what is sealed.
        const ANY: &str = "0";
        self.seal = Seal(ANY.into());
        let mut line = serde_json::to_string(&self)?;
        depth::check_to(line.as_bytes(), READABLE).map_err(serde_json::Error::custom)?;
        self.seal = Seal::of(&line, before).unwrap_or_default();
        let (_, close) = SEAL;
        line.truncate(line.len().saturating_sub(ANY.len() + close.len()));
        line.push_str(&self.seal.0);
        line.push_str(close);
        Ok((self, line))
    }
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
        /// The format of the record that begins here: [`FORMAT`]. Records of before there was a number
        /// have none, which is read as 0.
        #[serde(default)]
        format: u32,
        /// The revision of the texts of its requests: [`PROMPTS`].
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
        /// What the run's readers should know, such as a collection that does not exist.
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
    /// what it shares with the Request before it. [`Bodies`] makes it whole.
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
    /// What the advisors said, and how it was counted.
    Council {
        step: u32,
        council: Box<Council>,
        /// The votes added up: for all, and for each instance that advisors spoke for.
        #[serde(default)]
        tallies: Vec<Tally>,
        /// Where the calls of this reply go against the votes.
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
    /// The process had ended, and another one goes on with the run, which had worked for `active_ms` until
    /// then: time in between is not counted.
    Resumed { step: u32, active_ms: u64 },
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
        /// Of a call that another call makes: whether its tool only reads or may be repeated, as the module that has it
        /// says. A call of the run itself is one of the run's tools, which say so themselves.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_be_repeated: bool,
    },
    ToolResult {
        step: u32,
        id: String,
        tool: String,
        #[serde(flatten)]
        outcome: ToolOutcome,
        /// Where the result was written.
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
        /// What the reply may take.
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
        /// [`summable`](crate::context::summable) lists them.
        count: usize,
        /// Number of those that were added to it now.
        messages: usize,
        summary: Box<SummaryMessage>,
        tokens_before: u64,
        tokens_after: u64,
    },
    /// Something that happened in a sub-agent, on behalf of a call.
    Sub { call: String, what: Box<EventKind> },
    /// What the step's reply cost, as the endpoint counted; absent if it did not count. Of one that broke
    /// off, and may have a price, there are no counts.
    Tokens {
        step: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        completion: Option<u64>,
        /// Of the whole run so far.
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
        /// What all replies cost that came to their end or broke off; absent if that of one of them is not
        /// known.
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

/// Why a reply could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableReply {
    pub step: u32,
    /// Calls of the reply were made before it turned out, so only the rest of it is lost. Otherwise the
    /// model is asked again.
    pub calls_made: bool,
    /// What is wrong with it. It quotes what the model wrote, so it is not for clients that may see only
    /// what the shields on the run's output let through; empty where it was taken out for them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// For people, in one line.
impl Display for UnusableReply {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.calls_made {
            "the rest of the reply could not be used"
        } else {
            "the reply could not be used, asking again"
        })?;
        if self.reason.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.reason)
    }
}

/// Why a run is over (docs/protocol.md, 7.5).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The model gave its final output.
    Output,
    /// A lazy plan was made and checked, and nothing was to be run.
    Planned,
    /// A saved plan was run, and some of its calls failed.
    Incomplete,
    /// The remaining calls are for the client to make.
    ToolCalls,
    MaxSteps,
    TokenBudget,
    MaxCost,
    MaxToolCalls,
    Timeout,
    Cancelled,
    /// The endpoint failed.
    Model,
    /// The model kept giving replies that could not be used, or kept making a call that was refused.
    Unusable,
    /// A shield blocked the input or the output.
    Blocked,
}

impl StopReason {
    /// Every reason.
    pub fn all() -> &'static [Self] {
        Self::VARIANTS
    }

    /// As the record has it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the host composed the output of a run that ended so: no model wrote it. `has_plan`: the run carried out a
    /// saved plan.
    pub fn is_of_host(self, has_plan: bool) -> bool {
        has_plan || !matches!(self, Self::Output | Self::Planned)
    }
}

/// The failure that ended a run without output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunFailure {
    pub class: ErrorClass,
    pub message: String,
    /// Set when the Request did not fit the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<ContextOverflow>,
    /// How long the model was waited for. What a reply cost that broke off can be known by nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The endpoint's own wish, or the time until it is asked again, after which the same may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// True if the run had to call a tool, and its model made no such call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_call: bool,
    /// HTTP status with which the endpoint answered, or to which an error inside of its answer amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The endpoint's own code of its error, where it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The parameter that the endpoint's error is about, where it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

impl RunFailure {
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            overflow: None,
            took_ms: None,
            retry_after_ms: None,
            lacks_call: false,
            status: None,
            code: None,
            param: None,
        }
    }
}

/// Stores events before any reader sees them. Pieces of replies are no events of the record.
pub trait Journal: Send + Debug {
    /// Appends events, each the next after the one before: all of them, or none. When this returns, they
    /// survive the process.
    ///
    /// # Errors
    /// They cannot be recorded; or calls would begin with them and the run was cancelled: [`CancelRequested`]. Then they can
    /// be appended together with the end of the run.
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>>;

    /// Appends events as [`Self::append`] does. `lines` are their JSON texts, so that a journal of texts need not make them
    /// again.
    ///
    /// # Errors
    /// As [`Self::append`].
    fn append_with_lines<'a>(
        &'a mut self,
        events: &'a [Event],
        _lines: Vec<String>,
    ) -> BoxFuture<'a, io::Result<()>> {
        self.append(events)
    }

    /// Hears of a piece of a reply of the run itself, which is shown and not recorded
    /// ([`EventKind::is_shown_only`]). It must not wait.
    fn shown(&mut self, _piece: &Event) {}
}

/// Why a [`Journal`] does not record that calls begin: the run was cancelled, maybe by another process. So no call begins
/// after a cancellation that was acknowledged.
#[derive(Debug, Error)]
#[error("the run was cancelled before its next call began")]
pub struct CancelRequested;

impl CancelRequested {
    /// Whether a journal failed for this reason.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error
            .get_ref()
            .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// Keeps nothing: for embedding and tests.
#[derive(Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn append<'a>(&'a mut self, _: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// The id of the sub-agent's run that answers a call of the run `parent`. The same call gets the same id when its run is
/// resumed.
pub fn sub_run(parent: Uuid, call: &str) -> Uuid {
    Uuid::new_v5(&parent, call.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn names_are_those_of_the_record() {
        for reason in StopReason::all() {
            assert_eq!(json!(reason), reason.name());
        }
        for class in [
            ErrorClass::Retryable,
            ErrorClass::Correctable,
            ErrorClass::Fatal,
        ] {
            assert_eq!(json!(class), class.name());
        }
    }

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

    #[test]
    fn the_line_of_a_sealed_event_is_its_json_text() {
        let mut before = Seal::default();
        for message in ["said", r#"with ,"seal":"0"} in it"#, ""] {
            let event = recorded(EventKind::Notice {
                step: 1,
                message: message.into(),
            });
            let (event, line) = event.sealed_with_line(&before).unwrap();
            assert_eq!(line, serde_json::to_string(&event).unwrap());
            assert_eq!(Seal::of(&line, &before).as_ref(), Some(&event.seal));
            before = event.seal;
        }
    }

    fn recorded(kind: EventKind) -> Event {
        Event {
            run: Uuid::nil(),
            seq: 3,
            at_ms: 5,
            kind,
            removed: None,
            seal: Seal::default(),
        }
    }

    /// In sub-agents of sub-agents, too.
    #[test]
    fn event_of_maximum_depth_can_be_read_again() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let deep = nested(depth::MAX_DEPTH);
        let body = json!({"response_format": {"json_schema": {"schema": {"properties": {"calls": {"items": {"anyOf": [
            {"properties": {"arguments": deep}}]}}}}}}});
        for kind in [
            json!({"event": "request", "step": 1, "body": body}),
            json!({"event": "tool_start", "step": 1, "id": "c", "tool": "m.t", "arguments": {"of": deep}}),
            json!({"event": "tool_result", "step": 1, "id": "c", "tool": "m.t", "usage": {}, "output": deep}),
            json!({"event": "done", "reason": "output", "output": deep, "steps": 1, "calls": 1, "tokens": 1, "duration_ms": 1}),
        ] {
            let mut kind: EventKind = serde_json::from_value(kind).unwrap();
            for call in ["a", "b", "c", "d"] {
                let what = Box::new(kind);
                kind = EventKind::Sub {
                    call: call.into(),
                    what,
                };
            }
            let (event, line) = recorded(kind).sealed_with_line(&Seal::default()).unwrap();
            let read: Event = serde_json::from_str(&line).unwrap();
            assert_eq!(json!(read), json!(event));
        }
    }

    #[test]
    fn event_that_could_not_be_read_again_is_not_recorded() {
        let deep = (0..READABLE).fold(json!(1), |inner, _| json!([inner]));
        let kind = EventKind::Request {
            step: 1,
            same: SharedWithPrevious::default(),
            body: deep,
        };
        let refused = recorded(kind).sealed(&Seal::default()).unwrap_err();
        assert!(refused.to_string().contains("nested deeper"), "{refused}");
    }

    #[test]
    fn a_reply_that_could_not_be_used_says_what_became_of_it() {
        let told = |calls_made, reason: &str| UnusableReply {
            step: 1,
            calls_made,
            reason: reason.into(),
        };
        for (told, text) in [
            (
                told(false, "it is empty"),
                "the reply could not be used, asking again: it is empty",
            ),
            (
                told(true, "it ends"),
                "the rest of the reply could not be used: it ends",
            ),
            (told(true, ""), "the rest of the reply could not be used"),
        ] {
            assert_eq!(told.to_string(), text);
            let event = EventKind::UnusableReply(told);
            let read: EventKind = serde_json::from_value(json!(event)).unwrap();
            assert_eq!((json!(read), read.name()), (json!(event), "unusable_reply"));
        }
    }

    proptest! {
        /// Records are compared with what a run comes to again, bit by bit.
        #[test]
        fn a_number_in_a_record_is_the_one_that_was_told(number in any::<f64>().prop_filter("JSON has no others", |n| n.is_finite())) {
            let text = json!(number).to_string();
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!(number));
        }
    }
}
