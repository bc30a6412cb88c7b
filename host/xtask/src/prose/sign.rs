//! The signs: forms of a sentence or a name that readers mostly have to read twice.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// A form that makes readers stop. Its name in `prose.toml` is that of [`Sign::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// A doc comment whose first word stands for a noun: "What", "Of", "Those".
    Opening,
    /// A doc comment whose first word is an identifier without backticks.
    Identifier,
    /// A line that refers to another comment instead of saying it again.
    Reference,
    /// A word or phrase that hides who acts; `words.rs` lists them.
    Words,
    /// The doc of a numeric constant without a unit and without the thing that it counts.
    Unit,
    /// The name of a test whose first word stands for its subject.
    TestName,
    /// A sentence of a document with more words than [`super::find::MAX_WORDS`].
    LongSentence,
}

impl Sign {
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Identifier => "identifier",
            Self::Reference => "reference",
            Self::Words => "words",
            Self::Unit => "unit",
            Self::TestName => "test_name",
            Self::LongSentence => "long_sentence",
        }
    }

    /// The text that should stand there instead.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Opening => {
                "begin with the noun that is meant: \"Bytes that…\", \"True if…\", \"Returns…\", not What, Of or Those"
            }
            Self::Identifier => "begin with a noun or a verb, and put identifiers into backticks",
            Self::Reference => "say it here: name the errors instead of \"The same\"",
            Self::Words => {
                "name who acts and what is acted on: not nobody, whoever, \"is told\", \"what there is\""
            }
            Self::Unit => {
                "name the unit or the thing counted: \"Maximum body size in bytes\", \"Attempts before…\""
            }
            Self::TestName => {
                "begin with the subject and say the outcome: decision_is_rejected_after_a_refusal"
            }
            Self::LongSentence => "divide it: a sentence has at most 30 words and one idea",
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A place with a sign.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProseFinding {
    /// Path below the repository's root.
    pub path: PathBuf,
    pub first_line: usize,
    pub last_line: usize,
    pub sign: Sign,
    pub text: String,
}

/// Maximum characters of a finding's text that are printed.
const MAX_SHOWN: usize = 140;

impl fmt::Display for ProseFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text.chars().take(MAX_SHOWN).collect();
        let (path, line) = (self.path.display(), self.first_line);
        write!(formatter, "{path}:{line}: {}: {text}", self.sign)
    }
}
