//! What the model is told, and the order of a call: files in, code, files out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, Value, json};

use crate::engine;
use crate::scratch::{File, Scratch, Snapshot, Written};

/// The tool, over the scratch directory that `granted` finds when a call asks.
pub fn tool(granted: impl Fn() -> Option<Scratch> + 'static) -> Tool {
    Tool::new(
        "run",
        "Runs JavaScript code and returns what it printed and the value of its last expression. Use \
         it for computations with several steps, for data, JSON, dates, texts and sorting. Promises, \
         await and timers work (a timer fires at once); there is no network, no DOM and no package \
         to import. No variable is kept between calls.",
        move |arguments: Arguments| run(arguments, granted()),
    )
    .title("Run JavaScript")
    .annotations(Annotations::READ_ONLY)
    .example(
        "What is the sum of all primes below 100?",
        json!({ "code": "let sum = 0;\nfor (let n = 2; n < 100; n++) {\n  let prime = true;\n  for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;\n  if (prime) sum += n;\n}\nsum" }),
        json!({ "stdout": "", "result": 1060 }),
        "The sum of all primes below 100 is 1060.",
    )
    .example(
        "Sort these people by age: Ada 36, Bob 25",
        json!({
            "code": "input.sort((a, b) => a.age - b.age).map(p => p.name)",
            "input": [{ "name": "Ada", "age": 36 }, { "name": "Bob", "age": 25 }]
        }),
        json!({ "stdout": "", "result": ["Bob", "Ada"] }),
        "By age: Bob, then Ada.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// JavaScript source. The value of the last expression is the result, or else the variable
    /// `result`. Print what else you want to see with console.log.
    code: String,
    /// Any JSON; the code sees it as the variable `input`.
    #[serde(default)]
    input: Value,
    /// Files that the code can read: `readFile("data.csv")` gives the text. Needs the scratch grant.
    #[serde(default)]
    #[schemars(length(max = 64))]
    files: Vec<File>,
}

#[derive(Serialize, JsonSchema)]
struct Ran {
    /// What the code printed.
    stdout: String,
    /// The result as JSON, with texts for what JSON cannot hold.
    result: Value,
    /// The files that the code wrote or changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<Written>,
}

fn run(arguments: Arguments, scratch: Option<Scratch>) -> Result<Ran, Error> {
    if scratch.is_none() && !arguments.files.is_empty() {
        return Err(Error::correctable(
            "this module has no scratch directory for `files`: pass the data as `input`, or ask the \
             operator to grant one (toolhold modules grant javascript --scratch)",
        ));
    }
    let before = match &scratch {
        Some(scratch) => {
            scratch.put(&arguments.files)?;
            scratch.snapshot()
        }
        None => Snapshot::new(),
    };
    let root = scratch.as_ref().map(Scratch::root);
    let (stdout, result) = engine::run(&arguments.code, &arguments.input, root)?;
    let files = scratch.map_or_else(Vec::new, |scratch| scratch.written_since(&before));
    Ok(Ran {
        stdout,
        result,
        files,
    })
}
