//! What the model is asked: the `advisors` member of the solution, the advisors' text, and the tool
//! that consults one on demand.

use crate::advisor::{Advisor, DueOpinion, latest, seats};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use toolhold_json::grammar_subset::GrammarSubset;
use toolhold_policy::prompt::PromptText;
use toolhold_policy::text::readable_line;
use toolhold_text::cut;

/// The meta-tool for advisors that speak on demand.
pub const CONSULT_ADVISOR: &str = "ConsultAdvisor";
/// Maximum characters of a role in the tool's description: enough to choose by; the advisor itself
/// gets all of it.
const MAX_ROLE_CHARS: usize = 300;

/// How to write `advisors`, for the system text of a Request that asks for it.
pub const VOTING: &str = "Before you choose calls, write into \"advisors\" one opinion for each advisor, in its role. \
\"calls\" of an opinion is a string that holds a JSON object: the name of a tool and its weight from 0 (against) to \
100 (for), such as \"{\\\"<tool>\\\": 80}\", or \"{}\" for no preference. Then choose calls in the light of all \
opinions.";

/// Name, description and parameters of `ConsultAdvisor`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsultTool {
    pub name: &'static str,
    pub description: String,
    /// JSON Schema, `"type": "object"`: `id` and `question`.
    pub parameters: Value,
}

/// JSON Schema of the solution's `advisors`: a list with one object for each seat, in safe keywords.
/// Definitions are in its own `$defs`, so a larger schema takes it in through [`GrammarSubset::reduce`].
///
/// In an object `id` comes first, then `_instance`, the advisor's fields, and `calls` last: what is
/// written first is thought first, and votes follow from reasons. Objects are closed, whatever the
/// advisor's schema says, because a free key could come after the votes.
pub fn schema(advisors: &[&Advisor], instances: &[String]) -> Value {
    let mut subset = GrammarSubset::new(None);
    let mut opinions = Vec::new();
    for (index, advisor) in advisors.iter().enumerate() {
        // Two ids may differ only in characters that definitions cannot have; positions do not.
        let fields = subset.reduce(&fields(advisor), &format!("advisor{index}"));
        let seats = seats(&[advisor], instances);
        opinions.extend(seats.iter().map(|seat| opinion(seat, &fields)));
    }
    let count = opinions.len();
    let items = match count {
        0 => json!({}),
        _ => json!({"anyOf": opinions}),
    };
    subset.finish(json!({"type": "array", "items": items, "minItems": count, "maxItems": count}))
}

/// The text about an advisor for the model: its role, the data it should look at, its fields.
pub fn render(advisor: &Advisor) -> PromptText {
    let mut text = PromptText::from("## Advisor: ");
    text.line(&advisor.id).words("\n").quoted(&advisor.role);
    if !advisor.scopes.is_empty() {
        text.words("\nLooks at: ").line(&advisor.scopes.join(", "));
    }
    match &advisor.schema {
        // Descriptions of fields do not survive in a grammar.
        Some(schema) => {
            text.words("\nWrites fields of this schema, then its votes: ")
                .json(schema);
        }
        None => {
            text.words("\nWrites its opinion in words, then its votes.");
        }
    }
    if advisor.is_instanced {
        text.words("\nSpeaks once for each instance.");
    }
    text
}

/// The meta-tool that the host offers if some advisor speaks on demand.
pub fn consult_tool<'a>(advisors: impl IntoIterator<Item = &'a Advisor>) -> Option<ConsultTool> {
    let mut present = latest(advisors);
    present.retain(|advisor| advisor.on.is_none());
    if present.is_empty() {
        return None;
    }
    let mut description = "Asks an advisor for its opinion before you decide. Advisors:".to_owned();
    for advisor in &present {
        let _ = write!(
            description,
            "\n- {}: {}",
            readable_line(&advisor.id),
            readable_line(&cut(advisor.role.trim(), MAX_ROLE_CHARS))
        );
    }
    let ids: Vec<&str> = present.iter().map(|advisor| advisor.id.as_str()).collect();
    Some(ConsultTool {
        name: CONSULT_ADVISOR,
        description,
        parameters: json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "enum": ids},
                "question": {"type": "string", "minLength": 1},
            },
            "required": ["id", "question"],
            "additionalProperties": false,
        }),
    })
}

/// Only what an object with known keys needs: an opinion has other keys beside them. The full schema is checked when the
/// opinion is read.
fn fields(advisor: &Advisor) -> Value {
    let schema = advisor.fields();
    let mut out = Map::from_iter([("type".to_owned(), json!("object"))]);
    for keyword in ["properties", "required", "$defs", "definitions"] {
        if let Some(value) = schema.get(keyword) {
            out.insert(keyword.to_owned(), value.clone());
        }
    }
    out.into()
}

