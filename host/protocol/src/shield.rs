//! Verdicts of shields, and the policy as a run knows it (docs/protocol.md, 11).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use strum::IntoStaticStr;

/// The places at which a shield can screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ShieldPlace {
    /// The user's input, before anything is sent.
    Input,
    /// A call's arguments, before it runs.
    ToolInput,
    /// A call's result, before the run takes it.
    ToolOutput,
    /// The final output, before it is returned.
    Output,
}

impl ShieldPlace {
    pub const ALL: [Self; 4] = [Self::Input, Self::ToolInput, Self::ToolOutput, Self::Output];

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One shield's verdict, for the record. The value is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub shield: String,
    pub place: ShieldPlace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    pub verdict: Ruling,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub duration_us: u64,
}

/// The ruling of one shield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Pass,
    Redact,
    Block,
    /// It failed, and what it was shown passed.
    FailedPass,
    /// It failed, and what it was shown was blocked.
    FailedBlock,
}

/// The combined result of all shields of a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "screened", rename_all = "snake_case")]
pub enum ScreeningResult {
    Pass,
    Redacted { value: Value },
    Blocked { shield: String, reason: String },
}

/// The policy as a run knows it (docs/protocol.md, 11).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// SHA-256 over shields, privacy, decision rules, grants and the digest of the instructions, in hex.
    pub hash: String,
    /// Where the run has to be screened as a whole: its input and its output.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub screens: BTreeSet<ShieldPlace>,
    /// The tools of the run whose calls' arguments are screened, by the names under which it has them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tool_inputs: BTreeSet<String>,
    /// Absent in the record of a version that screened the contents of the input's messages and nothing else of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gates: Option<Gates>,
}

/// Parts of a request that input shields screen beside the contents of its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gates {
    /// Whether the instructions are screened with the input: they are not the operator's.
    pub instructions: bool,
    /// Whether the output schema is screened with the input: it is not the operator's.
    pub output_schema: bool,
    /// The tools of the context's messages of the type `tool_result` whose results are screened.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tool_results: BTreeSet<String>,
}

impl Policy {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
