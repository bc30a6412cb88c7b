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

use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::OnceLock;

use crate::call_arguments::{CallArguments, UnreadMembers, index_of};
use crate::error::ModelError;
use crate::offered::OfferedFunction;
use crate::reasoning::{KeptSize, keep_call_members};
use toolhold_json::scan::{JsonLexer, JsonToken, SPACE};
use toolhold_protocol::completion::{ChatToolCall, Delta};

/// More calls than this in one answer are a model gone astray; each would become work.
const MAX_CALLS: usize = 256;
/// Maximum bytes of a name that comes in pieces: four times as many as the names of functions have. Each piece copies what
/// came before it.
const MAX_NAME_BYTES: usize = 256;

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

#[derive(Debug, Default)]
struct Slot {
    /// The server's index, which need not be the call's place here.
    index: Option<u64>,
    /// The server's id. If an earlier call has the same, `call` has none.
    id: String,
    call: ChatToolCall,
    written: Written,
    /// Members of its pieces that were not read and may be its arguments.
    unread: UnreadMembers,
    /// Whether the arguments are JSON. It is read once, when all brackets are closed: blanks behind them change nothing.
    is_json: OnceLock<bool>,
    is_id_told: bool,
    is_name_told: bool,
    /// Bytes of the arguments that were told.
    told: usize,
}

/// How far the arguments of a call are written. Each character is looked at once, however small the pieces.
#[derive(Debug, Default)]
struct Written {
    lexer: JsonLexer,
    /// Brackets that are open.
    depth: usize,
    /// All brackets that were opened are closed again.
    is_closed: bool,
    /// Something came after that, so it is no JSON and will never be.
    is_broken: bool,
    /// Number of tokens that are no blanks.
    tokens: usize,
}

/// One element of a `tool_calls` array.
struct Fragment<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    arguments: String,
    unread: UnreadMembers,
}

