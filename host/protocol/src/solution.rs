//! The model's solution: calls, an output, or both (docs/protocol.md, 4).

use crate::tool::is_reserved;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use toolhold_json::repair::RepairKind;
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;

/// A Tool with its parameters filled in, as the model wrote it: references are still references, and
/// reserved properties are kept as they were written, because what is wrong with one is the call's
/// fault and not the whole reply's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// Unique in the run; empty until the host takes the call. Results come back under it.
    pub id: String,
    pub tool: String,
    pub arguments: Value,
    /// `_reasoningForCall`: why the model chose it, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// `_scopes`: the context keys that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_method: Option<String>,
    /// `_output`: the result as the model wrote it, if the tool is latent. It may be null.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub output: Option<Value>,
    /// Reserved properties that mean nothing: kept for the record.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub unknown: Map<String, Value>,
    /// Whether it was read out of prose, and not out of a form in which calls are made. The record says it of the reply,
    /// from which it is read again.
    #[serde(skip)]
    pub is_prose: bool,
}

/// A reply in any contract, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Solution {
    pub meta: Option<Value>,
    pub advisors: Option<Value>,
    pub calls: Vec<Call>,
    /// Not null ends the loop.
    pub output: Option<Value>,
    /// Repairs that were needed before it could be read, each kind once.
    pub repairs: Vec<RepairKind>,
    /// Whether its calls were read out of prose.
    pub is_prose: bool,
}

impl Solution {
    /// Takes a member that stands outside of the solution's object.
    ///
    /// # Errors
    /// It was given before.
    pub fn put(&mut self, member: &str, value: Value) -> Result<(), String> {
        let place = match member {
            "meta" => &mut self.meta,
            "advisors" => &mut self.advisors,
            _ => &mut self.output,
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(format!("{member} was given twice; give it once")),
        }
    }

    /// Takes what had to be put right.
    pub fn note(&mut self, repairs: impl IntoIterator<Item = RepairKind>) {
        for kind in repairs {
            if !self.repairs.contains(&kind) {
                self.repairs.push(kind);
            }
        }
    }

    /// Reads the text of a reply under the `schema` contract.
    ///
    /// # Errors
    /// What is wrong with it, in words that the model can act on.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_under(ReadingRules::Current, text)
    }

    /// [`Self::parse`], under these rules.
    ///
    /// # Errors
    /// The errors of [`Self::parse`].
    pub fn parse_under(rules: ReadingRules, text: &str) -> Result<Self, String> {
        let value = strict::parse_under(rules, text.trim())
            .map_err(|error| format!("the reply is not one JSON object: {error}"))?;
        Self::of(value)
    }

    /// As [`Self::parse`], for what was read from the text.
    ///
    /// # Errors
    /// As there.
    pub fn of(value: Value) -> Result<Self, String> {
        let Value::Object(mut object) = value else {
            return Err("the reply must be one JSON object with the keys calls and output".into());
        };
        let mut member = |name| object.shift_remove(name).filter(|value| !value.is_null());
        let (meta, advisors, output) = (member("meta"), member("advisors"), member("output"));
        let calls = match object.shift_remove("calls") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(calls)) => calls
                .into_iter()
                .map(Call::read)
                .collect::<Result<_, _>>()?,
            Some(_) => return Err("\"calls\" must be a list".into()),
        };
        if calls.is_empty() && output.is_none() {
            return Err("the reply holds neither a call nor an output; give one of them".into());
        }
        Ok(Self {
            meta,
            advisors,
            calls,
            output,
            repairs: Vec::new(),
            is_prose: false,
        })
    }
}

impl Call {
    /// Splits a call object into its reserved properties and its parameters.
    ///
    /// # Errors
    /// It is no object, or names no tool.
    pub fn read(call: Value) -> Result<Self, String> {
        let Value::Object(mut call) = call else {
            return Err("every call must be an object with \"_tool\"".into());
        };
        let Some(Value::String(tool)) = call.shift_remove("_tool") else {
            return Err("a call lacks \"_tool\", the name of the tool to call".into());
        };
        Ok(Self::of(tool, call))
    }

