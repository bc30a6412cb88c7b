//! The list of tools: its entries for each protocol era, and the checks of each tool's calls.

use super::mask::Mask;
use super::request::{OfferedRequest, tool_name};
use super::revision::ProtocolEra;
use super::schema::{self, ObjectSchema, of_object};
use crate::rpc::RpcError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_agent::calls::CallableTool;
use toolhold_agent::module_tool;
use toolhold_policy::ToolSpec;
use toolhold_policy::names;
use toolhold_protocol::function_names::{self, NameKind, NameMap};
use toolhold_protocol::saved::SavedRequest;

/// Bounds of one page. Few clients read a second page, and a model reads all of them.
const PAGE_TOOLS: usize = 250;
const PAGE_BYTES: usize = 2 << 20;
/// The property that wraps a result which is not an object, where the protocol requires one.
pub const RESULT: &str = "result";

/// All callable tools, by name.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<ListedTool>,
    /// Names of the tools in lists and calls of clients.
    client_names: NameMap,
    /// Version of the list; clients that saw a lower number are notified.
    pub generation: u64,
    /// Tools that could not be offered, with the reason.
    pub refused: Vec<String>,
}

/// One tool.
#[derive(Debug)]
pub struct ListedTool {
    pub name: String,
    pub callable: Arc<CallableTool>,
    /// Whether sessions get its result as the property [`RESULT`] of an object.
    pub is_wrapped: bool,
    /// The saved Request that it runs; absent for a module's tool.
    pub request: Option<OfferedRequest>,
    /// Names of its parameters in lists and calls of clients; absent if they are the tool's own.
    parameters: Option<NameMap>,
    listed: ListedEntry,
}

/// A saved Request by its name, or why it is invalid.
pub type FolderRequest = (String, Result<Arc<SavedRequest>, String>);

/// The entry of `tools/list`.
#[derive(Debug, PartialEq)]
struct ListedEntry {
    legacy: Value,
    modern: Value,
    bytes: usize,
}

impl Catalog {
    /// The tools of modules, and these saved Requests, as far as `allowed` names them: `module.tool`,
    /// `module` or `request-NAME`. `mask` hides data in what clients read.
    pub fn new(
        specs: Vec<ToolSpec>,
        requests: &[FolderRequest],
        allowed: Option<&[String]>,
        mask: &Mask,
        generation: u64,
    ) -> Self {
        let mut catalog = Self {
            generation,
            ..Self::default()
        };
        let modules = specs
            .into_iter()
            .map(|spec| (spec.name.clone(), Ok((None, spec))));
        let requests = requests.iter().map(|(name, saved)| {
            let request = saved
                .clone()
                .and_then(|saved| OfferedRequest::new(name, saved));
            (
                tool_name(name),
                request.map(|(request, spec)| (Some(request), spec)),
            )
        });
        for (name, tool) in modules.chain(requests) {
            if !names::allows(allowed, &name) {
                continue;
            }
            match tool.and_then(|(request, spec)| ListedTool::new(&spec, request, mask)) {
                Ok(offered) => catalog.tools.push(offered),
                Err(reason) => catalog.refused.push(format!("{name}: {reason}")),
            }
        }
        catalog.tools.sort_by(|a, b| a.name.cmp(&b.name));
        let names = NameMap::new(NameKind::Tool, catalog.names());
        for tool in &mut catalog.tools {
            tool.listed.name(&names.outward(&tool.name));
        }
        catalog.client_names = names;
        catalog
    }

    /// Finds a tool by Toolhold's name, by the name in lists, or by one that is like either.
    pub fn find(&self, name: &str) -> Option<&ListedTool> {
        let name = self.client_names.meant(name)?;
        let place = self
            .tools
            .binary_search_by(|tool| tool.name.as_str().cmp(name));
        self.tools.get(place.ok()?)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Whether both lists look the same to clients.
    pub fn is_same(&self, other: &Self) -> bool {
        self.tools.len() == other.tools.len()
            && self
                .tools
                .iter()
                .zip(&other.tools)
                .all(|(one, other)| one.listed == other.listed)
    }

    /// The page after `cursor`: its tools, and the cursor of the next page. A cursor is the name of the last
    /// tool of its page, so it stays valid when the list changes.
    pub fn page(
        &self,
        era: ProtocolEra,
        cursor: Option<&Value>,
    ) -> Result<Map<String, Value>, RpcError> {
        let start = match cursor {
            None | Some(Value::Null) => 0,
            Some(cursor) => {
                let last = decoded(cursor)
                    .ok_or_else(|| RpcError::params("\"cursor\" is none that tools/list gave"))?;
                self.tools.partition_point(|tool| tool.name <= last)
            }
        };
        let mut page = Vec::new();
        let mut bytes = 0;
        let mut rest = self.tools.iter().skip(start).peekable();
        let mut last = None;
        while let Some(tool) = rest.peek() {
            bytes += tool.listed.bytes;
            if page.len() >= PAGE_TOOLS || (bytes > PAGE_BYTES && !page.is_empty()) {
                break;
            }
            page.push(match era {
                ProtocolEra::Legacy => tool.listed.legacy.clone(),
                ProtocolEra::Modern => tool.listed.modern.clone(),
            });
            last = rest.next();
        }
        let mut result = Map::from_iter([("tools".to_owned(), Value::Array(page))]);
        if let (Some(last), Some(_)) = (last, rest.peek()) {
            let cursor = URL_SAFE_NO_PAD.encode(&last.name);
            result.insert("nextCursor".into(), cursor.into());
        }
        Ok(result)
    }
}

fn decoded(cursor: &Value) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

impl ListedTool {
    fn new(spec: &ToolSpec, request: Option<OfferedRequest>, mask: &Mask) -> Result<Self, String> {
        let callable = CallableTool::new(module_tool(spec)).map_err(|error| error.to_string())?;
        let tool = callable.bound.tool.clone();
        let output = spec.output_schema.as_ref();
        let shown = output.map(|own| schema::masked(own.clone(), mask));
        // Before 2026-07-28 structured results must be objects.
        let told = shown.as_ref().map(|own| of_object(own, RESULT, true));
        Ok(Self {
            name: spec.name.clone(),
            callable: Arc::new(callable),
            is_wrapped: matches!(told, Some(ObjectSchema::Wrapped(_))),
            parameters: function_names::parameters(&tool),
            listed: ListedEntry::new(
                spec,
                function_names::outward_parameters(&tool).into_owned(),
                shown,
                told,
                mask,
            ),
            request,
        })
    }

