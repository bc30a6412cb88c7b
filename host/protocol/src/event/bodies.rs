//! The bodies of Requests, as a record holds them: each says what it shares with the one before it and
//! holds only the rest. A conversation goes on where it was, so whole bodies would make a record grow
//! with the square of its steps.

use super::{Event, EventKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use thiserror::Error;

const MESSAGES: &str = "messages";

/// What a Request's body shares with that of the Request before it in the same run. On the wire
/// `{"messages": 4, "fields": ["model", "tools"]}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWithPrevious {
    /// Number of shared messages, from the first on.
    pub messages: usize,
    /// Members beside the messages.
    pub fields: Vec<String>,
}

/// Restores whole bodies. Pass it every event of a record, in order.
///
/// ```
/// # use toolhold_protocol::event::Event;
/// # use toolhold_protocol::event::{BodyError, Bodies};
/// # fn sent(record: &[Event]) -> Result<(), BodyError> {
/// let mut bodies = Bodies::default();
/// for event in record {
///     if let Some(body) = bodies.take(&event.kind)? {
///         println!("{}", body["messages"]);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Bodies {
    /// Of the Request before.
    last: Option<Value>,
    /// Of sub-agents, by the call that they answer.
    subs: BTreeMap<String, Bodies>,
}

/// A Request whose body cannot be made whole.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the request of step {step} shares what the one before it does not have, so events before it are missing or were changed"
)]
pub struct BodyError {
    pub step: u32,
}

