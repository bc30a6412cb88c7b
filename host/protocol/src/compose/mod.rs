//! The one schema that goes to the model (docs/protocol.md, 4).
//!
//! Order matters, because a model writes top to bottom: `meta`, `advisors`, `calls`, `output`; in a
//! call `_tool`, `_reasoningForCall`, `_instance`, `_scopes`, the parameters, `_outputPath` and
//! `_outputMethod`, and of a latent tool `_output` last.

mod parameters;
mod references;

use crate::function_names::ToolNames;
use crate::tool::{OutputPath, Scopes, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Borrow;
use std::sync::Arc;
use toolhold_json::grammar_subset::{GrammarSubset, MAX_REPETITIONS};
use toolhold_json::rules::ReadingRules;

/// Whether a solution may hold calls and an output at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Calls or an output. Small models, allowed both, call a tool and make up its answer in the
    /// same breath.
    #[default]
    Exclusive,
    /// Calls, an output, or both.
    Both,
}

/// How an endpoint is asked for a call that has to be made. The order is by how little is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forcing {
    /// By its name, where only one tool is offered.
    #[default]
    Named,
    /// As a call of any tool.
    Required,
    /// As a call that it may make: it refuses what demands one.
    Auto,
}

impl Forcing {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How to compose.
#[derive(Debug, Clone, Copy, Default)]
pub struct Composition<'a> {
    pub shape: Shape,
    /// Whether each call says why (`_reasoningForCall`).
    pub reasons: bool,
    /// The most calls in one solution.
    pub max_calls: usize,
    /// Bound for strings that have none: the only unparseable replies of small models were strings
    /// that ran into the token limit.
    pub max_string: Option<u32>,
    /// Whether data is wired: parameters accept references, and calls say where results go.
    pub wiring: bool,
    /// Calls are a plan: latent tools are not answered in it.
    pub lazy: bool,
    /// Latent steps of a plan that was accepted wait for their answers, so that they may be given.
    pub answers: bool,
    /// What calls may name as their `_instance`.
    pub instances: &'a [String],
    /// Schema of the solution's `meta`.
    pub meta: Option<&'a Value>,
    /// Schema of the solution's `advisors`.
    pub advisors: Option<&'a Value>,
    /// The solution is calls and nothing else.
    pub forced: bool,
    /// Names of the tools of which the solution has to call one, as they go out. Empty where none has to be called.
    pub demanded: &'a [String],
    /// How such a call is asked for where calls are native.
    pub forcing: Forcing,
    /// The names under which tools and parameters go out. Absent: dots are hyphens, and nothing else is another.
    pub names: Option<&'a Arc<ToolNames>>,
    /// Functions have the schemas of tools as their authors wrote them: the endpoint has no grammar. Where data is wired,
    /// their schemas are composed all the same, because parameters accept references then.
    pub authored: bool,
    /// The rules by which replies are read.
    pub reading: ReadingRules,
}

impl<'a> Composition<'a> {
    pub fn call_form(self) -> CallForm<'a> {
        CallForm {
            reasons: self.reasons,
            wiring: self.wiring,
            lazy: self.lazy,
            answers: self.answers,
            instances: self.instances,
            is_named: self.names.is_some(),
            authored: self.authored,
        }
    }
}

/// The members of [`Composition`] on which the schema of a call depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallForm<'a> {
    pub reasons: bool,
    pub wiring: bool,
    pub lazy: bool,
    pub answers: bool,
    pub instances: &'a [String],
    /// Whether parameters go out under names that every endpoint takes.
    pub is_named: bool,
    pub authored: bool,
}

impl CallForm<'_> {
    /// Returns the same form, if it names no instances, which are the run's own.
    pub fn shared(self) -> Option<CallForm<'static>> {
        self.instances.is_empty().then_some(CallForm {
            reasons: self.reasons,
            wiring: self.wiring,
            lazy: self.lazy,
            answers: self.answers,
            instances: &[],
            is_named: self.is_named,
            authored: self.authored,
        })
    }
}

/// Composes the schema for `tools` and the user's output schema (plain text if there is none).
/// The result uses only what every endpoint's grammar supports; the full schemas are validated on
/// our side afterwards.
pub fn compose(tools: &[impl Borrow<Tool>], output: Option<&Value>, how: Composition<'_>) -> Value {
    let form = how.call_form();
    compose_with(tools, output, how, |tool, subset| {
        call(tool.borrow(), form, subset)
    })
}