    /// The arguments of a client's call under the names of the tool's own parameters.
    pub fn own_arguments(&self, arguments: Map<String, Value>) -> Value {
        let Some(names) = &self.parameters else {
            return arguments.into();
        };
        let own = |name: &str| {
            let own = names
                .exact(name)
                .filter(|own| !arguments.contains_key(*own));
            own.unwrap_or(name).to_owned()
        };
        let renamed: Vec<String> = arguments.keys().map(|name| own(name)).collect();
        let values = arguments.into_iter().map(|(_, value)| value);
        Value::Object(renamed.into_iter().zip(values).collect())
    }
}

impl ListedEntry {
    fn new(
        spec: &ToolSpec,
        input: Value,
        output: Option<Value>,
        told: Option<ObjectSchema>,
        mask: &Mask,
    ) -> Self {
        let own = spec.annotations;
        let input = schema::unmirrored(input, schema::MAX_DEPTH);
        let mut modern = json!({
            "name": spec.name,
            "description": mask.text(spec.description.raw()),
            "inputSchema": schema::masked(input, mask),
            "annotations": {
                "readOnlyHint": own.read_only,
                "destructiveHint": own.destructive,
                "idempotentHint": own.idempotent,
                "openWorldHint": own.open_world,
            },
        });
        if let Some(title) = &spec.title {
            modern["title"] = mask.text(title.raw()).into();
        }
        let mut legacy = modern.clone();
        if let Some(output) = output {
            modern["outputSchema"] = output;
        }
        if let Some(ObjectSchema::Same(schema) | ObjectSchema::Wrapped(schema)) = told {
            legacy["outputSchema"] = schema;
        }
        Self {
            bytes: legacy.to_string().len().max(modern.to_string().len()),
            legacy,
            modern,
        }
    }

    fn name(&mut self, name: &str) {
        for entry in [&mut self.legacy, &mut self.modern] {
            entry["name"] = name.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_policy::DocsSource;

    fn spec(name: &str) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            title: None,
            description: "Does it.".into(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            annotations: toolhold_policy::Annotations::default(),
            examples: Vec::new(),
            docs_source: DocsSource::Module,
        }
    }

    fn listed(spec: ToolSpec, era: ProtocolEra) -> Value {
        let catalog = Catalog::new(vec![spec], &[], None, &Mask::default(), 0);
        catalog.page(era, None).unwrap()["tools"][0].clone()
    }

    #[test]
    fn a_tool_is_listed_with_its_annotations() {
        let tool = listed(
            ToolSpec {
                title: Some("Add".into()),
                annotations: toolhold_policy::Annotations {
                    read_only: true,
                    ..Default::default()
                },
                ..spec("m.add")
            },
            ProtocolEra::Modern,
        );
        assert_eq!(
            (&tool["name"], &tool["title"]),
            (&json!("m-add"), &json!("Add"))
        );
        assert_eq!(
            tool["annotations"],
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false})
        );
        assert!(tool.get("outputSchema").is_none());
    }

