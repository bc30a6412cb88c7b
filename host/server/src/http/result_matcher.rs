//! Finds the client's call that each result answers: by its id or, where a message has none, by the function's name and
//! the order of the calls.
//!
//! Clients may give calls of several turns the same ids. A turn is the calls with no result and no other message between
//! them; results belong to the latest turn before them that has enough calls of their id.

use super::messages::{ChatMessage, ClientCall};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The client's calls, and which of them each message answers.
#[derive(Debug, Default)]
pub(super) struct ResultMatcher<'m> {
    calls: Vec<MatchedCall<'m>>,
    /// Place of the first call of each turn.
    turns: Vec<usize>,
    /// Places in `calls` of the calls with each id that have no result.
    by_id: HashMap<&'m str, BTreeSet<usize>>,
    /// The last call with each id, whether it has a result or not.
    last_of_id: HashMap<&'m str, usize>,
    /// Places of the calls of each function, in their order. Those that have results leave when they are reached.
    by_name: HashMap<&'m str, VecDeque<usize>>,
    in_order: VecDeque<usize>,
    /// Place of the call that each result answers, or the error, by the place of its message.
    answers: BTreeMap<usize, Result<usize, String>>,
}

#[derive(Debug)]
struct MatchedCall<'m> {
    call: &'m ClientCall,
    /// The message whose first call it is.
    message: Option<&'m ChatMessage>,
    has_result: bool,
}

impl<'m> ResultMatcher<'m> {
    /// The calls of an earlier answer and of these messages, with the results among the messages.
    pub(super) fn new(before: &'m [ClientCall], messages: &'m [ChatMessage]) -> Self {
        let mut matcher = Self {
            turns: vec![0],
            ..Self::default()
        };
        matcher.add(before, None);
        let mut rest = messages;
        let mut at = 0;
        // Calls, then what follows them until the next calls.
        while !rest.is_empty() {
            let is_call = |message: &ChatMessage| !message.tool_calls.is_empty();
            let calls = rest.iter().take_while(|message| is_call(message)).count();
            let (called, after) = rest.split_at(calls);
            if !called.is_empty() {
                matcher.turns.push(matcher.calls.len());
            }
            for message in called {
                matcher.add(&message.tool_calls, Some(message));
            }
            let others = after.iter().take_while(|message| !is_call(message)).count();
            let (others, after) = after.split_at(others);
            at += calls;
            matcher.answer(at, others);
            at += others.len();
            rest = after;
        }
        matcher
    }

    fn add(&mut self, calls: &'m [ClientCall], message: Option<&'m ChatMessage>) {
        for (index, call) in calls.iter().enumerate() {
            let place = self.calls.len();
            self.calls.push(MatchedCall {
                call,
                message: message.filter(|_| index == 0),
                has_result: false,
            });
            if !call.id.is_empty() {
                self.by_id.entry(&call.id).or_default().insert(place);
                self.last_of_id.insert(&call.id, place);
            }
            let of_name = self.by_name.entry(&call.function.name).or_default();
            of_name.push_back(place);
            self.in_order.push_back(place);
        }
    }

    /// Finds the calls of the results in `messages`, which stand from `at` on and have no calls between them.
    fn answer(&mut self, at: usize, messages: &'m [ChatMessage]) {
        let results = (at..).zip(messages);
        let results = results.filter(|(_, message)| message.role == "tool");
        let results: Vec<(usize, &ChatMessage)> = results.collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for id in results.iter().filter_map(|(_, message)| id_of(message)) {
            *counts.entry(id).or_default() += 1;
        }
        let mut meant: HashMap<&str, VecDeque<usize>> = counts
            .into_iter()
            .map(|(id, count)| (id, self.meant(id, count)))
            .collect();
        for (index, message) in results {
            let id = id_of(message);
            let name = message.name.as_deref().filter(|name| !name.is_empty());
            let place = match (id, name) {
                (Some(id), _) => {
                    let open = meant.get_mut(id).and_then(VecDeque::pop_front);
                    // A result that is given again is of the last call.
                    open.or_else(|| self.last_of_id.get(id).copied())
                }
                (None, Some(name)) => self
                    .by_name
                    .get_mut(name)
                    .and_then(|places| next_open(places, &self.calls)),
                (None, None) => next_open(&mut self.in_order, &self.calls),
            };
            if let Some(own) = place.and_then(|place| self.calls.get_mut(place)) {
                own.has_result = true;
            }
            if let (Some(id), Some(place)) = (id, place)
                && let Some(open) = self.by_id.get_mut(id)
            {
                open.remove(&place);
            }
            let answer = place.ok_or_else(|| no_call(id, name));
            self.answers.insert(index, answer);
        }
    }

    /// Returns the open calls that `count` results with this id answer: those of the latest turn, or the last `count` calls
    /// if that turn has fewer. Takes time in proportion to `count`, because many calls may have one id.
    fn meant(&self, id: &str, count: usize) -> VecDeque<usize> {
        let Some(open) = self.by_id.get(id) else {
            return VecDeque::new();
        };
        let turn = open.last().and_then(|last| {
            let begun = self.turns.partition_point(|first| first <= last);
            self.turns.get(begun.saturating_sub(1))
        });
        let of_turn = turn.and_then(|first| open.range(*first..).next());
        // The first of the last `count` calls, as far as there are so many.
        let of_last = open.iter().rev().take(count).min();
        match of_turn.min(of_last) {
            Some(from) => open.range(*from..).take(count).copied().collect(),
            None => VecDeque::new(),
        }
    }

