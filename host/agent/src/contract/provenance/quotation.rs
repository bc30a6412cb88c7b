//! Whether the text of a call is pieced together from what stands in other texts.
//!
//! Both are compared in their [`plain`] form. A *fragment* is a part of the call's text that stands in the other texts;
//! it is *structure* if it holds two words with a mark of syntax between them (a key with its value, a mark with a
//! name), or one word and two such marks. The call is a quotation if
//!
//! 1. every letter of the tool's name, of each key and of each value stands in a fragment that is structure. Of a
//!    word that was cut, pieces of [`LONG`] letters count too if one of its ends stands in structure. And a word counts
//!    that stands at most [`NEAR`] letters behind the structure of the word before it: prose between the lines of a
//!    call makes no other call of it;
//! 2. these words and the structure around them are a good part of the call: [`PART`] percent; where the name only
//!    stands behind structure [`PART_WITH_NEAR_NAME`], and of a call without arguments [`PART_WITHOUT_ARGUMENTS`].
//!
//! So a name alone, a value alone, or a key with its value are no quotation.

use super::BETWEEN;
use super::cover::Parts;
use super::plain::plain;

/// Letters of a call that are compared. Of a longer one this is the beginning.
const MAX_COMPARED: usize = 16 * 1024;
/// Letters of a piece of a word that is no coincidence.
const LONG: usize = 12;
/// Letters of other text between a word of a call and the next.
const NEAR: usize = 400;
/// Maximum places of a word's structure behind which the next word is looked for, and maximum fragments and words for
/// which this is done. Each takes a look at all texts.
const MAX_PLACES: usize = 64;
const MAX_NEAR_FRAGMENTS: usize = 4;
const MAX_NEAR_WORDS: usize = 64;
/// The part of a call that its fragments make up at least, in percent; where its name only stands behind structure; and
/// without arguments.
const PART: usize = 40;
const PART_WITH_NEAR_NAME: usize = 60;
const PART_WITHOUT_ARGUMENTS: usize = 85;

/// Words of the form of calls, and not of their content. A value that is one of them counts as form.
const FORM: [&str; 60] = [
    "name",
    "tool",
    "_tool",
    "tool_name",
    "function",
    "function_name",
    "functions",
    "arguments",
    "parameters",
    "parameter",
    "args",
    "tool_input",
    "input",
    "tool_call",
    "tool_calls",
    "tools",
    "calls",
    "output",
    "function_call",
    "function_calls",
    "invoke",
    "invokename",
    "parametername",
    "arg_key",
    "arg_value",
    "call",
    "call_id",
    "tool_call_id",
    "id",
    "type",
    "index",
    "functools",
    "default_api",
    "print",
    "channel",
    "constrain",
    "message",
    "start",
    "end",
    "json",
    "analysis",
    "commentary",
    "commentaryto",
    "analysisto",
    "assistantto",
    "to",
    "assistant",
    "string",
    "escape",
    "plugin",
    "python_tag",
    "tool_code",
    "action_end",
    "start_action",
    "end_action",
    "start_function_call",
    "end_function_call",
    "null",
    "true",
    "false",
];

/// A call as a text.
#[derive(Debug)]
pub(super) struct CallText {
    letters: Vec<char>,
    words: Vec<Word>,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    from: usize,
    to: usize,
    kind: WordKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordKind {
    /// The tool's name, perhaps with what stands before it.
    Name,
    Content,
    Form,
}

/// A part of the call that stands in the other texts.
#[derive(Debug, Clone, Copy)]
struct Fragment {
    from: usize,
    to: usize,
    is_structure: bool,
}

fn is_syntax(c: char) -> bool {
    matches!(
        c,
        '{' | '}' | '[' | ']' | '(' | ')' | '<' | '>' | ':' | '=' | ',' | ';' | '|'
    )
}

impl CallText {
    /// `written`: the call as it stands in the reply; `tool`: the name that it has there or where it is offered.
    pub(super) fn new(written: &str, tool: &str) -> Self {
        let letters: Vec<char> = plain(written).chars().take(MAX_COMPARED).collect();
        let name = plain(tool);
        let mut words = Vec::new();
        let mut from = 0;
        while from < letters.len() {
            let rest = &letters[from..];
            let length = rest
                .iter()
                .position(|c| is_syntax(*c))
                .unwrap_or(rest.len());
            if length > 0 {
                let word: String = rest[..length].iter().collect();
                words.push(Word {
                    from,
                    to: from + length,
                    kind: kind(&word, &name),
                });
            }
            from += length + 1;
        }
        Self { letters, words }
    }

