//! What a model thinks, where it stands in its answer: the server has no parser for it, or another
//! model's.
//!
//! A thought stands before the answer, between marks: `<think>…</think>` and its like. Three things
//! happen to it. The mark that opens it is missing, because the chat template wrote it into the prompt:
//! then everything up to a closing mark that begins a line is thought, unless the reply begins like a call
//! (`{`, `[`, `<`) or with code. The mark that closes it is missing: then the rest is thought, and the
//! answer is empty. And inside of a thought anything may be quoted: a thought is never an answer, and
//! counts as a call only as `leak` says.

use std::mem;

/// What begins a thought and what ends it.
const MARKS: [(&str, &str); 7] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
];
/// The longest of them.
const MAX_MARK: usize = 16;
const FENCE: &str = "```";
/// What begins like this is no thought whose opening mark is missing.
const ANSWERS: [char; 4] = ['{', '[', '<', '`'];

/// A complete reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split<'t> {
    /// With its marks; empty if there is none.
    pub(super) thought: &'t str,
    pub(super) answer: &'t str,
}

pub(super) fn split(text: &str) -> Split<'_> {
    let mut answer = text;
    while let Some(rest) = past_thought(answer) {
        answer = rest;
    }
    let (thought, answer) = if answer.len() == text.len() {
        ("", text)
    } else {
        (&text[..text.len() - answer.len()], answer)
    };
    Split { thought, answer }
}

/// What follows the thought that `text` begins with.
fn past_thought(text: &str) -> Option<&str> {
    let start = text.trim_start();
    for (open, close) in MARKS {
        if let Some(thought) = start.strip_prefix(open) {
            let end = thought.find(close).map(|at| at + close.len());
            return thought.get(end.unwrap_or(thought.len())..);
        }
    }
    // The prompt held all of a thought that is empty.
    if let Some(rest) = MARKS
        .iter()
        .find_map(|(_, close)| start.strip_prefix(close))
    {
        return Some(rest);
    }
    if start.starts_with(ANSWERS) {
        return None;
    }
    let mut watch = Watch::default();
    let end = watch.find(start)?;
    start.get(end..)
}

/// Keeps thoughts apart while a reply is generated. What it gives comes to what [`split`] gives.
#[derive(Debug, Default)]
pub(super) struct Filter {
    place: Place,
    /// Text that may be the beginning of a mark.
    held: String,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Start,
    /// Until this mark.
    Thought(&'static str),
    /// Of which a closing mark may still make a thought.
    Answer(Watch),
    /// Whatever comes.
    Settled,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Answer(String),
    /// All of the answer so far was thought.
    Restart,
}

impl Filter {
    /// Takes the next text, and gives what of it is answer.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut text = if self.held.is_empty() {
            text.to_owned()
        } else {
            mem::take(&mut self.held) + text
        };
        loop {
            text = match &mut self.place {
                Place::Start => {
                    let start = text.trim_start();
                    if let Some((open, close)) =
                        MARKS.into_iter().find(|(open, _)| start.starts_with(open))
                    {
                        self.place = Place::Thought(close);
                        start[open.len()..].to_owned()
                    } else if let Some(rest) = MARKS
                        .iter()
                        .find_map(|(_, close)| start.strip_prefix(close))
                    {
                        rest.to_owned()
                    } else if MARKS
                        .into_iter()
                        .any(|(open, close)| open.starts_with(start) || close.starts_with(start))
                    {
                        start.clone_into(&mut self.held);
                        return parts;
                    } else {
                        self.place = if start.starts_with(ANSWERS) {
                            Place::Settled
                        } else {
                            Place::Answer(Watch::default())
                        };
                        start.to_owned()
                    }
                }
                Place::Thought(close) => {
                    if let Some(at) = text.find(*close) {
                        let rest = text[at + close.len()..].to_owned();
                        self.place = Place::Start;
                        rest
                    } else {
                        let mut from = text.len().saturating_sub(close.len() - 1);
                        while !text.is_char_boundary(from) {
                            from += 1;
                        }
                        text[from..].clone_into(&mut self.held);
                        return parts;
                    }
                }
                Place::Answer(watch) => match watch.find(&text) {
                    Some(end) => {
                        parts.push(Part::Restart);
                        self.place = Place::Start;
                        text[end..].to_owned()
                    }
                    None => {
                        parts.push(Part::Answer(text));
                        return parts;
                    }
                },
                Place::Settled => {
                    parts.push(Part::Answer(text));
                    return parts;
                }
            };
        }
    }

    /// Whether nothing that follows can make a thought of what was given.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.place, Place::Settled)
    }

    /// The reply has ended: what was held is answer.
    pub(super) fn finish(&mut self) -> Option<String> {
        let held = mem::take(&mut self.held);
        (matches!(self.place, Place::Start) && !held.is_empty()).then_some(held)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

/// Looks for a closing mark that begins a line and does not stand in code.
#[derive(Debug)]
struct Watch {
    /// The line so far, as long as it may be a mark.
    line: Option<String>,
    in_code: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            line: Some(String::new()),
            in_code: false,
        }
    }
}

