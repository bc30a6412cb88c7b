//! Whether a reply begins like a call without a mark, for readers who are shown its text while it is written. Such a call
//! is all of its reply, so the beginning decides.

use super::bare::{HEADS, HYPER_CLOVA, is_compound};
use super::framed::{ARGUMENT_WORDS, FENCE, MAX_MARKS, WORDS, is_object};
use super::marks::past_role;
use super::statement::{COMMAND_SIGNS, DECLARATIONS, is_of_key, is_variable};
use super::unknown::{MAX_UNDECIDED, ReplyOpening, opening_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::function_names::{NameKind, NameMap, bare_name};

/// Beginnings of forms whose marks are words, beside [`HEADS`].
const BEGINNINGS: [&str; 7] = [
    ">>>",
    "TOOL_CALLS",
    "functools[",
    "commentary to=",
    "assistantcommentary to=",
    "<code>",
    HYPER_CLOVA,
];
/// Words that stand before the name of a tool, beside [`WORDS`] and [`DECLARATIONS`]: `print(NAME(…))`, `Calling NAME(…)`.
const LEADS: [&str; 7] = [
    "args",
    "calling",
    "defaultapi",
    "execute",
    "functions",
    "print",
    "result",
];
/// Names that calls may have beside those of the tools, as they are compared: of the functions for members of a solution, of the
/// host's own tools, and words before a name.
const OTHER_NAMES: [&str; 8] = [
    "advisors",
    "consultadvisor",
    "findtools",
    "finish",
    "function",
    "meta",
    "print",
    "readresult",
];
/// End of the name of a function for a member of a solution, where a tool has its name.
const SOLUTION: &str = "solution";
/// Characters between a name and its arguments.
const BETWEEN: [char; 6] = ['*', '"', ':', '=', '-', '>'];
/// First characters of arguments.
const ARGUMENTS: [char; 4] = ['{', '(', '[', '<'];

/// Names of the tools that a reply may call, as readers of its text compare them: letters and digits alone.
#[derive(Debug, Clone, Default)]
pub struct OfferedNames(Arc<[String]>);

impl OfferedNames {
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let map = NameMap::new(NameKind::Tool, names.iter().copied());
        let mut folded = BTreeSet::new();
        for name in names {
            folded.insert(fold(name));
            folded.insert(fold(&map.outward(name)));
        }
        folded.remove("");
        Self(folded.into_iter().collect())
    }

    /// The kind of `text`, the beginning of a reply. Without tools, it begins with text unless it begins with marks.
    pub fn opening_of(&self, text: &str) -> ReplyOpening {
        let marked = opening_of(text);
        if marked != ReplyOpening::Text || self.0.is_empty() {
            return marked;
        }
        match self.kind(past_role(ReadingRules::Current, text)) {
            ReplyOpening::Undecided if text.len() > MAX_UNDECIDED => ReplyOpening::Marks,
            kind => kind,
        }
    }

    /// Whether a word with these letters may mean a tool, perhaps with a namespace before it. True where no names are known.
    pub(super) fn may_end(&self, letters: &str) -> bool {
        let other = letters.trim_end_matches(SOLUTION);
        self.0.is_empty()
            || self.0.iter().any(|name| letters.ends_with(name.as_str()))
            || OTHER_NAMES.iter().any(|name| other.ends_with(*name))
    }

    fn kind(&self, text: &str) -> ReplyOpening {
        if let Some(rest) = text.strip_prefix(FENCE) {
            return self.fenced(rest);
        }
        let words = || HEADS.iter().chain(&BEGINNINGS);
        if words().any(|head| text.starts_with(head)) {
            return ReplyOpening::Marks;
        }
        if FENCE.starts_with(text) || words().any(|head| head.starts_with(text)) {
            return ReplyOpening::Undecided;
        }
        if text.starts_with('{') {
            return ReplyOpening::Marks;
        }
        self.listed(text, true)
    }

    /// The kind of a text behind the beginning of a fence.
    fn fenced(&self, text: &str) -> ReplyOpening {
        let inner = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let inner = inner.trim_start();
        if inner.is_empty() {
            return ReplyOpening::Undecided;
        }
        match opening_of(inner) {
            ReplyOpening::Text if inner.starts_with('{') => ReplyOpening::Marks,
            ReplyOpening::Text => self.listed(inner, false),
            kind => kind,
        }
    }

    /// The kind of a text that may begin with a list of calls, or with one. `may_be_statement`: it stands in no fence, where a
    /// statement with a call is shown.
    fn listed(&self, text: &str, may_be_statement: bool) -> ReplyOpening {
        let kind = text.strip_prefix('[').map(in_list);
        kind.filter(|kind| *kind != ReplyOpening::Text)
            .unwrap_or_else(|| self.named(text, may_be_statement))
    }

    /// The kind of a text that may begin with the name of a tool, perhaps behind signs and other words: those of
    /// [`framed`](super::framed) and [`statement`](super::statement), and more.
    fn named(&self, text: &str, may_be_statement: bool) -> ReplyOpening {
        let mut rest = text;
        let mut is_led = false;
        // A variable has neither a sign nor another variable before it.
        let mut may_assign = may_be_statement;
        let has_command_sign = text.starts_with(COMMAND_SIGNS);
        while text.len() - rest.len() <= MAX_MARKS {
            let start = rest.trim_start();
            if let Some(after) = start.strip_prefix(FENCE) {
                // Its language may go on.
                let (_, after) = word(after);
                if after.is_empty() {
                    return ReplyOpening::Undecided;
                }
                rest = after;
                continue;
            }
            let Some(first) = start.chars().next() else {
                return ReplyOpening::Undecided;
            };
            if !first.is_alphanumeric() {
                if first == '{' && is_object(start) {
                    return ReplyOpening::Text;
                }
                rest = start.strip_prefix(first).unwrap_or_default();
                may_assign = false;
                continue;
            }
            let (written, after) = word(start);
            let names = spellings(written);
            let may_be_variable = may_assign && is_variable(written);
            if after.is_empty() {
                return if may_be_variable || self.may_become_known(written, &names) {
                    ReplyOpening::Undecided
                } else {
                    ReplyOpening::Text
                };
            }
            let value = after.trim_start_matches(' ');
            let assigned = value
                .strip_prefix('=')
                .filter(|value| may_be_variable && !value.starts_with(['=', '>']));
            if self.0.iter().any(|known| names.contains(known)) {
                let kind = behind_name(after, is_led);
                let is_first = start.len() == text.len() && is_compound(written);
                let is_command = may_be_statement && (has_command_sign || is_first);
                // A variable may be called as a tool is.
                if is_command && assigned.is_none() && kind == ReplyOpening::Text {
                    return before_pair(after);
                }
                if kind != ReplyOpening::Text || assigned.is_none() {
                    return kind;
                }
            }
            if let Some(value) = assigned {
                is_led = true;
                may_assign = false;
                rest = value;
                continue;
            }
            if may_be_variable && value.is_empty() {
                return ReplyOpening::Undecided;
            }
            if !DECLARATIONS.contains(&written) && !leads().any(|lead| names.contains(&lead)) {
                return ReplyOpening::Text;
            }
            is_led = true;
            rest = after;
        }
        ReplyOpening::Text
    }

    /// Whether a word that may go on, as it is `written` and in these spellings, may be the name of a tool or a word before
    /// it.
    fn may_become_known(&self, written: &str, names: &[String]) -> bool {
        let begins = |known: &str| names.iter().any(|name| known.starts_with(name.as_str()));
        self.0.iter().any(|known| begins(known))
            || leads().any(|lead| begins(&lead))
            || DECLARATIONS.iter().any(|word| word.starts_with(written))
    }
}

