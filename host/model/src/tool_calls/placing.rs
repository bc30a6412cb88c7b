//! Finds the call that a piece belongs to.

use super::fragment::Fragment;
use super::slot::{Slot, says_nothing};
use crate::offered::OfferedFunction;
use toolhold_json::scan::SPACE;

/// Maximum bytes of a name that comes in pieces: four times as many as the names of functions have. Each piece copies what
/// came before it.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// The call that a piece belongs to.
pub(super) enum PieceTarget {
    /// To this call, which has this name from now on.
    At(usize, Option<String>),
    New,
}

/// The calls and functions that a piece is compared with.
pub(super) struct KnownCalls<'a> {
    /// The calls so far.
    pub(super) calls: &'a [Slot],
    /// Functions that the request offers.
    pub(super) offered: &'a [OfferedFunction],
}

impl KnownCalls<'_> {
    /// Whether the request offers a function of this name.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.offered.iter().any(|function| function.name == name)
    }

    /// The call that a list repeats: the one of its id, or at its place there.
    pub(super) fn repeated(&self, fragment: &Fragment<'_>, place: Option<usize>) -> Option<usize> {
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

    /// Returns the call that a piece belongs to; `None` for a piece that has nothing.
    pub(super) fn place_of(&self, fragment: &Fragment<'_>) -> Option<PieceTarget> {
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
}
