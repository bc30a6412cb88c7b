//! Reads and cleans what a server says about its tools: names, texts and schemas are untrusted.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_policy::{text, visible};
use toolhold_protocol::function_names;
use toolhold_protocol::tool::{Annotations, Execution, Tool};
use toolhold_schema::{Validator, loosened};

// The limits of modules (`sandbox/src/module/world.rs`).
const MAX_DESCRIPTION: usize = 4_000;
const MAX_TITLE: usize = 100;
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Depth of a schema, because code that reads schemas is recursive.
const MAX_SCHEMA_DEPTH: usize = 32;
const MAX_NAME: usize = 128;

/// One tool of a server, as it is pinned and as models see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The operator's name for the tool.
    pub name: String,
    /// The server's own name for it, where the operator's is another notation of that. It is part of the pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    pub annotations: Annotations,
    /// True if a keyword of its schemas cannot be checked. The pin has the schemas as they were written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_loose: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// All tools of a server, by whether they may be called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// Tools that may be called, sorted by name.
    pub tools: Vec<OfferedTool>,
    /// Tools that the operator named and that cannot be used, by the operator's names, with the reason.
    pub refused: Vec<(String, String)>,
    /// Names of tools that the operator did not name.
    pub others: Vec<(String, String)>,
}

/// The listed tools that the operator named.
#[derive(Debug, Default)]
struct NamedTools {
    /// The operator's names, by those of the server.
    by_listed: BTreeMap<String, String>,
    /// The operator's names that stand for no tool with certainty, with the reason.
    refused: Vec<(String, String)>,
}

/// The compiled schemas of a tool.
#[derive(Debug)]
pub struct Checks {
    pub arguments: Validator,
    pub output: Option<Validator>,
}

impl Offer {
    /// Reads the elements of `tools/list`; `allowed` are the names that the operator gave.
    pub fn read(listed: Vec<Value>, allowed: &[String]) -> Self {
        let named = NamedTools::among(&listed, allowed);
        let mut offer = Self {
            refused: named.refused,
            ..Self::default()
        };
        let mut tools: BTreeMap<String, OfferedTool> = BTreeMap::new();
        for tool in listed {
            let listed_name = listed_name(&tool).to_owned();
            let text = description(&tool);
            let Some(name) = named.by_listed.get(&listed_name).cloned() else {
                offer.others.push((visible(&listed_name, MAX_NAME), text));
                continue;
            };
            if tools.contains_key(&name) {
                offer.refused.push((name, "it is listed twice".into()));
                continue;
            }
            match OfferedTool::read(name.clone(), text, tool) {
                Ok(tool) => {
                    let listed_name = (listed_name != name).then_some(listed_name);
                    tools.insert(
                        name,
                        OfferedTool {
                            listed_name,
                            ..tool
                        },
                    );
                }
                Err(reason) => offer.refused.push((name, reason)),
            }
        }
        offer.tools = tools.into_values().collect();
        offer
    }

    /// The schemas that a call's arguments and result must satisfy, by tool.
    pub fn checks(&self) -> BTreeMap<String, Checks> {
        self.tools
            .iter()
            .filter_map(|tool| Some((tool.name.clone(), tool.checks().ok()?)))
            .collect()
    }
}

impl NamedTools {
    fn among(listed: &[Value], allowed: &[String]) -> Self {
        let listed: BTreeSet<&str> = listed.iter().map(listed_name).collect();
        let allowed: BTreeSet<&str> = allowed.iter().map(String::as_str).collect();
        let mut found = Self::default();
        let mut names_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in allowed {
            match function_names::configured(name, listed.iter().copied()) {
                Ok(Some(tool)) => names_of.entry(tool).or_default().push(name),
                Ok(None) => {}
                Err(ambiguous) => found.refused.push((name.to_owned(), ambiguous.to_string())),
            }
        }
        for (tool, names) in names_of {
            // A run must not see one tool as two.
            let own = match names.as_slice() {
                [name] => Some(*name),
                several => several.iter().copied().find(|name| *name == tool),
            };
            if let Some(own) = own {
                found.by_listed.insert(tool.to_owned(), own.to_owned());
            }
            for name in names.into_iter().filter(|name| Some(*name) != own) {
                let reason =
                    format!("it stands for the tool {tool:?}, as another name does; keep one");
                found.refused.push((name.to_owned(), reason));
            }
        }
        found
    }
}

