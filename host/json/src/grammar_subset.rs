//! JSON Schema → the part of it that every endpoint's grammar understands.
//!
//! Servers ignore, refuse or misread many keywords (docs/toolchains.md, "What grammars support"), and those
//! that ignore one answer 200. So what is sent is a wider schema made of safe keywords, and the full
//! schema is validated on our side. The subset never makes a schema narrower, except that objects are
//! closed where the author said nothing, and strings are bounded where asked.

use serde_json::{Map, Value, json};

/// Formats that all three grammars enforce alike.
const FORMATS: [&str; 4] = ["date", "time", "date-time", "uuid"];
/// Deeper schemas are cut off into "anything"; no tool that a model can use comes near.
const MAX_DEPTH: usize = 32;
/// llama.cpp refuses grammars that repeat more than this often. Longer things are measured on our side only.
pub const MAX_REPETITIONS: u32 = 1_999;

/// Reduces several schemas to the grammar subset, for one document; their `$defs` are hoisted under names of their own.
#[derive(Debug)]
pub struct GrammarSubset {
    max_string: Option<u32>,
    keeps_descriptions: bool,
    definitions: Map<String, Value>,
}

impl GrammarSubset {
    pub fn new(max_string: Option<u32>) -> Self {
        Self {
            max_string,
            keeps_descriptions: false,
            definitions: Map::new(),
        }
    }

    /// Descriptions stay: this is all that a model sees of the schema, and not only its grammar.
    #[must_use]
    pub fn with_descriptions(self) -> Self {
        Self {
            keeps_descriptions: true,
            ..self
        }
    }

    pub fn keeps_descriptions(&self) -> bool {
        self.keeps_descriptions
    }

    /// `schema` in safe keywords. `owner` keeps the definitions of different schemas apart.
    pub fn reduce(&mut self, schema: &Value, owner: &str) -> Value {
        self.reduce_with(schema, owner, |_| ())
    }

    /// Returns `schema` in safe keywords; `change` is applied to each of its definitions before it is hoisted.
    pub fn reduce_with(
        &mut self,
        schema: &Value,
        owner: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        let prefix: String = owner
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        for keyword in ["$defs", "definitions"] {
            if let Some(Value::Object(definitions)) = schema.get(keyword) {
                for (name, definition) in definitions {
                    let mut reduced = self.node(definition, &prefix, 0);
                    change(&mut reduced);
                    self.definitions.insert(format!("{prefix}_{name}"), reduced);
                }
            }
        }
        self.node(schema, &prefix, 0)
    }

    /// Hoists a schema that is reduced already. The names of others hold an underscore.
    pub fn define(&mut self, name: &str, schema: Value) {
        self.definitions.insert(name.to_owned(), schema);
    }

    /// `schema` with all hoisted definitions.
    pub fn finish(self, mut schema: Value) -> Value {
        if let (Value::Object(root), false) = (&mut schema, self.definitions.is_empty()) {
            root.insert("$defs".into(), Value::Object(self.definitions));
        }
        schema
    }

    fn node(&self, schema: &Value, prefix: &str, depth: usize) -> Value {
        let mut reduced = self.undescribed(schema, prefix, depth);
        if let (true, Some(description), Value::Object(reduced)) = (
            self.keeps_descriptions,
            schema.get("description").filter(|text| text.is_string()),
            &mut reduced,
        ) {
            reduced.insert("description".into(), description.clone());
        }
        reduced
    }

