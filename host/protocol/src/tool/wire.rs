//! A tool in the form in which a tool message would define it (docs/protocol.md, 3).

use super::{Annotations, Execution, PARAMETERS, Resolve, Scopes, Tool};
use serde_json::{Map, Value, json};

impl Tool {
    /// The Tool that [`Tool::parse`] reads as this one: a JSON Schema of `type: object`, its reserved
    /// properties among the parameters. Examples have no place in it.
    pub fn schema(&self) -> Value {
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        if !self.description.is_empty() {
            schema.insert("description".into(), self.description.as_str().into());
        }
        schema.insert("properties".into(), self.properties().into());
        let keywords = self.parameters.as_object().into_iter().flatten();
        for (keyword, value) in keywords.filter(|_| !self.has_reserved_names()) {
            if !schema.contains_key(keyword) {
                schema.insert(keyword.clone(), value.clone());
            }
        }
        let claims = claims(self.annotations);
        if !claims.is_empty() {
            schema.insert("annotations".into(), claims.into());
        }
        if self.resolve == Resolve::Upfront {
            schema.insert("resolve".into(), json!(self.resolve));
        }
        schema.into()
    }

    /// True if a parameter is called as what is reserved may be.
    fn has_reserved_names(&self) -> bool {
        let parameters = self.parameters.get("properties").and_then(Value::as_object);
        let mut names = parameters.into_iter().flat_map(Map::keys);
        names.any(|name| name.starts_with('_'))
    }

    /// In the order of a call.
    fn properties(&self) -> Map<String, Value> {
        let mut properties = Map::from_iter([("_tool".to_owned(), json!({"const": self.name}))]);
        let mut put = |name: &str, value: Value| drop(properties.insert(name.to_owned(), value));
        match &self.execution {
            Execution::Module(name) => put("_module", json!({"const": name})),
            Execution::Activity(name) => put("_activity", json!({"const": name})),
            Execution::Latent | Execution::Consult => {}
        }
        match &self.scopes {
            Scopes::None => {}
            Scopes::Provisioned(paths) => put("_scopes", json!({"const": paths})),
            Scopes::Requested(paths) => {
                put(
                    "_scopes",
                    json!({"type": "array", "items": {"enum": paths}}),
                );
            }
        }
        if self.has_reserved_names() {
            put(PARAMETERS, self.parameters.clone());
        } else {
            let parameters = self.parameters.get("properties").and_then(Value::as_object);
            for (name, parameter) in parameters.into_iter().flatten() {
                put(name, parameter.clone());
            }
        }
        if let Some(path) = &self.output_path {
            put("_outputPath", path.schema());
        }
        if let Some(output) = &self.output {
            put("_output", output.clone());
        }
        properties
    }
}

/// Those that are made.
fn claims(annotations: Annotations) -> Map<String, Value> {
    let Annotations {
        read_only,
        idempotent,
        destructive,
        open_world,
        fire_and_forget,
    } = annotations;
    let claims = [
        ("readOnly", read_only),
        ("idempotent", idempotent),
        ("destructive", destructive),
        ("openWorld", open_world),
        ("fireAndForget", fire_and_forget),
    ];
    let made = claims.into_iter().filter(|(_, is_made)| *is_made);
    made.map(|(name, _)| (name.to_owned(), true.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_reads_as_the_tool_that_it_was_made_of() {
        for schema in [
            json!({
                "type": "object",
                "description": "The weather of a city.",
                "properties": {
                    "_tool": {"const": "weather"},
                    "_module": {"const": "meteo@1.2"},
                    "_scopes": {"const": ["†user", "†state.home"]},
                    "city": {"type": "string"},
                    "_outputPath": {"const": "†state.a || †state.b"},
                    "_output": {"type": "object"},
                },
                "required": ["city"],
                "additionalProperties": false,
                "annotations": {"readOnly": true, "openWorld": true, "fireAndForget": true},
                "resolve": "upfront",
            }),
            json!({
                "type": "object",
                "properties": {
                    "_tool": {"const": "weather"},
                    "_activity": {"const": "forecast"},
                    "_scopes": {"type": "array", "items": {"enum": ["†user"]}},
                },
                "annotations": {"idempotent": true, "destructive": true},
            }),
            json!({
                "type": "object",
                "properties": {
                    "_tool": {"const": "weather"},
                    "_activity": {"const": "forecast"},
                    "_outputPath": {"type": "string", "pattern": "^†state[.]"},
                },
            }),
            json!({
                "type": "object",
                "properties": {
                    "_tool": {"const": "weather"},
                    "_outputPath": {"type": "string", "enum": ["†state.a", "†state.b && †state.c"]},
                },
            }),
            json!({"type": "object", "properties": {"_tool": {"const": "weather"}}}),
        ] {
            let (tool, _) = Tool::parse("weather", &schema, |_| false).unwrap();
            assert_eq!(tool.schema(), schema);
        }
    }
}
