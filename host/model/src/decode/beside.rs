//! Calls in a delta and beside it, and members that may hold the arguments of one.
//!
//! Calls stand in deltas. Some servers write all of them again in a message at the end, or pieces of them beside the delta. A
//! member that is not read may hold arguments: with it, no call without arguments is made.

use super::call_forms::{calls_in, input_of, listed, name_of, tool_uses};
use super::strays::STREAMED;
use super::{Decoder, KNOWN_IN_DELTA};
use crate::call_arguments::UnreadMembers;
use crate::error::ModelError;
use serde_json::{Value, json};
use toolhold_protocol::completion::Delta;

impl Decoder {
    /// Takes the calls in a delta. Returns whether there is something new in them.
    pub(super) fn take_calls(
        &mut self,
        delta: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let mut has_text = false;
        let calls = calls_in(delta);
        for call in &calls {
            has_text |= self.calls.push(call, emit)?;
        }
        // A proxy may send the same calls in both places.
        let is_repeat = self.has_delta_calls || !calls.is_empty();
        for part in tool_uses(delta) {
            has_text |= match (name_of(part), input_of(part)) {
                (Some(_), _) if is_repeat => self.calls.complete(part, None, false, emit),
                (Some(_), _) => self.calls.push(part, emit)?,
                (None, Some(input)) => self.take_arguments(input, emit)?,
                (None, None) => false,
            };
        }
        let members = delta.as_object().into_iter().flatten();
        for (_, value) in members.filter(|(name, _)| STREAMED.contains(&name.as_str())) {
            has_text |= self.take_arguments(value, emit)?;
        }
        self.look_at(delta, &KNOWN_IN_DELTA);
        Ok(has_text)
    }

    /// Takes calls that stand beside the delta of a choice. `own`: lists of calls that were read, which these may repeat.
    pub(super) fn take_beside(
        &mut self,
        object: &Value,
        known: &[&str],
        own: &[Option<&Value>],
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let calls = object.get("tool_calls");
        let is_other = |calls: &&Value| !own.iter().flatten().any(|known| known == calls);
        let mut has_text = false;
        for (place, call) in calls
            .filter(is_other)
            .map(listed)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let is_again = self.has_delta_calls && name_of(call).is_some();
            has_text |= if is_again {
                self.calls.complete(call, Some(place), false, emit)
            } else {
                self.calls.push(call, emit)?
            };
        }
        self.look_at(object, known);
        Ok(has_text)
    }

    /// Takes from a whole message what its calls lack so far. Returns whether there is something new in it.
    pub(super) fn complete_calls(&mut self, message: &Value, emit: &mut dyn FnMut(Delta)) -> bool {
        let mut has_text = false;
        // Where nothing came otherwise, messages are the pieces.
        let are_pieces = !self.has_delta;
        for (place, call) in calls_in(message).iter().enumerate() {
            has_text |= self.calls.complete(call, Some(place), are_pieces, emit);
        }
        has_text
    }

    /// Takes a piece of arguments that stands outside of its call, for the latest call.
    fn take_arguments(
        &mut self,
        value: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let is_piece = value.is_string() || value.is_object();
        if !is_piece || !self.calls.is_last_open() {
            return Ok(false);
        }
        let piece = json!({"function": {"arguments": value}});
        self.calls.push(&piece, emit)
    }

    /// Looks at members that are not read.
    fn look_at(&mut self, object: &Value, known: &[&str]) {
        let has_call = !self.calls.is_empty();
        let unread = self.strays.look(object, known, has_call);
        if unread != UnreadMembers::None {
            self.calls.doubt(unread);
        }
    }
}
