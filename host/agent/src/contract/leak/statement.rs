//! Answers that are statements or commands with calls of offered tools and nothing else, outside of fences:
//! `result = NAME(KEY=VALUE)`, `const result = await NAME({…});`, `/NAME KEY=VALUE`. Whether they are meant is not known, so no
//! call is made of them.

use super::bare::is_compound;
use super::body::CallableNames;
use super::framed::MAX_MARKS;
use super::pythonic::{PACKAGE, bracketed};
use super::{Leak, MAX_CALLS, alone};

/// Words before the name of a variable.
pub(super) const DECLARATIONS: [&str; 3] = ["const", "let", "var"];
/// The word before a call that is waited for.
const AWAIT: &str = "await";
/// Functions that print the result of a call.
const PRINTERS: [&str; 2] = ["print", "console.log"];
/// Maximum bytes of the name of a variable. Until a longer word ends, it is no variable for readers of a stream.
const MAX_VARIABLE: usize = 48;
/// Signs before the name of a command.
pub(super) const COMMAND_SIGNS: [char; 2] = ['/', '!'];

/// The first call of an answer that is such calls alone. Its arguments are not given.
pub(super) fn call(answer: &str, offer: &CallableNames) -> Option<Leak> {
    if !offer.rules().are_from_5() {
        return None;
    }
    let text = alone(offer.rules(), answer);
    let tool = program(text, offer).or_else(|| commands(text, offer))?;
    Some(Leak::without_arguments(tool, text))
}

/// Calls whose results have names, and lines that print these.
fn program(text: &str, offer: &CallableNames) -> Option<String> {
    let text = text.trim();
    let mut rest = text;
    let mut variables = Vec::new();
    let mut found = None;
    for _ in 0..=MAX_CALLS {
        if rest.is_empty() {
            return found;
        }
        let (variable, expression) = match assignment(rest) {
            Some((variable, expression)) => (Some(variable), expression),
            None => (None, rest),
        };
        let (name, after) = expression.split_at_checked(expression.find('(')?)?;
        let (arguments, after) = bracketed(after)?;
        let written = past_word(name, AWAIT).unwrap_or(name).trim_start();
        // Readers of a stream look no further for the name of the first tool.
        let before = text.len() - expression.len() + name.len() - written.len();
        if found.is_none() && before > MAX_MARKS {
            return None;
        }
        let name = written.trim_end();
        let called = offer.identifier(name.strip_prefix(PACKAGE).unwrap_or(name));
        let inner = arguments.get(1..arguments.len().saturating_sub(1))?.trim();
        let prints = || PRINTERS.contains(&name) && variables.contains(&inner);
        if called.is_none() && !prints() {
            return None;
        }
        found = found.or(called);
        variables.extend(variable);
        rest = after.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
    }
    None
}

/// `NAME = …`, perhaps declared: the name, and what it is.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let declared = DECLARATIONS
        .iter()
        .find_map(|word| past_word(text, word))
        .unwrap_or(text);
    let end = declared.find(|c: char| !is_of_variable(c))?;
    let (variable, after) = declared.split_at_checked(end)?;
    let value = after.trim_start_matches(' ').strip_prefix('=')?;
    let is_one = is_variable(variable) && !value.starts_with(['=', '>']);
    is_one.then(|| (variable, value.trim_start()))
}

/// The text behind a word and blanks.
fn past_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.trim_start().strip_prefix(word)?;
    let after = rest.trim_start_matches(' ');
    (after.len() < rest.len()).then_some(after)
}

/// Whether a word may be the name of a variable.
pub(super) fn is_variable(word: &str) -> bool {
    word.len() <= MAX_VARIABLE
        && word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && word.chars().all(is_of_variable)
}

fn is_of_variable(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Commands, one a line: a sign, the name, and arguments as `KEY=VALUE` or an object. Without a sign, the name is no word of a
/// language. Nothing where there are more than [`MAX_CALLS`].
fn commands(text: &str, offer: &CallableNames) -> Option<String> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty());
    let mut found = None;
    for line in lines.by_ref().take(MAX_CALLS) {
        let behind_sign = line.strip_prefix(COMMAND_SIGNS);
        let command = behind_sign.unwrap_or(line);
        let (name, arguments) = command.split_once(char::is_whitespace)?;
        if behind_sign.is_none() && !is_compound(name) {
            return None;
        }
        let tool = offer.identifier(name)?;
        let arguments = arguments.trim();
        if !are_pairs(arguments) && !is_whole_object(arguments) {
            return None;
        }
        found = found.or(Some(tool));
    }
    found.filter(|_| lines.next().is_none())
}

