//! What is wrong with a file that is no TOML, without its values: one of them may be a secret, and a forgotten quote is
//! the most common fault.

use toolhold_runtime::config::DEFAULTS;

/// What is left out of a line.
const HIDDEN: &str = "…";
/// A longer name is no key of ours.
const MAX_NAME_BYTES: usize = 48;

/// Where the fault is, what was expected there, and of the line what comes before its value.
pub fn reason(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return message.to_owned();
    };
    let number = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let line = text.split('\n').nth(number - 1).unwrap_or_default();
    let gutter = " ".repeat(number.to_string().len());
    format!(
        "line {number}, column {column}\n{gutter} |\n{number} | {}\n{gutter} |\n{message}",
        shown(line)
    )
}

/// The key of a line, or the beginning of the name of a table. A line may also be a part of a value over several lines,
/// which looks like anything; so nothing is shown but words of the default file.
fn shown(line: &str) -> String {
    let line = line.trim();
    let names = line.trim_start_matches('[');
    let brackets = line.len() - names.len();
    if (1..=2).contains(&brackets) {
        let name = names.split(['.', ']']).next().unwrap_or_default().trim();
        if is_word(name) {
            let rest = names.trim_start().len() > name.len();
            let rest = if rest { HIDDEN } else { "" };
            return format!("{}{name}{rest}", "[".repeat(brackets));
        }
    } else if let Some((key, _)) = line.split_once('=') {
        let name = key.rsplit('.').next().unwrap_or_default().trim();
        if is_word(name) {
            return format!("{name} = {HIDDEN}");
        }
    }
    HIDDEN.to_owned()
}

fn is_word(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(is_part)
        && DEFAULTS
            .split(|c: char| !is_part(c))
            .any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Table;

    fn said(text: &str) -> String {
        reason(text, &text.parse::<Table>().unwrap_err())
    }

    #[test]
    fn no_value_is_shown() {
        const SECRET: &str = "sk-1234567890";
        for text in [
            format!("api_key_env = \"{SECRET}\n"),
            format!("[endpoints.default]\napi_key_env = {SECRET}\n"),
            format!("endpoints.default.api_key_env={SECRET}"),
            format!("api_key = '{SECRET}"),
            format!("{SECRET} = \"x"),
            format!("\"{SECRET}\" \"x\""),
            format!("headers = {{ x = \"{SECRET}\", }} y"),
            format!("key = \"\"\"\n{SECRET}=\n\"\"\" x"),
            format!("key = \"\"\"\nMIIB\n{SECRET}"),
            format!("list = [\n  \"{SECRET},\n]"),
            format!("[[{SECRET}"),
            format!("['{SECRET}'"),
            SECRET.to_owned(),
        ] {
            let said = said(&text);
            assert!(!said.contains("1234"), "{text:?}: {said}");
            assert!(said.contains("line "), "{text:?}: {said}");
        }
    }

    #[test]
    fn the_place_and_what_was_expected_are_shown() {
        let unclosed = said("[run\n");
        let said = said("# ä\n[endpoints.default]\nbase_url = \"http://h/v1\n");
        assert!(said.starts_with("line 3, column "), "{said}");
        assert!(said.contains("3 | base_url = …"), "{said}");
        assert!(said.contains("expected"), "{said}");
        assert_eq!(
            unclosed,
            "line 1, column 5\n  |\n1 | [run\n  |\nunclosed table, expected `]`"
        );
        assert_eq!(shown("[endpoints.mine] x"), "[endpoints…");
        assert_eq!(shown("[mine"), HIDDEN);
    }
}