/// [`compose`], with the schema of a tool's calls from `call`, which may have kept it from an earlier Request.
pub fn compose_with<T>(
    tools: &[T],
    output: Option<&Value>,
    how: Composition<'_>,
    mut call: impl FnMut(&T, &mut GrammarSubset) -> Value,
) -> Value {
    let mut subset = GrammarSubset::new(how.max_string);
    let first: Vec<(&str, Value)> = [("meta", how.meta), ("advisors", how.advisors)]
        .into_iter()
        .filter_map(|(name, schema)| Some((name, subset.reduce(schema?, name))))
        .collect();
    let solution = |calls: Value, output: Value| solution(&first, calls, output);
    let output = match output {
        Some(schema) => subset.reduce(schema, "output"),
        None => subset.reduce(&json!({"type": "string"}), "output"),
    };
    if tools.is_empty() {
        let empty = json!({"type": "array", "items": {}, "maxItems": 0});
        return subset.finish(solution(empty, output));
    }
    if how.wiring {
        references::define(&mut subset);
    }
    let calls: Vec<Value> = tools.iter().map(|tool| call(tool, &mut subset)).collect();
    // `json!` would copy the schemas of all calls, once for each level.
    let list = |least: usize| {
        let mut list = Value::from_iter([
            ("type", "array".into()),
            ("items", Value::from_iter([("anyOf", calls)])),
            ("minItems", least.into()),
        ]);
        // More calls than that are counted, not constrained.
        if how.max_calls <= MAX_REPETITIONS as usize {
            list["maxItems"] = how.max_calls.into();
        }
        list
    };
    let schema = match how.shape {
        _ if how.forced => solution(list(1), json!({"type": "null"})),
        Shape::Both => solution(list(0), json!({"anyOf": [output, {"type": "null"}]})),
        Shape::Exclusive => Value::from_iter([(
            "anyOf",
            vec![
                solution(list(1), json!({"type": "null"})),
                solution(json!({"type": "array", "items": {}, "maxItems": 0}), output),
            ],
        )]),
    };
    subset.finish(schema)
}

fn solution(first: &[(&str, Value)], calls: Value, output: Value) -> Value {
    let mut properties = Map::new();
    for (name, schema) in first {
        properties.insert((*name).to_owned(), schema.clone());
    }
    properties.insert("calls".into(), calls);
    properties.insert("output".into(), output);
    let required: Vec<_> = properties.keys().cloned().collect();
    Value::from_iter([
        ("type", "object".into()),
        ("properties", Value::Object(properties)),
        ("required", required.into()),
        ("additionalProperties", false.into()),
    ])
}

/// A call object of the composed schema.
pub fn call(tool: &Tool, form: CallForm<'_>, subset: &mut GrammarSubset) -> Value {
    let mut call = properties(tool, form, subset);
    let mut properties = Map::from_iter([("_tool".to_owned(), json!({"const": tool.name}))]);
    properties.append(&mut call.properties);
    let mut required = vec!["_tool".to_owned()];
    required.append(&mut call.required);
    Value::from_iter([
        ("type", "object".into()),
        ("properties", Value::Object(properties)),
        ("required", required.into()),
        ("additionalProperties", call.additional),
    ])
}

/// What a call of one tool consists of besides its `_tool`, in the order in which a model writes it.
#[derive(Debug)]
pub struct Properties {
    pub properties: Map<String, Value>,
    pub required: Vec<String>,
    /// Schema of parameters that the tool does not name; `false` if there may be none.
    pub additional: Value,
}

impl Properties {
    fn put(&mut self, name: &str, schema: Value, is_required: bool) {
        self.properties.insert(name.to_owned(), schema);
        if is_required {
            self.required.push(name.to_owned());
        }
    }
}

