//! What shields said, and what a run knows of the policy that it is under (docs/protocol.md, 11).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// Where a shield stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// What the user says, before anything is sent.
    Input,
    /// A call's arguments, before it runs.
    ToolInput,
    /// What a call came to, before the run takes it.
    ToolOutput,
    /// The final output, before anybody gets it.
    Output,
}

impl Place {
    pub const ALL: [Self; 4] = [Self::Input, Self::ToolInput, Self::ToolOutput, Self::Output];

    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::ToolInput => "tool_input",
            Self::ToolOutput => "tool_output",
            Self::Output => "output",
        }
    }
}

/// What one shield said, for the record. The value is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub shield: String,
    pub place: Place,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    pub verdict: Ruling,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub duration_us: u64,
}

/// What came of one shield.
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

/// What came of all shields of a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "screened", rename_all = "snake_case")]
pub enum Screened {
    Pass,
    Redacted { value: Value },
    Blocked { shield: String, reason: String },
}

/// What a run knows of the policy that it is under (docs/protocol.md, 11).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// SHA-256 over shields, privacy, approvals and grants, in hex.
    pub hash: String,
    /// Where the run has to be screened as a whole: its input and its output.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub screens: BTreeSet<Place>,
    /// The tools of the run whose calls' arguments are screened, by the names under which it has them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tool_inputs: BTreeSet<String>,
}

impl Policy {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
