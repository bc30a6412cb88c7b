//! One event of a run's record: its place there, what happened, and its seal.

use super::kind::EventKind;
use super::removed::RemovedTexts;
use super::seal::{SEAL, Seal};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use toolhold_json::depth::{self, READABLE};
use uuid::Uuid;

/// One thing that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    pub run: Uuid,
    /// 0, 1, 2… without gaps. A piece of a reply that is shown and not recorded has the number of the event before it.
    pub seq: u64,
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    #[serde(flatten)]
    pub kind: EventKind,
    /// Present if texts were taken out of it after the run had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedTexts>,
    /// See [`Seal`]. Absent from pieces of a reply, which are not recorded.
    #[serde(default, skip_serializing_if = "Seal::is_none")]
    pub seal: Seal,
}

impl Event {
    /// Seals the event, as the one after that with the seal `before`.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn sealed(self, before: &Seal) -> Result<Self, serde_json::Error> {
        self.sealed_with_line(before).map(|(event, _)| event)
    }

    /// Seals the event as [`Self::sealed`] does, and returns its JSON text, too, which is made for the seal.
    ///
    /// # Errors
    /// It is no JSON, or is nested so deep that it could not be read again.
    pub fn sealed_with_line(mut self, before: &Seal) -> Result<(Self, String), serde_json::Error> {
        // Any seal: the line has one, and it is no part of what is sealed.
        const ANY: &str = "0";
        self.seal = Seal(ANY.into());
        let mut line = serde_json::to_string(&self)?;
        depth::check_to(line.as_bytes(), READABLE).map_err(serde_json::Error::custom)?;
        self.seal = Seal::of(&line, before).unwrap_or_default();
        let (_, close) = SEAL;
        line.truncate(line.len().saturating_sub(ANY.len() + close.len()));
        line.push_str(&self.seal.0);
        line.push_str(close);
        Ok((self, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SharedWithPrevious;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn the_line_of_a_sealed_event_is_its_json_text() {
        let mut before = Seal::default();
        for message in ["said", r#"with ,"seal":"0"} in it"#, ""] {
            let event = recorded(EventKind::Notice {
                step: 1,
                message: message.into(),
            });
            let (event, line) = event.sealed_with_line(&before).unwrap();
            assert_eq!(line, serde_json::to_string(&event).unwrap());
            assert_eq!(Seal::of(&line, &before).as_ref(), Some(&event.seal));
            before = event.seal;
        }
    }

    fn recorded(kind: EventKind) -> Event {
        Event {
            run: Uuid::nil(),
            seq: 3,
            at_ms: 5,
            kind,
            removed: None,
            seal: Seal::default(),
        }
    }

    /// In sub-agents of sub-agents, too.
    #[test]
    fn event_of_maximum_depth_can_be_read_again() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let deep = nested(depth::MAX_DEPTH);
        let body = json!({"response_format": {"json_schema": {"schema": {"properties": {"calls": {"items": {"anyOf": [
            {"properties": {"arguments": deep}}]}}}}}}});
        for kind in [
            json!({"event": "request", "step": 1, "body": body}),
            json!({"event": "tool_start", "step": 1, "id": "c", "tool": "m.t", "arguments": {"of": deep}}),
            json!({"event": "tool_result", "step": 1, "id": "c", "tool": "m.t", "usage": {}, "output": deep}),
            json!({"event": "done", "reason": "output", "output": deep, "steps": 1, "calls": 1, "tokens": 1, "duration_ms": 1}),
        ] {
            let mut kind: EventKind = serde_json::from_value(kind).unwrap();
            for call in ["a", "b", "c", "d"] {
                let what = Box::new(kind);
                kind = EventKind::Sub {
                    call: call.into(),
                    what,
                };
            }
            let (event, line) = recorded(kind).sealed_with_line(&Seal::default()).unwrap();
            let read: Event = serde_json::from_str(&line).unwrap();
            assert_eq!(json!(read), json!(event));
        }
    }

    #[test]
    fn event_that_could_not_be_read_again_is_not_recorded() {
        let deep = (0..READABLE).fold(json!(1), |inner, _| json!([inner]));
        let kind = EventKind::Request {
            step: 1,
            same: SharedWithPrevious::default(),
            body: deep,
        };
        let refused = recorded(kind).sealed(&Seal::default()).unwrap_err();
        assert!(refused.to_string().contains("nested deeper"), "{refused}");
    }

    proptest! {
        /// Records are compared with what a run comes to again, bit by bit.
        #[test]
        fn a_number_in_a_record_is_the_one_that_was_told(number in any::<f64>().prop_filter("JSON has no others", |n| n.is_finite())) {
            let text = json!(number).to_string();
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!(number));
        }
    }
}
