//! Thoughts, while a reply is generated.

use super::{ANSWERS, ClosingMarkFinder, MARKS};
use crate::contract::harmony::{self, Channel, HeaderMatch};
use std::mem;

/// Keeps thoughts apart while a reply is generated. What it gives comes to what
/// [`super::split`] gives.
#[derive(Debug, Default)]
pub(in crate::contract) struct Filter {
    place: FilterState,
    /// Text that may be the beginning of a mark, or what is said before calls.
    held: String,
}

#[derive(Debug, Default)]
enum FilterState {
    #[default]
    Start,
    /// Until this mark.
    Thought(&'static str),
    /// Of which a closing mark may still make a thought.
    Answer(ClosingMarkFinder),
    /// In a message of Harmony that is thought if another one follows. How far it was looked through.
    Commentary(usize),
    /// In Harmony's last message, until the mark that may end it.
    Final,
    /// Whatever comes.
    Settled,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::contract) enum ReplyText {
    Answer(String),
    /// All of the answer so far was thought.
    Restart,
}

impl Filter {
    /// Takes the next text, and gives what of it is answer.
    pub(in crate::contract) fn push(&mut self, text: &str) -> Vec<ReplyText> {
        let mut parts = Vec::new();
        let mut text = if self.held.is_empty() {
            text.to_owned()
        } else {
            mem::take(&mut self.held) + text
        };
        loop {
            text = match &mut self.place {
                FilterState::Start => {
                    let start = text.trim_start();
                    let begins = harmony::begins(start);
                    if let HeaderMatch::With(header) = begins {
                        self.place = match (header.channel, header.recipient) {
                            (_, Some(_)) => FilterState::Settled,
                            (Channel::Analysis, None) => FilterState::Thought(harmony::END),
                            (Channel::Commentary, None) => FilterState::Commentary(0),
                            (Channel::Final, None) => FilterState::Final,
                        };
                        match header.recipient {
                            Some(_) => start.to_owned(),
                            None => header.content.to_owned(),
                        }
                    } else if begins == HeaderMatch::Open {
                        start.clone_into(&mut self.held);
                        return parts;
                    } else if let Some((open, close)) =
                        MARKS.into_iter().find(|(open, _)| start.starts_with(open))
                    {
                        self.place = FilterState::Thought(close);
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
                            FilterState::Settled
                        } else {
                            FilterState::Answer(ClosingMarkFinder::default())
                        };
                        start.to_owned()
                    }
                }
                FilterState::Thought(close) => {
                    if let Some(at) = text.find(*close) {
                        let rest = text[at + close.len()..].to_owned();
                        self.place = FilterState::Start;
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
                FilterState::Answer(watch) => match watch.find(&text) {
                    Some(end) => {
                        parts.push(ReplyText::Restart);
                        self.place = FilterState::Start;
                        text[end..].to_owned()
                    }
                    None => {
                        parts.push(ReplyText::Answer(text));
                        return parts;
                    }
                },
                FilterState::Commentary(searched) => {
                    if let Some(at) = harmony::next_message(&text, *searched) {
                        self.place = FilterState::Start;
                        text.split_off(at)
                    } else {
                        *searched =
                            text.floor_char_boundary(text.len().saturating_sub(harmony::NEXT));
                        self.held = text;
                        return parts;
                    }
                }
                FilterState::Final => {
                    self.held = text.split_off(harmony::open_ending(&text));
                    parts.push(ReplyText::Answer(text));
                    return parts;
                }
                FilterState::Settled => {
                    parts.push(ReplyText::Answer(text));
                    return parts;
                }
            };
        }
    }

    /// Whether nothing that follows can make a thought of what was given.
    pub(in crate::contract) fn is_settled(&self) -> bool {
        matches!(self.place, FilterState::Final | FilterState::Settled)
    }

    /// The reply has ended: what was held is answer.
    pub(in crate::contract) fn finish(&mut self) -> Option<String> {
        let mut held = mem::take(&mut self.held);
        match self.place {
            FilterState::Start => {}
            FilterState::Commentary(_) | FilterState::Final => {
                held.truncate(harmony::ending(&held).unwrap_or(held.len()));
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
