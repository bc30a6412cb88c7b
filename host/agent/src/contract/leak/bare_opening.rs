//! Whether a reply begins like a call without a mark, for readers who are shown its text while it is written. Such a call
//! is all of its reply, so the beginning decides.

use super::bare::HEADS;
use super::unknown::{MAX_UNDECIDED, ReplyOpening, opening_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_protocol::function_names::{NameKind, NameMap};

const FENCE: &str = "```";
/// Beginnings of forms whose marks are words, beside [`HEADS`].
const BEGINNINGS: [&str; 5] = [
    ">>>",
    "TOOL_CALLS",
    "functools[",
    "commentary to=",
    "assistantcommentary to=",
];
/// Words that stand before the name of a tool: `Call: NAME(…)`, `result = NAME(…)`.
const LEADS: [&str; 16] = [
    "action",
    "args",
    "await",
    "call",
    "calling",
    "command",
    "defaultapi",
    "execute",
    "function",
    "functions",
    "invoke",
    "name",
    "print",
    "result",
    "tool",
    "tools",
];
/// Most words before the name.
const MAX_LEADS: usize = 4;
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
        match self.kind(text.trim_start()) {
            ReplyOpening::Undecided if text.len() > MAX_UNDECIDED => ReplyOpening::Marks,
            kind => kind,
        }
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
        match text.strip_prefix('[') {
            Some(inner) => listed(inner),
            None => self.named(text),
        }
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
            ReplyOpening::Text => match inner.strip_prefix('[') {
                Some(inner) => listed(inner),
                None => self.named(inner),
            },
            kind => kind,
        }
    }

    /// The kind of a text that may begin with the name of a tool, perhaps behind other words.
    fn named(&self, text: &str) -> ReplyOpening {
        let mut rest = text;
        for leads in 0..MAX_LEADS {
            rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '{');
            let (written, after) = word(rest);
            let name = fold(written);
            // Perhaps behind a namespace.
            let behind = written.split_once('.').map(|(_, name)| fold(name));
            let names: Vec<&str> = behind.iter().chain([&name]).map(String::as_str).collect();
            if after.is_empty() {
                // Nothing, or a word that may go on.
                let mut known = self.0.iter().map(String::as_str).chain(LEADS);
                let may_be = known.any(|known| names.iter().any(|name| known.starts_with(name)));
                return if may_be {
                    ReplyOpening::Undecided
                } else {
                    ReplyOpening::Text
                };
            }
            if self.0.iter().any(|known| names.contains(&known.as_str())) {
                return behind_name(after, leads > 0);
            }
            if !LEADS.contains(&name.as_str()) {
                break;
            }
            rest = after;
        }
        ReplyOpening::Text
    }
}

/// The kind of a text behind the name of a tool. `is_led`: a word before it says that it is a name.
fn behind_name(after: &str, is_led: bool) -> ReplyOpening {
    let is_between = |c: char| c.is_whitespace() || BETWEEN.contains(&c);
    let arguments = after.trim_start_matches(is_between);
    if FENCE.starts_with(arguments) {
        return ReplyOpening::Undecided;
    }
    let is_fenced = arguments.starts_with(FENCE);
    let arguments = arguments.trim_start_matches(|c: char| c == '`' || is_between(c));
    let is_led = is_led && !arguments.is_empty();
    if is_fenced || is_led || arguments.starts_with(ARGUMENTS) {
        ReplyOpening::Marks
    } else if arguments.is_empty() {
        ReplyOpening::Undecided
    } else {
        ReplyOpening::Text
    }
}

/// The kind of a text behind `[`: objects, or `NAME(KEY=VALUE)`.
fn listed(inner: &str) -> ReplyOpening {
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
            ("weather is fine", "weather i"),
            ("calculators", "calculators"),
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
