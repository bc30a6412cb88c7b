//! Puts tool calls together from the pieces that servers stream.
//!
//! The rules, and who needs them:
//! - a piece belongs to the call of its `index`; without one (some proxies) to that of its `id`,
//!   and with neither to the latest;
//! - a repeated `id` or `name` is the same call (several servers repeat both in every piece), and
//!   so is a new `id` without a name (servers that invent an id per chunk);
//! - another name, or a new `id` together with a name, is another call even if the index says
//!   otherwise (Ollama sends whole calls, all of index 0), and so is a name under another index whose
//!   `id` an earlier call has (servers that count ids anew);
//! - a name may come in two pieces, as long as there are no arguments: the functions that are offered
//!   tell it from two names;
//! - arguments under an index of no call, without a name, go on with the only call that lacks some;
//! - arguments that begin anew replace what came of them (servers that send the first character, or
//!   `{}`, and then all of them), and whole arguments may be repeated;
//! - behind whole arguments a mark of the template (`<|eot_id|>`) or a bracket too many says nothing;
//! - arguments may be an object instead of text, and then are whole;
//! - arguments may stand beside `function`, or be called `parameters`, `input` or `args`;
//! - a whole message at the end repeats the calls, and gives the arguments that one lacks.
//!
//! What fits none of them is counted, so that nothing is done with a call that may lack its arguments.

mod fragment;
mod placing;
mod slot;
#[cfg(test)]
mod tests;
mod written;

use serde_json::Value;
use std::collections::HashMap;

use crate::call_arguments::UnreadMembers;
use crate::error::ModelError;
use crate::offered::OfferedFunction;
use crate::reasoning::{KeptSize, keep_call_members};
use fragment::Fragment;
use placing::{KnownCalls, PieceTarget};
use slot::{Slot, says_nothing};
use toolhold_json::scan::SPACE;
use toolhold_protocol::completion::{ChatToolCall, Delta};

/// More calls than this in one answer are a model gone astray; each would become work.
const MAX_CALLS: usize = 256;

/// The calls of one completion.
#[derive(Debug, Default)]
pub(crate) struct ToolCalls {
    calls: Vec<Slot>,
    /// Functions that the request offers.
    offered: Vec<OfferedFunction>,
    /// Pieces that fit no call.
    unplaced: u32,
    /// Members of the reply outside of its calls that were not read and may be arguments.
    unread: UnreadMembers,
    /// A piece without anything came before any call.
    is_announced: bool,
    /// Number of calls whose begin was emitted.
    begun: usize,
    /// Size of the signed members of all calls.
    signed: KeptSize,
}

/// Calls of an answer, complete or not.
#[derive(Debug, Default)]
pub(crate) struct FinishedCalls {
    pub(crate) calls: Vec<ChatToolCall>,
    /// Pieces that fit no call, and calls without a name.
    pub(crate) unplaced: u32,
}

