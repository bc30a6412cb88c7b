//! What calls wrote or failed with, and the context with all of it as messages again: what is saved can
//! be loaded and holds the same.

use super::{
    Context, DataMessage, ErrorData, ErrorMessage, HiddenMetadata, Message, MetaMessage, data_at,
};
use crate::data::{Write, WriteError};
use crate::failure::ToolFailure;
use crate::solution::Call;
use serde_json::json;

/// Where an entry of the log comes from.
#[derive(Debug)]
pub(super) struct EntryOrigin {
    /// Index in the log.
    entry: usize,
    call: Call,
    /// Milliseconds since 1970 (UTC).
    date: Option<u64>,
}

impl Context {
    /// Writes the result of `call` to all of its places, or to none.
    ///
    /// # Errors
    /// A place that cannot take it.
    pub fn write_result(
        &mut self,
        writes: Vec<Write>,
        call: &Call,
        date: Option<u64>,
    ) -> Result<(), WriteError> {
        let first = self.data.log().len();
        self.data.write_all(writes)?;
        let entries = first..self.data.log().len();
        self.origins.extend(entries.map(|entry| EntryOrigin {
            entry,
            call: call.clone(),
            date,
        }));
        Ok(())
    }

    /// Notes why `call` has no result.
    pub fn write_failure(&mut self, call: &Call, failure: &ToolFailure) {
        self.errors.push(ErrorData {
            call: call.object(true).into(),
            error: json!(failure),
        });
    }

    /// What calls wrote, in their order.
    pub fn written(&self) -> &[Write] {
        self.data.log().get(self.given..).unwrap_or_default()
    }

    /// The messages that it was made of, one data message for each write since, with the call that
    /// made it, and one error message for each call that failed since. A context that is made of these
    /// has the same data.
    pub fn saved(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        if self.meta != self.given_meta {
            messages.extend(
                self.meta
                    .clone()
                    .map(|meta| Message::Meta(MetaMessage { meta })),
            );
        }
        let written = (self.given..).zip(self.written());
        messages.extend(written.map(|(entry, write)| {
            let at = self
                .origins
                .binary_search_by_key(&entry, |origin| origin.entry);
            let origin = at.ok().and_then(|at| self.origins.get(at));
            Message::Data(result(write, origin))
        }));
        let errors = self.errors.iter().cloned();
        messages.extend(errors.map(|data| Message::Error(ErrorMessage { data })));
        messages
    }
}

fn result(write: &Write, origin: Option<&EntryOrigin>) -> DataMessage {
    let mut call = origin.map_or_else(serde_json::Map::new, |origin| {
        // The output is the message's data.
        Call {
            output: None,
            ..origin.call.clone()
        }
        .object(true)
    });
    // The one place of the output expression that this write went to.
    call.insert("_outputPath".into(), json!(write.path));
    DataMessage {
        data: data_at(&write.path, &write.value),
        kind: write.path.kind.clone(),
        schema: None,
        description: None,
        instance: write.instance.clone(),
        hidden: HiddenMetadata {
            call: Some(call.into()),
            date: origin.and_then(|origin| origin.date),
            method: Some(write.method),
        },
    }
}