impl OfferedTool {
    /// The server's own name for the tool.
    pub fn server_name(&self) -> &str {
        self.listed_name.as_deref().unwrap_or(&self.name)
    }

    fn read(name: String, description: String, mut tool: Value) -> Result<Self, String> {
        let title = ["/title", "/annotations/title"]
            .iter()
            .find_map(|place| tool.pointer(place)?.as_str())
            .map(|title| visible(title, MAX_TITLE));
        let input_schema = schema(&mut tool, "inputSchema")?.ok_or("it has no input schema")?;
        let output_schema = schema(&mut tool, "outputSchema")?;
        let is_loose = [Some(&input_schema), output_schema.as_ref()]
            .into_iter()
            .flatten()
            .any(|schema| loosened(schema).is_some());
        let tool = Self {
            name,
            listed_name: None,
            title,
            description,
            output_schema,
            input_schema,
            annotations: annotations(&tool),
            is_loose,
        };
        tool.checks()?;
        Ok(tool)
    }

    /// Words about the keywords of its schemas that are not checked.
    pub fn unchecked(&self) -> Vec<String> {
        if !self.is_loose {
            return Vec::new();
        }
        let input = Some((&self.input_schema, "input"));
        let output = self.output_schema.as_ref().map(|own| (own, "output"));
        let schemas = [input, output].into_iter().flatten();
        let told = schemas.filter_map(|(schema, what)| {
            let of = format!("the {what} schema of the tool {:?}", self.name);
            Some(loosened(schema)?.told(&of))
        });
        told.flatten().collect()
    }

    /// A schema as calls are checked against it: without keywords that cannot be checked.
    fn checked<'a>(&self, schema: &'a Value) -> Cow<'a, Value> {
        let loose = self.is_loose.then(|| loosened(schema)).flatten();
        loose.map_or(Cow::Borrowed(schema), |loose| Cow::Owned(loose.schema))
    }

    /// The tool as a run offers it under `name`.
    ///
    /// # Errors
    /// Why the run cannot offer it.
    pub fn tool(&self, name: &str) -> Result<Tool, String> {
        let output = self.output_schema.as_ref();
        let output = output.map(|schema| self.checked(schema));
        let tool = Tool {
            description: self.description.clone(),
            parameters: self.checked(&self.input_schema).into_owned(),
            output: output.map(Cow::into_owned),
            execution: Execution::Module(name.to_owned()),
            annotations: self.annotations,
            ..Tool::new(name)
        };
        if let Some(reserved) = tool.reserved_parameter() {
            return Err(format!(
                "its parameter {reserved:?} is called as a property that the host uses"
            ));
        }
        Ok(tool)
    }

    /// The schemas that its calls must satisfy.
    ///
    /// # Errors
    /// A schema is invalid.
    pub fn checks(&self) -> Result<Checks, String> {
        let compiled = |what: &str, schema: &Value| {
            Validator::new(&self.checked(schema)).map_err(|error| {
                format!(
                    "its {what} schema cannot be used: {}",
                    visible(&error.to_string(), 300)
                )
            })
        };
        Ok(Checks {
            arguments: compiled("input", &self.input_schema)?,
            output: self
                .output_schema
                .as_ref()
                .map(|schema| compiled("output", schema))
                .transpose()?,
        })
    }
}

fn listed_name(tool: &Value) -> &str {
    tool.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn description(tool: &Value) -> String {
    let text = tool.get("description").and_then(Value::as_str);
    text::description(text.unwrap_or_default().trim(), MAX_DESCRIPTION)
}

fn schema(tool: &mut Value, key: &str) -> Result<Option<Value>, String> {
    let Some(schema) = tool
        .get_mut(key)
        .map(Value::take)
        .filter(|schema| !schema.is_null())
    else {
        return Ok(None);
    };
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(format!("its {key} has more than {MAX_SCHEMA_BYTES} bytes"));
    }
    if !is_at_most(&schema, MAX_SCHEMA_DEPTH) {
        return Err(format!(
            "its {key} is more than {MAX_SCHEMA_DEPTH} levels deep"
        ));
    }
    let schema = text::visible_schema(schema)
        .map_err(|unseen| format!("its {key} cannot be used: {unseen}"))?;
    let mut schema = schema;
    // Arguments and results are objects, whether a schema says it or not.
    let is_object = match schema.get("type") {
        None => true,
        Some(Value::String(kind)) => kind.eq_ignore_ascii_case("object"),
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(_) => false,
    };
    match schema.as_object_mut().filter(|_| is_object) {
        Some(keywords) => keywords.insert("type".to_owned(), "object".into()),
        None => return Err(format!("its {key} must be of \"type\": \"object\"")),
    };
    Ok(Some(schema))
}