/// Words that stand before the name of a tool, as they are compared. [`DECLARATIONS`] are compared exactly.
fn leads() -> impl Iterator<Item = String> {
    WORDS.iter().chain(&LEADS).map(|word| fold(word))
}

/// A name as it is compared: whole, and behind a namespace.
fn spellings(written: &str) -> Vec<String> {
    let behind = written.split_once('.').map(|(_, name)| fold(name));
    let all = [fold(written), fold(&bare_name(written))];
    all.into_iter().chain(behind).collect()
}

/// The kind of a text behind the name of a tool. `is_led`: a word before it says that it is a name.
fn behind_name(after: &str, is_led: bool) -> ReplyOpening {
    let is_between = |c: char| c.is_whitespace() || BETWEEN.contains(&c);
    let arguments = past_number(after).trim_start_matches(is_between);
    if FENCE.starts_with(arguments) {
        return ReplyOpening::Undecided;
    }
    let is_fenced = arguments.starts_with(FENCE);
    let arguments = arguments.trim_start_matches(|c: char| c == '`' || is_between(c));
    let is_led = is_led && !arguments.is_empty();
    if is_fenced || is_led || arguments.starts_with(ARGUMENTS) {
        ReplyOpening::Marks
    } else {
        before_object(arguments)
    }
}

/// The kind of a text behind the name of a command, where a pair of a key and a value may follow.
fn before_pair(after: &str) -> ReplyOpening {
    let rest = after.trim_start();
    let value = rest.trim_start_matches(is_of_key);
    if value.is_empty() {
        ReplyOpening::Undecided
    } else if value.starts_with('=') && value.len() < rest.len() {
        ReplyOpening::Marks
    } else {
        ReplyOpening::Text
    }
}

