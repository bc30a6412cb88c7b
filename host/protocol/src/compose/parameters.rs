//! A tool's parameters, one by one: a call holds them beside reserved properties, so their schema
//! cannot stay one piece.

use super::references::{self, LEVELS};
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
pub(super) fn of(tool: &Tool, wiring: bool, subset: &mut GrammarSubset) -> Parameters {
    let members = subset.reduce_members(&tool.parameters, &tool.name, |definition| {
        if wiring {
            // It is at least inside of a parameter.
            references::offer_inside(definition, LEVELS - 1);
        }
    });
    parameters(members, wiring)
}

/// The parameters with the schemas that the tool's author wrote.
pub(super) fn authored(tool: &Tool, subset: &mut GrammarSubset) -> Parameters {
    let members = subset.authored_members(&tool.parameters, &tool.name);
    parameters(members, false)
}

fn parameters(members: ObjectMembers, wiring: bool) -> Parameters {
    let ObjectMembers {
        properties,
        required,
        additional,
    } = members;
    let mut object = json!({"properties": properties, "additionalProperties": additional});
    if wiring {
        references::offer_inside(&mut object, LEVELS);
    }
    let mut member = |name: &str| object.get_mut(name).map(Value::take);
    let additional = member("additionalProperties").unwrap_or(json!(false));
    let named = match member("properties") {
        Some(Value::Object(named)) => named,
        _ => Map::new(),
    };
    let own = named.into_iter().filter(|(name, _)| !name.starts_with('_'));
    let named = own.map(|(name, schema)| {
        let is_required = required.contains(&name);
        (name, schema, is_required)
    });
    Parameters {
        named: named.collect(),
        additional,
    }
}