    fn undescribed(&self, schema: &Value, prefix: &str, depth: usize) -> Value {
        let Value::Object(schema) = schema else {
            // `true` is any value; `false` cannot be said in a grammar and is left to validation.
            return json!({});
        };
        if depth > MAX_DEPTH {
            return json!({});
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            let name = reference
                .strip_prefix("#/$defs/")
                .or_else(|| reference.strip_prefix("#/definitions/"));
            // Other references (`#`, `#anchor`, URLs) are refused by servers: anything goes there.
            return name.map_or(
                json!({}),
                |name| json!({"$ref": format!("#/$defs/{prefix}_{name}")}),
            );
        }
        if let Some(Value::Array(all)) = schema.get("allOf") {
            return match all.as_slice() {
                [only] => self.node(only, prefix, depth + 1),
                _ => json!({}),
            };
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                let branches: Vec<_> = branches
                    .iter()
                    .map(|b| self.node(b, prefix, depth + 1))
                    .collect();
                return json!({"anyOf": branches});
            }
        }
        for keyword in ["const", "enum"] {
            if let Some(value) = schema.get(keyword) {
                return json!({keyword: value});
            }
        }
        self.typed(schema, prefix, depth)
    }

    fn typed(&self, schema: &Map<String, Value>, prefix: &str, depth: usize) -> Value {
        let mut types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => {
                let mut types = Vec::new();
                for ty in many.iter().filter_map(Value::as_str) {
                    // Each type reduces the parts again: one that is listed twice doubles them at each level.
                    if !types.contains(&ty) {
                        types.push(ty);
                    }
                }
                types
            }
            _ if schema.contains_key("properties") => vec!["object"],
            _ => return json!({}),
        };
        if schema.get("nullable") == Some(&Value::Bool(true)) && !types.contains(&"null") {
            types.push("null");
        }
        let mut branches: Vec<Value> = types
            .iter()
            .map(|ty| self.one_type(ty, schema, prefix, depth))
            .collect();
        match branches.len() {
            1 => branches.remove(0),
            _ => json!({"anyOf": branches}),
        }
    }

    fn one_type(&self, ty: &str, schema: &Map<String, Value>, prefix: &str, depth: usize) -> Value {
        let mut out = Map::new();
        out.insert("type".into(), json!(ty));
        // Wider than what the author said, never narrower.
        let bounds = |out: &mut Map<String, Value>, least: &str, most: &str| {
            if let Some(value) = schema.get(least) {
                let value = if is_beyond_grammars(value) {
                    json!(MAX_REPETITIONS)
                } else {
                    value.clone()
                };
                out.insert(least.into(), value);
            }
            if let Some(value) = schema.get(most).filter(|most| !is_beyond_grammars(most)) {
                out.insert(most.into(), value.clone());
            }
        };
        match ty {
            "object" => {
                let properties: Map<String, Value> = match schema.get("properties") {
                    Some(Value::Object(own)) => own
                        .iter()
                        .map(|(k, v)| (k.clone(), self.node(v, prefix, depth + 1)))
                        .collect(),
                    _ => Map::new(),
                };
                let additional = match schema.get("additionalProperties") {
                    // A free-form object stays free; one with properties is closed.
                    None if properties.is_empty() => None,
                    None | Some(Value::Bool(false)) => Some(json!(false)),
                    Some(schema) => Some(self.node(schema, prefix, depth + 1)),
                };
                if let Some(Value::Array(required)) = schema.get("required") {
                    // A required key without a schema of its own confuses two of three grammars.
                    let known = required
                        .iter()
                        .filter(|k| k.as_str().is_some_and(|k| properties.contains_key(k)));
                    out.insert("required".into(), known.cloned().collect());
                }
                if !properties.is_empty() {
                    out.insert("properties".into(), Value::Object(properties));
                }
                if let Some(additional) = additional {
                    out.insert("additionalProperties".into(), additional);
                }
            }
            "array" => {
                let items = match (schema.get("prefixItems"), schema.get("items")) {
                    (Some(Value::Array(each)), _) => {
                        let each: Vec<_> = each
                            .iter()
                            .map(|i| self.node(i, prefix, depth + 1))
                            .collect();
                        json!({"anyOf": each})
                    }
                    (_, Some(items)) => self.node(items, prefix, depth + 1),
                    _ => json!({}),
                };
                out.insert("items".into(), items);
                bounds(&mut out, "minItems", "maxItems");
            }
            "string" => {
                let text = |key| schema.get(key).and_then(Value::as_str);
                // A pattern together with a length is ignored by two of three.
                if let Some(pattern) = text("pattern").filter(|p| is_safe_pattern(p)) {
                    return json!({"type": ty, "pattern": pattern});
                }
                if let Some(format) = text("format").filter(|f| FORMATS.contains(f)) {
                    return json!({"type": ty, "format": format});
                }
                bounds(&mut out, "minLength", "maxLength");
                if let (Some(max), None) = (self.max_string, schema.get("maxLength")) {
                    let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
                    let most = json!(u64::from(max).max(least));
                    if !is_beyond_grammars(&most) {
                        out.insert("maxLength".into(), most);
                    }
                }
            }
            "integer" => {
                for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
                    if let Some(bound) = schema.get(key) {
                        out.insert(key.into(), bound.clone());
                    }
                }
            }
            _ => {}
        }
        Value::Object(out)
    }
}

