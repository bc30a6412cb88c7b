//! Leaked calls that begin an answer, while it is generated.

use super::closing::ClosingMark;
use super::marks::{
    AfterCall, Mark, along_line, follows, is_begun, is_begun_behind, opening, past_around,
    past_behind,
};
use super::{CallableNames, Leak, LeakedCalls, MAX_CALLS, front};
use crate::contract::provenance::Provenance;
use std::mem;
use std::sync::Arc;
use toolhold_json::repair::TextEnd;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::function_names::ToolNames;

/// Reads an answer until it is known not to begin with a leaked call; from there on it only passes text
/// on. What it gives out, [`super::front`] of the complete answer begins with.
///
/// Reading resumes where the last piece ended, so the same bytes cost no more in many small pieces than in one.
#[derive(Debug, Clone)]
pub(in crate::contract) struct LeakReader {
    offer: CallableNames,
    place: LeakPosition,
    /// Text that was neither given out nor passed on.
    text: String,
    /// Bytes of `text` before the call, or before the beginning of a mark: marks around calls. They are kept until a call
    /// is given out, because without a call they are answer text.
    past: usize,
    /// Calls that were given out.
    given: usize,
}

#[derive(Debug, Clone)]
enum LeakPosition {
    /// Before the first call or between two, with too little text to tell.
    Before,
    /// In a call.
    Call(ClosingMark),
    /// Behind a complete call. The next text of its line decides whether it is a call or a part of prose. Positions are in
    /// bytes from the beginning of the call.
    Behind {
        leaked: LeakedCalls,
        /// The mark that opens it.
        mark: &'static Mark,
        end: usize,
        /// Position behind the marks around calls that follow it.
        seen: usize,
    },
    /// There is no further call; the end of the answer decides what its text is.
    Undecided,
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
            place: LeakPosition::Before,
            text: String::new(),
            past: 0,
            given: 0,
        }
    }

    /// The reader, before its first text, by these rules instead of the current ones.
    pub(in crate::contract) fn under(self, rules: ReadingRules) -> Self {
        Self {
            offer: self.offer.under(rules),
            ..self
        }
    }

    /// Reads names of tools as these go out, too.
    pub(in crate::contract) fn name(&mut self, names: Option<&Arc<ToolNames>>) {
        self.offer = mem::take(&mut self.offer).named(names);
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
            _ => self.text.push_str(text),
        }
        let mut calls = Vec::new();
        while self.advance(provenance, &mut calls) {}
        match self.place {
            LeakPosition::Other => return Fate::Passed(mem::take(&mut self.text)),
            LeakPosition::Over => self.text = String::new(),
            _ if self.given > 0 && self.past > 0 => {
                self.text.drain(..self.past);
                self.past = 0;
            }
            _ => {}
        }
        Fate::Taken(calls)
    }

    /// Takes one step, and says whether another one may be possible without more text.
    fn advance(&mut self, provenance: &Provenance, calls: &mut Vec<Leak>) -> bool {
        let rest = self.text.get(self.past..).unwrap_or_default();
        match mem::replace(&mut self.place, LeakPosition::Over) {
            LeakPosition::Before => {
                let rules = self.offer.rules();
                let is_first = self.given == 0;
                let start = if is_first {
                    past_around(rules, rest)
                } else {
                    past_behind(rules, rest)
                };
                self.past = self.text.len() - start.len();
                let is_open = if is_first {
                    is_begun(rules, start)
                } else {
                    is_begun_behind(rules, start)
                };
                if is_open {
                    self.place = LeakPosition::Before;
                    return false;
                }
                let is_text = is_first && provenance.has_native_calls();
                self.place = match opening(rules, start) {
                    Some(mark) if !is_text => LeakPosition::Call(ClosingMark::of(mark)),
                    _ => self.without_call(),
                };
                true
            }
            LeakPosition::Call(mut closing) => {
                let found = closing.find(rest, &self.offer);
                let is_found = found.is_some();
                self.place = match found {
                    Some((leaked, end)) => LeakPosition::Behind {
                        leaked,
                        mark: closing.mark(),
                        end,
                        seen: end,
                    },
                    None if closing.is_missing() => self.undecided(),
                    None => LeakPosition::Call(closing),
                };
                is_found
            }
            LeakPosition::Behind {
                leaked,
                mark,
                end,
                seen,
            } => {
                let rules = self.offer.rules();
                let after = along_line(rules, rest.get(seen..).unwrap_or_default());
                match follows(rules, mark, after) {
                    AfterCall::Nothing | AfterCall::Begun => {
                        self.place = LeakPosition::Behind {
                            leaked,
                            mark,
                            end,
                            seen: rest.len() - after.len(),
                        };
                        false
                    }
                    AfterCall::Calls => {
                        self.past += end;
                        self.place = self.give(leaked, provenance, calls);
                        true
                    }
                    AfterCall::Prose => {
                        self.place = self.undecided();
                        false
                    }
                }
            }
            place => {
                self.place = place;
                false
            }
        }
    }

    /// Gives out the calls that are the model's own.
    fn give(
        &mut self,
        leaked: LeakedCalls,
        provenance: &Provenance,
        calls: &mut Vec<Leak>,
    ) -> LeakPosition {
        let all = leaked.calls.len();
        let own = leaked.unquoted(provenance, self.given).unwrap_or_default();
        let is_quoted = own.calls.len() < all;
        self.given += own.calls.len();
        calls.extend(own.calls);
        if is_quoted {
            self.without_call()
        } else if self.given >= MAX_CALLS {
            LeakPosition::Over
        } else {
            LeakPosition::Before
        }
    }

    /// No call comes any more: without any, the text is the answer.
    fn without_call(&self) -> LeakPosition {
        if self.given > 0 {
            LeakPosition::Over
        } else {
            LeakPosition::Other
        }
    }

    /// There is no further call: without any, the end of the answer decides.
    fn undecided(&self) -> LeakPosition {
        if self.given > 0 {
            LeakPosition::Over
        } else {
            LeakPosition::Undecided
        }
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
            && !matches!(self.place, LeakPosition::Over | LeakPosition::Other)
            && front(&text, &self.offer, TextEnd::Own)
                .filter(|_| !provenance.has_native_calls())
                .and_then(|leaked| leaked.unquoted(provenance, 0))
                .is_none();
        self.place = LeakPosition::Over;
        self.past = 0;
        is_answer.then_some(text)
    }

    #[cfg(test)]
    pub(in crate::contract) fn held(&self) -> usize {
        self.text.len()
    }
}
