use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data::JustLut, unwrap_valr};
use jaq_json::{Val, read};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, Value, json};

use crate::fault;

/// Of outputs, and of all of them together as JSON text: a part of a model's context.
const MAX_OUTPUTS: usize = 1_000;
const MAX_BYTES: usize = 256 << 10;

pub fn tool() -> Tool {
    Tool::new(
        "query",
        "Runs a jq filter on JSON and returns what it yields. Use it to pick fields, filter lists, \
         count, sum, sort, group (`group_by`) or reshape, instead of doing it by eye. `input` is the \
         JSON itself, or a text that contains JSON.",
        query,
    )
    .title("Query JSON with jq")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "Which of these people are over 30? [{\"name\":\"Ada\",\"age\":36},{\"name\":\"Bo\",\"age\":29}]",
        json!({
            "filter": ".[] | select(.age > 30) | .name",
            "input": [{ "name": "Ada", "age": 36 }, { "name": "Bo", "age": 29 }]
        }),
        json!({ "outputs": ["Ada"], "truncated": false }),
        "Ada is over 30.",
    )
    .example(
        "Sum the amounts per city.",
        json!({
            "filter": "group_by(.city) | map({city: .[0].city, total: map(.amount) | add})",
            "input": [
                { "city": "Bonn", "amount": 2 },
                { "city": "Kiel", "amount": 5 },
                { "city": "Bonn", "amount": 3 }
            ]
        }),
        json!({
            "outputs": [[{ "city": "Bonn", "total": 5 }, { "city": "Kiel", "total": 5 }]],
            "truncated": false
        }),
        "Bonn: 5, Kiel: 5.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The filter, in jq's language: `.items[] | select(.price > 10) | .name`.
    filter: String,
    /// The JSON to run it on. A string is parsed as JSON if it is JSON; otherwise it is the text.
    input: Value,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    /// What the filter yielded, in order.
    outputs: Vec<Value>,
    /// Whether it would have yielded more.
    truncated: bool,
}

fn query(arguments: Arguments) -> Result<Found, Error> {
    let code = arguments.filter.as_str();
    let definitions = jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs());
    let functions = jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs());
    let arena = Arena::default();
    let parsed = Loader::new(definitions)
        .load(&arena, File { code, path: () })
        .map_err(|errors| fault::of_parsing(code, &errors))?;
    let filter = Compiler::default()
        .with_funs(functions)
        .compile(parsed)
        .map_err(|errors| fault::of_names(&errors))?;

    let context = Ctx::<JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut found = Found {
        outputs: Vec::new(),
        truncated: false,
    };
    let mut bytes = 0;
    for output in filter
        .id
        .run((context, input(&arguments.input)?))
        .map(unwrap_valr)
    {
        let text = output
            .map_err(|error| fault::of_running(&error, found.outputs.len()))?
            .to_string();
        bytes += text.len();
        if found.outputs.len() == MAX_OUTPUTS || bytes > MAX_BYTES {
            found.truncated = true;
            break;
        }
        found.outputs.push(plain(&text)?);
    }
    if found.truncated && found.outputs.is_empty() {
        return Err(Error::correctable(format!(
            "the first output is longer than {MAX_BYTES} bytes; let the filter pick less"
        )));
    }
    Ok(found)
}

fn input(value: &Value) -> Result<Val, Error> {
    if let Value::String(text) = value
        && let Ok(parsed) = read::parse_single(text.as_bytes())
    {
        return Ok(parsed);
    }
    read::parse_single(value.to_string().as_bytes())
        .map_err(|error| Error::correctable(format!("`input` cannot be read: {error}")))
}

/// The filter's values may be more than JSON has: NaN, infinities, keys that are no strings.
fn plain(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|_| {
        let start: String = text.chars().take(80).collect();
        Error::correctable(format!(
            "an output is not JSON: {start}; NaN and infinite numbers have none, and keys must be \
             strings: use `tostring`"
        ))
    })
}