impl Watch {
    /// The end of the mark, in bytes of `text`.
    fn find(&mut self, text: &str) -> Option<usize> {
        for (at, c) in text.char_indices() {
            if c == '\n' {
                self.line = Some(String::new());
                continue;
            }
            let Some(line) = &mut self.line else {
                continue;
            };
            if line.is_empty() && c.is_whitespace() {
                continue;
            }
            line.push(c);
            if line == FENCE {
                self.in_code = !self.in_code;
                self.line = None;
            } else if !self.in_code && MARKS.iter().any(|(_, close)| line == close) {
                return Some(at + c.len_utf8());
            } else if line.len() > MAX_MARK {
                self.line = None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    #[test]
    fn thoughts_stand_apart() {
        for (text, thought, answer) in [
            ("It is 7.", "", "It is 7."),
            ("<think>2+5</think>7", "<think>2+5</think>", "7"),
            (
                "\n<think>\n2+5\n</think>\n\n7",
                "\n<think>\n2+5\n</think>",
                "\n\n7",
            ),
            ("<think></think>7", "<think></think>", "7"),
            (
                "<reasoning>2+5</reasoning>7",
                "<reasoning>2+5</reasoning>",
                "7",
            ),
            (
                "<thinking>a</thinking><think>b</think>7",
                "<thinking>a</thinking><think>b</think>",
                "7",
            ),
            ("[THINK]2+5[/THINK]7", "[THINK]2+5[/THINK]", "7"),
            ("◁think▷2+5◁/think▷7", "◁think▷2+5◁/think▷", "7"),
            // It never ends.
            ("<think>2+5 is 7", "<think>2+5 is 7", ""),
            ("<think>2+5</thinking>7", "<think>2+5</thinking>7", ""),
            // It began in the prompt.
            ("2+5 is\n</think>\n7", "2+5 is\n</think>", "\n7"),
            ("2+5\n  </think>{\"x\":1}", "2+5\n  </think>", "{\"x\":1}"),
            ("\n</think>\n\n7", "\n</think>", "\n\n7"),
            ("a\n</think>\n</think>\n7", "a\n</think>\n</think>", "\n7"),
            // Quoted.
            (
                "Write </think> at the end.",
                "",
                "Write </think> at the end.",
            ),
            (
                "Like this:\n```\n</think>\n```\nOK.",
                "",
                "Like this:\n```\n</think>\n```\nOK.",
            ),
            ("{\"x\":\n</think>", "", "{\"x\":\n</think>"),
            (
                "The tag <think>x</think> is of R1.",
                "",
                "The tag <think>x</think> is of R1.",
            ),
            ("7 <think>x</think>", "", "7 <think>x</think>"),
            ("<thinker>x", "", "<thinker>x"),
            ("", "", ""),
        ] {
            assert_eq!(split(text), Split { thought, answer }, "{text}");
        }
    }

    fn streamed(pieces: &[&str]) -> String {
        let mut filter = Filter::default();
        let mut answer = String::new();
        let mut take = |part| match part {
            Part::Answer(text) => answer += &text,
            Part::Restart => answer.clear(),
        };
        for piece in pieces {
            for part in filter.push(piece) {
                take(part);
            }
        }
        filter.finish().map(Part::Answer).into_iter().for_each(take);
        answer
    }

    proptest! {
        /// However it is cut, and whatever it is made of.
        #[test]
        fn pieces_come_to_the_same(
            parts in proptest::collection::vec(select(vec![
                "<think>", "</think>", "<think", ">", "</", "think>", "<reasoning>", "</reasoning>", "[THINK]", "[/THINK]",
                "◁think▷", "◁/think▷", "\n", " ", "a", "```", "`", "{", "[", "é", "◁",
            ]), 0..14),
            size in 1..5_usize,
        ) {
            let text = parts.concat();
            let chars: Vec<String> = text.chars().collect::<Vec<_>>().chunks(size).map(|chunk| chunk.iter().collect()).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            for pieces in [&chars[..], &[&text]] {
                let answer = streamed(pieces);
                prop_assert_eq!(answer.trim_start(), split(&text).answer.trim_start());
            }
            let split = split(&text);
            prop_assert_eq!([split.thought, split.answer].concat(), text);
        }
    }
}