/// The text behind the number that Kimi puts behind a name: `NAME:0`.
fn past_number(text: &str) -> &str {
    let number = text.strip_prefix(':');
    number.map_or(text, |rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// The kind of a text behind a name, where an object may follow behind signs and words of arguments.
fn before_object(text: &str) -> ReplyOpening {
    let mut rest = text;
    while text.len() - rest.len() <= MAX_MARKS {
        let start = rest.trim_start();
        let Some(first) = start.chars().next() else {
            return ReplyOpening::Undecided;
        };
        if first == '{' || start.starts_with(FENCE) {
            return ReplyOpening::Marks;
        }
        if !first.is_alphanumeric() {
            rest = start.strip_prefix(first).unwrap_or_default();
            continue;
        }
        let (written, after) = word(start);
        let name = fold(written);
        if after.is_empty() && ARGUMENT_WORDS.iter().any(|own| own.starts_with(&name)) {
            return ReplyOpening::Undecided;
        }
        if !ARGUMENT_WORDS.contains(&name.as_str()) {
            return ReplyOpening::Text;
        }
        // Arguments may be lines.
        if after.starts_with(':') {
            return ReplyOpening::Marks;
        }
        rest = after;
    }
    ReplyOpening::Text
}

/// The kind of a text behind `[`: objects, or `NAME(KEY=VALUE)`.
fn in_list(inner: &str) -> ReplyOpening {
    let (name, rest) = word(inner.trim_start());
    let rest = rest.trim_start();
    let is_call = if name.is_empty() {
        rest.starts_with('{')
    } else {
        rest.starts_with('(')
    };
    if rest.is_empty() {
        ReplyOpening::Undecided
    } else if is_call {
        ReplyOpening::Marks
    } else {
        ReplyOpening::Text
    }
}

/// The word that a text begins with, which may be empty, and the text behind it.
fn word(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

fn fold(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> OfferedNames {
        OfferedNames::of(["calculator.evaluate", "weather"])
    }

    /// The kinds of the beginnings of `text` that are one character longer each, without repetitions.
    fn kinds(names: &OfferedNames, text: &str) -> Vec<ReplyOpening> {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let mut kinds: Vec<_> = ends.map(|end| names.opening_of(&text[..end])).collect();
        kinds.dedup();
        kinds
    }

    #[test]
    fn a_reply_that_may_be_a_call_without_a_mark_is_never_taken_for_text() {
        for text in [
            r#"{"name":"weather","arguments":{}}"#,
            r#" [{"name":"weather","arguments":{}}]"#,
            r#"[weather(city="Rome")]"#,
            "```json\n{\"name\":\"weather\",\"arguments\":{}}\n```",
            "```\nweather(city=\"Rome\")\n```",
            "```python\n<tool_call>{",
            "weather\n{\"city\":\"Rome\"}",
            "calculator-evaluate\n{\"expression\":\"1\"}",
            "calculator_evaluate(expression=\"1\")",
            "functions.calculator-evaluate {\"expression\":\"1\"}",
            "`weather`\n{\"city\":\"Rome\"}",
            "**weather**\n```json\n{}\n```",
            "@weather{\"city\":\"Rome\"}",
            "await calculator_evaluate({})",
            "Call: weather(city='Rome')",
            "tool: weather\nargs:\n  city: Rome",
            "Action: weather\nAction Input: {}",
            "Thought: hm\nAction: weather",
            ">>>weather\n{}",
            "result = calculator_evaluate(expression=\"1\")",
            "weather = weather(city=\"Rome\")",
            "calculator_evaluate = calculator_evaluate(expression=\"1\")",
            "a_variable_of_forty_eight_bytes_and_of_no_others = weather(city=\"Rome\")",
            "const a_variable_of_forty_eight_bytes_and_of_no_others = await weather({})",
            "const r = await weather({})",
            "/weather city=Rome",
            "!weather --city=Rome",
            "calculator-evaluate expression=1",
            r#"TOOL_CALLS[{"name":"weather"}]"#,
        ] {
            let kinds = kinds(&names(), text);
            assert!(!kinds.contains(&ReplyOpening::Text), "{text}: {kinds:?}");
            assert_eq!(kinds.last(), Some(&ReplyOpening::Marks), "{text}");
        }
    }

    #[test]
    fn other_text_is_known_after_a_word() {
        for (text, shown) in [
            ("Hello", "Hel"),
            ("The weather is fine", "The "),
            ("weather is fine", "weather is"),
            ("calculators are", "calculators a"),
            ("x = 5", "x = 5"),
            ("let me see", "let me s"),
            ("Let weather be weather", "Let "),
            ("Const weather = {}", "Const "),
            (
                "a_variable_that_has_more_than_forty_eight_bytes_of = weather()",
                "a_variable_that_has_more_than_forty_eight_bytes_o",
            ),
            ("/weather of today", "/weather of "),
            ("[1, 2]", "[1,"),
            ("[a link](http://x)", "[a l"),
            ("```py\nx=1\n```", "```py\nx"),
            ("- a list", "- a "),
            ("42", "4"),
        ] {
            let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
            let mut begun = ends.map(|end| &text[..end]);
            let first = begun.find(|begun| names().opening_of(begun) == ReplyOpening::Text);
            assert!(
                first.is_some_and(|first| first.len() <= shown.len()),
                "{text}: {first:?}"
            );
        }
        // No tool could be meant.
        assert_eq!(
            OfferedNames::default().opening_of("{\"a\": 1}"),
            ReplyOpening::Text
        );
    }
}