fn is_beyond_grammars(bound: &Value) -> bool {
    bound
        .as_f64()
        .is_some_and(|bound| bound > f64::from(MAX_REPETITIONS))
}

/// Anchored at both ends, and without the classes that llama.cpp reads as letters.
fn is_safe_pattern(pattern: &str) -> bool {
    pattern.starts_with('^')
        && pattern.ends_with('$')
        && !pattern.contains('\\')
        && !pattern.contains("(?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_constructs_become_safe_ones() {
        let reduce = |schema: Value| GrammarSubset::new(None).reduce(&schema, "t");
        for (schema, expect) in [
            (json!(true), json!({})),
            (
                json!({"type": ["string", "null"]}),
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ),
            (
                json!({"type": "string", "nullable": true}),
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ),
            (
                json!({"type": "number", "minimum": 0.5}),
                json!({"type": "number"}),
            ),
            (
                json!({"type": "integer", "minimum": 1}),
                json!({"type": "integer", "minimum": 1}),
            ),
            (
                json!({"type": "string", "pattern": "\\d+"}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]$", "maxLength": 3}),
                json!({"type": "string", "pattern": "^[a-z]$"}),
            ),
            (
                json!({"type": "string", "format": "email"}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "array", "uniqueItems": true}),
                json!({"type": "array", "items": {}}),
            ),
            (json!({"type": "object"}), json!({"type": "object"})),
            (
                json!({"oneOf": [{"const": 1}]}),
                json!({"anyOf": [{"const": 1}]}),
            ),
        ] {
            assert_eq!(reduce(schema.clone()), expect, "{schema}");
        }
    }

    #[test]
    fn definitions_of_two_tools_do_not_meet() {
        let mut subset = GrammarSubset::new(None);
        let a = subset.reduce(
            &json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}),
            "a.x",
        );
        let b = subset.reduce(
            &json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "string"}}}),
            "b.x",
        );
        let all = subset.finish(json!({"anyOf": [a, b]}));
        assert_eq!(all["$defs"]["a_x_N"]["type"], "integer");
        assert_eq!(all["$defs"]["b_x_N"]["type"], "string");
        assert_eq!(all["anyOf"][1]["$ref"], "#/$defs/b_x_N");
    }

    #[test]
    fn unbounded_strings_get_a_bound() {
        let mut subset = GrammarSubset::new(Some(50));
        assert_eq!(
            subset.reduce(&json!({"type": "string"}), "t")["maxLength"],
            50
        );
        assert_eq!(
            subset.reduce(&json!({"type": "string", "maxLength": 9}), "t")["maxLength"],
            9
        );
        assert_eq!(
            subset.reduce(&json!({"type": "string", "minLength": 60}), "t")["maxLength"],
            60
        );
    }

    #[test]
    fn bounds_beyond_a_grammar_are_left_to_validation() {
        for (schema, expect) in [
            (
                json!({"type": "string", "minLength": 1_999, "maxLength": 1_999}),
                json!({"type": "string", "minLength": 1_999, "maxLength": 1_999}),
            ),
            (
                json!({"type": "string", "minLength": 1, "maxLength": 2_000}),
                json!({"type": "string", "minLength": 1}),
            ),
            (
                json!({"type": "string", "minLength": 5_000, "maxLength": 65_536.0}),
                json!({"type": "string", "minLength": 1_999}),
            ),
            // Its author bounded it.
            (
                json!({"type": "string", "maxLength": 65_536}),
                json!({"type": "string"}),
            ),
            // No bound can be told that fits.
            (
                json!({"type": "string", "minLength": 2_000}),
                json!({"type": "string", "minLength": 1_999}),
            ),
            (
                json!({"type": "array", "minItems": 5_000, "maxItems": 6_000}),
                json!({"type": "array", "items": {}, "minItems": 1_999}),
            ),
        ] {
            let reduced = GrammarSubset::new(Some(50)).reduce(&schema, "t");
            assert_eq!(reduced, expect, "{schema}");
        }
    }

    #[test]
    fn a_type_that_is_listed_twice_counts_once() {
        let nested = (0..30).fold(
            json!({}),
            |inner, _| json!({"type": ["array", "array", "null"], "items": inner}),
        );
        let reduced = GrammarSubset::new(None).reduce(&nested, "t");
        assert!(reduced.to_string().len() < 4_000);
    }
}