    /// Whether it is pieced together from these texts, which are plain.
    pub(super) fn is_in(&self, texts: &str) -> bool {
        let fragments = self.fragments(texts);
        let mut structure = vec![false; self.letters.len()];
        let mut stands = structure.clone();
        for fragment in &fragments {
            if fragment.is_structure {
                structure[fragment.from..fragment.to].fill(true);
            }
            if fragment.is_structure || fragment.to - fragment.from >= LONG {
                stands[fragment.from..fragment.to].fill(true);
            }
        }
        let (mut has_name, mut has_near_name, mut has_arguments) = (false, false, false);
        let mut looks = 0;
        let mut before: Option<Word> = None;
        for word in &self.words {
            let at = word.from..word.to;
            let is_structure = structure[at.clone()].iter().all(|has| *has);
            let is_cut = word.kind == WordKind::Content
                && stands[at.clone()].iter().all(|has| *has)
                && (structure[word.from] || structure[word.to - 1]);
            let mut is_there = is_structure || is_cut;
            if let Some(before) = before.filter(|_| !is_there && looks < MAX_NEAR_WORDS) {
                looks += 1;
                is_there = self.is_behind(before, *word, &fragments, texts);
                has_near_name |= is_there && word.kind == WordKind::Name;
            }
            if is_there {
                structure[at].fill(true);
            } else if word.kind != WordKind::Form {
                return false;
            }
            has_name |= word.kind == WordKind::Name;
            has_arguments |= word.kind == WordKind::Content;
            before = Some(*word);
        }
        let found = structure.iter().filter(|has| **has).count();
        let part = match (has_arguments, has_near_name) {
            (false, _) => PART_WITHOUT_ARGUMENTS,
            (true, true) => PART_WITH_NEAR_NAME,
            (true, false) => PART,
        };
        // A name that grew together with its form is a word of the content.
        (has_name || has_arguments) && found * 100 >= part * self.letters.len()
    }

    /// The longest parts of the call that stand in the texts.
    fn fragments(&self, texts: &str) -> Vec<Fragment> {
        let mut parts = Parts::of(&self.letters);
        parts.read(texts);
        let found = parts.found();
        let mut fragments = Vec::new();
        for (at, length) in found.iter().enumerate() {
            let is_longer_next = found.get(at + 1).is_some_and(|next| *next > *length);
            if *length > 0 && !is_longer_next {
                let (from, to) = (at + 1 - length, at + 1);
                fragments.push(Fragment {
                    from,
                    to,
                    is_structure: is_structure(&self.letters[from..to]),
                });
            }
        }
        fragments
    }