/// The call that a piece belongs to.
enum PieceTarget {
    /// To this call, which has this name from now on.
    At(usize, Option<String>),
    New,
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
        self.offered.iter().any(|function| function.name == name)
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
        let Some(place) = self.repeated(&fragment, place) else {
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

    /// The call that a list repeats: the one of its id, or at its place there.
    fn repeated(&self, fragment: &Fragment<'_>, place: Option<usize>) -> Option<usize> {
        let is_named = |slot: &Slot| fragment.name.is_none_or(|name| name == slot.call.name);
        let calls = self.calls.iter().enumerate();
        let mut same = calls.filter(|(_, slot)| fragment.has_id_of(slot) && is_named(slot));
        if let (Some((own, _)), None) = (same.next(), same.next()) {
            return Some(own);
        }
        let indexed = fragment.index.and_then(|index| {
            let mut slots = self.calls.iter();
            slots.position(|slot| slot.index == Some(index))
        });
        let place = indexed.or(place)?;
        self.calls.get(place).filter(|slot| is_named(slot))?;
        Some(place)
    }

    /// Takes one element of a `tool_calls` array (or an old `function_call` object), and tells what is new in it, once
    /// it is certain. Returns whether there is something in it that was not known.
    pub(crate) fn push(
        &mut self,
        value: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let fragment = Fragment::read(value);
        let (place, name) = match self.place_of(&fragment) {
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

    /// Returns the call that a piece belongs to; `None` for a piece that has nothing.
    fn place_of(&self, fragment: &Fragment<'_>) -> Option<PieceTarget> {
        if let Some(place) = self.nearest(fragment) {
            let slot = &self.calls[place];
            let Some(name) = fragment.name else {
                return Some(PieceTarget::At(place, None));
            };
            if slot.call.name.is_empty() && !fragment.has_other_id(slot) {
                return Some(PieceTarget::At(place, Some(name.to_owned())));
            }
            if name == slot.call.name && fragment.repeats_name_of(slot) {
                return Some(PieceTarget::At(place, None));
            }
            if let Some(name) = self.longer_name(slot, fragment, name) {
                return Some(PieceTarget::At(place, Some(name)));
            }
            return Some(PieceTarget::New);
        }
        if fragment.name.is_none() && !fragment.arguments.is_empty() {
            return match self.only_open(fragment) {
                Some(place) => Some(PieceTarget::At(place, None)),
                None if says_nothing(&fragment.arguments) => None,
                None => Some(PieceTarget::New),
            };
        }
        let is_nothing = fragment.name.is_none() && fragment.id.is_none();
        (!is_nothing).then_some(PieceTarget::New)
    }

    /// The call that a piece names by its index or its id, or the latest.
    fn nearest(&self, fragment: &Fragment<'_>) -> Option<usize> {
        // From the back: where an index or an id was used twice, the later call is the one that grows.
        let find = |is_it: &dyn Fn(&Slot) -> bool| self.calls.iter().rposition(is_it);
        let has_index = |slot: &Slot| fragment.index.is_some() && slot.index == fragment.index;
        let has_id = |slot: &Slot| fragment.id.is_some_and(|id| slot.id == id);
        find(&|slot| has_index(slot) && has_id(slot))
            .or_else(|| find(&has_index))
            .or_else(|| find(&has_id))
            .or_else(|| match fragment.index {
                Some(_) => None,
                None => self.calls.len().checked_sub(1),
            })
    }

    /// Returns the longer name of a call if this piece is the next part of its name.
    fn longer_name(&self, slot: &Slot, fragment: &Fragment<'_>, piece: &str) -> Option<String> {
        let before = slot.call.name.as_str();
        let is_open = slot.call.arguments.is_empty() && !slot.is_name_told;
        let is_too_long = before.len().saturating_add(piece.len()) > MAX_NAME_BYTES;
        if !is_open || is_too_long || fragment.has_other_id(slot) || fragment.index != slot.index {
            return None;
        }
        let is_offered = |text: &str| self.offers(text);
        if is_offered(before) && is_offered(piece) && !fragment.has_id_of(slot) {
            return None;
        }
        let joined = format!("{before}{piece}");
        let names = self.offered.iter().map(|function| function.name.as_str());
        let begins = |text: &str| names.clone().any(|name| name.starts_with(text));
        if begins(&joined) {
            return Some(joined);
        }
        // Some servers write all of the name so far.
        if piece.starts_with(before) && (begins(piece) || fragment.has_id_of(slot)) {
            return Some(piece.to_owned());
        }
        (!is_offered(before) && !is_offered(piece)).then_some(joined)
    }

    /// The call that lacks arguments, if it is one alone and these may be some of it.
    fn only_open(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let named = self.calls.iter().enumerate();
        let mut named = named.filter(|(_, slot)| !slot.call.name.is_empty());
        let mut open = named.clone().filter(|(_, slot)| !slot.written.is_closed);
        let arguments = fragment.arguments.trim_start_matches(SPACE);
        // An object, or the text of one.
        let begins = ["{", "\"{"].iter().any(|it| arguments.starts_with(it)) || arguments == "\"";
        match (open.next(), open.next()) {
            (Some((place, slot)), None) if begins || !slot.call.arguments.is_empty() => Some(place),
            (None, _) if begins => named
                .next_back()
                .filter(|(_, slot)| slot.is_empty_object())
                .map(|(place, _)| place),
            _ => None,
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

impl<'a> Fragment<'a> {
    fn read(value: &'a Value) -> Self {
        // An old `function_call`, and some proxies, have no inner object.
        let inner = value.get("function").filter(|inner| !inner.is_null());
        let function = inner.unwrap_or(value);
        let CallArguments {
            text: arguments,
            unread,
        } = CallArguments::read(value);
        let text =
            |value: Option<&'a Value>| value.and_then(Value::as_str).filter(|t| !t.is_empty());
        Self {
            index: value.get("index").and_then(index_of),
            id: text(value.get("id")),
            name: text(function.get("name")),
            arguments,
            unread,
        }
    }

    fn has_id_of(&self, slot: &Slot) -> bool {
        self.id.is_some_and(|id| slot.id == id)
    }

    fn has_other_id(&self, slot: &Slot) -> bool {
        self.id
            .is_some_and(|id| !slot.id.is_empty() && slot.id != id)
    }

    /// True if a piece with the name of this call continues or repeats it. Otherwise another call of the same function
    /// begins.
    fn repeats_name_of(&self, slot: &Slot) -> bool {
        let arguments = self.arguments.trim_matches(SPACE);
        let is_other_index = self
            .index
            .zip(slot.index)
            .is_some_and(|(own, its)| own != its);
        if self.has_other_id(slot) {
            let is_within = !slot.call.arguments.is_empty() && !slot.written.is_closed;
            let goes_on = !arguments.is_empty() && !arguments.starts_with('{');
            return is_within && goes_on && self.index.is_some() && !is_other_index;
        }
        if !slot.is_whole() {
            return true;
        }
        if is_other_index {
            return false;
        }
        let is_again = slot.is_empty_object() || arguments == slot.call.arguments;
        says_nothing(arguments) || (self.has_id_of(slot) && is_again)
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

impl Slot {
    /// Takes the next piece of the arguments. False: they are whole without it.
    fn write(&mut self, piece: &str) -> bool {
        let next = piece.trim_start_matches(SPACE);
        let so_far = self.call.arguments.as_str();
        if next.is_empty() {
            // Blanks around the arguments are left out; inside of a string they count.
            if !so_far.is_empty() && !self.written.is_closed {
                self.append(piece);
            }
            return true;
        }
        if so_far.is_empty() {
            self.append(next);
            return true;
        }
        if self.is_empty_object() {
            // In the place of arguments that come only now.
            let begins = next.starts_with('{');
            if begins && next.trim_end_matches(SPACE) != so_far {
                self.replace(next);
            }
            return begins || says_nothing(next);
        }
        if self.is_whole() {
            return next.trim_end_matches(SPACE) == so_far || says_nothing(next);
        }
        match next.strip_prefix(so_far) {
            // The beginning again, and more.
            Some(more) if !goes_on(so_far, next) => self.append(more),
            _ => self.append(piece),
        }
        true
    }

    fn append(&mut self, piece: &str) {
        self.written.push(piece);
        self.call.arguments.push_str(piece);
        if self.written.is_closed {
            let end = self.call.arguments.trim_end_matches(SPACE).len();
            self.call.arguments.truncate(end);
        }
    }

    /// Puts arguments into the place of an empty object. Of that its bracket may have been told, and blanks.
    fn replace(&mut self, arguments: &str) {
        let told = self.call.arguments.get(..self.told).unwrap_or_default();
        let arguments = match arguments.strip_prefix('{') {
            Some(rest) if !told.is_empty() => format!("{told}{rest}"),
            _ => arguments.to_owned(),
        };
        self.written = Written::default();
        self.is_json = OnceLock::new();
        self.call.arguments.clear();
        self.append(&arguments);
    }

    /// Arguments that were not told. Those that are an empty object wait until the answer `is_over`: others may take
    /// their place.
    fn untold(&self, is_over: bool) -> Option<&str> {
        if self.is_empty_object() && (!is_over || self.is_unread()) {
            return None;
        }
        let untold = self.call.arguments.get(self.told..);
        untold.filter(|text| !text.is_empty())
    }

    /// True if the call has no arguments, and members that were not read may be them.
    fn is_unread(&self) -> bool {
        match self.unread {
            UnreadMembers::None => false,
            UnreadMembers::Unknown => self.call.arguments.is_empty(),
            UnreadMembers::Arguments => self.call.arguments.is_empty() || self.is_empty_object(),
        }
    }

    /// Whether it may have more arguments.
    fn is_open(&self) -> bool {
        self.is_empty_object() || !self.is_whole()
    }

    /// Whether its function has no parameters.
    fn takes_nothing(&self, offered: &[OfferedFunction]) -> bool {
        let name = self.call.name.as_str();
        let mut own = offered.iter().filter(|function| function.name == name);
        own.any(|function| function.takes_nothing)
    }

    fn is_empty_object(&self) -> bool {
        self.written.is_closed && self.written.tokens == 2 && self.call.arguments.starts_with('{')
    }

    fn is_whole(&self) -> bool {
        // The cheap look first: this is asked for every piece of servers that repeat the name.
        self.written.is_closed
            && !self.written.is_broken
            && *self.is_json.get_or_init(|| {
                let arguments = &self.call.arguments;
                arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
            })
    }
}

/// True for a piece without any argument: blanks, ends of JSON, or a mark of the template that ends the model's turn.
fn says_nothing(piece: &str) -> bool {
    let piece = piece.trim_matches(SPACE);
    let is_mark = piece.starts_with('<') && piece.ends_with('>') && !piece.contains(SPACE);
    is_mark || piece.chars().all(|c| "\"}]".contains(c))
}

/// Whether JSON that begins with `before` may go on with `more`.
fn goes_on(before: &str, more: &str) -> bool {
    let begins = |text: &str| match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => true,
        Err(error) => error.is_eof(),
    };
    begins(&format!("{before}{more}")) || !begins(before)
}

impl Written {
    fn push(&mut self, mut piece: &str) {
        while let Some(token) = self.lexer.next(&mut piece) {
            if matches!(token, JsonToken::Between(c) if c.is_ascii_whitespace()) {
                continue;
            }
            self.tokens = self.tokens.saturating_add(1);
            match token {
                _ if self.is_closed => self.is_broken = true,
                JsonToken::Between('{' | '[') => self.depth += 1,
                JsonToken::Between('}' | ']') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "tool_calls_tests.rs"]
mod tests;