/// Whether a text is one object and nothing else.
fn is_whole_object(text: &str) -> bool {
    text.starts_with('{') && bracketed(text).is_some_and(|(_, after)| after.is_empty())
}

/// Whether a text is `KEY=VALUE`, once or several times, with quotes around values that have blanks.
fn are_pairs(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let Some((key, value)) = rest.split_once('=') else {
            return false;
        };
        let key = key.trim_start_matches('-');
        if key.is_empty() || !key.chars().all(is_of_key) {
            return false;
        }
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let end = match quote {
            Some(quote) => value
                .get(1..)
                .and_then(|inner| inner.find(quote))
                .map(|at| at + 2),
            None => Some(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        let Some(after) = end.and_then(|end| value.get(end..)) else {
            return false;
        };
        rest = after.trim_start();
    }
    !text.is_empty()
}

/// Whether a character may stand in the key of an argument.
pub(super) fn is_of_key(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::leak::tests::assert_held;
    use crate::contract::provenance::Provenance;
    use crate::contract::tests::read_completion_from;
    use serde_json::json;
    use std::sync::Arc;
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::solution::Solution;
    use toolhold_protocol::tool::Tool;

    fn read(text: &str) -> Result<Solution, String> {
        read_from(text, &Provenance::default())
    }

    fn read_from(text: &str, provenance: &Provenance) -> Result<Solution, String> {
        let tools = ["weather.now", "news"].map(|name| Arc::new(Tool::new(name)));
        let completion = Completion {
            content: text.into(),
            ..Completion::default()
        };
        read_completion_from(Contract::Tools, &completion, &tools, provenance)
    }

    #[test]
    fn a_statement_that_calls_a_tool_is_no_answer_and_is_not_shown() {
        for text in [
            "result = weather_now(city=\"Rome\")",
            "weather = weather_now(city=\"Rome\")\nprint(weather)",
            // A variable is called as a tool is.
            "weather_now = weather_now(city=\"Rome\")",
            "a_variable_of_forty_eight_bytes_and_of_no_others = news()",
            "const a_variable_of_forty_eight_bytes_and_of_no_others = await news();",
            "a = news()\nb = weather_now(city=\"Rome\")",
            "x=news()",
            "news = news(top=3)",
            "const result = await weather_now({\"city\": \"Rome\"});\nconsole.log(result);",
            "/news top=3",
            "/weather.now city=Rome days=2",
            "/weather-now city=\"New York\" unit='C'",
            "!news --top=3",
            "weather-now city=Rome",
            "/news {\"top\": 3}",
            "/news top=3\n/weather.now city=Rome",
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("looks like a call"), "{text}: {error}");
            assert!(error.contains("in backticks"), "{text}: {error}");
            assert_held(text);
        }
    }

    #[test]
    fn a_statement_with_anything_else_is_an_answer() {
        for text in [
            "x = 5",
            "result = other(city=\"Rome\")",
            "result = news() gives the news.",
            "result == news()",
            "print(result)",
            "a_variable_that_has_more_than_forty_eight_bytes_of = news()",
            "Let result = news()",
            "```python\nresult = weather_now(city=\"Rome\")\n```",
            "`result = news()`",
            "Then result = news()",
            "/news",
            "/news of today",
            "/other top=3",
            "news top=3",
            "weather-now is city=Rome",
            "/news top=3 and more",
            "/news top=3\nThat is all.",
        ] {
            let solution = read(text).unwrap();
            assert!(solution.calls.is_empty(), "{text}");
            assert_eq!(solution.output, Some(json!(text)), "{text}");
        }
    }

    /// The first name of a tool that readers of a stream do not look for is no call either.
    #[test]
    fn a_statement_behind_many_blanks_is_an_answer() {
        for (blanks, is_answer) in [(1, false), (MAX_MARKS, true)] {
            let text = format!("const result ={}news()", " ".repeat(blanks));
            assert_eq!(read(&text).is_ok(), is_answer, "{blanks}");
        }
    }

    #[test]
    fn more_commands_than_calls_of_a_reply_are_an_answer() {
        for (lines, is_answer) in [(MAX_CALLS, false), (MAX_CALLS + 1, true)] {
            let text = vec!["/news top=3"; lines].join("\n");
            assert_eq!(read(&text).is_ok(), is_answer, "{lines}");
        }
    }

    /// A run with native calls writes about them: what is text there is text.
    #[test]
    fn a_statement_is_an_answer_beside_native_calls() {
        let mut native = Provenance::default();
        native.had_native_call(None);
        for text in [
            "result = weather_now(city=\"Rome\")",
            "/news top=3",
            "weather-now city=Rome",
        ] {
            let solution = read_from(text, &native).unwrap();
            assert_eq!(solution.output, Some(json!(text)), "{text}");
        }
    }
}
