//! Types of messages that a context registers (docs/protocol.md, 2.13). A message of such a type is data of the kind of
//! that name, and is one from when it is read: only the list that registers a type can use it.

use super::{Message, MessageFault, wire};
use crate::reference::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_json::bounded;
use toolhold_schema::{CheckError, Validator};

/// Registers a type of message: a kind of data whose messages fit a schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeMessage {
    pub name: String,
    pub schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Maximum registrations of a context. One that says again what holds already is none.
const MAX_TYPES: usize = 16;
/// Maximum bytes of the names, schemas and descriptions of all types of a context together. The model is shown each
/// registration once.
const MAX_BYTES: u64 = 64 << 10;

/// The types that a context registers, in their order. Of a name, the last one holds for what follows it.
#[derive(Debug, Default)]
pub(super) struct MessageTypes {
    types: Vec<TypeMessage>,
    bytes: u64,
}

impl MessageTypes {
    /// Returns what checks the type's messages, or nothing if it is registered like this already.
    pub fn register(&mut self, message: &TypeMessage) -> Result<Option<Validator>, MessageFault> {
        let name = message.name.as_str();
        if self.get(name) == Some(message) {
            return Ok(None);
        }
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
        let bytes = bounded::text_bytes(&message.schema)
            .saturating_add(described as u64)
            .saturating_add(name.len() as u64);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            let reason = format!(
                "the registered types take more than {MAX_BYTES} bytes together; shorten their schemas and descriptions"
            );
            return Err(MessageFault::new("", reason));
        }
        let validator = Validator::new(&message.schema).map_err(|reason| {
            MessageFault::new("/schema", format!("this schema cannot be used: {reason}"))
        })?;
        self.types.push(message.clone());
        Ok(Some(validator))
    }

    pub fn get(&self, name: &str) -> Option<&TypeMessage> {
        self.types.iter().rev().find(|known| known.name == name)
    }

    /// Their names, for people.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|known| known.name.as_str())
    }
}

/// Which messages of a list must fit the types that it registers, while it is read.
#[derive(Debug, Default)]
pub(super) struct TypedMessages {
    pub types: MessageTypes,
    checks: Vec<TypeCheck>,
}

#[derive(Debug)]
struct TypeCheck {
    name: String,
    validator: Validator,
    /// The messages that must fit.
    messages: Vec<usize>,
}

impl TypedMessages {
    pub fn register(&mut self, message: &TypeMessage) -> Result<(), MessageFault> {
        if let Some(validator) = self.types.register(message)? {
            self.checks.push(TypeCheck {
                name: message.name.clone(),
                validator,
                messages: Vec::new(),
            });
        }
        Ok(())
    }

    /// Message `index` must fit the schema of its kind, if that is registered. A result of a call is a part of a value.
    pub fn hold(&mut self, index: usize, message: &Message) {
        let Message::Data(data) = message else {
            return;
        };
        let mut latest = self.checks.iter_mut().rev();
        let check = latest.find(|check| check.name == data.kind);
        if let (Some(check), None) = (check, &data.hidden.call) {
            check.messages.push(index);
        }
    }

    /// Checks the messages of all types in the steps of one check.
    ///
    /// # Errors
    /// The first message that does not fit, with its index.
    pub fn check(&self, messages: &[Message]) -> Result<(), (usize, MessageFault)> {
        let used = || {
            self.checks
                .iter()
                .filter(|check| !check.messages.is_empty())
        };
        let data = |index: usize| match messages.get(index) {
            Some(Message::Data(data)) => &data.data,
            _ => &Value::Null,
        };
        let unfit = |check: &TypeCheck, index: usize, reason: CheckError| {
            let name = &check.name;
            let reason = format!("it does not fit the schema of the type {name}: {reason}");
            (index, MessageFault::new("", reason))
        };
        let mut first: Option<(usize, &TypeCheck)> = None;
        for check in used() {
            let values = check.messages.iter().map(|index| data(*index));
            let misfit = check.validator.first_misfit(values, used().count());
            let at = misfit.map_err(|too_costly| {
                let index = check.messages.first().copied().unwrap_or_default();
                unfit(check, index, too_costly.into())
            })?;
            let index = at.and_then(|at| check.messages.get(at)).copied();
            if let Some(index) = index
                && first.is_none_or(|(before, _)| index < before)
            {
                first = Some((index, check));
            }
        }
        let Some((index, check)) = first else {
            return Ok(());
        };
        let checked = check.validator.check(data(index));
        checked.map_err(|reason| unfit(check, index, reason))
    }
}
