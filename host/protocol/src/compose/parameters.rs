//! A tool's parameters, one by one: a call holds them beside reserved properties, so their schema
//! cannot stay one piece.

use super::Composition;
use super::references::{self, LEVELS};
use crate::function_names;
use crate::tool::Tool;
use serde_json::{Map, Value, json};
use toolhold_json::grammar_subset::GrammarSubset;

/// Maximum nesting of schemas that is searched for parameters; deeper parts are left open.
const MAX_DEPTH: usize = 8;

pub(super) struct Parameters {
    /// Name, reduced schema, and whether it must be there.
    pub named: Vec<(String, Value, bool)>,
    /// `false`, or the reduced schema of parameters that have no name yet.
    pub additional: Value,
}

/// Which parameters go together is checked on our side. What matters here is that everything that
/// satisfies the tool's schema can be written.
pub(super) fn of(tool: &Tool, how: Composition<'_>, subset: &mut GrammarSubset) -> Parameters {
    let wiring = how.wiring;
    let schema = &tool.parameters;
    let mut found = CollectedParameters::default();
    found.gather(schema, true, 0);
    let required = std::mem::take(&mut found.required);
    let additional = match schema.get("additionalProperties") {
        Some(own) => own.clone(),
        // Closed where the author said nothing, as everywhere.
        None => json!(found.is_open),
    };
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), found.properties().into());
    object.insert("additionalProperties".into(), additional);
    for definitions in ["$defs", "definitions"] {
        if let Some(own) = schema.get(definitions) {
            object.insert(definitions.into(), own.clone());
        }
    }
    let mut reduced = subset.reduce_with(&object.into(), &tool.name, |definition| {
        if wiring {
            // It is at least inside of a parameter.
            references::offer_inside(definition, LEVELS - 1);
        }
    });
    if wiring {
        references::offer_inside(&mut reduced, LEVELS);
    }
    let mut member = |name: &str| reduced.get_mut(name).map(Value::take);
    let additional = member("additionalProperties").unwrap_or(json!(false));
    let named = match member("properties") {
        Some(Value::Object(named)) => named,
        _ => Map::new(),
    };
    let outward = how.names.and_then(|_| function_names::parameters(tool));
    let is_described = subset.keeps_descriptions();
    // Without names that go out, a leading `_` is the host's.
    let is_shown = |name: &String| how.names.is_some() || !name.starts_with('_');
    let named = named.into_iter().filter(|(name, _)| is_shown(name));
    let named = named.map(|(name, schema)| {
        let is_required = required.contains(&name);
        match &outward {
            Some(outward) => {
                let form = outward.outward(&name).into_owned();
                let schema = if is_described && form != name {
                    named_otherwise(schema, &name)
                } else {
                    schema
                };
                (form, schema, is_required)
            }
            None => (name, schema, is_required),
        }
    });
    Parameters {
        named: named.collect(),
        additional,
    }
}

/// Says in a parameter's description how the tool calls it.
fn named_otherwise(mut schema: Value, name: &str) -> Value {
    if let Value::Object(keywords) = &mut schema {
        let own = format!("The tool calls it {name:?}.");
        let description = match keywords.get("description").and_then(Value::as_str) {
            None | Some("") => own,
            Some(description) => format!("{description}\n{own}"),
        };
        keywords.insert("description".into(), description.into());
    }
    schema
}

#[derive(Default)]
struct CollectedParameters {
    /// Schemas that always hold, by parameter.
    always: Map<String, Value>,
    /// Schemas that hold in some cases, by parameter.
    perhaps: Map<String, Value>,
    required: Vec<String>,
    /// Whether there may be parameters that were not found.
    is_open: bool,
}

impl CollectedParameters {
    /// `holds`: whether a call must satisfy `schema` in any case.
    fn gather(&mut self, schema: &Value, holds: bool, depth: usize) {
        let Value::Object(keywords) = schema else {
            return;
        };
        let hides = ["$ref", "patternProperties", "dependentSchemas"];
        if depth > MAX_DEPTH || hides.iter().any(|keyword| keywords.contains_key(*keyword)) {
            self.is_open = true;
        }
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(Value::Object(own)) = keywords.get("properties") {
            for (name, schema) in own {
                self.add(name, schema, holds);
            }
        }
        if let (true, Some(Value::Array(own))) = (holds, keywords.get("required")) {
            for name in own.iter().filter_map(Value::as_str) {
                self.required.push(name.to_owned());
                self.add(name, &json!({}), false);
            }
        }
        for (keyword, all_hold) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
            if let Some(Value::Array(parts)) = keywords.get(keyword) {
                for part in parts {
                    self.gather(part, holds && all_hold, depth + 1);
                }
            }
        }
        for keyword in ["then", "else"] {
            if let Some(part) = keywords.get(keyword) {
                self.gather(part, false, depth + 1);
            }
        }
    }

    fn add(&mut self, name: &str, schema: &Value, holds: bool) {
        if holds {
            // If two schemas hold, either one is wide enough.
            self.always.entry(name).or_insert_with(|| schema.clone());
            return;
        }
        match self.perhaps.entry(name).or_insert_with(|| json!([])) {
            Value::Array(cases) if !cases.contains(schema) => cases.push(schema.clone()),
            _ => {}
        }
    }

    fn properties(self) -> Map<String, Value> {
        let mut properties = self.always;
        for (name, cases) in self.perhaps {
            properties.entry(name).or_insert_with(|| match cases {
                Value::Array(mut cases) if cases.len() == 1 => cases.remove(0),
                cases => json!({"anyOf": cases}),
            });
        }
        properties
    }
}