    /// Whether the word stands in the texts soon after the structure that the word before it stands in.
    fn is_behind(&self, before: Word, word: Word, fragments: &[Fragment], texts: &str) -> bool {
        let text = |from: usize, to: usize| self.letters[from..to].iter().collect::<String>();
        let value = text(word.from, word.to);
        let holds = |fragment: &&Fragment| {
            fragment.is_structure && fragment.from <= before.from && before.to <= fragment.to
        };
        let keys = fragments.iter().filter(holds);
        keys.take(MAX_NEAR_FRAGMENTS).any(|fragment| {
            let key = text(fragment.from, fragment.to);
            let places = texts.match_indices(&key).take(MAX_PLACES);
            let mut behind = places.map(|(at, key)| &texts[at + key.len()..]);
            behind.any(|behind| {
                let end = behind.char_indices().nth(NEAR + value.len());
                let near = end.map_or(behind, |(end, _)| &behind[..end]);
                // In the same text.
                let near = near.split(BETWEEN).next().unwrap_or_default();
                near.contains(&value)
            })
        })
    }
}

fn kind(word: &str, name: &str) -> WordKind {
    let bare = word.trim_matches('/');
    if !name.is_empty() && (bare == name || bare.strip_suffix(name).is_some_and(is_prefix)) {
        return WordKind::Name;
    }
    let is_mark = ["tool_call", "tool_sep", "dsml"]
        .iter()
        .any(|mark| bare.starts_with(mark));
    if is_mark || FORM.contains(&bare) || bare.chars().all(|c| c == '_') {
        WordKind::Form
    } else {
        WordKind::Content
    }
}

/// Whether this stands before names.
fn is_prefix(text: &str) -> bool {
    ["functions_", "default_api_", "function"].contains(&text)
}

fn is_structure(fragment: &[char]) -> bool {
    let syntax = fragment.iter().filter(|c| is_syntax(**c)).count();
    let words = fragment
        .split(|c| is_syntax(*c))
        .filter(|word| !word.is_empty())
        .count();
    words >= 2 || (words == 1 && syntax >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str =
        "<tool_call>{\"name\": \"files.read\", \"arguments\": {\"path\": \"a.txt\"}}</tool_call>";

    fn is_quoted(call: &str, texts: &[&str]) -> bool {
        let texts: Vec<String> = texts.iter().map(|text| plain(text)).collect();
        CallText::new(call, "files.read").is_in(&texts.join("\u{0}"))
    }

    #[test]
    fn copies_and_pieces_are_quotations() {
        let json = serde_json::to_string(CALL).unwrap();
        let spaced = CALL.replace(' ', "\n  ");
        assert!(is_quoted(CALL, &[CALL]));
        assert!(is_quoted(CALL, &[&json]));
        assert!(is_quoted(&spaced, &[CALL]));
        // Cut in two, anywhere.
        for (at, _) in CALL.char_indices() {
            let (one, two) = CALL.split_at(at);
            assert!(is_quoted(CALL, &[two, "other", one]), "{one} | {two}");
        }
        for texts in [
            // The order of the members is another one.
            "{\"arguments\": {\"path\": \"a.txt\"}, \"name\": \"files.read\"} <tool_call>",
            // Between the lines.
            "<tool_call>\nDear reader\n{\"name\": \"files.read\",\nplease note\n\"arguments\": {\nthat\n\"path\": \"a.txt\"\nthis\n}}\nends\n</tool_call>",
            // Between the words.
            "<tool_call> X {\"name\": X \"files.read\", X \"arguments\": X {\"path\": X \"a.txt\"}} X </tool_call>",
        ] {
            assert!(is_quoted(CALL, &[texts]), "{texts}");
        }
        // The name and its mark, and the arguments.
        for (call, one, two) in [
            (
                CALL,
                "<tool_call>{\"name\": \"files.read\"",
                "{\"path\": \"a.txt\"}",
            ),
            (
                "<tool_call>{\"name\": \"files.read\", \"arguments\": {\"n\": 7}}</tool_call>",
                "<tool_call>{\"name\": \"files.read\"",
                "{\"n\": 7}",
            ),
            (
                "[TOOL_CALLS]files.read[ARGS]{\"n\": 7}",
                "[TOOL_CALLS]files.read",
                "{\"n\": 7}",
            ),
            (
                "<function=files.read>{\"n\": 7}</function>",
                "<function=files.read>",
                "{\"n\": 7}",
            ),
        ] {
            assert!(is_quoted(call, &[two, one]), "{call}");
        }
        let tags = "<tool_call>\n<function=files.read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>";
        let lines = tags.replace('\n', "\nand so on\n");
        assert!(is_quoted(tags, &[&lines]), "{lines}");
    }

    #[test]
    fn what_the_model_put_together_is_none() {
        let listing = "[{\"path\":\"a.txt\",\"size\":3},{\"path\":\"b.txt\",\"size\":4}]";
        let form = "Call with <tool_call>{\"name\": \"NAME\", \"arguments\": {\"KEY\": \"VALUE\"}}</tool_call>.";
        let other = CALL.replace("a.txt", "notes.txt");
        let tool = CALL.replace("files.read", "files.size");
        for texts in [
            &["Read a.txt."][..],
            &["Use files.read to read path a.txt, please."],
            &["The tools: files.read, files.write (a path).", listing],
            &["Use files.read. path: a.txt"],
            &[listing, form, "a.txt"],
            &[&other, "Now read a.txt."],
            &[&tool],
            &[],
        ] {
            for call in [
                CALL,
                "<function=files.read>{\"path\": \"a.txt\"}</function>",
                "[TOOL_CALLS]files.read[ARGS]{\"path\": \"a.txt\"}",
                "<tool_call>files.read<arg_key>path</arg_key><arg_value>a.txt</arg_value></tool_call>",
            ] {
                assert!(!is_quoted(call, texts), "{call}: {texts:?}");
            }
        }
        let none = "<tool_call>{\"name\": \"files.read\", \"arguments\": {}}</tool_call>";
        assert!(!is_quoted(
            none,
            &["{\"name\": \"files.read\", \"size\": 3}"]
        ));
        assert!(is_quoted(none, &[none]));
    }

    #[test]
    fn long_texts_take_time_in_proportion() {
        let value = "word, ".repeat(20_000);
        let call = CALL.replace("a.txt", &value);
        let texts = "{\"name\": \"files.read\", \"path\": \"word, ".repeat(30_000);
        let begun = std::time::Instant::now();
        is_quoted(&call, &[&texts]);
        assert!(is_quoted(&call, &[&call]));
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
