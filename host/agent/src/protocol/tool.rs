//! Tools as the protocol sees them: an interface that never says how it runs (PROTOCOL.md, 3).

use serde::Serialize;
use serde_json::Value;

/// One capability that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tool {
    /// `module.tool`; unique in a run.
    pub name: String,
    /// What the model reads to choose it.
    pub description: String,
    /// JSON Schema of the arguments, `"type": "object"`.
    pub parameters: Value,
    /// JSON Schema of the result (`_output`): hidden from the model, checked against the real
    /// result.
    pub output: Option<Value>,
    pub annotations: Annotations,
    pub examples: Vec<Example>,
}

/// Claims of the author about what the tool does to the world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Annotations {
    pub read_only: bool,
    pub idempotent: bool,
    pub destructive: bool,
    pub open_world: bool,
}

/// A worked example: small models imitate rather than deduce.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    pub task: String,
    pub arguments: Value,
    pub output: Value,
    pub answer: String,
}
