//! Information about the current call that a guest can ask for, besides its arguments (`docs/protocol.md`,
//! 6).

use super::meter::{Gauge, KeptTooMuch};
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use toolhold_admission::MemoryReservation;
use toolhold_policy::{Invocation, ToolSpec};

/// A module's descriptions of its own tools, by their names in the module.
pub(crate) trait DescribeTools: Debug + Send + Sync {
    fn describe(&self, tool: &str) -> Option<&ToolSpec>;
}

/// The call of one store. It is turned into text when a guest asks, which few do. The default is no
/// call: a guest that lists its tools.
#[derive(Debug, Default)]
pub(crate) struct CurrentCall(Option<CurrentTool>);

#[derive(Debug)]
struct CurrentTool {
    /// As it was called.
    name: String,
    /// The reserved properties as JSON text. Empty: there are none.
    reserved: String,
    /// Whether they name the tool.
    names_tool: bool,
    /// The memory of that text.
    kept: Option<MemoryReservation>,
    schema: Schema,
}

#[derive(Debug)]
enum Schema {
    /// What the caller said.
    CallPolicy(Arc<Value>),
    /// What the module says of its tool.
    Own(Arc<dyn DescribeTools>),
}

impl CurrentCall {
    /// `module` is the one of the tool that is called.
    pub fn new(module: Arc<dyn DescribeTools>, invocation: &Invocation<'_>) -> Self {
        Self(Some(CurrentTool {
            name: invocation.tool.to_owned(),
            reserved: String::new(),
            names_tool: false,
            kept: None,
            schema: match &invocation.tool_schema {
                Some(schema) => Schema::CallPolicy(schema.clone()),
                None => Schema::Own(module),
            },
        }))
    }

    /// Keeps the call's reserved properties, now that the call has its place.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn keep_reserved(
        &mut self,
        reserved: &Map<String, Value>,
        gauge: &Gauge,
    ) -> Result<(), KeptTooMuch> {
        if let Some(told) = &mut self.0 {
            let text = serde_json::to_string(reserved).unwrap_or_default();
            told.kept = gauge.keep_arguments(text.len() as u64)?;
            told.reserved = text;
            told.names_tool = reserved.contains_key("_tool");
        }
        Ok(())
    }

    /// The reserved properties as JSON text.
    pub fn reserved_properties(&self) -> String {
        let Some(told) = &self.0 else {
            return "{}".into();
        };
        let name = Value::from(told.name.as_str());
        match told.reserved.strip_suffix('}') {
            None | Some("{") => format!("{{\"_tool\":{name}}}"),
            Some(_) if told.names_tool => told.reserved.clone(),
            Some(open) => format!("{open},\"_tool\":{name}}}"),
        }
    }

    /// The tool's schema as JSON text.
    pub fn tool_schema(&self) -> String {
        let Some(told) = &self.0 else {
            return "{}".into();
        };
        match &told.schema {
            Schema::CallPolicy(schema) => schema.to_string(),
            Schema::Own(module) => {
                let own_name = told.name.rsplit('.').next().unwrap_or_default();
                let spec = module.describe(own_name);
                spec.map_or_else(|| "{}".into(), |spec| schema(spec).to_string())
            }
        }
    }
}

/// A tool as its module describes it, in the form of `docs/protocol.md`, 3.
fn schema(spec: &ToolSpec) -> Value {
    let mut schema = spec.input_schema.clone();
    let Value::Object(keywords) = &mut schema else {
        return schema;
    };
    if !spec.description.is_empty() {
        keywords.insert("description".into(), spec.description.raw().into());
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
            description: "".into(),
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
