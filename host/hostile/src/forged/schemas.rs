//! Row 57: schemas of modules, whose names and values would be the host's own lines in a prompt.

use super::{BREAKS, FORGED, ForgedRuns, MARKS, ensure_no_forgery_in, forgery};
use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::liar::{self, Claim, LiarReply};
use serde_json::{Value, json};
use std::future::ready;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 57,
    name: "lines_of_the_host_in_schemas",
    attack: "modules forge them in values, patterns, defaults, keys and names of schemas, also in definitions and parts of parts, under each contract",
    must: "no line of a prompt begins so outside of a fence; a module with such a name is refused, the others are offered",
    company: Company::Others,
    tries: |lab| Box::pin(ready(lines_of_the_host_in_schemas(lab))),
}];

/// Number of the first of [`BREAKS`] that a value may have: they are controls, and no other hidden characters.
const ALLOWED_BREAKS: usize = 8;

/// The marks behind a line break, and no character that is hidden: a value with one is refused.
fn seen_forgery(line_break: &str) -> String {
    let lines: Vec<String> = MARKS
        .iter()
        .map(|mark| format!("{line_break}{mark}{FORGED}"))
        .collect();
    format!("word{}", lines.concat())
}

/// A schema with forged texts as all that is no name.
fn with_values(line_break: &str) -> Value {
    let (value, text) = (seen_forgery(line_break), forgery(line_break));
    let one = json!({"anyOf": [{"enum": [value]}, {"const": value}], "description": text});
    json!({
        "type": "object",
        "properties": {
            "one_of": {"enum": ["a", value, 1, [value]]},
            "always": {"const": {(value.as_str()): value}},
            "shape": {"type": "string", "pattern": format!("^{value}$")},
            "usual": {"type": "string", "default": text, "examples": [text, {(text.as_str()): text}]},
            "strange": {"type": "string", "x-note": text, (text.as_str()): text},
            "defined": {"$ref": "#/$defs/one"},
            "many": {"type": "array", "items": {"enum": [value], "title": text}},
            "deep": {
                "type": "object",
                "properties": {"deeper": {"oneOf": [{"const": value}, {"type": "null"}]}},
                "additionalProperties": {"enum": [value]},
            },
        },
        "$defs": {"one": one},
    })
}

/// Schemas with this name in one place each.
fn with_names(name: &str) -> [Value; 9] {
    let named = json!({name: {"type": "string"}});
    let parameter = json!({"type": "object", "properties": named});
    let places = [
        json!({"properties": named}),
        json!({"required": [name]}),
        json!({"$defs": named}),
        json!({"definitions": named}),
        json!({"patternProperties": named}),
        json!({"dependentSchemas": {name: {"required": ["a"]}}}),
        json!({"properties": {"a": {"type": "array", "items": parameter}}}),
        json!({"properties": {"a": {"anyOf": [parameter, {"type": "null"}]}}}),
        json!({"$defs": {"a": parameter}, "properties": {"a": {"$ref": "#/$defs/a"}}}),
    ];
    places.map(|mut place| {
        place["type"] = "object".into();
        place
    })
}

/// Writes a module with one tool that has this schema.
fn module(folder: &CommandFolder, name: &str, schema: &Value) -> Result<(), AttackFailure> {
    let claim = Claim {
        input_schema: schema.to_string(),
        ..Claim::named("say")
    };
    let component = liar::component(&[claim], &LiarReply::Value("1".into()))?;
    folder.write(&format!("modules/{name}.wasm"), component)
}

/// Writes a module for each line break in values, and one for each place of a name. Returns how many the latter are.
fn modules(folder: &CommandFolder) -> Result<usize, AttackFailure> {
    for (number, line_break) in BREAKS.iter().enumerate() {
        let schema = with_values(line_break);
        ensure(ensure_no_forgery_in(&schema).is_err(), || {
            "a forged schema has no line of the host: nothing is proved".into()
        })?;
        module(folder, &format!("values{number}"), &schema)?;
    }
    let name = format!("word\n# {FORGED}");
    let places = with_names(&name);
    for (number, schema) in places.iter().enumerate() {
        module(folder, &format!("names{number}"), schema)?;
    }
    // The same schemas with a name of one line are good, or nothing is proved by the refusal of the others.
    for (number, schema) in with_names("word").iter().enumerate() {
        module(folder, &format!("plain{number}"), schema)?;
    }
    Ok(places.len())
}

fn lines_of_the_host_in_schemas(lab: &Lab) -> Result<String, AttackFailure> {
    let mut folder = CommandFolder::new(lab)?;
    let names = modules(&folder)?;
    let task = json!({"messages": [{"role": "user", "content": "Say a word."}]});
    let mut checked = 0;
    for contract in ["tools", "schema", "simple"] {
        let runs = ForgedRuns::start(folder, contract, 0, "")?;
        let prompts = runs.prompts(&task, Vec::new())?;
        folder = runs.into_folder();
        for prompt in &prompts {
            // Values of a grammar are in no text.
            let shown = match contract {
                "tools" => prompt,
                _ => &prompt["messages"],
            };
            ensure_no_forgery_in(shown)
                .map_err(|fault| AttackFailure::Broke(format!("{contract}: {fault}")))?;
            let whole = prompt.to_string();
            let is_offered = |module: String| {
                ["-", "."]
                    .iter()
                    .any(|dot| whole.contains(&format!("{module}{dot}say")))
            };
            for number in 0..names {
                ensure(!is_offered(format!("names{number}")), || {
                    format!(
                        "{contract}: names{number} is offered, in whose schema a name forges a line"
                    )
                })?;
                ensure(is_offered(format!("plain{number}")), || {
                    format!("{contract}: plain{number} is not offered: nothing is proved")
                })?;
            }
            for number in 0..ALLOWED_BREAKS {
                ensure(is_offered(format!("values{number}")), || {
                    format!("{contract}: values{number} is not offered: nothing is proved")
                })?;
            }
            ensure(whole.contains(FORGED), || {
                format!("{contract}: a prompt without a forged value: nothing is proved")
            })?;
        }
        ensure(!prompts.is_empty(), || {
            format!("{contract}: the model was not asked: nothing is proved")
        })?;
        checked += prompts.len();
    }
    Ok(format!(
        "{checked} prompts under three contracts; {names} places of names refused"
    ))
}
