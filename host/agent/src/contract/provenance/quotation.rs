//! Whether the text of a call is pieced together from what stands in other texts.
//!
//! Both are compared in their [`plain`] form, or by their [`wording`], which is the same in all forms of calls. A
//! *fragment* is a part of the call's text that stands in the other texts; it is *structure* if it holds two words with
//! a mark of syntax between them (a key with its value, a mark with a name), or, in the plain form, one word and two
//! such marks. The call is a quotation if
//!
//! 1. every letter of the tool's name, of each key and of each value stands in a fragment that is structure. Of a
//!    word that was cut, pieces of [`LONG`] letters count too if one of its ends stands in structure, or if it is not
//!    the first line of its value. And a word counts that stands at most [`NEAR`] bytes behind the structure of the word
//!    before it, or behind the line before it: prose between the lines of a call makes no other call of it;
//! 2. in the plain form, these words and the structure around them are a good part of the call: [`PART`] percent; where
//!    the name only stands behind structure [`PART_WITH_NEAR_NAME`], and of a call without arguments
//!    [`PART_WITHOUT_ARGUMENTS`]. Of the wording, the name stands beside a whole key.
//!
//! So a name alone, a value alone, or a key with its value are no quotation.

use super::BETWEEN;
use super::cover::Parts;
use super::plain::{BETWEEN_WORDS, is_form, is_syntax, plain, plain_lines, wording};
use serde_json::{Map, Value, json};
use toolhold_json::rules::ReadingRules;

/// Letters of a call that are compared. Of a longer one this is the beginning.
const MAX_COMPARED: usize = 16 * 1024;
/// Letters of a piece of a word that is no coincidence.
const LONG: usize = 12;
/// Bytes of other text between a word of a call and the next.
const NEAR: usize = 600;
/// Maximum fragments behind which a word is looked for. Each takes a look at all texts.
const MAX_NEAR_FRAGMENTS: usize = 4;
/// Maximum bytes that are looked at for words behind others, in multiples of all texts. A word that would take more
/// counts as found.
const MAX_LOOKS: usize = 64;
/// The part of a call that its fragments make up at least, in percent; where its name only stands behind structure; and
/// without arguments.
const PART: usize = 40;
const PART_WITH_NEAR_NAME: usize = 60;
const PART_WITHOUT_ARGUMENTS: usize = 85;

/// A call as a text.
#[derive(Debug)]
pub(super) struct CallText {
    letters: Vec<char>,
    words: Vec<Word>,
    form: TextForm,
}

/// How texts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextForm {
    Plain,
    Wording,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    from: usize,
    to: usize,
    kind: WordKind,
    /// Whether it is a line of a value, and not the first one.
    is_next_line: bool,
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

impl CallText {
    /// `written`: the call as it stands in the reply; `tool`: the name that it has there or where it is offered.
    pub(super) fn new(rules: ReadingRules, written: &str, tool: &str) -> Self {
        let name = plain(tool);
        let (mut letters, mut ends_of_lines) = (Vec::new(), Vec::new());
        for line in plain_lines(written) {
            let room = MAX_COMPARED - letters.len();
            letters.extend(line.chars().take(room));
            ends_of_lines.push(letters.len());
        }
        let mut words = Vec::new();
        for word in words_of(&letters, |word| kind(rules, word, &name)) {
            if word.kind != WordKind::Content {
                words.push(word);
                continue;
            }
            let first = ends_of_lines.partition_point(|end| *end <= word.from);
            let after = ends_of_lines.partition_point(|end| *end < word.to);
            let mut from = word.from;
            for to in ends_of_lines[first..after].iter().copied().chain([word.to]) {
                if to > from {
                    let is_next_line = from > word.from;
                    words.push(Word {
                        from,
                        to,
                        is_next_line,
                        ..word
                    });
                    from = to;
                }
            }
        }
        Self {
            letters,
            words,
            form: TextForm::Plain,
        }
    }

