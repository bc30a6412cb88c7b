//! What a model returned: calls, an output, or both (PROTOCOL.md, 4).

use serde::Serialize;
use serde_json::{Map, Value};

/// A Tool with its parameters filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Unique in the run. Results come back under it, and it fences them: nobody can guess it.
    pub id: String,
    pub tool: String,
    pub arguments: Value,
    /// `_reasoningForCall`: why the model chose it, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A reply in any contract, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Solution {
    pub calls: Vec<Requested>,
    /// Not null ends the loop.
    pub output: Option<Value>,
}

/// A call before the host gave it an id.
#[derive(Debug, Clone, PartialEq)]
pub struct Requested {
    pub tool: String,
    pub arguments: Value,
    pub reason: Option<String>,
}

impl Solution {
    /// Reads the text of a reply under the `schema` contract.
    ///
    /// # Errors
    /// What is wrong with it, in words that the model can act on.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text.trim())
            .map_err(|error| format!("the reply is not one JSON object: {error}"))?;
        let Value::Object(mut object) = value else {
            return Err("the reply must be one JSON object with the keys calls and output".into());
        };
        let output = object
            .shift_remove("output")
            .filter(|output| !output.is_null());
        let calls = match object.shift_remove("calls") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(calls)) => {
                calls.into_iter().map(requested).collect::<Result<_, _>>()?
            }
            Some(_) => return Err("\"calls\" must be a list".into()),
        };
        if calls.is_empty() && output.is_none() {
            return Err("the reply holds neither a call nor an output; give one of them".into());
        }
        Ok(Self { calls, output })
    }
}

/// Splits a call object into its reserved properties and its parameters.
pub(crate) fn requested(call: Value) -> Result<Requested, String> {
    let Value::Object(mut call) = call else {
        return Err("every call must be an object with \"_tool\"".into());
    };
    let Some(Value::String(tool)) = call.shift_remove("_tool") else {
        return Err("a call lacks \"_tool\", the name of the tool to call".into());
    };
    let reason = match call.shift_remove("_reasoningForCall") {
        Some(Value::String(reason)) => Some(reason),
        _ => None,
    };
    // Unknown reserved properties are no parameters (PROTOCOL.md, 3).
    let arguments: Map<String, Value> = call
        .into_iter()
        .filter(|(key, _)| !key.starts_with('_'))
        .collect();
    Ok(Requested {
        tool,
        arguments: arguments.into(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_split_into_reserved_and_parameters() {
        let solution = Solution::parse(
            r#" {"calls":[{"_tool":"a.b","_reasoningForCall":"because","_scopes":[],"x":1}],"output":null} "#,
        )
        .unwrap();
        assert_eq!(
            solution.calls,
            [Requested {
                tool: "a.b".into(),
                arguments: json!({"x": 1}),
                reason: Some("because".into())
            }]
        );
        assert_eq!(solution.output, None);
    }

    #[test]
    fn every_fault_says_what_to_do() {
        for (text, expect) in [
            ("I think it is 7.", "not one JSON object"),
            (r#"{"calls":[{"_tool":"a"#, "not one JSON object"),
            ("[]", "keys calls and output"),
            ("{}", "neither a call nor an output"),
            (
                r#"{"calls":[],"output":null}"#,
                "neither a call nor an output",
            ),
            (r#"{"calls":{},"output":null}"#, "must be a list"),
            (r#"{"calls":[1]}"#, "must be an object"),
            (r#"{"calls":[{"x":1}]}"#, "lacks \"_tool\""),
        ] {
            let error = Solution::parse(text).unwrap_err();
            assert!(error.contains(expect), "{text} gave {error}");
        }
    }
}