impl Bodies {
    /// Takes the next event. Returns the body that the model was sent, if it is a Request, of the run
    /// itself or of a sub-agent.
    ///
    /// # Errors
    /// It shares more than there was before it.
    pub fn take(&mut self, event: &EventKind) -> Result<Option<&Value>, BodyError> {
        let (mut bodies, mut event) = (self, event);
        while let EventKind::Sub { call, what } = event {
            bodies = bodies.subs.entry(call.clone()).or_default();
            event = what;
        }
        match event {
            EventKind::Request { step, same, body } => {
                let whole = same
                    .join(bodies.last.take(), body)
                    .ok_or(BodyError { step: *step })?;
                Ok(Some(bodies.last.insert(whole)))
            }
            // A sub-agent that was begun again after its process had ended knows nothing of before.
            EventKind::Run { .. } | EventKind::Done { .. } => {
                *bodies = Self::default();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Takes the next event, and returns it with its body whole, if it has one. Its seal is that of the
    /// recorded event.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn whole(&mut self, event: &Event) -> Result<Event, BodyError> {
        let whole = self.take(&event.kind)?;
        let mut event = event.clone();
        let mut kind = &mut event.kind;
        while let EventKind::Sub { what, .. } = kind {
            kind = what;
        }
        if let (EventKind::Request { same, body, .. }, Some(whole)) = (kind, whole) {
            *same = SharedWithPrevious::default();
            body.clone_from(whole);
        }
        Ok(event)
    }
}

impl SharedWithPrevious {
    /// True if the body is recorded whole.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What `body` shares with the one `before`, and the rest of it.
    pub fn split(before: Option<&Value>, body: &Value) -> (Self, Value) {
        let (Some(Value::Object(before)), Value::Object(all)) = (before, body) else {
            return (Self::default(), body.clone());
        };
        if !goes_on(before, all) {
            return (Self::default(), body.clone());
        }
        let messages = messages(before).iter().zip(messages(all));
        let same = Self {
            messages: messages.take_while(|(a, b)| a == b).count(),
            fields: all
                .iter()
                .filter(|(name, value)| *name != MESSAGES && before.get(*name) == Some(value))
                .map(|(name, _)| name.clone())
                .collect(),
        };
        let rest = all.iter().filter(|(name, _)| !same.fields.contains(name));
        let rest = rest.map(|(name, value)| match value {
            Value::Array(all) if name == MESSAGES => {
                let new = all.iter().skip(same.messages).cloned().collect();
                (name.clone(), Value::Array(new))
            }
            value => (name.clone(), value.clone()),
        });
        let rest = rest.collect::<Map<_, _>>().into();
        (same, rest)
    }

    /// The whole of a body of which this is shared with the one `before` and `rest` is not. `None` if
    /// there is less to share.
    fn join(&self, before: Option<Value>, rest: &Value) -> Option<Value> {
        if self.is_nothing() {
            return Some(rest.clone());
        }
        let (Some(Value::Object(before)), Value::Object(rest)) = (before, rest) else {
            return None;
        };
        if messages(&before).len() < self.messages
            || !self.fields.iter().all(|name| before.contains_key(name))
        {
            return None;
        }
        let mut whole = Map::new();
        for (name, mut value) in before {
            match (rest.get(&name), &mut value) {
                (Some(Value::Array(new)), Value::Array(old)) if name == MESSAGES => {
                    old.truncate(self.messages);
                    old.extend(new.iter().cloned());
                }
                (Some(new), _) => value = new.clone(),
                (None, _) if self.fields.contains(&name) => {}
                (None, _) => continue,
            }
            whole.insert(name, value);
        }
        for (name, value) in rest {
            whole.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Some(whole.into())
    }
}

/// Whether the members of a body stand in the order of the one before it, new ones last: only then it is
/// found again, byte for byte.
fn goes_on(before: &Map<String, Value>, body: &Map<String, Value>) -> bool {
    let known = before.keys().filter(|name| body.contains_key(*name));
    let new = body.keys().filter(|name| !before.contains_key(*name));
    known.chain(new).eq(body.keys())
}

fn messages(body: &Map<String, Value>) -> &[Value] {
    match body.get(MESSAGES) {
        Some(Value::Array(messages)) => messages,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};
    use serde_json::json;

    fn request(step: u32, same: SharedWithPrevious, body: Value) -> EventKind {
        EventKind::Request { step, same, body }
    }

    fn body() -> impl Strategy<Value = Value> {
        let names = vec!["model", "tools", "format", MESSAGES, "extra"];
        let fields = subsequence(names, 0..=5).prop_shuffle();
        let value = select(vec![json!(1), json!([1]), Value::Null]);
        (fields, vec(0..3_u8, 0..5), vec(value, 5)).prop_map(|(names, messages, values)| {
            let fields = names.into_iter().zip(values);
            let fields = fields.map(|(name, value)| match name {
                MESSAGES => (name.to_owned(), json!(messages)),
                _ => (name.to_owned(), value),
            });
            fields.collect::<Map<_, _>>().into()
        })
    }

    proptest! {
        #[test]
        fn bodies_are_found_again_byte_for_byte(sent in vec(prop_oneof![9 => body(), 1 => Just(json!("none"))], 0..6)) {
            let (mut bodies, mut before) = (Bodies::default(), None);
            for body in sent {
                let (same, rest) = SharedWithPrevious::split(before.as_ref(), &body);
                let found = bodies.take(&request(1, same, rest)).unwrap().unwrap();
                prop_assert_eq!(found.to_string(), body.to_string());
                before = Some(body);
            }
        }
    }

    #[test]
    fn parts_shared_with_the_previous_body_are_stored_once() {
        let first = json!({"model": "m", "tools": [1], "messages": ["a", "b"]});
        let next = json!({"model": "m", "tools": [1], "messages": ["a", "c", "d"]});
        let (same, rest) = SharedWithPrevious::split(Some(&first), &next);
        assert_eq!(
            json!(same),
            json!({"messages": 1, "fields": ["model", "tools"]})
        );
        assert_eq!(rest, json!({"messages": ["c", "d"]}));
    }

    #[test]
    fn sub_agents_share_with_themselves() {
        let sub = |call: &str, what: EventKind| EventKind::Sub {
            call: call.into(),
            what: Box::new(what),
        };
        let one = json!({"messages": ["of one"]});
        let two = json!({"messages": ["of two"]});
        let same = SharedWithPrevious {
            messages: 1,
            fields: Vec::new(),
        };
        let more = || request(2, same.clone(), json!({"messages": ["more"]}));
        let mut bodies = Bodies::default();
        for (event, found) in [
            (
                request(1, SharedWithPrevious::default(), one.clone()),
                Some(one),
            ),
            (
                sub("c", request(1, SharedWithPrevious::default(), two.clone())),
                Some(two),
            ),
            (more(), Some(json!({"messages": ["of one", "more"]}))),
            (
                sub("c", more()),
                Some(json!({"messages": ["of two", "more"]})),
            ),
            (
                EventKind::Resumed {
                    step: 2,
                    active_ms: 0,
                },
                None,
            ),
        ] {
            assert_eq!(bodies.take(&event).unwrap(), found.as_ref(), "{event:?}");
        }
        let error = bodies.take(&sub("d", more())).unwrap_err();
        assert!(error.to_string().contains("step 2"), "{error}");
    }

    #[test]
    fn a_body_that_shares_more_than_the_previous_one_is_an_error() {
        for same in [
            json!({"messages": 2, "fields": []}),
            json!({"messages": 18_446_744_073_709_551_615_u64, "fields": []}),
            json!({"messages": 0, "fields": ["tools"]}),
        ] {
            let mut bodies = Bodies::default();
            let first = request(1, SharedWithPrevious::default(), json!({"messages": [1]}));
            bodies.take(&first).unwrap();
            let same = serde_json::from_value(same).unwrap();
            let next = request(2, same, json!({"messages": []}));
            assert_eq!(bodies.take(&next), Err(BodyError { step: 2 }));
        }
    }
}
