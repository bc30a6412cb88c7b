//! Leaked calls that begin an answer, while it is generated.

use super::marks::{MARKS, is_begun, past_around};
use super::{CallableNames, Leak, MAX_CALLS, Text, TextOpening, front, next};
use crate::contract::provenance::Provenance;
use std::mem;
use toolhold_json::repair::End;

/// Reads an answer until it is known not to begin with a leaked call; from there on it only passes text
/// on. What it gives out, [`super::front`] of the complete answer begins with.
#[derive(Debug)]
pub(in crate::contract) struct LeakReader {
    offer: CallableNames,
    place: LeakPosition,
    /// Text that was neither given out nor passed on.
    text: String,
    /// How far it was looked through for what closes the call.
    searched: usize,
    /// Whether a call is complete, and what follows it decides.
    is_waiting: bool,
    /// Calls that were given out.
    given: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeakPosition {
    /// Too little text to tell.
    Start,
    /// In a call, or between two.
    Calls,
    /// There were calls and something else followed; the rest is ignored.
    Over,
    /// There is none.
    Other,
}

/// What becomes of text.
#[derive(Debug, PartialEq)]
pub(in crate::contract) enum Fate {
    /// It is kept, or completed these calls.
    Taken(Vec<Leak>),
    /// It is answer text.
    Passed(String),
}

impl LeakReader {
    pub(in crate::contract) fn new(offer: CallableNames) -> Self {
        Self {
            offer,
            place: LeakPosition::Start,
            text: String::new(),
            searched: 0,
            is_waiting: false,
            given: 0,
        }
    }

    /// The same from the start.
    pub(in crate::contract) fn restart(&mut self) {
        *self = Self::new(mem::take(&mut self.offer));
    }

    /// [`Self::push_from`], where all calls are the model's own.
    #[cfg(test)]
    pub(in crate::contract) fn push(&mut self, text: &str) -> Fate {
        self.push_from(text, &Provenance::default())
    }

    /// Takes the next text of the answer. A call that is a quotation, and what follows it, is given out by none.
    pub(in crate::contract) fn push_from(&mut self, text: &str, provenance: &Provenance) -> Fate {
        match self.place {
            LeakPosition::Other => return Fate::Passed(text.to_owned()),
            LeakPosition::Over => return Fate::Taken(Vec::new()),
            LeakPosition::Start | LeakPosition::Calls => self.text.push_str(text),
        }
        if self.place == LeakPosition::Start {
            let start = past_around(&self.text);
            if is_begun(start) {
                return Fate::Taken(Vec::new());
            }
            let is_call = MARKS.iter().any(|mark| start.starts_with(mark.open));
            if !is_call || provenance.has_native_calls() {
                self.place = LeakPosition::Other;
                return Fate::Passed(mem::take(&mut self.text));
            }
            self.place = LeakPosition::Calls;
        }
        let says_nothing = |c: char| c.is_whitespace() && c != '\n';
        if self.is_waiting && text.chars().all(says_nothing) {
            return Fate::Taken(Vec::new());
        }
        let calls = self.calls(provenance);
        if self.place == LeakPosition::Other {
            return Fate::Passed(mem::take(&mut self.text));
        }
        Fate::Taken(calls)
    }

    fn calls(&mut self, provenance: &Provenance) -> Vec<Leak> {
        let mut calls = Vec::new();
        while self.may_be_complete() {
            match next(&self.text, &self.offer, Text::Growing) {
                TextOpening::Calls(leaked, rest) => {
                    let all = leaked.calls.len();
                    let own = leaked.unquoted(provenance, self.given).unwrap_or_default();
                    let is_quoted = own.calls.len() < all;
                    self.given += own.calls.len();
                    calls.extend(own.calls);
                    if is_quoted {
                        self.end();
                        break;
                    }
                    self.text = rest.to_owned();
                    self.searched = 0;
                    if self.given >= MAX_CALLS {
                        self.place = LeakPosition::Over;
                        self.text = String::new();
                    }
                }
                TextOpening::Waits => {
                    self.is_waiting = true;
                    break;
                }
                TextOpening::Open | TextOpening::Nothing => break,
                TextOpening::Other => {
                    if self.given > 0 {
                        self.end();
                    }
                    break;
                }
            }
        }
        calls
    }

    /// No call comes any more: without any, the text is the answer.
    fn end(&mut self) {
        if self.given > 0 {
            self.place = LeakPosition::Over;
            self.text = String::new();
        } else {
            self.place = LeakPosition::Other;
        }
    }

    /// Whether what closes a call came since this was asked: only then the text is read, so that each of
    /// its bytes is looked at once for every mark that it holds and not for every piece.
    fn may_be_complete(&mut self) -> bool {
        if mem::take(&mut self.is_waiting) {
            return true;
        }
        let start = past_around(&self.text);
        let skipped = self.text.len() - start.len();
        let Some(mark) = MARKS.iter().find(|mark| start.starts_with(mark.open)) else {
            // Between two calls: what comes is another one, or something else.
            return !start.is_empty() && !is_begun(start) && self.given > 0;
        };
        let close = match mark.close {
            "" => mark.open,
            close => close,
        };
        let mut from = self.searched.max(skipped + mark.open.len());
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let found = self.text.get(from..).and_then(|text| text.find(close));
        self.searched = match found {
            Some(at) => from + at + close.len(),
            None => (self.text.len() + 1).saturating_sub(close.len()).max(from),
        };
        found.is_some()
    }

    /// [`Self::finish_from`], where all calls are the model's own.
    #[cfg(test)]
    pub(in crate::contract) fn finish(&mut self) -> Option<String> {
        self.finish_from(&Provenance::default())
    }

    /// The answer has ended. Returns the held text as answer text, if no call was given out and it holds
    /// none.
    pub(in crate::contract) fn finish_from(&mut self, provenance: &Provenance) -> Option<String> {
        let text = mem::take(&mut self.text);
        let is_answer = self.given == 0
            && matches!(self.place, LeakPosition::Start | LeakPosition::Calls)
            && front(&text, &self.offer, End::Own)
                .filter(|_| !provenance.has_native_calls())
                .and_then(|leaked| leaked.unquoted(provenance, 0))
                .is_none();
        self.place = LeakPosition::Over;
        is_answer.then_some(text)
    }

    #[cfg(test)]
    pub(in crate::contract) fn held(&self) -> usize {
        self.text.len()
    }
}