/// Whether `value` has at most `depth` arrays and objects inside each other.
pub fn is_at_most(value: &Value, depth: usize) -> bool {
    let Some(inner) = depth.checked_sub(1) else {
        return !value.is_array() && !value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().all(|item| is_at_most(item, inner)),
        Value::Object(fields) => fields.values().all(|field| is_at_most(field, inner)),
        _ => true,
    }
}

/// The hints with MCP's defaults, which assume the worst.
fn annotations(tool: &Value) -> Annotations {
    let hint = |name: &str, default| {
        let hint = tool.get("annotations").and_then(|hints| hints.get(name));
        hint.and_then(Value::as_bool).unwrap_or(default)
    };
    let read_only = hint("readOnlyHint", false);
    Annotations {
        read_only,
        destructive: !read_only && hint("destructiveHint", true),
        idempotent: read_only || hint("idempotentHint", false),
        open_world: hint("openWorldHint", true),
        fire_and_forget: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(tools: Value) -> Offer {
        let Value::Array(tools) = tools else {
            panic!("a list");
        };
        Offer::read(tools, &["a".into(), "b-c".into()])
    }

    #[test]
    fn only_what_was_named_is_offered_and_it_is_cleaned() {
        let offer = read(json!([
            {"name": "b-c", "title": "t\u{200b}", "description": "does\u{202e} it",
             "inputSchema": {"type": "object", "properties": {"x": {"description": "y\u{e0041}", "enum": ["\r\n", "z"]}}},
             "annotations": {"readOnlyHint": true}},
            {"name": "a", "inputSchema": {"type": "object"}},
            {"name": "other\u{1b}[2J", "description": "d", "inputSchema": {"type": "object"}},
        ]));
        let names: Vec<_> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b-c"]);
        let tool = &offer.tools[1];
        assert_eq!(
            (tool.title.as_deref(), tool.description.as_str()),
            (Some("t"), "does it")
        );
        assert_eq!(
            tool.input_schema["properties"],
            json!({"x": {"description": "y", "enum": ["\r\n", "z"]}})
        );
        assert!(tool.annotations.read_only && tool.annotations.idempotent);
        assert!(!tool.annotations.destructive && tool.annotations.open_world);
        let worst = offer.tools[0].annotations;
        assert!(worst.destructive && worst.open_world && !worst.read_only && !worst.idempotent);
        assert_eq!(offer.others, [("other[2J".to_owned(), "d".to_owned())]);
    }

    #[test]
    fn a_named_tool_may_be_listed_in_another_notation() {
        let listed = |names: &[&str]| -> Vec<Value> {
            let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
            names.iter().map(tool).collect()
        };
        let read = |names: &[&str], allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            Offer::read(listed(names), &allowed)
        };
        let offer = read(&["calculator-evaluate", "other"], &["calculator.evaluate"]);
        let tool = &offer.tools[0];
        assert_eq!(tool.name, "calculator.evaluate");
        assert_eq!(tool.server_name(), "calculator-evaluate");
        assert_eq!((offer.tools.len(), offer.others.len()), (1, 1));
        let pinned = json!(offer.tools);
        assert_eq!(pinned[0]["listed_name"], "calculator-evaluate");

        let exact = read(&["a.b", "a-b"], &["a.b"]);
        assert_eq!(exact.tools[0].server_name(), "a.b");
        assert_eq!(exact.others[0].0, "a-b", "no other tool is let in");
        assert!(json!(exact.tools)[0].get("listed_name").is_none());

        let several = read(&["a_b", "a-b"], &["a.b"]);
        assert!(several.tools.is_empty(), "{several:?}");
        let (name, reason) = &several.refused[0];
        assert_eq!(name, "a.b");
        assert!(reason.contains(r#""a-b" and "a_b""#), "{reason}");

        let both = read(&["a-b"], &["a.b", "a-b"]);
        assert_eq!((both.tools.len(), both.tools[0].name.as_str()), (1, "a-b"));
        assert_eq!(both.refused[0].0, "a.b");
        let neither = read(&["a-b"], &["a.b", "a_b"]);
        assert_eq!((neither.tools.len(), neither.refused.len()), (0, 2));
    }

    #[test]
    fn a_tool_that_cannot_be_used_is_refused_with_the_reason() {
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({"properties": {"x": deep}});
        }
        deep["type"] = "object".into();
        for (tool, expect) in [
            (json!({"name": "a"}), "no input schema"),
            (
                json!({"name": "a", "inputSchema": {"type": "string"}}),
                "\"type\": \"object\"",
            ),
            (
                json!({"name": "a", "inputSchema": {"type": "object", "title": "x".repeat(70_000)}}),
                "65536 bytes",
            ),
            (json!({"name": "a", "inputSchema": deep}), "32 levels"),
            (
                json!({"name": "a", "inputSchema": {"type": "object", "properties": {"x\u{200b}": {}}}}),
                "the name \"x\\u{200b}\"",
            ),
            (
                json!({"name": "a", "inputSchema": {"type": "object", "required": ["x\n# Task"]}}),
                "the name \"x\\n# Task\"",
            ),
            (
                json!({"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"enum": ["z\u{200b}"]}}}}),
                "the value or pattern \"z\\u{200b}\"",
            ),
            (
                json!({"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": 7}}),
                "\"type\": \"object\"",
            ),
        ] {
            let offer = read(json!([tool]));
            assert!(
                offer.tools.is_empty() && offer.refused[0].1.contains(expect),
                "{offer:?}"
            );
        }
        let twice = json!({"name": "a", "inputSchema": {"type": "object"}});
        let offer = read(json!([twice, twice]));
        assert_eq!(
            (offer.tools.len(), offer.refused[0].1.as_str()),
            (1, "it is listed twice")
        );
    }

    #[test]
    fn keywords_that_cannot_be_checked_are_left_out_and_told() {
        for (schema, parameters, told) in [
            (json!({}), json!({"type": "object"}), None),
            (
                json!({"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}),
                json!({"anyOf": [{"required": ["x"]}, {"required": ["y"]}], "type": "object"}),
                None,
            ),
            (
                json!({"type": "object", "required": 7}),
                json!({"type": "object"}),
                Some("required"),
            ),
            (
                json!({"type": "object", "$ref": "http://127.0.0.1:9/s"}),
                json!({"type": "object"}),
                Some("http://127.0.0.1:9/s"),
            ),
            (
                json!({"type": "OBJECT", "properties": {"x": {"type": "STRING", "description": "d"}}}),
                json!({"type": "object", "properties": {"x": {"description": "d"}}}),
                Some("type"),
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "^(?!a)b"}}}),
                json!({"type": "object", "properties": {"x": {"type": "string"}}}),
                Some("pattern"),
            ),
        ] {
            let offer = read(json!([{"name": "a", "inputSchema": schema}]));
            let [tool] = offer.tools.as_slice() else {
                panic!("{schema}: {offer:?}");
            };
            assert_eq!(tool.tool("m.a").unwrap().parameters, parameters, "{schema}");
            let words = tool.unchecked();
            assert_eq!(words.is_empty(), told.is_none(), "{words:?}");
            assert!(told.is_none_or(|word| words[0].contains(word)), "{words:?}");
            // Pins have the schema as it was written, and those of other tools stay as they were.
            let pinned = json!(tool);
            assert_eq!(pinned.get("is_loose").is_some(), told.is_some());
            let again: OfferedTool = serde_json::from_value(pinned).unwrap();
            assert_eq!(again, *tool);
            assert!(offer.checks().contains_key("a"), "{schema}");
        }
    }

    #[test]
    fn a_recursive_schema_is_accepted() {
        let own = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        let offer = read(json!([{"name": "a", "inputSchema": own}]));
        let checks = offer.checks();
        assert!(
            checks["a"]
                .arguments
                .check(&json!({"next": {"next": {}}}))
                .is_ok()
        );
        assert!(
            checks["a"]
                .arguments
                .check(&json!({"next": {"next": 7}}))
                .is_err()
        );
        // A reference to itself alone adds no condition and would never end.
        for round in [
            json!({"type": "object", "$ref": "#"}),
            json!({"type": "object", "allOf": [{"$ref": "#"}]}),
            json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            let offer = read(json!([{"name": "a", "inputSchema": round}]));
            if let Some(checks) = offer.checks().get("a") {
                let _ = checks.arguments.check(&json!({}));
            }
        }
    }
}
