//! The summary of a conversation: a message that stands in the place of older ones (docs/protocol.md, 2.15).

use super::Message;
use crate::turn::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Stands for older messages of a conversation that the window has no room for. The host makes it, and extends it when
/// the window is full again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryMessage {
    /// Number of messages that it stands for.
    pub messages: usize,
    /// Statements of them, word for word, in their order.
    #[serde(default)]
    pub lines: Vec<SummaryLine>,
    /// Number of statements that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Text that a model wrote about the messages; empty if none was asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// One statement of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryLine {
    pub from: Speaker,
    pub text: String,
    /// How much is lost with the statement: those that weigh least go first where there is no room.
    #[serde(default)]
    pub weight: u8,
}

/// The author of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    User,
    Assistant,
    /// A call, with its result.
    Tool,
}

/// Maximum texts and images directly before the user's last message that belong to its turn, such as attached files.
const MAX_ATTACHED_MESSAGES: usize = 16;

impl SummaryMessage {
    /// Puts the summary in the place of the first `count` messages that a summary may stand for.
    pub fn put(self, context: &mut Vec<Message>, count: usize) {
        let gone = SummablePlaces::of(context).first(count);
        let first = gone.first().copied().unwrap_or_default();
        let mut place = 0;
        context.retain(|_| {
            let is_gone = gone.contains(&place);
            place += 1;
            !is_gone
        });
        context.insert(first.min(context.len()), Message::Summary(self));
    }
}

impl Message {
    /// True for what was said, shown or returned in a conversation. Instructions, data, tools and plans hold for all turns.
    pub fn is_said(&self) -> bool {
        match self {
            Self::Text(text) => text.role != Role::System,
            Self::Image(_) | Self::ToolResult(_) | Self::Summary(_) => true,
            Self::Data(_)
            | Self::Input(_)
            | Self::State(_)
            | Self::Tool(_)
            | Self::Plan(_)
            | Self::Advisor(_)
            | Self::Meta(_)
            | Self::Error(_)
            | Self::Type(_)
            | Self::Knowledge(_) => false,
        }
    }
}

/// The places of the messages that a summary may stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SummablePlaces {
    /// Messages before the newest turn, and results of its older steps, the oldest first.
    pub earlier: Vec<usize>,
    /// Messages of the newest turn that a summary stands for where no earlier one is left: what is attached to the user's
    /// last message, and what came after it, the oldest first. Neither that message is among them nor the last one of all.
    pub newest: Vec<usize>,
}

impl SummablePlaces {
    /// The newest turn is the user's last message with what is attached to it, and the newest results after it.
    pub fn of(messages: &[Message]) -> Self {
        let said: Vec<(usize, &Message)> = messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.is_said())
            .collect();
        let Some(task) = said.iter().rposition(|(_, message)| is_asked(message)) else {
            return Self::default();
        };
        let before = said.iter().take(task).rev().take(MAX_ATTACHED_MESSAGES);
        let attached = before.take_while(|(_, message)| is_given(message)).count();
        let newest = said
            .iter()
            .rposition(|(_, message)| is_new_step(message))
            .filter(|at| *at > task)
            .unwrap_or(task + 1);
        let last = said.len().saturating_sub(1);
        let places = |is_in: &dyn Fn(usize) -> bool| -> Vec<usize> {
            let places = said.iter().enumerate().filter(|(at, _)| is_in(*at));
            places.map(|(_, (place, _))| *place).collect()
        };
        Self {
            earlier: places(&|at| at < task - attached || (task + 1..newest).contains(&at)),
            newest: places(&|at| {
                (task - attached..task).contains(&at) || (newest..last).contains(&at)
            }),
        }
    }

    /// Returns the places of the first `count` messages, in the order in which they go.
    pub fn first(&self, count: usize) -> BTreeSet<usize> {
        let all = self.earlier.iter().chain(&self.newest);
        all.take(count).copied().collect()
    }
}

fn is_asked(message: &Message) -> bool {
    matches!(message, Message::Text(text) if text.role == Role::User)
}

fn is_given(message: &Message) -> bool {
    is_asked(message) || matches!(message, Message::Image(_))
}

fn is_new_step(message: &Message) -> bool {
    matches!(message, Message::ToolResult(result) if result.next_step)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn messages(messages: Value) -> Vec<Message> {
        Message::parse_all(&messages).unwrap()
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn assistant(text: &str) -> Value {
        json!({"role": "assistant", "content": text})
    }

    fn result(id: &str, next_step: bool) -> Value {
        json!({"type": "tool_result", "tool": "weather", "result": "sun", "id": id, "next_step": next_step})
    }

    #[test]
    fn the_newest_turn_and_what_holds_for_all_turns_stay() {
        let context = messages(json!([
            {"role": "system", "content": "Be short."},
            user("a"),
            assistant("b"),
            {"type": "data", "data": 1},
            user("c"),
            result("1", true),
            assistant("d"),
            user("a file"),
            user("the task"),
        ]));
        assert_eq!(SummablePlaces::of(&context).earlier, [1, 2, 4, 5, 6]);
        let mut left = context.clone();
        let summary = SummaryMessage {
            messages: 4,
            ..SummaryMessage::default()
        };
        summary.clone().put(&mut left, 4);
        let mut expected = context;
        for place in [5, 4, 2] {
            expected.remove(place);
        }
        expected[1] = Message::Summary(summary);
        assert_eq!(left, expected);
    }

    #[test]
    fn results_of_a_task_may_go_but_for_the_newest() {
        let context = messages(json!([
            user("the task"),
            result("1", true),
            result("2", true),
            result("3", true),
            result("4", false),
        ]));
        assert_eq!(SummablePlaces::of(&context).earlier, [1, 2]);
        let one_step = messages(json!([user("the task"), result("1", false)]));
        for context in [one_step, messages(json!([assistant("a")]))] {
            assert_eq!(SummablePlaces::of(&context), SummablePlaces::default());
        }
    }

    #[test]
    fn many_messages_of_the_user_may_go_but_for_the_last() {
        let said: Vec<Value> = (0..40).map(|n| user(&n.to_string())).collect();
        let context = messages(said.into());
        let places = SummablePlaces::of(&context);
        assert_eq!(places.earlier, (0..23).collect::<Vec<_>>());
        assert_eq!(places.newest, (23..39).collect::<Vec<_>>());
    }

    /// Attached messages go before those after the task; the task and the last message stay.
    #[test]
    fn messages_of_the_newest_turn_go_where_no_others_are_left() {
        let context = messages(json!([
            user("before"),
            assistant("b"),
            user("a file"),
            {"type": "data", "data": 1},
            user("the task"),
            result("1", true),
            result("2", true),
            result("3", false),
            result("4", false),
        ]));
        let places = SummablePlaces::of(&context);
        assert_eq!(places.earlier, [0, 1, 5]);
        assert_eq!(places.newest, [2, 6, 7]);
        let mut left = context.clone();
        let summary = SummaryMessage {
            messages: 5,
            ..SummaryMessage::default()
        };
        summary.clone().put(&mut left, 5);
        let kept = [3, 4, 7, 8].map(|at| context[at].clone());
        assert_eq!(left[0], Message::Summary(summary));
        assert_eq!(left[1..], kept);
    }
}