    /// A call of `tool`; `properties` are its parameters and reserved properties.
    pub fn of(tool: impl Into<String>, mut properties: Map<String, Value>) -> Self {
        let mut member = |name| {
            properties
                .shift_remove(name)
                .filter(|value| !value.is_null())
        };
        let reserved = Self {
            id: String::new(),
            tool: tool.into(),
            arguments: Value::Null,
            reason: member("_reasoningForCall").map(text),
            instance: member("_instance").map(text),
            scopes: member("_scopes").or_else(|| member("_imports")),
            output_path: member("_outputPath").map(text),
            output_method: member("_outputMethod").map(text),
            // A result may be null.
            output: properties.shift_remove("_output"),
            unknown: Map::new(),
            is_prose: false,
        };
        // They are no parameters (docs/protocol.md, 3).
        let (unknown, parameters): (Map<_, _>, Map<_, _>) = properties
            .into_iter()
            .partition(|(key, _)| key.starts_with('_'));
        Self {
            arguments: parameters.into(),
            unknown,
            ..reserved
        }
    }

    /// The reserved properties by their names on the wire, those that mean nothing last. `_output` is
    /// not one of them: what a model says came of a call is its own thought.
    pub fn reserved(&self) -> Map<String, Value> {
        let known = [
            ("_tool", Some(self.tool.as_str().into())),
            ("_reasoningForCall", self.reason.clone().map(Value::from)),
            ("_instance", self.instance.clone().map(Value::from)),
            ("_scopes", self.scopes.clone()),
            ("_outputPath", self.output_path.clone().map(Value::from)),
            ("_outputMethod", self.output_method.clone().map(Value::from)),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        known.chain(self.unknown.clone()).collect()
    }

    /// The call object as the model writes it.
    pub fn object(&self, reasons: bool) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(key.into(), value);
            }
        };
        put("_tool", Some(self.tool.as_str().into()));
        put(
            "_reasoningForCall",
            self.reason.clone().filter(|_| reasons).map(Into::into),
        );
        put("_instance", self.instance.clone().map(Into::into));
        put("_scopes", self.scopes.clone());
        if let Value::Object(arguments) = &self.arguments {
            // An argument that is called as a reserved property would be read as one.
            for (key, value) in arguments.iter().filter(|(key, _)| !is_reserved(key)) {
                put(key, Some(value.clone()));
            }
        }
        put("_outputPath", self.output_path.clone().map(Into::into));
        put("_outputMethod", self.output_method.clone().map(Into::into));
        put("_output", self.output.clone());
        object
    }
}

/// A null that is there is not absent.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The text, or the JSON of a value of another type; the reader of the field reports the fault.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_split_into_reserved_and_parameters() {
        let solution = Solution::parse(
            r#" {"calls":[{"_tool":"a.b","_reasoningForCall":"because","_instance":"i","_scopes":["user"],"x":1,"_colour":2,
            "_outputPath":"†state.a","_outputMethod":"push","_output":7}],"output":null} "#,
        )
        .unwrap();
        assert_eq!(
            solution.calls,
            [Call {
                id: String::new(),
                tool: "a.b".into(),
                arguments: json!({"x": 1}),
                reason: Some("because".into()),
                instance: Some("i".into()),
                scopes: Some(json!(["user"])),
                output_path: Some("†state.a".into()),
                output_method: Some("push".into()),
                output: Some(json!(7)),
                unknown: Map::from_iter([("_colour".to_owned(), json!(2))]),
                is_prose: false,
            }]
        );
        assert_eq!(solution.output, None);
        let reserved = json!({
            "_tool": "a.b", "_reasoningForCall": "because", "_instance": "i", "_scopes": ["user"],
            "_outputPath": "†state.a", "_outputMethod": "push", "_colour": 2,
        });
        assert_eq!(Value::from(solution.calls[0].reserved()), reserved);
        let mut known = solution.calls[0].clone();
        known.unknown.clear();
        let again = solution.calls[0].object(true);
        assert_eq!(Call::read(again.into()).unwrap(), known);
    }
}
