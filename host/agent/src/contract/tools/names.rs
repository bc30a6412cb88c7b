//! Names of functions: the tool or the member of the solution that each stands for, in both directions.

use crate::contract::RequestView;
use crate::contract::reader::{SolutionPart, call_object};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::function_names::ToolNames;

pub(super) const FINISH: &str = "finish";
/// The member of a call that has the name of its tool.
const TOOL: &str = "_tool";

/// The functions that stand for members of the solution, and what they are for. Where a tool is called like this, they have
/// other names.
const MEMBERS: [(&str, &str, &str); 3] = [
    (
        "meta",
        "meta",
        "Says which version this reply is. Call it first.",
    ),
    (
        "advisors",
        "advisors",
        "Says what each advisor thinks. Call it before anything else.",
    ),
    (
        FINISH,
        "output",
        "Gives the final output. Call it once, when the task is done.",
    ),
];

/// The name of the function that stands for a tool, which may hold no dots.
pub(super) fn function(tool: &str, names: Option<&Arc<ToolNames>>) -> String {
    match names {
        Some(names) => names.map().outward(tool).into_owned(),
        None => tool.replace('.', "-"),
    }
}

/// The name of the function that stands for a member of the solution.
pub(super) fn function_of_member(member: &str, view: &RequestView<'_>) -> String {
    let names = view.composition.names;
    names.map_or_else(|| member.to_owned(), |names| names.member(member))
}

/// The name of the tool that a function of no known tool would stand for.
pub fn tool(function: &str) -> String {
    function.replace('-', ".")
}

/// Each with its schema, where it is asked for.
pub(super) fn members<'a>(
    view: &RequestView<'a>,
) -> [(&'static str, &'static str, &'static str, Option<&'a Value>); 3] {
    let composition = view.composition;
    let finish = view.output_schema.filter(|_| !composition.forced);
    let [meta, advisors, output] = MEMBERS;
    [
        (meta, composition.meta),
        (advisors, composition.advisors),
        (output, finish),
    ]
    .map(|((name, member, description), schema)| (name, member, description, schema))
}

/// The part of a solution that a function call represents. Missing arguments are `null` here.
pub(in crate::contract) fn given(
    function: &str,
    arguments: Value,
    names: Option<&ToolNames>,
    rules: ReadingRules,
) -> Result<SolutionPart, String> {
    let mut arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => Map::new(),
        _ => return Err(format!("the arguments of {function} must be a JSON object")),
    };
    let is_meant =
        |name: &str| names.map_or(name == function, |names| names.is_member(name, function));
    let Some((_, member, _)) = MEMBERS.into_iter().find(|(name, ..)| is_meant(name)) else {
        let own = names.and_then(|names| names.map().meant(function));
        let own = own.map_or_else(|| tool(function), str::to_owned);
        // A parameter that is called as the member with the tool's name.
        let form = names.and_then(|names| names.outward_argument(&own, TOOL));
        if rules.are_from_5()
            && let Some(form) = form.filter(|form| !arguments.contains_key(form))
            && let Some(value) = arguments.shift_remove(TOOL)
        {
            arguments.insert(form, value);
        }
        return Ok(SolutionPart::Call(call_object(own, arguments)));
    };
    match arguments.shift_remove(member) {
        None | Some(Value::Null) => Err(format!(
            "{function} was called without what it is for; give it as {member:?}"
        )),
        Some(value) => Ok(SolutionPart::Field(member, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::tool::Tool;

    #[test]
    fn a_parameter_may_have_the_name_of_a_reserved_property() {
        let taken = Arc::new(Tool {
            parameters: json!({"type": "object", "properties": {"_tool": {"type": "string"}}}),
            ..Tool::new("w")
        });
        let names = ToolNames::new(&[taken, Arc::new(Tool::new("plain"))], &[]);
        let read = |function: &str, arguments: Value| {
            let rules = ReadingRules::Current;
            let part = given(function, arguments, Some(&names), rules).unwrap();
            let SolutionPart::Call(call) = part else {
                panic!("{function} is no call");
            };
            names.own_call(Call::read(call).unwrap())
        };
        let outward = names.outward_argument("w", TOOL).unwrap();
        for name in [TOOL, outward.as_str()] {
            let call = read("w", json!({name: "saw"}));
            assert_eq!(
                (call.tool.as_str(), call.arguments),
                ("w", json!({"_tool": "saw"}))
            );
        }
        let call = read("plain", json!({"_tool": "w"}));
        assert_eq!((call.tool.as_str(), call.arguments), ("plain", json!({})));
    }
}