/// Reserved properties and parameters of a call of `tool`.
pub fn properties(tool: &Tool, form: CallForm<'_>, subset: &mut GrammarSubset) -> Properties {
    if form.wiring {
        references::define(subset);
    }
    let parameters = if form.authored && !form.wiring {
        parameters::authored(tool, form, subset)
    } else {
        parameters::of(tool, form, subset)
    };
    let mut call = Properties {
        properties: Map::new(),
        required: Vec::new(),
        additional: parameters.additional,
    };
    if form.reasons {
        let mut reason = json!({"type": "string", "maxLength": 200});
        if subset.keeps_descriptions() {
            reason["description"] = json!("Why this call is made, in one sentence.");
        }
        call.put("_reasoningForCall", reason, true);
    }
    if !form.instances.is_empty() {
        // In a plan, a call without one serves them all.
        call.put("_instance", json!({"enum": form.instances}), !form.lazy);
    }
    if let Scopes::Requested(keys) = &tool.scopes {
        call.put(
            "_scopes",
            json!({"type": "array", "items": {"enum": keys}, "maxItems": keys.len()}),
            true,
        );
    }
    for (name, schema, is_required) in parameters.named {
        call.put(&name, schema, is_required);
    }
    // A choice is made with the answer, and not when the call is planned.
    let is_planned = tool.is_latent() && form.lazy;
    match &tool.output_path {
        Some(OutputPath::Fixed(target)) => {
            call.put("_outputPath", json!({"const": target}), true);
        }
        Some(OutputPath::OneOf(_)) if is_planned && !form.answers => {}
        Some(path) => {
            let is_needed = matches!(path, OutputPath::OneOf(_)) && !is_planned;
            let schema = subset.reduce(&path.schema(), &format!("{} output path", tool.name));
            call.put("_outputPath", schema, is_needed);
        }
        None if form.wiring => call.put("_outputPath", references::reference(), false),
        None => {}
    }
    if form.wiring {
        let methods = ["set", "merge", "assign", "push", "concat"];
        call.put("_outputMethod", json!({"enum": methods}), false);
    }
    if tool.is_latent() && (!form.lazy || form.answers) {
        let output = match &tool.output {
            Some(schema) => subset.reduce(schema, &format!("{} output", tool.name)),
            None => json!({}),
        };
        call.put("_output", output, !form.lazy);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Execution;

    fn tool(name: &str) -> Tool {
        Tool {
            parameters: json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
            execution: Execution::Module(name.into()),
            ..Tool::new(name)
        }
    }

    const HOW: Composition<'_> = Composition {
        shape: Shape::Exclusive,
        reasons: true,
        max_calls: 4,
        max_string: None,
        wiring: false,
        lazy: false,
        answers: false,
        instances: &[],
        meta: None,
        advisors: None,
        forced: false,
        demanded: &[],
        forcing: Forcing::Named,
        names: None,
        authored: false,
        reading: ReadingRules::Current,
    };

    #[test]
    fn more_calls_than_a_grammar_counts_are_not_constrained() {
        for (max_calls, most) in [(1_999, json!(1_999)), (2_000, Value::Null)] {
            let how = Composition {
                shape: Shape::Both,
                max_calls,
                ..HOW
            };
            let schema = compose(&[tool("a.b")], None, how);
            assert_eq!(schema["properties"]["calls"]["maxItems"], most);
        }
    }

    /// At most one more choice for each place in the schema, of a fixed length.
    #[test]
    fn references_cost_no_more_than_what_they_are_offered_for() {
        let mut place = json!({"type": "integer", "minimum": 0, "maximum": 100});
        for _ in 0..12 {
            place = json!({"type": "object", "properties": {
                "a": {"type": "array", "items": place}, "b": {"enum": ["x", "y"]}, "c": {"$ref": "#/$defs/D"},
            }, "required": ["a"]});
        }
        let tools: Vec<Tool> = (0..200)
            .map(|n| Tool {
                parameters: json!({"type": "object", "properties": {"p": place}, "$defs": {"D": {
                    "type": "object", "properties": {"d": {"$ref": "#/$defs/D"}, "n": {"type": "number"}},
                }}}),
                ..tool(&format!("a.t{n}"))
            })
            .collect();
        let size = |wiring| {
            compose(&tools, None, Composition { wiring, ..HOW })
                .to_string()
                .len()
        };
        let (plain, wired) = (size(false), size(true));
        assert!(wired < plain * 3 / 2, "{wired} bytes, without {plain}");
    }
}
