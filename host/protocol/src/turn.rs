//! What the model is shown: the conversation that every Request is built from anew.

use crate::image::Image;
use crate::solution::Call;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhold_policy::prompt::PromptText;

/// One turn of the conversation, in no contract's form yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// Shown to the model as it is, so texts of others are in a form of [`PromptText`].
    Text { role: Role, text: String },
    /// Of the user.
    Image(Image),
    /// Image of a result before it. Its name is the tool's.
    ResultImage(Image),
    /// Calls of one step with what came of them.
    Exchange(Exchange),
    /// What took the place of dropped history.
    Summary(String),
    /// The summary of a conversation before the task. Unlike [`Self::Summary`] it has data that is yet to be hidden.
    Conversation(String),
    /// A reply that could not be used, and why: the model sees both and tries again. The reason is shown on one line.
    Rejected { reply: String, reason: String },
}

impl Turn {
    pub fn user(text: impl Into<PromptText>) -> Self {
        let text: PromptText = text.into();
        Self::Text {
            role: Role::User,
            text: text.into(),
        }
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Text {
            role: Role::Assistant,
            text: text.into(),
        }
    }

    /// Adds a text. What the same role says in a row is one turn: several chat templates refuse two.
    pub fn add(turns: &mut Vec<Self>, role: Role, text: impl Into<PromptText>) {
        let text: PromptText = text.into();
        match turns.last_mut() {
            Some(Self::Text {
                role: last,
                text: said,
            }) if *last == role => {
                said.push_str("\n\n");
                said.push_str(text.as_str());
            }
            _ => turns.push(Self::Text {
                role,
                text: text.into(),
            }),
        }
    }

    /// The turn as this candidate is shown it, or the run's own model: other endpoints may refuse members of messages that
    /// they do not know.
    pub fn told_to(mut self, candidate: Option<&str>) -> Self {
        if let Self::Exchange(exchange) = &mut self
            && exchange.reasoning.candidate.as_deref() != candidate
        {
            exchange.reasoning = CarriedReasoning::default();
        }
        self
    }

    /// Adds a call with its result, which `message` was made in. Those in a row are one turn, unless it `is_next`: made
    /// after those before it were over.
    pub fn add_answered(
        turns: &mut Vec<Self>,
        answered: Answered,
        message: CarriedReasoning,
        is_next: bool,
    ) {
        match turns.last_mut() {
            Some(Self::Exchange(last)) if !is_next => {
                last.reasoning.join(message, last.calls.len());
                last.calls.push(answered);
            }
            _ => turns.push(Self::Exchange(Exchange {
                calls: vec![answered],
                reasoning: message,
            })),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// The calls of one solution and their results, in the order the model asked for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exchange {
    pub calls: Vec<Answered>,
    pub reasoning: CarriedReasoning,
}

/// Reasoning before calls. It goes back with them to the endpoint that it came from: endpoints in thinking mode refuse
/// calls without it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CarriedReasoning {
    /// Members of the assistant's message, under the names that they came with
    /// ([`Completion::carried_reasoning`](crate::completion::Completion::carried_reasoning)).
    pub members: Map<String, Value>,
    /// Signed members of the calls, in the order of the calls; empty if none has any. Some endpoints refuse calls without
    /// them ([`Completion::call_members`](crate::completion::Completion::call_members)).
    pub calls: Vec<Map<String, Value>>,
    /// The fallback's candidate that it came from; `None`: the run's own model.
    pub candidate: Option<String>,
}

impl CarriedReasoning {
    /// Returns the members of the call at this place.
    pub fn of_call(&self, place: usize) -> Option<&Map<String, Value>> {
        self.calls.get(place)
    }

    /// Drops the calls' members unless they are of as many calls: a reply's calls and those that were made of it need not
    /// be the same.
    pub fn fit(&mut self, calls: usize) {
        if self.calls.len() != calls {
            self.calls.clear();
        }
    }

    /// Adds the members of one more call of the same message, behind `count` calls, and those of the message if they are
    /// not known.
    fn join(&mut self, next: Self, count: usize) {
        if self.members.is_empty() {
            self.members = next.members;
        }
        if let Some(members) = next.calls.into_iter().next() {
            self.calls.resize(count, Map::new());
            self.calls.push(members);
        }
    }

    /// The names of members that have it as text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let texts = self.members.iter().filter(|(_, value)| value.is_string());
        texts.map(|(name, _)| name.as_str())
    }
}

/// A call and the text that the model is given for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    pub call: Call,
    /// Marks where the tool's text begins and ends. Neither the tool nor the model knows it
    /// beforehand, so no result can pretend to be another's or the host's.
    pub fence: String,
    /// The result as JSON text, or the reason why there is none, already cut to the limit.
    pub text: String,
    pub failed: bool,
}
