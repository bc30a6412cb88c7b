//! Where the data of a message belongs (docs/protocol.md, 2.12).

use super::{DataMessage, MessageFault};
use crate::data::Method;
use crate::reference::{Path, Segment};
use serde_json::{Map, Value};

impl DataMessage {
    /// Where in the kind the data belongs, and how: a plain message is merged into what there is, the
    /// result of a call goes where the call said.
    pub(super) fn place(&self) -> Result<(Path, Method), MessageFault> {
        let target = self
            .hidden
            .call
            .as_ref()
            .and_then(|call| call.get("_outputPath"));
        let path = match target.and_then(Value::as_str) {
            Some(target) => target
                .parse::<Path>()
                .map_err(|error| MessageFault::new("/_call/_outputPath", error.to_string()))?,
            None => Path::root(&self.kind),
        };
        let default = if target.is_some() {
            Method::Set
        } else {
            Method::Merge
        };
        Ok((path, self.hidden.method.unwrap_or(default)))
    }

    /// What is written at `path`.
    pub(super) fn value_at(&self, path: &Path) -> &Value {
        under_its_path(path, &self.data).unwrap_or(&self.data)
    }
}

/// The value in `data`, if that repeats the names of `path` around it: `{"user": {"status": 1}}` at `†data.user.status`
/// means 1.
fn under_its_path<'a>(path: &Path, data: &'a Value) -> Option<&'a Value> {
    let mut value = data;
    for segment in &path.segments {
        let (Segment::Key(name), Value::Object(fields)) = (segment, value) else {
            return None;
        };
        value = fields.get(name).filter(|_| fields.len() == 1)?;
    }
    (!path.segments.is_empty()).then_some(value)
}

/// The `data` of a message that writes `value` at `path`: the value, or what repeats the names around it where it
/// would be taken for that.
pub fn data_at(path: &Path, value: &Value) -> Value {
    if under_its_path(path, value).is_none() {
        return value.clone();
    }
    let names = path.segments.iter().rev();
    names.fold(value.clone(), |inner, segment| match segment {
        Segment::Key(name) => Map::from_iter([(name.clone(), inner)]).into(),
        Segment::Index(_) => inner,
    })
}
