//! Checks for a module's own `cargo test`, run natively.

use crate::{Error, Tool, Value};

/// Runs every example of `tools` and says which do not return what they claim. An example that lies
/// teaches a model to invent results, so each module asserts that this list is empty.
pub fn examples(tools: &[Tool]) -> Vec<String> {
    let mut wrong = Vec::new();
    for tool in tools {
        for example in tool.examples() {
            match tool.run(&example.arguments.to_string()) {
                Ok(output) if output == example.output => {}
                Ok(output) => wrong.push(format!(
                    "{}: `{}` returns {output}, the example says {}",
                    tool.name(),
                    example.task,
                    example.output
                )),
                Err(error) => wrong.push(format!(
                    "{}: `{}` fails: {}",
                    tool.name(),
                    example.task,
                    error.message()
                )),
            }
        }
    }
    wrong
}

/// Calls one tool by name, as the host would.
pub fn call(tools: &[Tool], name: &str, arguments: &Value) -> Result<Value, Error> {
    match tools.iter().find(|tool| tool.name() == name) {
        Some(tool) => tool.run(&arguments.to_string()),
        None => Err(Error::fatal(format!("the module has no tool `{name}`"))),
    }
}
