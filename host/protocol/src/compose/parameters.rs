//! A tool's parameters, one by one: a call holds them beside reserved properties, so their schema
//! cannot stay one piece.

use super::CallForm;
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
pub(super) fn of(tool: &Tool, form: CallForm<'_>, subset: &mut GrammarSubset) -> Parameters {
    let wiring = form.wiring;
    let members = subset.reduce_members(&tool.parameters, &tool.name, |definition| {
        if wiring {
            // It is at least inside of a parameter.
            references::offer_inside(definition, LEVELS - 1);
        }
    });
    parameters(tool, form, members, subset)
}

/// The parameters with the schemas that the tool's author wrote.
pub(super) fn authored(tool: &Tool, form: CallForm<'_>, subset: &mut GrammarSubset) -> Parameters {
    let members = subset.authored_members(&tool.parameters, &tool.name);
    parameters(tool, form, members, subset)
}

fn parameters(
    tool: &Tool,
    form: CallForm<'_>,
    members: ObjectMembers,
    subset: &GrammarSubset,
) -> Parameters {
    let ObjectMembers {
        properties,
        required,
        additional,
    } = members;
    let mut object = Value::from_iter([
        ("properties", Value::Object(properties)),
        ("additionalProperties", additional),
    ]);
    if form.wiring {
        references::offer_inside(&mut object, LEVELS);
    }
    let mut member = |name: &str| object.get_mut(name).map(Value::take);
    let additional = member("additionalProperties").unwrap_or(json!(false));
    let named = match member("properties") {
        Some(Value::Object(named)) => named,
        _ => Map::new(),
    };
    let outward = if form.is_named {
        function_names::parameters(tool)
    } else {
        None
    };
    let is_described = subset.keeps_descriptions();
    // Without names that go out, a leading `_` is the host's.
    let is_shown = |name: &String| form.is_named || !name.starts_with('_');
    let named = named.into_iter().filter(|(name, _)| is_shown(name));
    let named = named.map(|(name, schema)| {
        let is_required = required.contains(&name);
        match &outward {
            Some(outward) => {
                let shown = outward.outward(&name).into_owned();
                let schema = if is_described && shown != name {
                    named_otherwise(schema, &name)
                } else {
                    schema
                };
                (shown, schema, is_required)
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