    /// The [`wording`] of a call, to compare with those of other texts. The name stands before each argument and behind
    /// the last one, because their order may differ. `None`: it has no arguments.
    pub(super) fn of_wording(
        rules: ReadingRules,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Option<Self> {
        let name = wording(rules, tool).trim_matches(BETWEEN_WORDS).to_owned();
        let mut text = String::new();
        for (key, value) in arguments {
            let argument = json!({ key: value }).to_string();
            text.push(BETWEEN_WORDS);
            text.push_str(&name);
            text.push_str(wording(rules, &argument).trim_end_matches(BETWEEN_WORDS));
        }
        if text.is_empty() || name.is_empty() {
            return None;
        }
        text.push(BETWEEN_WORDS);
        text.push_str(&name);
        text.push(BETWEEN_WORDS);
        let letters: Vec<char> = text.chars().take(MAX_COMPARED).collect();
        Some(Self {
            words: words_of(&letters, |word| {
                if word == name {
                    WordKind::Name
                } else {
                    WordKind::Content
                }
            }),
            letters,
            form: TextForm::Wording,
        })
    }

    /// Whether it is pieced together from these texts, which have the form that it has.
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
        let is_worded = self.form == TextForm::Wording;
        if is_worded && !self.has_placed_name(&fragments) {
            return false;
        }
        let (mut has_name, mut has_near_name, mut has_arguments) = (false, false, false);
        let mut search = Search::new(texts);
        // The word before, and where it was found behind another.
        let mut before: Option<(Word, Vec<usize>)> = None;
        for word in &self.words {
            if is_worded && word.kind == WordKind::Name {
                before = None;
                continue;
            }
            let at = word.from..word.to;
            let is_structure = structure[at.clone()].iter().all(|has| *has);
            let is_cut = word.kind == WordKind::Content
                && stands[at.clone()].iter().all(|has| *has)
                && (word.is_next_line || structure[word.from] || structure[word.to - 1]);
            let mut is_there = is_structure || is_cut;
            let mut ends = Vec::new();
            if let Some((before, found)) = before.filter(|_| !is_there) {
                let keys = if word.is_next_line && !found.is_empty() {
                    found
                } else {
                    self.ends_of(before, &fragments, &mut search)
                };
                ends = search.behind(&keys, &self.text(word.from, word.to));
                is_there = !ends.is_empty() || search.is_over();
                has_near_name |= is_there && word.kind == WordKind::Name;
            }
            if is_there {
                structure[at].fill(true);
            } else if word.kind != WordKind::Form {
                return false;
            }
            has_name |= word.kind == WordKind::Name;
            has_arguments |= word.kind == WordKind::Content;
            before = Some((*word, ends));
        }
        if is_worded {
            return has_arguments;
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

    fn text(&self, from: usize, to: usize) -> String {
        self.letters[from..to].iter().collect()
    }

    /// Whether the name stands in one fragment with a whole word beside it.
    fn has_placed_name(&self, fragments: &[Fragment]) -> bool {
        let holds = |from: usize, to: usize| {
            let mut fragments = fragments.iter();
            fragments.any(|fragment| fragment.from <= from && to <= fragment.to)
        };
        self.words.windows(2).any(|pair| match pair {
            [one, two] if one.kind != two.kind => holds(
                one.from.saturating_sub(1),
                (two.to + 1).min(self.letters.len()),
            ),
            _ => false,
        })
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
                    is_structure: self.is_structure(from, to),
                });
            }
        }
        fragments
    }

    fn is_structure(&self, from: usize, to: usize) -> bool {
        let fragment = &self.letters[from..to];
        let syntax = fragment.iter().filter(|c| is_syntax(**c)).count();
        let words = fragment
            .split(|c| is_syntax(*c))
            .filter(|word| !word.is_empty())
            .count();
        words >= 2 || (self.form == TextForm::Plain && words == 1 && syntax >= 2)
    }

    /// Ends of the structure that holds `word`, in the texts; of a line, ends of a long piece of it.
    fn ends_of(&self, word: Word, fragments: &[Fragment], search: &mut Search<'_>) -> Vec<usize> {
        let holds = |fragment: &&Fragment| {
            let is_end = fragment.from < word.to && word.to <= fragment.to;
            is_end
                && if fragment.is_structure {
                    fragment.from <= word.from
                } else {
                    word.to - fragment.from >= LONG
                }
        };
        let mut ends = Vec::new();
        for fragment in fragments.iter().filter(holds).take(MAX_NEAR_FRAGMENTS) {
            let key = if fragment.is_structure {
                self.text(fragment.from, fragment.to)
            } else {
                self.text(fragment.from, word.to)
            };
            ends.extend(search.ends(&key));
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

/// Looks for words in texts, up to an amount of work.
struct Search<'t> {
    texts: &'t str,
    /// Bytes that may still be looked at.
    left: usize,
}

impl<'t> Search<'t> {
    fn new(texts: &'t str) -> Self {
        Self {
            texts,
            left: texts.len().saturating_mul(MAX_LOOKS).max(1),
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The ends of `text` in the texts, in bytes.
    fn ends(&mut self, text: &str) -> Vec<usize> {
        self.left = self.left.saturating_sub(self.texts.len());
        if self.is_over() {
            return Vec::new();
        }
        let found = self.texts.match_indices(text);
        found.map(|(at, text)| at + text.len()).collect()
    }

    /// The ends of `text` behind one of these places, which are in order, and in the same text.
    fn behind(&mut self, places: &[usize], text: &str) -> Vec<usize> {
        let reach = NEAR + text.len();
        let mut ends: Vec<usize> = Vec::new();
        let mut places = places.iter().copied().peekable();
        while let Some(from) = places.next() {
            // Places whose surroundings overlap are looked at together.
            let (mut last, mut all) = (from, vec![from]);
            while let Some(next) = places.next_if(|next| *next <= last + reach) {
                last = next;
                all.push(next);
            }
            let window = self.texts.get(from..).unwrap_or_default();
            let window = cut(window, last - from + reach);
            self.left = self.left.saturating_sub(window.len());
            if self.is_over() {
                return ends;
            }
            for (at, text) in window.match_indices(text) {
                let at = from + at;
                let nearest = all[..all.partition_point(|place| *place <= at)].last();
                let between = nearest.and_then(|nearest| self.texts.get(*nearest..at));
                if between
                    .is_some_and(|between| between.len() <= NEAR && !between.contains(BETWEEN))
                {
                    ends.push(at + text.len());
                }
            }
        }
        ends
    }
}

/// Cuts `text` to a number of bytes, and up to three more, to end with a letter.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (bytes..bytes.saturating_add(4)).find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// The words between marks of syntax.
fn words_of(letters: &[char], kind: impl Fn(&str) -> WordKind) -> Vec<Word> {
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
                kind: kind(&word),
                is_next_line: false,
            });
        }
        from += length + 1;
    }
    words
}

