//! What is wrong with a filter, in words that help to mend it.

use jaq_core::compile::Undefined;
use jaq_core::load::{self, Error as LoadError};
use toolhold_guest::Error;

pub fn of_parsing(code: &str, errors: &load::Errors<&str, ()>) -> Error {
    let first = errors.iter().find_map(|(_, error)| match error {
        LoadError::Io(paths) => paths
            .first()
            .map(|_| "`import` and `include` have no files to load here".to_owned()),
        LoadError::Lex(errors) => errors
            .first()
            .map(|(expected, at)| expected_at(code, expected.as_str(), at)),
        LoadError::Parse(errors) => errors
            .first()
            .map(|(expected, at)| expected_at(code, expected.as_str(), at)),
    });
    let reason = first.unwrap_or_else(|| "it does not parse".to_owned());
    Error::correctable(format!("the filter is not valid jq: {reason}"))
}

fn expected_at(code: &str, expected: &str, at: &str) -> String {
    let offset = load::span(code, at).start;
    let before = code.get(..offset).unwrap_or(code);
    let rest: String = code.get(offset..).unwrap_or("").chars().take(20).collect();
    let place = before.chars().count() + 1;
    if rest.is_empty() {
        format!("expected {expected} at its end")
    } else {
        format!("expected {expected} at character {place}, before `{rest}`")
    }
}

pub fn of_names(errors: &jaq_core::compile::Errors<&str, ()>) -> Error {
    let first = errors.iter().flat_map(|(_, errors)| errors).next();
    let reason = match first {
        Some((name, Undefined::Filter(arguments))) => format!(
            "there is no function `{name}` with {arguments} arguments; `input`, `env` and files are \
             not available here"
        ),
        Some((name, Undefined::Var)) => {
            format!("`{name}` is not defined; bind it with `... as {name} | ...`")
        }
        Some((name, undefined)) => format!("undefined {}: `{name}`", undefined.as_str()),
        None => "a name is not defined".to_owned(),
    };
    Error::correctable(format!("the filter is not valid jq: {reason}"))
}

/// An exception of the filter: `error`, or an operation on the wrong type.
pub fn of_running(error: &impl std::fmt::Display, before: usize) -> Error {
    // The message holds the value at fault, however long that is.
    let message = error.to_string();
    let mut shown: String = message.chars().take(400).collect();
    if shown.len() < message.len() {
        shown.push('…');
    }
    Error::correctable(format!(
        "the filter failed after {before} outputs: {shown}; look at the input's shape with `keys` or \
         `type`, or use `?` where a part may be missing"
    ))
}
