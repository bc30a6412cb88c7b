//! Names of tools and of their parameters, as endpoints, clients and MCP take them (docs/protocol.md, 4.12).
//!
//! Other systems take `[A-Za-z0-9_-]{1,64}`. Tools of Toolhold are called `module.tool`, tools of MCP servers have any
//! characters, and clients call theirs `finish`. One mapping is for all of them and in both directions; records have
//! Toolhold's own names.

mod configured;
mod map;

pub use configured::{AmbiguousName, configured};
pub use map::{MAX_OUTWARD, NameKind, NameMap, bare_name};

use crate::solution::Call;
use crate::tool::{Tool, is_reserved};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum nesting of schemas that is searched for names of parameters.
const MAX_DEPTH: usize = 8;
/// Maximum references of one schema that are followed for names of parameters.
const MAX_REFERENCES: usize = 64;
/// Keywords whose schemas are about the arguments themselves.
const ALTERNATIVES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const CONDITIONS: [&str; 4] = ["if", "then", "else", "not"];

/// The names of a run's tools, and of the parameters of each.
#[derive(Debug, Default)]
pub struct ToolNames {
    map: NameMap,
    tools: HashMap<String, Arc<Tool>>,
}

impl ToolNames {
    /// The names of `tools`, beside which there are tools of these `other` names.
    pub fn new(tools: &[Arc<Tool>], other: &[&str]) -> Self {
        let names = tools.iter().map(|tool| tool.name.as_str());
        Self {
            map: NameMap::new(NameKind::Tool, names.chain(other.iter().copied())),
            tools: tools
                .iter()
                .map(|tool| (tool.name.clone(), tool.clone()))
                .collect(),
        }
    }

    /// The names of the tools alone.
    pub fn map(&self) -> &NameMap {
        &self.map
    }

    /// The function that stands for a member of the solution, such as `finish`: where a tool is called so, the member has
    /// another name.
    pub fn member(&self, name: &str) -> String {
        let mut form = name.to_owned();
        while self.map.is_outward(&form) {
            form.push_str("_solution");
        }
        form
    }

    /// True if a function that was called is the one that stands for this member.
    pub fn is_member(&self, member: &str, function: &str) -> bool {
        let form = self.member(member);
        form == function || (self.map.meant(function).is_none() && bare_name(function) == form)
    }

    /// The call with its arguments under the names that go out.
    pub fn outward_arguments<'c>(&self, call: &'c Call) -> Cow<'c, Call> {
        let parameters = self.tools.get(&call.tool).and_then(|tool| parameters(tool));
        let (Value::Object(arguments), Some(map)) = (&call.arguments, parameters) else {
            return Cow::Borrowed(call);
        };
        let renamed = arguments
            .iter()
            .map(|(name, value)| (map.outward(name).into_owned(), value.clone()));
        Cow::Owned(Call {
            arguments: Value::Object(renamed.collect()),
            ..call.clone()
        })
    }

    /// The name under which this argument of a tool goes out; `None` where the tool has no such parameter.
    pub fn outward_argument(&self, tool: &str, name: &str) -> Option<String> {
        let map = parameters(self.tools.get(tool)?)?;
        let is_own = map.exact(name).is_some_and(|own| own == name);
        is_own.then(|| map.outward(name).into_owned())
    }

    /// The call under Toolhold's own names, where they are meant. A property with a leading `_` is an argument where the
    /// tool has such a parameter.
    pub fn own_call(&self, mut call: Call) -> Call {
        if let Some(name) = self.map.meant(&call.tool)
            && name != call.tool
        {
            name.clone_into(&mut call.tool);
        }
        let Some(tool) = self.tools.get(&call.tool) else {
            return call;
        };
        let known = ParameterNames::of(&tool.parameters);
        take_reserved(&mut call, &tool.parameters, &known);
        let Value::Object(arguments) = &call.arguments else {
            return call;
        };
        let is_own = |name: &String| known.names.contains(name.as_str());
        if call.unknown.is_empty() && arguments.keys().all(is_own) {
            return call;
        }
        let map = NameMap::new(NameKind::Parameter, known.names.iter().copied());
        let meant = |name: &str| {
            if known.is_open {
                // Another name may be one that the schema does not tell.
                map.exact(name)
            } else {
                map.meant(name)
            }
        };
        let is_given = |name: &str| arguments.contains_key(name) || call.unknown.contains_key(name);
        // A name that is given as it is goes before another that may mean it.
        let own = |name: &str| {
            let own = meant(name).filter(|own| *own == name || !is_given(own));
            own.map(str::to_owned)
        };
        let mut renamed = Map::new();
        let mut unknown = Map::new();
        for (name, value) in arguments {
            let own = own(name).filter(|own| !renamed.contains_key(own));
            renamed.insert(own.unwrap_or_else(|| name.clone()), value.clone());
        }
        for (name, value) in &call.unknown {
            match own(name).filter(|own| !renamed.contains_key(own)) {
                Some(own) => renamed.insert(own, value.clone()),
                None => unknown.insert(name.clone(), value.clone()),
            };
        }
        call.arguments = renamed.into();
        call.unknown = unknown;
        call
    }
}

