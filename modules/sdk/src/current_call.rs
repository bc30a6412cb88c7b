//! What the call says besides its arguments, and the tool as the caller knows it. A host from before
//! this interface does not load a module that uses it.

use crate::Error;
use crate::bindings::toolhold::module::current_call as wit;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The call's reserved properties. But for the tool's name a model wrote what its author did not fix.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Reserved {
    /// The name that was called: `module.tool`, or what a run calls it.
    #[serde(rename = "_tool")]
    pub tool: String,
    /// Why the model made this call, in its own words.
    #[serde(rename = "_reasoningForCall")]
    pub reason: Option<String>,
    /// Which of several independent data contexts the call works on.
    #[serde(rename = "_instance")]
    pub instance: Option<String>,
    /// The context keys that the call may see.
    #[serde(rename = "_scopes")]
    pub scopes: Option<Value>,
    /// Where the result is written: `†state.a`, or an expression of several such places.
    #[serde(rename = "_outputPath")]
    pub output_path: Option<String>,
    /// `set`, `merge`, `assign`, `push` or `concat`.
    #[serde(rename = "_outputMethod")]
    pub output_method: Option<String>,
    /// Properties with a leading `_` that mean nothing to the host.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The reserved properties of the call that runs.
pub fn reserved() -> Result<Reserved, Error> {
    read(&wit::reserved_properties())
}

/// The tool as whoever made the call knows it: a JSON Schema with the parameters and the tool's
/// reserved properties, which a run may have described and restricted otherwise than the module did.
pub fn tool_schema() -> Result<Value, Error> {
    read(&wit::tool_schema())
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::fatal(format!("the host told of no call: {error}")))
}
