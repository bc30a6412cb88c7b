//! What a guest is told of the call that it serves, besides its arguments (PROTOCOL.md, 6).

use crate::bindings::current_call;
use crate::module::Module;
use crate::state::State;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_policy::Invocation;
use toolhold_policy::ToolSpec;

/// The call of one store. It is put into words when a guest asks, which few do. The default is no
/// call: a guest is asked for its tools.
#[derive(Debug, Default)]
pub(crate) struct CurrentCall(Option<Told>);

#[derive(Debug)]
struct Told {
    /// As it was called.
    name: String,
    reserved: Map<String, Value>,
    schema: Schema,
}

#[derive(Debug)]
enum Schema {
    /// What the caller said.
    Given(Arc<Value>),
    /// What the module says of its tool of this name.
    Own(Arc<Module>, String),
}

impl CurrentCall {
    /// `tool` is the name that `module` has for what is called.
    pub fn new(module: &Arc<Module>, tool: &str, invocation: &Invocation<'_>) -> Self {
        Self(Some(Told {
            name: invocation.tool.to_owned(),
            reserved: invocation.reserved.cloned().unwrap_or_default(),
            schema: match &invocation.tool_schema {
                Some(schema) => Schema::Given(schema.clone()),
                None => Schema::Own(module.clone(), format!("{}.{tool}", module.name)),
            },
        }))
    }

    fn reserved_properties(&self) -> String {
        let Some(told) = &self.0 else {
            return "{}".into();
        };
        let mut properties = told.reserved.clone();
        let name = || told.name.as_str().into();
        properties.entry("_tool").or_insert_with(name);
        Value::from(properties).to_string()
    }

    fn tool_schema(&self) -> String {
        match self.0.as_ref().map(|told| &told.schema) {
            Some(Schema::Given(schema)) => schema.to_string(),
            Some(Schema::Own(module, name)) => {
                let mut tools = module.tools.iter();
                let spec = tools.find(|spec| spec.name == *name);
                spec.map_or_else(|| "{}".into(), |spec| schema(spec).to_string())
            }
            None => "{}".into(),
        }
    }
}

impl current_call::Host for State {
    fn reserved_properties(&mut self) -> wasmtime::Result<String> {
        self.told(self.current.reserved_properties())
    }

    fn tool_schema(&mut self) -> wasmtime::Result<String> {
        self.told(self.current.tool_schema())
    }
}

impl State {
    fn told(&self, text: String) -> wasmtime::Result<String> {
        self.gauge.moved(text.len() as u64)?;
        Ok(text)
    }
}

/// A tool as its module describes it, in the form of PROTOCOL.md, 3.
fn schema(spec: &ToolSpec) -> Value {
    let mut schema = spec.input_schema.clone();
    let Value::Object(keywords) = &mut schema else {
        return schema;
    };
    if !spec.description.is_empty() {
        keywords.insert("description".into(), spec.description.clone().into());
    }
    let own = keywords.get_mut("properties").map(Value::take);
    let mut properties = Map::from_iter([("_tool".to_owned(), json!({"const": spec.name}))]);
    if let Some(Value::Object(own)) = own {
        properties.extend(own);
    }
    if let Some(output) = &spec.output_schema {
        properties.insert("_output".into(), output.clone());
    }
    keywords.insert("properties".into(), properties.into());
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_policy::Annotations;
    use toolhold_policy::DocsSource;

    #[test]
    fn a_tool_is_described_as_its_module_does() {
        let spec = ToolSpec {
            name: "m.add".into(),
            title: None,
            description: "Adds.".into(),
            input_schema: json!({
                "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            }),
            output_schema: Some(json!({"type": "integer"})),
            annotations: Annotations::default(),
            examples: Vec::new(),
            docs_source: DocsSource::Module,
        };
        let expect = json!({
            "type": "object",
            "description": "Adds.",
            "properties": {
                "_tool": {"const": "m.add"},
                "a": {"type": "integer"},
                "_output": {"type": "integer"},
            },
            "required": ["a"],
        });
        assert_eq!(schema(&spec), expect);
        let bare = ToolSpec {
            input_schema: json!({"type": "object"}),
            output_schema: None,
            description: String::new(),
            ..spec
        };
        let expect = json!({"type": "object", "properties": {"_tool": {"const": "m.add"}}});
        assert_eq!(schema(&bare), expect);
    }

    #[test]
    fn without_a_call_there_is_nothing_to_tell() {
        let none = CurrentCall::default();
        assert_eq!(none.reserved_properties(), "{}");
        assert_eq!(none.tool_schema(), "{}");
    }
}