/// Gives a call the required arguments whose names are those of reserved properties, and which it has under these names
/// alone: a model may write a parameter as the tool's author calls it.
fn take_reserved(call: &mut Call, parameters: &Value, known: &ParameterNames<'_>) {
    let required = parameters.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let reserved: Vec<&str> = required.filter(|name| is_reserved(name)).collect();
    if reserved.is_empty() {
        return;
    }
    let map = NameMap::new(NameKind::Parameter, known.names.iter().copied());
    for name in reserved {
        let is_given = |form: &str| call.arguments.get(form).is_some();
        if is_given(name) || is_given(&map.outward(name)) {
            continue;
        }
        let value = match name {
            // It is the reason as well, which is told.
            "_reasoningForCall" => call.reason.clone().map(Value::from),
            "_instance" => call.instance.take().map(Value::from),
            "_scopes" | "_imports" => call.scopes.take(),
            "_outputPath" => call.output_path.take().map(Value::from),
            "_outputMethod" => call.output_method.take().map(Value::from),
            "_output" => call.output.take(),
            _ => None,
        };
        if let (Some(value), Value::Object(arguments)) = (value, &mut call.arguments) {
            arguments.insert(name.to_owned(), value);
        }
    }
}

/// The names of a tool's parameters in both directions; `None` where all of them go out as they are.
pub fn parameters(tool: &Tool) -> Option<NameMap> {
    let known = ParameterNames::of(&tool.parameters);
    let mut names = known.names.iter();
    let fit = names.all(|name| NameKind::Parameter.fits(name));
    (!fit).then(|| NameMap::new(NameKind::Parameter, known.names.iter().copied()))
}

/// The schema of a tool's arguments with the names that go out.
pub fn outward_parameters(tool: &Tool) -> Cow<'_, Value> {
    match parameters(tool) {
        None => Cow::Borrowed(&tool.parameters),
        Some(map) => {
            let mut schema = tool.parameters.clone();
            rename(&mut schema, &map, 0);
            Cow::Owned(schema)
        }
    }
}

fn rename(schema: &mut Value, map: &NameMap, depth: usize) {
    let Value::Object(keywords) = schema else {
        return;
    };
    if depth > MAX_DEPTH {
        return;
    }
    for keyword in ["properties", "dependentSchemas", "dependentRequired"] {
        if let Some(Value::Object(named)) = keywords.get_mut(keyword) {
            let own = std::mem::take(named);
            named.extend(
                own.into_iter()
                    .map(|(name, value)| (map.outward(&name).into_owned(), value)),
            );
        }
    }
    let dependent = keywords.get_mut("dependentRequired");
    let lists = dependent.and_then(Value::as_object_mut).into_iter();
    for list in lists.flat_map(Map::values_mut) {
        rename_all(list, map);
    }
    if let Some(list) = keywords.get_mut("required") {
        rename_all(list, map);
    }
    for keyword in ALTERNATIVES {
        let parts = keywords.get_mut(keyword).and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten() {
            rename(part, map, depth + 1);
        }
    }
    for keyword in CONDITIONS {
        if let Some(part) = keywords.get_mut(keyword) {
            rename(part, map, depth + 1);
        }
    }
}

fn rename_all(names: &mut Value, map: &NameMap) {
    for name in names.as_array_mut().into_iter().flatten() {
        if let Value::String(name) = name {
            *name = map.outward(name).into_owned();
        }
    }
}

