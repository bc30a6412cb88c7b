//! Texts of a schema by their meaning: descriptions, names and values. One walk for all who clean, mark or refuse what a
//! model reads in a schema.

use serde_json::{Map, Value};

/// Keys of texts that only describe.
pub const DESCRIPTIONS: [&str; 3] = ["description", "title", "$comment"];

/// Meaning of a key in a schema.
#[derive(Debug, Clone, Copy)]
enum SchemaPart {
    /// A text that only describes.
    Description,
    /// Schemas by names of the author's own, which may be any word.
    Named,
    /// A value, or a pattern, that a call must have.
    Demanded,
    /// A value that a call may have.
    Value,
    /// A schema, or several.
    Schema,
}

impl SchemaPart {
    fn of(key: &str) -> Self {
        match key {
            key if DESCRIPTIONS.contains(&key) => Self::Description,
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
                Self::Named
            }
            "const" | "enum" | "pattern" => Self::Demanded,
            "default" | "examples" => Self::Value,
            _ => Self::Schema,
        }
    }
}

/// Calls `see` with each description in the schema, whose depth is bounded where it was read.
pub fn each(schema: &mut Value, see: &mut dyn FnMut(&mut String)) {
    each_schema(schema, &mut |members| {
        for key in DESCRIPTIONS {
            if let Some(Value::String(text)) = members.get_mut(key) {
                see(text);
            }
        }
    });
}

/// Calls `see` with the members of the schema, and then with those of each schema in it.
pub fn each_schema(schema: &mut Value, see: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Array(items) => {
            for item in items {
                each_schema(item, see);
            }
        }
        Value::Object(members) => {
            see(members);
            for (key, value) in members.iter_mut() {
                match (SchemaPart::of(key), value) {
                    (SchemaPart::Description, Value::String(_))
                    | (SchemaPart::Demanded | SchemaPart::Value, _) => {}
                    (SchemaPart::Named, Value::Object(named)) => {
                        for schema in named.values_mut() {
                            each_schema(schema, see);
                        }
                    }
                    (_, value) => each_schema(value, see),
                }
            }
        }
        _ => {}
    }
}

/// Meaning of a text in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaText {
    /// A model reads it.
    Told,
    /// A call must have it, or match it.
    Demanded,
}

/// The schema with each of its texts as `map` gives it. Names of the author's own stay.
pub fn map_texts(schema: Value, map: &mut dyn FnMut(SchemaText, String) -> String) -> Value {
    match schema {
        Value::String(text) => Value::String(map(SchemaText::Told, text)),
        Value::Array(items) => items.into_iter().map(|item| map_texts(item, map)).collect(),
        Value::Object(members) => {
            let mut mapped = Map::new();
            for (key, value) in members {
                let value = match (SchemaPart::of(&key), value) {
                    (SchemaPart::Named, Value::Object(named)) => {
                        let named = named.into_iter();
                        let named = named.map(|(name, schema)| (name, map_texts(schema, map)));
                        Value::Object(named.collect())
                    }
                    (SchemaPart::Demanded, value) => leaves(value, SchemaText::Demanded, map),
                    (SchemaPart::Value, value) => leaves(value, SchemaText::Told, map),
                    (_, value) => map_texts(value, map),
                };
                mapped.insert(map(SchemaText::Told, key), value);
            }
            Value::Object(mapped)
        }
        other => other,
    }
}

/// A value with each of its texts, keys included, as `map` gives it.
fn leaves(
    value: Value,
    kind: SchemaText,
    map: &mut dyn FnMut(SchemaText, String) -> String,
) -> Value {
    match value {
        Value::String(text) => Value::String(map(kind, text)),
        Value::Array(items) => {
            let items = items.into_iter();
            items.map(|item| leaves(item, kind, map)).collect()
        }
        Value::Object(members) => {
            let mut mapped = Map::new();
            for (key, value) in members {
                let value = leaves(value, kind, map);
                mapped.insert(map(kind, key), value);
            }
            Value::Object(mapped)
        }
        other => other,
    }
}

