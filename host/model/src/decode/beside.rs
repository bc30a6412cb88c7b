//! Calls in a delta and beside it, and members that may hold the arguments of one.
//!
//! Calls stand in deltas. Some servers write all of them again in a message at the end, or pieces of them beside the delta. A
//! member that is not read may hold arguments: with it, no call without arguments is made.

use super::call_forms::{CallPlace, calls_in, input_of, listed, name_of, tool_uses};
use super::strays::STREAMED;
use super::{Decoder, KNOWN_IN_CHOICE, KNOWN_IN_CHUNK, KNOWN_IN_DELTA};
use crate::call_arguments::index_of;
use crate::error::ModelError;
use serde_json::{Value, json};
use std::borrow::Cow;
use toolhold_protocol::completion::Delta;

impl Decoder {
    /// Takes the calls in a delta. Returns whether there is something new in them.
    pub(super) fn take_calls(
        &mut self,
        delta: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let mut has_text = false;
        // A proxy may send the same calls in both places. Where the first ones stood, new ones stand.
        let are_parts_first = self.calls_at == Some(CallPlace::Part);
        if are_parts_first {
            has_text |= self.take_parts(delta, emit)?;
        }
        let (from, calls) = calls_in(delta, &self.calls);
        has_text |= self.take_list(&calls, from, emit)?;
        if !are_parts_first {
            has_text |= self.take_parts(delta, emit)?;
        }
        let members = delta.as_object().into_iter().flatten();
        for (_, value) in members.filter(|(name, _)| STREAMED.contains(&name.as_str())) {
            has_text |= self.take_arguments(value, emit)?;
        }
        let unread = self.strays.look(delta, &KNOWN_IN_DELTA, &self.calls);
        self.calls.doubt(unread);
        Ok(has_text)
    }

    /// Takes calls that stand beside the delta of a choice, or in the chunk. `own`: lists of calls that were read, which
    /// these may repeat.
    pub(super) fn take_beside(
        &mut self,
        object: &Value,
        from: CallPlace,
        own: &[Option<&Value>],
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let is_other = |calls: &&Value| !own.iter().flatten().any(|known| known == calls);
        let list = object.get("tool_calls").filter(is_other);
        let calls = list.map(|list| listed(list, &self.calls));
        let has_text = self.take_list(&calls.unwrap_or_default(), from, emit)?;
        let unread = if from == CallPlace::Chunk {
            let strays = &mut self.strays;
            strays.look_at_chunk(object, &KNOWN_IN_CHUNK, &self.calls)
        } else {
            self.strays.look(object, &KNOWN_IN_CHOICE, &self.calls)
        };
        self.calls.doubt(unread);
        Ok(has_text)
    }

    fn take_list(
        &mut self,
        calls: &[Cow<'_, Value>],
        from: CallPlace,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let mut has_text = false;
        for (at, call) in calls.iter().enumerate() {
            // A list of one may have any of them.
            let index = call.get("index").filter(|_| calls.len() == 1);
            let index = index.and_then(index_of).map(usize::try_from);
            let place = index.and_then(Result::ok).unwrap_or(at);
            has_text |= self.take_call(call, from, Some(place), emit)?;
        }
        Ok(has_text)
    }

    /// Takes the calls among the parts of a content, and pieces of their arguments.
    fn take_parts(
        &mut self,
        delta: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let mut has_text = false;
        for part in tool_uses(delta) {
            has_text |= match (name_of(part), input_of(part)) {
                (Some(_), _) => self.take_call(part, CallPlace::Part, None, emit)?,
                (None, Some(input)) => self.take_arguments(input, emit)?,
                (None, None) => false,
            };
        }
        Ok(has_text)
    }

    /// Takes a call, or a piece of one. Calls in another place than the first one repeat earlier ones, however they are
    /// written: a copy must not become a second call. `place`: place of the call in its list.
    fn take_call(
        &mut self,
        call: &Value,
        from: CallPlace,
        place: Option<usize>,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let is_named = name_of(call).is_some();
        let is_elsewhere = self.calls_at.is_some_and(|first| first != from);
        if is_elsewhere && is_named {
            return Ok(self.calls.complete(call, place, false, emit));
        }
        // A piece of a copy.
        if is_elsewhere && !self.calls.has_open() {
            return Ok(false);
        }
        if is_named && self.calls_at.is_none() {
            self.calls_at = Some(from);
        }
        self.calls.push(call, emit)
    }

    /// Takes from a whole message what its calls lack so far. Returns whether there is something new in it.
    pub(super) fn complete_calls(&mut self, message: &Value, emit: &mut dyn FnMut(Delta)) -> bool {
        let mut has_text = false;
        // Where nothing came otherwise, messages are the pieces.
        let are_pieces = !self.has_delta;
        let (_, calls) = calls_in(message, &self.calls);
        for (place, call) in calls.iter().enumerate() {
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
}
