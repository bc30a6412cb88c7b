//! The kinds of repair (docs/protocol.md, 7), as data: records show how often a model needs each of them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that was put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub kind: RepairKind,
    /// JSON pointer into the arguments of the call; empty where the reply or the arguments as a whole
    /// are meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// What was written and what it was read as, where the kind does not say it: of another notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<NotationChange>,
}

/// A value in another notation, and as it is given to the tool. A long one is cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotationChange {
    pub from: String,
    pub to: String,
}

/// The kind of fault. On the wire `"trailing_comma"`; for people as [`fmt::Display`] says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairKind {
    // The reply.
    /// The model thought aloud in its answer.
    Thought,
    /// A call was written as text, in the form that the model was trained to.
    LeakedCall,
    /// The answer stood in the form of another contract.
    AnswerForm,
    // Its JSON.
    CodeFence,
    TextBefore,
    TextAfter,
    SingleQuotes,
    SmartQuotes,
    BareKey,
    DoubledKey,
    TrailingComma,
    MissingComma,
    Unclosed,
    PythonLiteral,
    OddNumber,
    LineBreakInText,
    EscapedSingleQuote,
    StrayBackslash,
    Comment,
    OddSpace,
    // The arguments of a call.
    NumberAsText,
    BooleanAsText,
    NullAsText,
    TextAsNumber,
    JsonAsText,
    WholeNumberAsFraction,
    SingleForList,
    NullForDefault,
    NullForAbsent,
    MissingDefault,
    /// A number with separators of thousands or a decimal comma.
    NumberNotation,
    /// A date or a time that is not written as RFC 3339 does.
    DateNotation,
}

impl RepairKind {
    /// A repair that concerns the whole reply or all arguments.
    pub fn whole(self) -> Repair {
        self.at("")
    }

    pub fn at(self, pointer: &str) -> Repair {
        Repair {
            kind: self,
            at: pointer.to_owned(),
            change: None,
        }
    }

    /// A repair that says what it made of what.
    pub fn changing(self, pointer: &str, from: String, to: String) -> Repair {
        Repair {
            change: Some(NotationChange { from, to }),
            ..self.at(pointer)
        }
    }
}

impl fmt::Display for RepairKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thought => "thoughts within the answer",
            Self::LeakedCall => "a call written as text",
            Self::AnswerForm => "an answer in another form",
            Self::CodeFence => "a code fence",
            Self::TextBefore => "text before it",
            Self::TextAfter => "text after it",
            Self::SingleQuotes => "single quotes",
            Self::SmartQuotes => "smart quotes",
            Self::BareKey => "a key without quotes",
            Self::DoubledKey => "a doubled key",
            Self::TrailingComma => "a trailing comma",
            Self::MissingComma => "a missing comma",
            Self::Unclosed => "brackets that were not closed",
            Self::PythonLiteral => "Python's literals",
            Self::OddNumber => "a number that is not JSON's",
            Self::LineBreakInText => "line breaks inside a text",
            Self::EscapedSingleQuote => "an escaped single quote",
            Self::StrayBackslash => "a backslash that escapes nothing",
            Self::Comment => "comments",
            Self::OddSpace => "white space that is not JSON's",
            Self::NumberAsText => "a number was written as a text",
            Self::BooleanAsText => "true or false was written as a text",
            Self::NullAsText => "null was written as a text",
            Self::TextAsNumber => "a text was written as a number",
            Self::JsonAsText => "JSON was written as a text",
            Self::WholeNumberAsFraction => "a whole number was written with a fraction",
            Self::SingleForList => "a single value was written where a list is due",
            Self::NullForDefault => "null was replaced by the default",
            Self::NullForAbsent => "null was left out",
            Self::MissingDefault => "the default was filled in",
            Self::NumberNotation => "a number was written in another notation",
            Self::DateNotation => "a date or a time was written in another notation",
        })
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => write!(f, "{}", self.kind),
            at => write!(f, "{at}: {}", self.kind),
        }?;
        match &self.change {
            Some(NotationChange { from, to }) => write!(f, " ({from:?} → {to:?})"),
            None => Ok(()),
        }
    }
}