/// The first name of the author's own, of a property or a definition, that `is_found` finds.
pub fn find_name<'a>(schema: &'a Value, is_found: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    match schema {
        Value::Array(items) => items.iter().find_map(|item| find_name(item, is_found)),
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            match (SchemaPart::of(key), value) {
                (SchemaPart::Description, Value::String(_))
                | (SchemaPart::Demanded | SchemaPart::Value, _) => None,
                (SchemaPart::Named, Value::Object(named)) => {
                    named.iter().find_map(|(name, schema)| {
                        let own = is_found(name).then_some(name.as_str());
                        own.or_else(|| find_name(schema, is_found))
                    })
                }
                // A required property may have no schema.
                (_, Value::Array(names)) if key == "required" => {
                    let mut names = names.iter().filter_map(Value::as_str);
                    names.find(|name| is_found(name))
                }
                (_, value) => find_name(value, is_found),
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_text_that_describes_is_seen_and_no_value() {
        let named = |key: &str| json!({key: {"title": {"description": "a", "enum": ["e"]}}});
        let seen = |key: &str| json!({key: {"title": {"description": "seen", "enum": ["e"]}}});
        for key in [
            "properties",
            "patternProperties",
            "dependentSchemas",
            "$defs",
            "definitions",
        ] {
            let mut schema = named(key);
            each(&mut schema, &mut |text| *text = "seen".into());
            assert_eq!(schema, seen(key));
        }
        let mut schema = json!({"title": "a", "$comment": "a", "anyOf": [{"description": "a"}],
            "default": {"description": "a"}, "const": {"title": "a"}, "required": ["title"]});
        each(&mut schema, &mut |text| *text = "seen".into());
        assert_eq!(
            schema,
            json!({"title": "seen", "$comment": "seen", "anyOf": [{"description": "seen"}],
                "default": {"description": "a"}, "const": {"title": "a"}, "required": ["title"]})
        );
    }

    #[test]
    fn each_text_is_mapped_as_what_it_is_for_and_names_stay() {
        let schema = json!({
            "title": "t", "properties": {"enum": {"enum": ["d", {"d": 1}], "default": ["t"]}, "a": {"pattern": "d"}},
            "anyOf": [{"const": "d", "x-t": ["t"]}],
        });
        let marked = map_texts(schema, &mut |kind, text| match (kind, text.as_str()) {
            (SchemaText::Told, "t") => "told".into(),
            (SchemaText::Demanded, "d") => "demanded".into(),
            _ => text,
        });
        assert_eq!(
            marked,
            json!({
                "title": "told", "anyOf": [{"const": "demanded", "x-t": ["told"]}],
                "properties": {
                    "enum": {"enum": ["demanded", {"demanded": 1}], "default": ["told"]},
                    "a": {"pattern": "demanded"},
                },
            })
        );
    }

    #[test]
    fn a_name_is_found_where_a_model_would_read_it() {
        let find = |schema: &Value| {
            let found = find_name(schema, &|name| name == "x");
            found.map(str::to_owned)
        };
        let named = json!({"x": {}});
        for schema in [
            json!({"properties": named}),
            json!({"$defs": named}),
            json!({"required": ["a", "x"]}),
            json!({"anyOf": [{"items": {"properties": {"required": {"properties": named}}}}]}),
            json!({"properties": {"enum": {"required": ["x"]}}}),
        ] {
            assert_eq!(find(&schema).as_deref(), Some("x"), "{schema}");
        }
        for schema in [
            json!({"x": {}, "description": "x", "type": "x"}),
            json!({"enum": [{"properties": named}], "default": {"required": ["x"]}}),
            json!({"properties": {"required": {"const": "x"}, "y": true}}),
        ] {
            assert_eq!(find(&schema), None, "{schema}");
        }
    }
}