    /// The call that the message at `index`, of the role `tool`, answers.
    ///
    /// # Errors
    /// There is none, in words that the client can act on.
    pub(super) fn answered(&self, index: usize) -> Result<&'m ClientCall, String> {
        match self.answers.get(&index) {
            Some(Ok(place)) => {
                let own = self.calls.get(*place);
                own.map(|own| own.call).ok_or_else(|| no_call(None, None))
            }
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(no_call(None, None)),
        }
    }

    /// The reasoning of the call that the message at `index` answers. Of the calls of one message, the first has it.
    pub(super) fn thoughts(&self, index: usize) -> Map<String, Value> {
        let Some(Ok(place)) = self.answers.get(&index) else {
            return Map::new();
        };
        let own = self.calls.get(*place);
        own.map_or_else(Map::new, |own| match own.message {
            Some(message) => message.reasoning(),
            None => own.call.reasoning.clone(),
        })
    }

    /// The calls that have no result, in their order.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &'m ClientCall> {
        let open = self.calls.iter().filter(|own| !own.has_result);
        open.map(|own| own.call)
    }
}

fn id_of(message: &ChatMessage) -> Option<&str> {
    let id = message.tool_call_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// Why a message answers no call.
fn no_call(id: Option<&str>, name: Option<&str>) -> String {
    match (id, name) {
        (Some(id), _) => format!("tool_call_id {id:?} names no call of the messages before"),
        (None, Some(name)) => format!(
            "it has no tool_call_id, and no call of {name:?} before it is without a result; give the id of the call \
             that it answers"
        ),
        (None, None) => "it has no tool_call_id, and no call before it is without a result; give the id of the call \
                         that it answers"
            .to_owned(),
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

    fn call(id: &str, name: &str) -> Value {
        json!({"id": id, "function": {"name": name}})
    }

    fn calls(calls: &[Value]) -> ChatMessage {
        serde_json::from_value(json!({"role": "assistant", "tool_calls": calls})).unwrap()
    }

    fn said() -> ChatMessage {
        serde_json::from_value(json!({"role": "user", "content": "and there?"})).unwrap()
    }

    fn result(id: Option<&str>, name: Option<&str>) -> ChatMessage {
        let message = json!({"role": "tool", "content": "x", "tool_call_id": id, "name": name});
        serde_json::from_value(message).unwrap()
    }

    /// The function of the call that each result answers; the empty text for none.
    fn answered(messages: &[ChatMessage]) -> Vec<&str> {
        let matcher = ResultMatcher::new(&[], messages);
        let results = (0..).zip(messages);
        let results = results.filter(|(_, message)| message.role == "tool");
        results
            .map(|(index, _)| {
                let call = matcher.answered(index);
                call.map_or("", |call| call.function.name.as_str())
            })
            .collect()
    }

    #[test]
    fn results_without_ids_answer_calls_by_name_and_order() {
        let messages = [
            calls(&[call("a", "news"), call("b", "weather"), call("c", "mail")]),
            result(None, Some("weather")),
            result(None, None),
            result(None, Some("weather")),
            result(Some("z"), Some("news")),
            result(Some(""), Some("mail")),
            result(None, None),
        ];
        assert_eq!(answered(&messages), ["weather", "news", "", "", "mail", ""]);
        assert_eq!(ResultMatcher::new(&[], &messages).unanswered().count(), 0);
    }

    #[test]
    fn calls_without_ids_are_answered_in_order() {
        let messages = [
            calls(&[call("", "news"), call("", "mail")]),
            result(None, None),
        ];
        assert_eq!(answered(&messages), ["news"]);
        assert_eq!(ResultMatcher::new(&[], &messages).unanswered().count(), 1);
    }

    /// A history may have a hundred thousand calls with one id.
    #[test]
    fn many_calls_of_one_id_take_time_in_proportion() {
        const CALLS: usize = 40_000;
        let many = vec![call("1", "news"); CALLS];
        let mut messages = vec![calls(&many)];
        for _ in 0..CALLS / 2 {
            messages.extend([result(Some("1"), None), calls(&[call("2", "mail")])]);
        }
        let begun = std::time::Instant::now();
        assert_eq!(answered(&messages).len(), CALLS / 2);
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }

    #[test]
    fn results_of_equal_ids_belong_to_their_turns() {
        let same = |name: &str| calls(&[call("1", name)]);
        let done = || result(Some("1"), None);
        for (messages, expected) in [
            (
                vec![same("oslo"), done(), said(), same("rome"), done()],
                vec!["oslo", "rome"],
            ),
            (
                vec![same("oslo"), said(), same("rome"), done(), done()],
                vec!["oslo", "rome"],
            ),
            (
                vec![same("oslo"), said(), same("rome"), done()],
                vec!["rome"],
            ),
            // Calls that come one by one are one turn.
            (
                vec![same("oslo"), same("rome"), done(), done()],
                vec!["oslo", "rome"],
            ),
            (
                vec![
                    calls(&[call("1", "oslo"), call("1", "rome")]),
                    done(),
                    said(),
                    done(),
                ],
                vec!["oslo", "rome"],
            ),
            (vec![same("oslo"), done(), done()], vec!["oslo", "oslo"]),
        ] {
            assert_eq!(answered(&messages), expected, "{messages:?}");
        }
    }
}