fn opinion(seat: &DueOpinion<'_>, fields: &Value) -> Value {
    let mut properties = Map::from_iter([("id".to_owned(), json!({"const": seat.advisor.id}))]);
    let mut required = vec![json!("id")];
    if let Some(instance) = seat.instance {
        properties.insert("_instance".into(), json!({"const": instance}));
        required.push(json!("_instance"));
    }
    if let Some(Value::Object(own)) = fields.get("properties") {
        properties.extend(own.clone());
    }
    if let Some(Value::Array(own)) = fields.get("required") {
        required.extend(own.iter().cloned());
    }
    properties.insert("calls".into(), json!({"type": "string"}));
    required.push(json!("calls"));
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advisors() -> Vec<Advisor> {
        serde_json::from_value(json!([
            {"id": "plain", "role": "Speaks.", "on": "request"},
            {
                "id": "risk", "role": "Weighs risks.", "on": null, "isInstanced": true, "scopes": ["state", "user"],
                "schema": {
                    "properties": {"level": {"$ref": "#/$defs/N"}, "why": {"type": "string", "format": "email"}},
                    "required": ["level"],
                    "anyOf": [{"required": ["why"]}, {"required": ["level"]}],
                    "$defs": {"N": {"type": "integer", "minimum": 0, "description": "0 is none"}},
                },
            },
        ]))
        .unwrap()
    }

    #[test]
    fn each_seat_has_an_object_in_the_order_of_thought() {
        let all = advisors();
        let all: Vec<_> = all.iter().collect();
        let level = json!({"$ref": "#/$defs/advisor1_N"});
        let risk = |instance: &str| {
            json!({
                "type": "object",
                "properties": {
                    "id": {"const": "risk"}, "_instance": {"const": instance}, "level": level,
                    "why": {"type": "string"}, "calls": {"type": "string"},
                },
                "required": ["id", "_instance", "level", "calls"],
                "additionalProperties": false,
            })
        };
        let expect = json!({
            "type": "array",
            "items": {"anyOf": [
                {
                    "type": "object",
                    "properties": {"id": {"const": "plain"}, "opinion": {"type": "string"}, "calls": {"type": "string"}},
                    "required": ["id", "opinion", "calls"],
                    "additionalProperties": false,
                },
                risk("x"),
                risk("y"),
            ]},
            "minItems": 3,
            "maxItems": 3,
            "$defs": {"advisor1_N": {"type": "integer", "minimum": 0}},
        });
        // As text, because the order is the point.
        let got = schema(&all, &["x".into(), "y".into()]);
        assert_eq!(got.to_string(), expect.to_string());
    }

    #[test]
    fn a_larger_schema_takes_it_in() {
        let all = advisors();
        let all: Vec<_> = all.iter().collect();
        let mut subset = GrammarSubset::new(Some(100));
        let member = subset.reduce(&schema(&all, &[]), "advisors");
        assert_eq!(
            member["items"]["anyOf"][0]["properties"]["calls"]["maxLength"],
            100
        );
        let whole = subset.finish(json!({"type": "object", "properties": {"advisors": member}}));
        let validator = jsonschema::validator_for(&whole).unwrap();
        let solution = |level: Value| {
            json!({"advisors": [
                {"id": "plain", "opinion": "fine", "calls": "{}"},
                {"id": "risk", "level": level, "calls": "{}"},
            ]})
        };
        assert!(validator.is_valid(&solution(json!(3))));
        assert!(!validator.is_valid(&solution(json!("high"))));
    }

    #[test]
    fn without_advisors_the_list_is_empty() {
        let validator = jsonschema::validator_for(&schema(&[], &[])).unwrap();
        assert!(validator.is_valid(&json!([])));
        assert!(!validator.is_valid(&json!([{}])));
    }

    #[test]
    fn definitions_of_similar_ids_do_not_meet() {
        let with = |id: &str, ty: &str| -> Advisor {
            serde_json::from_value(json!({"id": id, "role": "r", "schema": {
                "properties": {"x": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": ty}},
            }}))
            .unwrap()
        };
        let (dash, line) = (with("a-b", "integer"), with("a_b", "string"));
        let schema = schema(&[&dash, &line], &[]);
        let types: Vec<_> = (0..2)
            .map(|at| schema["$defs"][format!("advisor{at}_N")]["type"].clone())
            .collect();
        assert_eq!(types, ["integer", "string"]);
    }

    #[test]
    fn the_text_says_role_places_and_form() {
        let all = advisors();
        assert_eq!(
            render(&all[0]).as_str(),
            "## Advisor: plain\n│ Speaks.\nWrites its opinion in words, then its votes."
        );
        let risk = render(&all[1]);
        let risk = risk.as_str();
        assert!(
            risk.contains("│ Weighs risks.\nLooks at: state, user\n"),
            "{risk}"
        );
        assert!(
            risk.contains("0 is none") && risk.contains("each instance"),
            "{risk}"
        );
    }
}
