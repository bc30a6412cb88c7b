//! The bodies of Requests, as a record holds them: each says what it shares with the one before it and
//! holds only the rest. A conversation goes on where it was, so whole bodies would make a record grow
//! with the square of its steps.

use super::kind::EventKind;
use super::record::Event;
use super::shared::SharedWithPrevious;
use serde_json::Value;
use std::collections::BTreeMap;
use thiserror::Error;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::shared::MESSAGES;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};
    use serde_json::{Map, json};

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
                    notes: Vec::new(),
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