fn kind(rules: ReadingRules, word: &str, name: &str) -> WordKind {
    let bare = word.trim_matches('/');
    if !name.is_empty() && (bare == name || bare.strip_suffix(name).is_some_and(is_prefix)) {
        return WordKind::Name;
    }
    if is_form(rules, bare) {
        WordKind::Form
    } else {
        WordKind::Content
    }
}

/// Whether this stands before names.
fn is_prefix(text: &str) -> bool {
    ["functions_", "default_api_", "function"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str =
        "<tool_call>{\"name\": \"files.read\", \"arguments\": {\"path\": \"a.txt\"}}</tool_call>";

    fn is_quoted(call: &str, texts: &[&str]) -> bool {
        let texts: Vec<String> = texts.iter().map(|text| plain(text)).collect();
        CallText::new(ReadingRules::Current, call, "files.read").is_in(&texts.join("\u{0}"))
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
        let tags = "<tool_call>\n<function=files.read>\n<parameter=path>\na.txt\nof\nthree lines\n</parameter>\n</function>\n</tool_call>";
        for between in [
            "\nand so on\n",
            "\n+",
            "\n> ",
            "\n 12\t",
            "\n// ",
            "\na.txt:7:",
        ] {
            let lines = tags.replace('\n', between);
            assert!(is_quoted(tags, &[&lines]), "{lines}");
        }
        let many = format!(
            "<function=files.read>\n<parameter=path>{}\n</parameter>\n</function>",
            "\nx1\ny2".repeat(500)
        );
        assert!(is_quoted(&many, &[&many.replace('\n', "\n| ")]));
        let decoys = "<parameter=path>\nx\n</parameter>".repeat(200);
        assert!(is_quoted(
            tags,
            &[&format!("{decoys}\n{}", tags.replace('\n', "\n| "))]
        ));
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

    fn is_worded(tool: &str, arguments: &Value, texts: &[&str]) -> bool {
        let texts: Vec<String> = texts
            .iter()
            .map(|text| wording(ReadingRules::Current, text))
            .collect();
        let call =
            CallText::of_wording(ReadingRules::Current, tool, arguments.as_object().unwrap());
        call.is_some_and(|call| call.is_in(&texts.join("\u{0}")))
    }

    #[test]
    fn the_wording_is_one_of_all_forms() {
        let arguments = json!({"path": "a.txt", "text": "one\n- two", "mode": true});
        for text in [
            "<function=files.write>\n<parameter=mode>true</parameter><parameter=text>\none\n- two\n</parameter>\n<parameter=path>a.txt</parameter></function>",
            "{\"arguments\": {\"path\": \"a.txt\", \"text\": \"one\\n- two\", \"mode\": true}, \"name\": \"files.write\"}",
            "> files.write(mode=True,\n> text=\"\"\"one\n> - two\"\"\", path='a.txt')",
        ] {
            assert!(is_worded("files.write", &arguments, &[text]), "{text}");
        }
        for texts in [
            &["Use files.write with path a.txt, mode true and text one two."][..],
            &[
                "files.write, files.read",
                "[{\"path\": \"a.txt\", \"text\": \"one - two\", \"mode\": true}]",
            ],
            &[
                "<function=files.write><parameter=path>a.txt</parameter><parameter=text>one\n- two</parameter><parameter=mode>false</parameter></function>",
            ],
            &[
                "<function=files.read><parameter=path>a.txt</parameter><parameter=text>one\n- two</parameter><parameter=mode>true</parameter></function>",
            ],
        ] {
            assert!(!is_worded("files.write", &arguments, texts), "{texts:?}");
        }
    }

    #[test]
    fn long_texts_take_time_in_proportion() {
        let value = "word, ".repeat(20_000);
        let call = CALL.replace("a.txt", &value);
        let texts = "{\"name\": \"files.read\", \"path\": \"word, ".repeat(30_000);
        let begun = std::time::Instant::now();
        is_quoted(&call, &[&texts]);
        assert!(is_quoted(&call, &[&call]));
        // Many places behind which each line may stand.
        let lines = format!(
            "<function=files.read>\n<parameter=path>{}",
            "\nx".repeat(6_000)
        );
        let texts = "<parameter=path>\n|x\n|x\n".repeat(30_000);
        is_quoted(&lines, &[&texts]);
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
