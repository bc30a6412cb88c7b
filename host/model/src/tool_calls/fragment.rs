//! A piece of a call, as it was streamed.

use super::slot::{Slot, says_nothing};
use crate::call_arguments::{CallArguments, UnreadMembers, index_of};
use serde_json::Value;
use toolhold_json::scan::SPACE;

/// One element of a `tool_calls` array.
pub(super) struct Fragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: String,
    pub(super) unread: UnreadMembers,
}

impl<'a> Fragment<'a> {
    pub(super) fn read(value: &'a Value) -> Self {
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

    pub(super) fn has_id_of(&self, slot: &Slot) -> bool {
        self.id.is_some_and(|id| slot.id == id)
    }

    pub(super) fn has_other_id(&self, slot: &Slot) -> bool {
        self.id
            .is_some_and(|id| !slot.id.is_empty() && slot.id != id)
    }

    /// True if a piece with the name of this call continues or repeats it. Otherwise another call of the same function
    /// begins.
    pub(super) fn repeats_name_of(&self, slot: &Slot) -> bool {
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
