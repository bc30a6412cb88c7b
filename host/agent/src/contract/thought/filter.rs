//! Thoughts, while a reply is generated.

use super::{
    ANSWER_MARKS, ANSWERS, ClosingMarkFinder, SpokenEnd, SpokenMarks, SpokenPlace, all_spoken,
    answer_end, enclosed, marks, past_end, split_under, spoken,
};
use crate::contract::harmony::{self, Channel, HeaderMatch};
use std::mem;
use toolhold_json::rules::ReadingRules;

/// Keeps thoughts apart while a reply is generated. What it gives comes to what
/// `split` gives.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    rules: ReadingRules,
    place: FilterState,
    /// Text that may be the beginning of a mark, or what is said before calls.
    held: String,
    /// There was a thought, so the answer may stand between marks.
    has_thought: bool,
}

#[derive(Debug, Clone, Default)]
enum FilterState {
    #[default]
    Start,
    /// Until this mark.
    Thought(&'static str),
    /// Of which a closing mark may still make a thought.
    Answer(ClosingMarkFinder),
    /// In a message of Harmony that is thought if another one follows. How far it was looked through.
    Commentary(usize),
    /// In text that is a thought told in words if words before the response follow. How far it was looked through.
    Spoken(&'static SpokenMarks, SpokenPlace),
    /// In an answer between marks, until the one that may end it.
    Enclosed(&'static str),
    /// In Harmony's last message, until the mark that may end it.
    Final,
    /// Whatever comes.
    Settled,
}

/// A part of a reply that is generated, without its thoughts.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyText {
    Answer(String),
    /// All of the answer so far was thought.
    Restart,
}

/// The place behind a thought, before an answer that this mark ends.
fn behind(close: Option<&'static str>) -> FilterState {
    close.map_or(FilterState::Start, FilterState::Enclosed)
}

impl Filter {
    /// Filters by these rules instead of the current ones.
    pub(in crate::contract) fn under(rules: ReadingRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Takes the next text, and gives the part that is answer: at most one restart, and the text behind it. Each byte is
    /// copied twice at most, with any number of marks and pieces of any size.
    pub fn push(&mut self, text: &str) -> Vec<ReplyText> {
        let mut parts = Vec::new();
        if self.held.is_empty() {
            self.held = self.read(text, &mut parts).to_owned();
            return parts;
        }
        let mut all = mem::take(&mut self.held);
        all.push_str(text);
        let kept = self.read(&all, &mut parts);
        // Text that stays held as a whole is not copied: it may be long, and the pieces short.
        let is_whole = kept.len() == all.len();
        self.held = if is_whole { all } else { kept.to_owned() };
        parts
    }

    /// Reads `text`, and gives its end, which is to be held.
    fn read<'t>(&mut self, text: &'t str, parts: &mut Vec<ReplyText>) -> &'t str {
        let mut rest = text;
        loop {
            match &mut self.place {
                FilterState::Start => {
                    rest = rest.trim_start();
                    match self.begin(rest) {
                        Some(next) => rest = next,
                        None => return rest,
                    }
                }
                FilterState::Thought(close) => {
                    let Some((_, after)) = rest.split_once(*close) else {
                        let from = rest.len().saturating_sub(close.len() - 1);
                        return &rest[rest.ceil_char_boundary(from)..];
                    };
                    self.place = behind(answer_end(close));
                    self.has_thought = true;
                    rest = after;
                }
                FilterState::Answer(watch) => {
                    let Some(end) = watch.find(rest) else {
                        parts.push(ReplyText::Answer(rest.to_owned()));
                        return "";
                    };
                    if parts.is_empty() {
                        parts.push(ReplyText::Restart);
                    }
                    self.place = behind(end.answer_end);
                    self.has_thought = true;
                    rest = &rest[end.at..];
                }
                FilterState::Commentary(searched) => {
                    let Some(at) = harmony::next_message(rest, *searched) else {
                        let from = rest.len().saturating_sub(harmony::NEXT);
                        *searched = rest.floor_char_boundary(from);
                        return rest;
                    };
                    self.place = FilterState::Start;
                    self.has_thought = true;
                    rest = &rest[at..];
                }
                FilterState::Spoken(words, place) => match words.end(rest, place) {
                    SpokenEnd::Open => return rest,
                    SpokenEnd::At(at, close) => {
                        self.place = behind(close);
                        self.has_thought = true;
                        rest = &rest[at..];
                    }
                    SpokenEnd::Stopped => {
                        self.place = FilterState::Answer(ClosingMarkFinder::under(self.rules));
                    }
                },
                FilterState::Enclosed(close) => {
                    let end = harmony::open_ending_with(rest, &[*close]);
                    let (answer, held) = rest.split_at(end);
                    parts.push(ReplyText::Answer(answer.to_owned()));
                    return held;
                }
                FilterState::Final => {
                    let (answer, held) = rest.split_at(harmony::open_ending(rest));
                    parts.push(ReplyText::Answer(answer.to_owned()));
                    return held;
                }
                FilterState::Settled => {
                    parts.push(ReplyText::Answer(rest.to_owned()));
                    return "";
                }
            }
        }
    }

    /// Finds what `start` begins with, and gives the text behind it. `None`: too little text to tell.
    fn begin<'t>(&mut self, start: &'t str) -> Option<&'t str> {
        let begins = harmony::begins(start);
        if let HeaderMatch::With(header) = begins {
            self.place = match (header.channel, header.recipient) {
                (_, Some(_)) => FilterState::Settled,
                (Channel::Analysis, None) => FilterState::Thought(harmony::END),
                (Channel::Commentary, None) => FilterState::Commentary(0),
                (Channel::Final, None) => FilterState::Final,
            };
            return Some(match header.recipient {
                Some(_) => start,
                None => header.content,
            });
        }
        if begins == HeaderMatch::Open {
            return None;
        }
        let known = marks(self.rules);
        let opened = |(open, close): &(&'static str, &'static str)| {
            Some((*close, start.strip_prefix(*open)?))
        };
        if let Some((close, rest)) = known.iter().find_map(opened) {
            self.place = FilterState::Thought(close);
            return Some(rest);
        }
        if let Some(words) = spoken(self.rules, start) {
            self.place = FilterState::Spoken(words, SpokenPlace::default());
            return Some(start);
        }
        if let Some((rest, close)) = past_end(self.rules, start) {
            self.place = behind(close);
            self.has_thought = true;
            return Some(rest);
        }
        if let Some((content, close)) = enclosed(start).filter(|_| self.has_thought) {
            self.place = FilterState::Enclosed(close);
            return Some(content);
        }
        if self.is_begun(start) {
            return None;
        }
        self.place = if start.starts_with(ANSWERS) {
            FilterState::Settled
        } else {
            FilterState::Answer(ClosingMarkFinder::under(self.rules))
        };
        Some(start)
    }

    /// True if `start` may become a mark, or words before a thought.
    fn is_begun(&self, start: &str) -> bool {
        let marks = marks(self.rules).iter();
        let marks = marks.flat_map(|(open, close)| [*open, *close]);
        let answers = ANSWER_MARKS.iter().filter(|_| self.has_thought);
        let mut begins = marks
            .chain(
                all_spoken(self.rules)
                    .flat_map(|words| words.begins)
                    .copied(),
            )
            .chain(answers.map(|(open, _)| *open));
        begins.any(|begin| begin.starts_with(start))
    }

    /// Whether nothing that follows can make a thought of what was given.
    pub(in crate::contract) fn is_settled(&self) -> bool {
        matches!(
            self.place,
            FilterState::Final | FilterState::Enclosed(_) | FilterState::Settled
        )
    }

    /// The reply has ended: what was held is answer.
    pub fn finish(&mut self) -> Option<String> {
        let mut held = mem::take(&mut self.held);
        match self.place {
            FilterState::Start => {}
            FilterState::Commentary(_) | FilterState::Final => {
                held.truncate(harmony::ending(&held).unwrap_or(held.len()));
            }
            // Without a response, it is no thought of this form.
            FilterState::Spoken(..) => {
                let answer = split_under(self.rules, &held).answer.to_owned();
                held = answer;
            }
            FilterState::Enclosed(close) => {
                let end = harmony::ending_with(&held, &[close]);
                held.truncate(end.unwrap_or(held.len()));
            }
            FilterState::Thought(_) | FilterState::Answer(_) | FilterState::Settled => return None,
        }
        (!held.is_empty()).then_some(held)
    }

    #[cfg(test)]
    pub(in crate::contract) fn held(&self) -> usize {
        self.held.len()
    }
}