impl ToolCalls {
    /// The calls of an answer to a request that offers these functions.
    pub(crate) fn offering(offered: Vec<OfferedFunction>) -> Self {
        Self {
            offered,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Forgets that a call was announced: the answer is text, and some servers have an empty call in each chunk of it.
    pub(crate) fn forget_announcement(&mut self) {
        self.is_announced = false;
    }

    /// Notes that members outside of the calls were not read, which may be arguments.
    pub(crate) fn doubt(&mut self, unread: UnreadMembers) {
        self.unread = self.unread.max(unread);
    }

    /// Whether some call has no arguments, or an empty object.
    pub(crate) fn has_bare(&self) -> bool {
        self.calls.iter().any(Slot::is_bare)
    }

    /// Notes of each call without arguments whether there are some outside of it that were not read. `look` finds them by the
    /// name of the call and the function that is offered under it.
    pub(crate) fn doubt_each(
        &mut self,
        look: impl Fn(&str, Option<&OfferedFunction>) -> UnreadMembers,
    ) {
        let offered = &self.offered;
        // Once for each name: a text is long, and calls are many.
        let mut known: HashMap<String, UnreadMembers> = HashMap::new();
        for slot in self.calls.iter_mut().filter(|slot| slot.is_bare()) {
            let found = known.entry(slot.call.name.clone());
            let found = found.or_insert_with_key(|name| {
                let function = offered.iter().find(|function| function.name == *name);
                look(name.as_str(), function)
            });
            slot.unread = slot.unread.max(*found);
        }
    }

    /// Whether the latest call may have more arguments.
    pub(crate) fn is_last_open(&self) -> bool {
        self.calls.last().is_some_and(Slot::is_open)
    }

    /// Whether the arguments of the latest call have begun and are not whole.
    pub(crate) fn is_last_within(&self) -> bool {
        let last = self.calls.last();
        last.is_some_and(|slot| !slot.call.arguments.is_empty() && !slot.is_whole())
    }

    /// Whether some call may have more arguments.
    pub(crate) fn has_open(&self) -> bool {
        self.calls.iter().any(Slot::is_open)
    }

    /// Whether the request offers a function of this name.
    pub(crate) fn offers(&self, name: &str) -> bool {
        self.known().offers(name)
    }

    /// Takes from a list of calls that repeats earlier ones the arguments that its call lacks. `place`: place of the call in
    /// that list. `are_pieces`: the arguments there are pieces. Returns whether some are new.
    pub(crate) fn complete(
        &mut self,
        value: &Value,
        place: Option<usize>,
        are_pieces: bool,
        emit: &mut dyn FnMut(Delta),
    ) -> bool {
        let fragment = Fragment::read(value);
        let arguments = fragment.arguments.trim_start_matches(SPACE);
        let Some(place) = self.known().repeated(&fragment, place) else {
            if !says_nothing(arguments) {
                self.doubt(UnreadMembers::Arguments);
            }
            return false;
        };
        let slot = &mut self.calls[place];
        slot.unread = slot.unread.max(fragment.unread);
        let is_open = slot.is_open();
        let begins = slot.is_empty_object() || arguments.starts_with(&slot.call.arguments);
        if !is_open || arguments.is_empty() || !(begins || are_pieces) {
            return false;
        }
        let before = (slot.call.arguments.len(), slot.is_empty_object());
        let is_placed = slot.write(&fragment.arguments);
        let is_new = (slot.call.arguments.len(), slot.is_empty_object()) != before;
        if !is_placed {
            self.lose();
        }
        if is_new {
            self.tell(place, emit);
        }
        is_new
    }

    /// Takes one element of a `tool_calls` array (or an old `function_call` object), and tells what is new in it, once
    /// it is certain. Returns whether there is something in it that was not known.
    pub(crate) fn push(
        &mut self,
        value: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let fragment = Fragment::read(value);
        let (place, name) = match self.known().place_of(&fragment) {
            Some(PieceTarget::At(place, name)) => (place, name),
            Some(PieceTarget::New) if self.calls.len() == MAX_CALLS && fragment.name.is_none() => {
                self.lose();
                return Ok(true);
            }
            Some(PieceTarget::New) if self.calls.len() == MAX_CALLS => {
                return Err(ModelError::TooLarge {
                    limit: MAX_CALLS,
                    unit: "tool calls",
                });
            }
            Some(PieceTarget::New) => {
                self.calls.push(Slot {
                    index: fragment.index,
                    ..Slot::default()
                });
                (self.calls.len() - 1, fragment.name.map(str::to_owned))
            }
            // It has nothing that could be lost.
            None => {
                self.is_announced = true;
                return Ok(false);
            }
        };
        let is_named = name.is_some();
        let is_taken = |id: &str| self.calls.iter().any(|slot| slot.id == id);
        let id = fragment.id.map(|id| (id, is_taken(id)));
        let slot = &mut self.calls[place];
        keep_call_members(value, &mut slot.call.members, &mut self.signed);
        let before = (slot.call.arguments.len(), slot.is_empty_object());
        let mut is_new = is_named;
        if let Some((id, is_taken)) = id.filter(|_| slot.id.is_empty()) {
            id.clone_into(&mut slot.id);
            if !is_taken {
                id.clone_into(&mut slot.call.id);
            }
            is_new = true;
        }
        if let Some(name) = name {
            slot.call.name = name;
        }
        slot.unread = slot.unread.max(fragment.unread);
        let is_placed = slot.write(&fragment.arguments);
        is_new |= (slot.call.arguments.len(), slot.is_empty_object()) != before || !is_placed;
        if !is_placed {
            self.lose();
        }
        // Not for each piece that repeats what is known: all functions that are offered are looked through.
        if is_new {
            self.tell(place, emit);
        }
        Ok(is_new)
    }

    /// The answer has ended: tells what was held back until it is certain.
    pub(crate) fn end(&mut self, emit: &mut dyn FnMut(Delta)) {
        self.spread_doubt();
        for place in 0..self.calls.len() {
            self.news(place, true, emit);
        }
    }

    /// Returns the calls of an answer that may have been cut at the limit of tokens (`is_cut`). A call without an id gets `call_N` by its place,
    /// and one without arguments `{}`: chat templates fail on the empty text when it is sent back. Where arguments may
    /// be missing, it stays empty.
    pub(crate) fn finish(mut self, is_cut: bool) -> FinishedCalls {
        self.spread_doubt();
        let nameless = self.calls.iter().filter(|slot| slot.call.name.is_empty());
        let nameless = u32::try_from(nameless.count()).unwrap_or(u32::MAX);
        let alone = u32::from(self.is_announced && self.calls.is_empty());
        let unread = self.calls.iter().filter(|slot| slot.is_unread());
        let unread = u32::try_from(unread.count()).unwrap_or(u32::MAX);
        let known = nameless.saturating_add(alone).saturating_add(unread);
        let unplaced = self.unplaced.saturating_add(known);
        let last = self.calls.len().saturating_sub(1);
        let offered = &self.offered;
        let calls = self.calls.into_iter().enumerate();
        let calls = calls.map(|(place, slot)| {
            let is_unread = slot.is_unread();
            let takes_nothing = slot.takes_nothing(offered);
            let mut call = slot.call;
            if is_unread {
                call.arguments.clear();
            }
            if call.id.is_empty() {
                call.id = format!("call_{place}");
            }
            let is_lost = (unplaced > 0 && !takes_nothing) || (is_cut && place == last);
            if call.arguments.is_empty() && !is_lost {
                call.arguments = "{}".into();
            }
            call
        });
        FinishedCalls {
            calls: calls.collect(),
            unplaced,
        }
    }

    /// Each call without arguments may have those that were not read, unless its function has no parameters.
    fn spread_doubt(&mut self) {
        for slot in &mut self.calls {
            slot.unread = if slot.takes_nothing(&self.offered) {
                UnreadMembers::None
            } else {
                slot.unread.max(self.unread)
            };
        }
    }

    fn lose(&mut self) {
        self.unplaced = self.unplaced.saturating_add(1);
    }

    fn known(&self) -> KnownCalls<'_> {
        KnownCalls {
            calls: &self.calls,
            offered: &self.offered,
        }
    }

    /// Tells what is new of a call, unless its name may change, or its arguments.
    fn tell(&mut self, place: usize, emit: &mut dyn FnMut(Delta)) {
        let slot = &self.calls[place];
        let name = slot.call.name.as_str();
        let is_name_whole = slot.is_name_told || {
            let names = self.offered.iter().map(|function| function.name.as_str());
            let mut those = names.filter(|other| other.starts_with(name));
            let is_offered = those.next() == Some(name);
            !name.is_empty() && is_offered && those.next().is_none()
        };
        if is_name_whole || slot.untold(false).is_some() {
            while self.begun < place {
                self.news(self.begun, false, emit);
            }
            self.news(place, false, emit);
        }
    }

    fn news(&mut self, place: usize, is_over: bool, emit: &mut dyn FnMut(Delta)) {
        let is_begin = place == self.begun;
        self.begun += usize::from(is_begin);
        let slot = &mut self.calls[place];
        let id = once(&slot.call.id, &mut slot.is_id_told);
        let name = once(&slot.call.name, &mut slot.is_name_told);
        let arguments = slot.untold(is_over).unwrap_or_default().to_owned();
        slot.told += arguments.len();
        if is_begin || id.is_some() || name.is_some() || !arguments.is_empty() {
            emit(Delta::ToolCall {
                index: place,
                id,
                name,
                arguments,
            });
        }
    }
}

/// Returns a text once, as soon as there is one.
fn once(text: &str, is_told: &mut bool) -> Option<String> {
    if text.is_empty() || *is_told {
        return None;
    }
    *is_told = true;
    Some(text.to_owned())
}
