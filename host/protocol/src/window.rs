//! The model's window: how it is used, and what of it a Request takes.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// How the window is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Tokens of prompt and reply together; absent if unknown. An endpoint that refuses a Request
    /// for its length may report it.
    pub tokens: Option<u64>,
    /// The most tokens of the prompt of one Request, if the run's client set it: a longer one is not sent, and
    /// ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_prompt: Option<u64>,
    /// How many tools the model is shown at most; the others it finds by what they are for.
    pub max_tools: usize,
    /// Whether the endpoint can count the tokens of a text, so that no estimate is needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
    /// How the messages before the task are summed up where they do not fit. Records of versions that summed up none of
    /// them have no writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<SummaryWriter>,
}

/// The author of a conversation's summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryWriter {
    /// The host, which keeps statements word for word.
    #[default]
    Host,
    /// A model besides, which is shown what goes.
    Model,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            tokens: None,
            max_prompt: None,
            max_tools: 64,
            counted: false,
            conversation: Some(SummaryWriter::Host),
        }
    }
}

/// A part of a Request (docs/protocol.md, 7.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Part {
    /// The instructions.
    #[strum(serialize = "instructions")]
    System,
    /// Rules beside the instructions: messages of the role `system`.
    Policy,
    /// Tools and the form of a reply, with the worked examples.
    #[strum(serialize = "tools and form")]
    Tools,
    /// Messages of the user and of the run itself.
    User,
    /// Passages of documents that were found for the task.
    Retrieved,
    /// The context's data.
    Data,
    /// What took the place of dropped history.
    Summary,
    /// Calls, replies and notes.
    History,
    /// What tools returned.
    Results,
    /// What the endpoint writes around the messages: the difference between its count of a whole
    /// prompt and of the texts in it.
    #[strum(serialize = "chat template")]
    Template,
}

impl Part {
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Tokens of each part that there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokensByPart(Vec<(Part, u64)>);

impl TokensByPart {
    pub fn add(&mut self, part: Part, tokens: u64) {
        if tokens == 0 {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == part) {
            Some((_, sum)) => *sum = sum.saturating_add(tokens),
            None => self.0.push((part, tokens)),
        }
    }

    pub fn of(&self, part: Part) -> u64 {
        let found = self.0.iter().find(|(known, _)| *known == part);
        found.map_or(0, |(_, tokens)| *tokens)
    }

    pub fn total(&self) -> u64 {
        let all = self.0.iter().map(|(_, tokens)| *tokens);
        all.fold(0, u64::saturating_add)
    }

    /// In the order of a Request.
    pub fn iter(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        Part::ALL
            .iter()
            .copied()
            .map(|part| (part, self.of(part)))
            .filter(|(_, tokens)| *tokens > 0)
    }
}

/// The result of counting texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Of each text, in their order; of fewer if it failed.
    pub tokens: Vec<u64>,
    /// Why the rest was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The reply of a model that was asked to sum up a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenSummary {
    pub text: String,
    /// Why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Runs of earlier versions are replayed as they were made.
    #[test]
    fn a_record_without_a_writer_sums_up_no_conversation() {
        let old: Window =
            serde_json::from_value(json!({"tokens": 5_000, "max_tools": 64})).unwrap();
        assert_eq!(old.conversation, None);
        let new: Window = serde_json::from_value(json!(Window::default())).unwrap();
        assert_eq!(new, Window::default());
        assert_eq!(new.conversation, Some(SummaryWriter::Host));
    }
}