    #[test]
    fn tools_and_parameters_are_told_and_called_by_names_that_clients_take() {
        let input =
            json!({"type": "object", "properties": {"_of": {}, "user.name": {}, "count": {}}});
        let own = ToolSpec {
            input_schema: input,
            ..spec("m.add_all")
        };
        let catalog = Catalog::new(vec![own], &[], None, &Mask::default(), 0);
        let page = catalog.page(ProtocolEra::Modern, None).unwrap();
        let listed = &page["tools"][0];
        assert_eq!(listed["name"], "m-add_all");
        let told = listed["inputSchema"]["properties"].as_object().unwrap();
        assert_eq!(
            told.keys().collect::<Vec<_>>(),
            ["of", "user-name", "count"]
        );
        for name in ["m-add_all", "m.add_all", "m_add_all", "functions.m-add_all"] {
            assert_eq!(catalog.find(name).unwrap().name, "m.add_all", "{name}");
        }
        assert!(catalog.find("add_all").is_none());
        let tool = catalog.find("m-add_all").unwrap();
        let Value::Object(arguments) = json!({"of": 1, "user.name": 2, "count": 3, "other": 4})
        else {
            panic!("an object");
        };
        assert_eq!(
            tool.own_arguments(arguments),
            json!({"_of": 1, "user.name": 2, "count": 3, "other": 4})
        );
    }

    #[test]
    fn sessions_get_results_as_objects() {
        let returns = |schema: Value| ToolSpec {
            output_schema: Some(schema),
            ..spec("m.f")
        };
        for (schema, legacy) in [
            (json!({"type": "object"}), Some(json!({"type": "object"}))),
            (
                json!({"type": "string"}),
                Some(
                    json!({"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}),
                ),
            ),
            (
                json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}),
                Some(
                    json!({"type": "object", "$defs": {"n": {"type": "integer"}},
                    "properties": {"result": {"$ref": "#/$defs/n"}}, "required": ["result"]}),
                ),
            ),
            (
                json!({"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]}),
                None,
            ),
            (json!({"$id": "urn:x", "type": "string"}), None),
        ] {
            let told = listed(returns(schema.clone()), ProtocolEra::Legacy);
            assert_eq!(told.get("outputSchema"), legacy.as_ref(), "{schema}");
            let told = listed(returns(schema.clone()), ProtocolEra::Modern);
            assert_eq!(told["outputSchema"], schema);
        }
    }

    #[test]
    fn a_schema_cannot_have_arguments_repeated_in_headers() {
        let tool = listed(
            ToolSpec {
                input_schema: json!({"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "x-mcp-header": {"type": "string"},
                }}),
                ..spec("m.f")
            },
            ProtocolEra::Modern,
        );
        assert_eq!(
            tool["inputSchema"]["properties"],
            json!({"region": {"type": "string"}, "x-mcp-header": {"type": "string"}})
        );
    }

    #[test]
    fn unusable_tools_are_left_out_with_the_reason() {
        let bad = ToolSpec {
            input_schema: json!({"type": "object", "required": 7}),
            ..spec("m.bad")
        };
        let catalog = Catalog::new(vec![bad, spec("m.good")], &[], None, &Mask::default(), 0);
        assert!(catalog.find("m.good").is_some() && catalog.find("m.bad").is_none());
        assert!(
            catalog.refused[0].contains("m.bad: its input schema"),
            "{:?}",
            catalog.refused
        );
    }

    #[test]
    fn only_what_is_allowed_is_listed() {
        let allowed = ["a".to_owned(), "b.two".to_owned()];
        let specs = ["a.one", "b.one", "b.two", "ab.c"].map(spec).into();
        let catalog = Catalog::new(specs, &[], Some(&allowed), &Mask::default(), 0);
        assert_eq!(catalog.names().collect::<Vec<_>>(), ["a.one", "b.two"]);
    }

    #[test]
    fn pages_hold_every_tool_once_even_if_the_list_changes_meanwhile() {
        let name = |n: usize| format!("m.t{n:04}");
        let of = |range: std::ops::Range<usize>| {
            Catalog::new(
                range.map(|n| spec(&name(n))).collect(),
                &[],
                None,
                &Mask::default(),
                0,
            )
        };
        let first = of(0..600).page(ProtocolEra::Legacy, None).unwrap();
        assert_eq!(first["tools"].as_array().unwrap().len(), PAGE_TOOLS);
        // The module of the first tools was removed.
        let second = of(100..600)
            .page(ProtocolEra::Legacy, first.get("nextCursor"))
            .unwrap();
        assert_eq!(
            second["tools"][0]["name"],
            name(PAGE_TOOLS).replace('.', "-")
        );
        let third = of(0..600)
            .page(ProtocolEra::Legacy, second.get("nextCursor"))
            .unwrap();
        assert_eq!(third["tools"].as_array().unwrap().len(), 100);
        assert!(third.get("nextCursor").is_none());
        for wrong in [json!("?"), json!(7), json!("/w==")] {
            assert!(
                of(0..1).page(ProtocolEra::Legacy, Some(&wrong)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn large_tools_make_short_pages() {
        let large = |n: usize| ToolSpec {
            description: "x".repeat(PAGE_BYTES / 3).into(),
            ..spec(&format!("m.t{n}"))
        };
        let catalog = Catalog::new((0..7).map(large).collect(), &[], None, &Mask::default(), 0);
        let mut seen = 0;
        let mut cursor = None;
        for _ in 0..7 {
            let page = catalog.page(ProtocolEra::Modern, cursor.as_ref()).unwrap();
            seen += page["tools"].as_array().unwrap().len();
            cursor = page.get("nextCursor").cloned();
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, 7);
        assert!(cursor.is_none());
    }
}
