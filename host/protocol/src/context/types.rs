//! Types of messages that a context registers (docs/protocol.md, 2.13). A message of such a type is data of the kind of
//! that name, and is one from when it is read: only the list that registers a type can use it.

use super::{Message, MessageFault, wire};
use crate::reference::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_json::bounded;
use toolhold_json::validate::{CheckError, Validator};

/// Registers a type of message: a kind of data whose messages fit a schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeMessage {
    pub name: String,
    pub schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Maximum registrations of a context: the messages of each may take as many steps as one check.
const MAX_TYPES: usize = 16;
/// Maximum bytes of the name, schema and description of all types of a context together.
const MAX_BYTES: u64 = 64 << 10;
/// Maximum bytes of schemas and descriptions that a model is shown for the instances of registered types: each instance
/// has its own data, and a copy of these beside it.
const MAX_SHOWN_BYTES: u64 = 1 << 20;

/// The types that a context registers, in their order. Of a name, the last one holds for what follows it.
#[derive(Debug, Default)]
pub(super) struct MessageTypes {
    types: Vec<RegisteredType>,
    bytes: u64,
    shown_bytes: u64,
}

#[derive(Debug)]
struct RegisteredType {
    message: TypeMessage,
    validator: Validator,
    bytes: u64,
    /// The messages that must fit its schema.
    messages: Vec<usize>,
}

impl MessageTypes {
    pub fn register(&mut self, message: &TypeMessage) -> Result<(), MessageFault> {
        let name = message.name.as_str();
        let root: Result<Path, _> = format!("†{name}").parse();
        if !root.is_ok_and(|path| path.segments.is_empty()) {
            let reason = format!("{name:.40?} cannot name a type: use letters, digits, _ and -");
            return Err(MessageFault::new("/name", reason));
        }
        if wire::is_known(name) {
            let reason =
                format!("{name} is a type of the protocol; register yours under another name");
            return Err(MessageFault::new("/name", reason));
        }
        if self.types.len() >= MAX_TYPES {
            let reason = format!(
                "a context may register {MAX_TYPES} types; use {{\"type\": \"data\", \"kind\": …}} for the others"
            );
            return Err(MessageFault::new("", reason));
        }
        let described = message.description.as_ref().map_or(0, String::len);
        let bytes = bounded::text_bytes(&message.schema).saturating_add(described as u64);
        let named = bytes.saturating_add(name.len() as u64);
        self.bytes = self.bytes.saturating_add(named);
        if self.bytes > MAX_BYTES {
            let reason = format!(
                "the registered types take more than {MAX_BYTES} bytes together; shorten their schemas and descriptions"
            );
            return Err(MessageFault::new("", reason));
        }
        let validator = Validator::new(&message.schema).map_err(|reason| {
            MessageFault::new("/schema", format!("this schema cannot be used: {reason}"))
        })?;
        self.types.push(RegisteredType {
            message: message.clone(),
            validator,
            bytes,
            messages: Vec::new(),
        });
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&TypeMessage> {
        self.types
            .iter()
            .rev()
            .map(|known| &known.message)
            .find(|known| known.name == name)
    }

    /// Their names, for people.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|known| known.message.name.as_str())
    }

    /// The schema of a kind is shown with the data of one more instance.
    pub fn shown(&mut self, kind: &str) -> Result<(), MessageFault> {
        let known = self.types.iter().rev();
        let Some(known) = known.into_iter().find(|known| known.message.name == kind) else {
            return Ok(());
        };
        self.shown_bytes = self.shown_bytes.saturating_add(known.bytes);
        if self.shown_bytes > MAX_SHOWN_BYTES {
            let reason = format!(
                "the schema of the type {kind} would be shown for too many instances; shorten it, or give fewer instances"
            );
            return Err(MessageFault::new("/_instance", reason));
        }
        Ok(())
    }

    /// Message `index` must fit the schema of its kind, if that is registered. A result of a call is a part of a value.
    pub fn hold(&mut self, index: usize, message: &Message) {
        let Message::Data(data) = message else {
            return;
        };
        let known = self.types.iter_mut().rev();
        let known = known
            .into_iter()
            .find(|known| known.message.name == data.kind);
        if let (Some(known), None) = (known, &data.hidden.call) {
            known.messages.push(index);
        }
    }

    /// Checks all messages of a type in the steps of one check.
    ///
    /// # Errors
    /// The first message that does not fit, with its index.
    pub fn check(&self, messages: &[Message]) -> Result<(), (usize, MessageFault)> {
        for known in &self.types {
            let data = |index: &usize| match messages.get(*index) {
                Some(Message::Data(data)) => &data.data,
                _ => &Value::Null,
            };
            let name = &known.message.name;
            let unfit = |index: usize, reason: CheckError| {
                let reason = format!("it does not fit the schema of the type {name}: {reason}");
                (index, MessageFault::new("", reason))
            };
            match known
                .validator
                .first_misfit(known.messages.iter().map(data))
            {
                Ok(None) => {}
                Ok(Some(at)) => {
                    let index = known.messages.get(at).copied().unwrap_or_default();
                    known
                        .validator
                        .check(data(&index))
                        .map_err(|reason| unfit(index, reason))?;
                }
                Err(too_costly) => {
                    let index = known.messages.first().copied().unwrap_or_default();
                    return Err(unfit(index, too_costly.into()));
                }
            }
        }
        Ok(())
    }
}
