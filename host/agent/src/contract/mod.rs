//! How a Request becomes a chat completion and its reply a Solution (PROTOCOL.md, 4).
//!
//! The same Solution can be had in several ways; which one works is a property of the endpoint and
//! its model. The loop never sees the difference.

mod conversation;
mod examples;
mod reader;
mod schema;
mod simple;
mod text;
mod tools;

pub use reader::{Piece, Reader};

use crate::guard::mend::{End, Mended, mend};
use crate::model::{ChatRequest, Completion};
use crate::protocol::compose::Composition;
use crate::protocol::{Solution, Tool, Turn};
use crate::run::Settings;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The ways to get a Solution out of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contract {
    /// Strict JSON Schema output: the composed schema. Works wherever the server constrains its
    /// output, down to models that were never trained to call tools.
    #[default]
    Schema,
    /// Native tool calling, for models that were trained to it.
    Tools,
    /// JSON in plain text, one call a reply, for endpoints that offer nothing better.
    Simple,
}

/// Everything a Request is made of.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub model: &'a str,
    pub instructions: &'a str,
    pub turns: &'a [Turn],
    pub tools: &'a [Tool],
    pub output_schema: Option<&'a Value>,
    pub settings: &'a Settings,
    /// What is asked of the model besides calls and output.
    pub composition: Composition<'a>,
}

impl Contract {
    pub const ALL: [Self; 3] = [Self::Schema, Self::Tools, Self::Simple];

    pub fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Tools => "tools",
            Self::Simple => "simple",
        }
    }

    /// The chat completion request for `view`.
    pub fn request(self, view: &View<'_>) -> ChatRequest {
        let mut request = match self {
            Self::Schema => schema::request(view),
            Self::Tools => tools::request(view),
            Self::Simple => simple::request(view),
        };
        if let Some(seed) = view.settings.seed {
            request.extra.insert("seed".into(), seed.into());
        }
        request
    }

    /// Reads a reply while it is generated.
    pub fn reader(self) -> Reader {
        Reader::new(self)
    }

    /// Reads a complete reply.
    ///
    /// # Errors
    /// What is wrong with it, in words that the model can act on.
    pub fn read(self, completion: &Completion, view: &View<'_>) -> Result<Solution, String> {
        let read = match self {
            Self::Schema => schema::read(completion),
            Self::Tools => tools::read(completion, view),
            Self::Simple => simple::read(completion),
        };
        let read = read.and_then(|solution| {
            if solution.repairs.is_empty() || view.settings.repair {
                Ok(solution)
            } else {
                Err(format!("it is not JSON ({})", solution.repairs.join(", ")))
            }
        });
        // Complete JSON can end with finish_reason `length` (trailing white space): parse first.
        read.map_err(|reason| match completion.finish_reason.as_deref() {
            Some("length") => format!(
                "the reply was cut at the limit of {} tokens, so give a shorter one ({reason})",
                view.settings.max_tokens
            ),
            _ => reason,
        })
    }
}

/// A text of the reply that nothing constrained and that is not quite JSON, if it can be read in one
/// way. What is JSON is not mended: then something else is wrong with it.
fn mended(text: &str, completion: &Completion) -> Option<Mended> {
    let text = text.trim();
    if serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return None;
    }
    let end = match completion.finish_reason.as_deref() {
        Some("length") => End::Cut,
        _ => End::Own,
    };
    mend(text, end)
}
