//! The steps of an answer: what the model wrote, the calls with their results, verdicts of shields, and passages.

use serde::Serialize;
use serde_json::Value;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::failure::{INTERRUPTED, NOT_MADE, UNFINISHED};
use toolhold_protocol::knowledge::RetrievedPassage;
use toolhold_protocol::shield::{Judgement, Ruling, ShieldPlace};
use utoipa::ToSchema;
use uuid::Uuid;

/// One Request to the model, what its reply was, and the calls that it asked for. Step 0 is what was done before the
/// model was asked.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AnswerStep {
    pub step: u32,
    /// The model's reply, if there was one in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference: Option<AnswerInference>,
    pub calls: Vec<Call>,
    /// Verdicts of shields: on the input in step 0, on the output in the last step, on arguments and results of calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shields: Vec<AnswerVerdict>,
    /// Passages of documents that were found, if some were looked for in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieved: Option<Vec<AnswerPassage>>,
}

/// The reply of the model in one step, and what it took.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AnswerInference {
    /// The model that answered, as its endpoint says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The text of the reply, in the form of the endpoint's contract. Absent, as are reasoning and tool calls, where
    /// shields screen the run's output: clients get what these let through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Reasoning of the model that its endpoint keeps apart from the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Native tool calls of the reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<InferredCall>,
    /// Why the reply ended, as the endpoint says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Absent if the endpoint did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Absent if the endpoint did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Time from the request to the first piece of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// Time from the request to the end of the reply.
    pub duration_ms: u64,
}

/// A native tool call, as the model wrote it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InferredCall {
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

impl AnswerInference {
    /// Takes the texts of the reply, each as `shown` leaves it.
    pub(super) fn take_texts(
        &mut self,
        completion: &Completion,
        mut shown: impl FnMut(&str) -> String,
    ) {
        self.content = Some(shown(&completion.content));
        let reasoning = Some(&completion.reasoning).filter(|text| !text.is_empty());
        self.reasoning = reasoning.map(|text| shown(text));
        let calls = completion.tool_calls.iter().map(|call| InferredCall {
            name: call.name.clone(),
            arguments: shown(&call.arguments),
        });
        self.tool_calls = calls.collect();
    }
}

/// The verdict of one shield.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerVerdict {
    /// Name of the shield.
    pub shield: String,
    /// `input`, `tool_input`, `tool_output` or `output`.
    #[schema(value_type = String)]
    pub place: ShieldPlace,
    /// Id of the call whose arguments or result were screened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// `pass`, `redact` or `block`; of a shield that failed, `failed_pass` or `failed_block`.
    #[schema(value_type = String)]
    pub verdict: Ruling,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub duration_ms: f64,
}

impl From<&Judgement> for AnswerVerdict {
    fn from(judgement: &Judgement) -> Self {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self {
            shield: judgement.shield.clone(),
            place: judgement.place,
            call: given(&judgement.call),
            verdict: judgement.verdict,
            reason: given(&judgement.reason),
            duration_ms: judgement.duration_us as f64 / 1_000.0,
        }
    }
}

/// A passage of a document that the model was shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerPassage {
    /// Name by which the output cites the passage: `k1`.
    pub id: String,
    /// Name of its collection.
    pub collection: String,
    /// Path, URL or name of its document.
    pub source: String,
    /// The headings that it stands under, one a line, the outermost first.
    pub heading: String,
    pub text: String,
}

impl From<&RetrievedPassage> for AnswerPassage {
    fn from(passage: &RetrievedPassage) -> Self {
        Self {
            id: passage.id.clone(),
            collection: passage.collection.clone(),
            source: passage.source.clone(),
            heading: passage.heading.clone(),
            text: passage.text.clone(),
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Call {
    pub id: String,
    pub tool: String,
    pub status: CallStatus,
    /// Arguments after references were replaced; as the model wrote them, if the call was refused. Null if its reply
    /// broke off, and where shields on the run's output did not let a call of the client's tools through.
    #[schema(value_type = Value)]
    pub arguments: Value,
    /// Null unless the call is done.
    #[schema(value_type = Value)]
    pub result: Value,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub duration_ms: f64,
    /// The tool was not called: this is the result of an equal call before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedResult>,
    /// Whether its tool was called.
    #[serde(skip)]
    pub is_begun: bool,
}

/// The call whose result another call was given.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CachedResult {
    /// The id of that call.
    pub call: String,
    /// Its run.
    pub run: Uuid,
    /// How old the result is.
    pub age_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    #[default]
    Running,
    Done,
    /// The tool failed, or what it returned cannot be used.
    Failed,
    /// The call was not made: the tool is unknown, the arguments do not fit, a person refused it, …
    Refused,
    /// A shield blocked its arguments, so that it was not made, or its result.
    Shielded,
    /// The server was stopped while the call ran, and it may not be made again: it is not known whether it took effect.
    Unknown,
    /// The run ended while the call ran, or right before it.
    Cancelled,
    /// The call is the client's to make.
    Client,
}

/// The kind of a failure that is a shield's (docs/protocol.md, 7.10).
const SHIELD: &str = "shield";

impl CallStatus {
    pub(super) fn of(outcome: &ToolOutcome, by_host: bool, is_begun: bool) -> Self {
        match outcome {
            ToolOutcome::Output(_) => Self::Done,
            ToolOutcome::Error(failure) if failure.kind == SHIELD => Self::Shielded,
            ToolOutcome::Error(failure) if is_begun && failure.kind == INTERRUPTED => Self::Unknown,
            ToolOutcome::Error(failure)
                if [UNFINISHED, NOT_MADE].contains(&failure.kind.as_str()) =>
            {
                Self::Cancelled
            }
            ToolOutcome::Error(_) if by_host && !is_begun => Self::Refused,
            ToolOutcome::Error(_) => Self::Failed,
        }
    }
}
