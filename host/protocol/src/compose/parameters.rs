//! A tool's parameters, one by one: a call holds them beside reserved properties, so their schema
//! cannot stay one piece.

use super::Composition;
use super::references::{self, LEVELS};
use crate::function_names;
use crate::tool::Tool;
use serde_json::{Map, Value, json};
use toolhold_json::grammar_subset::{GrammarSubset, ObjectMembers};

pub(super) struct Parameters {
    /// Name, reduced schema, and whether it must be there.
    pub named: Vec<(String, Value, bool)>,
    /// `false`, or the reduced schema of parameters that have no name yet.
    pub additional: Value,
}

/// Which parameters go together is checked on our side. What matters here is that everything that
/// satisfies the tool's schema can be written.
pub(super) fn of(tool: &Tool, how: Composition<'_>, subset: &mut GrammarSubset) -> Parameters {
    let wiring = how.wiring;
    let members = subset.reduce_members(&tool.parameters, &tool.name, |definition| {
        if wiring {
            // It is at least inside of a parameter.
            references::offer_inside(definition, LEVELS - 1);
        }
    });
    parameters(tool, how, members, subset)
}

/// The parameters with the schemas that the tool's author wrote.
pub(super) fn authored(
    tool: &Tool,
    how: Composition<'_>,
    subset: &mut GrammarSubset,
) -> Parameters {
    let members = subset.authored_members(&tool.parameters, &tool.name);
    parameters(tool, how, members, subset)
}

fn parameters(
    tool: &Tool,
    how: Composition<'_>,
    members: ObjectMembers,
    subset: &GrammarSubset,
) -> Parameters {
    let ObjectMembers {
        properties,
        required,
        additional,
    } = members;
    let mut object = json!({"properties": properties, "additionalProperties": additional});
    if how.wiring {
        references::offer_inside(&mut object, LEVELS);
    }
    let mut member = |name: &str| object.get_mut(name).map(Value::take);
    let additional = member("additionalProperties").unwrap_or(json!(false));
    let named = match member("properties") {
        Some(Value::Object(named)) => named,
        _ => Map::new(),
    };
    let outward = how.names.and_then(|_| function_names::parameters(tool));
    let is_described = subset.keeps_descriptions();
    // Without names that go out, a leading `_` is the host's.
    let is_shown = |name: &String| how.names.is_some() || !name.starts_with('_');
    let named = named.into_iter().filter(|(name, _)| is_shown(name));
    let named = named.map(|(name, schema)| {
        let is_required = required.contains(&name);
        match &outward {
            Some(outward) => {
                let form = outward.outward(&name).into_owned();
                let schema = if is_described && form != name {
                    named_otherwise(schema, &name)
                } else {
                    schema
                };
                (form, schema, is_required)
            }
            None => (name, schema, is_required),
        }
    });
    Parameters {
        named: named.collect(),
        additional,
    }
}

/// Says in a parameter's description how the tool calls it.
fn named_otherwise(mut schema: Value, name: &str) -> Value {
    if let Value::Object(keywords) = &mut schema {
        let own = format!("The tool calls it {name:?}.");
        let description = match keywords.get("description").and_then(Value::as_str) {
            None | Some("") => own,
            Some(description) => format!("{description}\n{own}"),
        };
        keywords.insert("description".into(), description.into());
    }
    schema
}