/// The names of a tool's parameters that its schema tells.
struct ParameterNames<'t> {
    names: BTreeSet<&'t str>,
    /// True if there may be others.
    is_open: bool,
    schema: &'t Value,
    /// References that were followed.
    references: BTreeSet<&'t str>,
}

impl<'t> ParameterNames<'t> {
    fn of(schema: &'t Value) -> Self {
        let mut known = Self {
            names: BTreeSet::new(),
            is_open: schema.get("additionalProperties") != Some(&Value::Bool(false)),
            schema,
            references: BTreeSet::new(),
        };
        known.gather(schema, 0);
        known
    }

    /// The schema that a reference leads to, once for each reference.
    fn target(&mut self, reference: &'t str) -> Option<&'t Value> {
        let is_new = self.references.len() < MAX_REFERENCES && self.references.insert(reference);
        let pointer = reference.strip_prefix('#').filter(|_| is_new)?;
        let schema: &'t Value = self.schema;
        schema.pointer(pointer)
    }

    fn gather(&mut self, schema: &'t Value, depth: usize) {
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
        let reference = keywords.get("$ref").and_then(Value::as_str);
        if let Some(target) = reference.and_then(|reference| self.target(reference)) {
            self.gather(target, depth + 1);
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        let named = properties.into_iter().flat_map(Map::keys);
        self.names.extend(named.map(String::as_str));
        let required = keywords.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten();
        self.names.extend(required.filter_map(Value::as_str));
        for keyword in ALTERNATIVES {
            let parts = keywords.get(keyword).and_then(Value::as_array);
            for part in parts.into_iter().flatten() {
                self.gather(part, depth + 1);
            }
        }
        for keyword in CONDITIONS {
            if let Some(part) = keywords.get(keyword) {
                self.gather(part, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tool(name: &str, parameters: Value) -> Arc<Tool> {
        Arc::new(Tool {
            parameters,
            ..Tool::new(name)
        })
    }

    fn search() -> Arc<Tool> {
        tool(
            "s.search-all",
            json!({
                "type": "object",
                "properties": {"_count": {"type": "integer"}, "name": {}, "user.id": {}, "_output": {}},
                "required": ["_count"],
                "anyOf": [{"required": ["name"]}, {"properties": {"$filter": {}}}],
                "dependentRequired": {"name": ["user.id"]},
                "additionalProperties": false,
            }),
        )
    }

    fn read(call: Value) -> Call {
        Call::read(call).unwrap()
    }

    /// Clients' own tools may have any names.
    #[test]
    fn a_required_parameter_with_a_reserved_name_works_under_it() {
        let schema = json!({
            "type": "object",
            "properties": {"_reasoningForCall": {"type": "string"}, "_instance": {}, "a": {}},
            "required": ["_reasoningForCall", "a"],
        });
        let names = ToolNames::new(&[tool("t", schema)], &[]);
        let own = |written: Value| names.own_call(read(written));
        let call =
            own(json!({"_tool": "t", "_reasoningForCall": "mine", "_instance": "i", "a": 1}));
        assert_eq!(call.arguments, json!({"_reasoningForCall": "mine", "a": 1}));
        assert_eq!(call.reason.as_deref(), Some("mine"));
        // No required one.
        assert_eq!(call.instance.as_deref(), Some("i"));
        let both =
            json!({"_tool": "t", "_reasoningForCall": "why", "reasoningForCall": "mine", "a": 1});
        let call = own(both);
        assert_eq!(call.arguments, json!({"_reasoningForCall": "mine", "a": 1}));
        assert_eq!(call.reason.as_deref(), Some("why"));
    }

    #[test]
    fn a_call_comes_in_under_own_names_and_goes_out_under_the_others() {
        let names = ToolNames::new(&[search()], &[]);
        let written = json!({
            "_tool": "functions.s-search_all", "count": 3, "Name": "x", "user-id": 7, "output": 1, "_instance": "i",
            "filter": "a", "_colour": 2,
        });
        let call = names.own_call(read(written));
        assert_eq!(call.tool, "s.search-all");
        assert_eq!(
            call.arguments,
            json!({"_count": 3, "name": "x", "user.id": 7, "_output": 1, "$filter": "a"})
        );
        assert_eq!(call.instance.as_deref(), Some("i"));
        assert_eq!(Value::from(call.unknown.clone()), json!({"_colour": 2}));
        assert_eq!(names.map().outward(&call.tool), "s-search-all");
        let outward = names.outward_arguments(&call);
        assert_eq!(
            outward.arguments,
            json!({"count": 3, "name": "x", "user-id": 7, "output": 1, "filter": "a"})
        );
    }

    #[test]
    fn a_parameter_is_taken_under_its_own_name_and_a_given_one_is_not_replaced() {
        let names = ToolNames::new(&[search()], &[]);
        let call = names.own_call(read(json!({"_tool": "s.search-all", "_count": 3})));
        assert_eq!(call.arguments, json!({"_count": 3}));
        assert!(call.unknown.is_empty());
        let both = json!({"_tool": "s.search-all", "name": 1, "NAME": 2});
        let call = names.own_call(read(both));
        assert_eq!(call.arguments, json!({"name": 1, "NAME": 2}));
    }

    #[test]
    fn an_open_schema_takes_names_that_are_like_its_own() {
        let open = tool(
            "t",
            json!({"type": "object", "properties": {"name": {}, "_of": {}}}),
        );
        let names = ToolNames::new(&[open], &[]);
        let call = names.own_call(read(json!({"_tool": "t", "Name": 1, "of": 2})));
        assert_eq!(call.arguments, json!({"Name": 1, "_of": 2}));
    }

    #[test]
    fn parameters_of_definitions_have_names_in_both_directions() {
        let parameters = json!({
            "type": "object",
            "allOf": [{"$ref": "#/$defs/a"}],
            "$defs": {"a": {"properties": {"_count": {}, "user.id": {}}, "anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}},
        });
        let names = ToolNames::new(&[tool("t", parameters)], &[]);
        let call = names.own_call(read(json!({"_tool": "t", "count": 1, "user-id": 2})));
        assert_eq!(call.arguments, json!({"_count": 1, "user.id": 2}));
        let call = names.own_call(read(json!({"_tool": "t", "_count": 1})));
        assert_eq!(call.arguments, json!({"_count": 1}));
        let outward = names.outward_arguments(&call);
        assert_eq!(outward.arguments, json!({"count": 1}));
    }

    #[test]
    fn a_schema_is_shown_with_the_names_that_go_out() {
        let search = search();
        assert_eq!(
            *outward_parameters(&search),
            json!({
                "type": "object",
                "properties": {"count": {"type": "integer"}, "name": {}, "user-id": {}, "output": {}},
                "required": ["count"],
                "anyOf": [{"required": ["name"]}, {"properties": {"filter": {}}}],
                "dependentRequired": {"name": ["user-id"]},
                "additionalProperties": false,
            })
        );
        let plain = tool("t", json!({"properties": {"name": {}}}));
        assert!(matches!(outward_parameters(&plain), Cow::Borrowed(_)));
    }

    #[test]
    fn a_member_of_the_solution_gives_way_to_a_tool() {
        let names = ToolNames::new(&[tool("finish", json!({})), tool("a", json!({}))], &[]);
        assert_eq!(names.member("finish"), "finish_solution");
        assert_eq!(names.member("meta"), "meta");
        assert!(
            names.is_member("finish", "finish_solution") && !names.is_member("finish", "finish")
        );
        assert!(names.is_member("meta", "functions.meta"));
    }

    proptest! {
        #[test]
        fn a_call_that_went_out_comes_in_as_it_was(
            parameters in prop::collection::btree_set("[_$.a]{0,3}|[ab]{1,2}|x{60,66}", 0..6),
            name in "[ab][-._ab]{0,4}",
        ) {
            let properties: Map<String, Value> =
                parameters.iter().map(|name| (name.clone(), json!({}))).collect();
            let arguments: Map<String, Value> =
                parameters.iter().map(|name| (name.clone(), json!(name))).collect();
            let names = ToolNames::new(&[tool(&name, json!({"properties": properties}))], &[]);
            let call = Call { tool: name, arguments: arguments.into(), ..Call::default() };
            let outward = names.outward_arguments(&call).into_owned();
            let outward = Call { tool: names.map().outward(&call.tool).into_owned(), ..outward };
            let again = names.own_call(Call::read(outward.object(true).into()).unwrap());
            prop_assert_eq!(again.tool, call.tool);
            prop_assert_eq!(again.arguments, call.arguments);
            prop_assert!(again.unknown.is_empty());
        }
    }
}
