//! Finds the client's call that each result answers: by its id or, where a message has none, by the function's name and
//! the order of the calls.

use super::messages::{ChatMessage, ClientCall};
use std::collections::{HashMap, VecDeque};

/// The client's calls so far, and which of them have results.
#[derive(Debug, Default)]
pub(super) struct ResultMatcher<'m> {
    calls: Vec<MatchedCall<'m>>,
    /// Places in `calls`. Clients may give the calls of each turn the same ids: the last one is meant.
    by_id: HashMap<&'m str, usize>,
    /// Places of the calls of each function, in their order. Those that have results leave when they are reached.
    by_name: HashMap<&'m str, VecDeque<usize>>,
    in_order: VecDeque<usize>,
}

#[derive(Debug)]
struct MatchedCall<'m> {
    call: &'m ClientCall,
    has_result: bool,
}

impl<'m> ResultMatcher<'m> {
    /// Takes the next calls of the conversation.
    pub(super) fn add(&mut self, calls: impl IntoIterator<Item = &'m ClientCall>) {
        for call in calls {
            let place = self.calls.len();
            self.calls.push(MatchedCall {
                call,
                has_result: false,
            });
            if !call.id.is_empty() {
                self.by_id.insert(&call.id, place);
            }
            let of_name = self.by_name.entry(&call.function.name).or_default();
            of_name.push_back(place);
            self.in_order.push_back(place);
        }
    }

    /// The call that this message of the role `tool` answers.
    ///
    /// # Errors
    /// There is none, in words that the client can act on.
    pub(super) fn answered(&mut self, message: &ChatMessage) -> Result<&'m ClientCall, String> {
        let id = message.tool_call_id.as_deref().filter(|id| !id.is_empty());
        let name = message.name.as_deref().filter(|name| !name.is_empty());
        let place = match (id, name) {
            (Some(id), _) => self.by_id.get(id).copied(),
            (None, Some(name)) => self
                .by_name
                .get_mut(name)
                .and_then(|places| next_open(places, &self.calls)),
            (None, None) => next_open(&mut self.in_order, &self.calls),
        };
        match place.and_then(|place| self.calls.get_mut(place)) {
            Some(own) => {
                own.has_result = true;
                Ok(own.call)
            }
            None => Err(match (id, name) {
                (Some(id), _) => {
                    format!("tool_call_id {id:?} names no call of the messages before")
                }
                (None, Some(name)) => format!(
                    "it has no tool_call_id, and no call of {name:?} before it is without a result; give the id of \
                     the call that it answers"
                ),
                (None, None) => "it has no tool_call_id, and no call before it is without a result; give the id of \
                                 the call that it answers"
                    .to_owned(),
            }),
        }
    }

    /// The calls that have no result, in their order.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &'m ClientCall> {
        let open = self.calls.iter().filter(|own| !own.has_result);
        open.map(|own| own.call)
    }
}

/// Takes the first place of a call without a result.
fn next_open(places: &mut VecDeque<usize>, calls: &[MatchedCall<'_>]) -> Option<usize> {
    loop {
        let place = places.pop_front()?;
        if calls.get(place).is_some_and(|own| !own.has_result) {
            return Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str, name: &str) -> ClientCall {
        serde_json::from_value(json!({"id": id, "function": {"name": name}})).unwrap()
    }

    fn result(id: Option<&str>, name: Option<&str>) -> ChatMessage {
        let message = json!({"role": "tool", "content": "x", "tool_call_id": id, "name": name});
        serde_json::from_value(message).unwrap()
    }

    #[test]
    fn results_without_ids_answer_calls_by_name_and_order() {
        let calls = [call("a", "news"), call("b", "weather"), call("c", "news")];
        let mut matcher = ResultMatcher::default();
        matcher.add(&calls);
        let mut answers = |id, name| {
            let call = matcher.answered(&result(id, name));
            call.map(|call| call.id.clone())
        };
        assert_eq!(answers(None, Some("weather")), Ok("b".to_owned()));
        assert_eq!(answers(None, None), Ok("a".to_owned()));
        assert!(answers(None, Some("weather")).is_err(), "it has its result");
        assert!(answers(Some("z"), Some("news")).is_err(), "an id is meant");
        assert_eq!(answers(Some(""), Some("news")), Ok("c".to_owned()));
        assert!(answers(None, None).is_err());
        assert_eq!(matcher.unanswered().count(), 0);
    }

    #[test]
    fn calls_without_ids_are_answered_in_order() {
        let calls = [call("", "news"), call("", "news")];
        let mut matcher = ResultMatcher::default();
        matcher.add(&calls);
        assert!(matcher.answered(&result(None, None)).is_ok());
        assert_eq!(matcher.unanswered().count(), 1);
    }
}
