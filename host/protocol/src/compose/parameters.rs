//! A tool's parameters, one by one: a call holds them beside reserved properties, so their schema
//! cannot stay one piece.

use super::references::{self, LEVELS};
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
pub(super) fn of(tool: &Tool, wiring: bool, subset: &mut GrammarSubset) -> Parameters {
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
    let named = named.into_iter().map(|(name, schema)| {
        let is_required = required.contains(&name);
        (name, schema, is_required)
    });
    Parameters {
        named: named.collect(),
        additional,
    }
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
            for (name, schema) in own.iter().filter(|(name, _)| !name.starts_with('_')) {
                self.add(name, schema, holds);
            }
        }
        if let (true, Some(Value::Array(own))) = (holds, keywords.get("required")) {
            let names = own.iter().filter_map(Value::as_str);
            for name in names.filter(|name| !name.starts_with('_')) {
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
