//! A model as a shield, prompted and read like Llama Guard.
//!
//! Data that a run hides from its own model is hidden from this one, too. A long value is read in pieces that overlap; each
//! must be safe. Its reply is read strictly. A reply
//! other than `safe`, or `unsafe` with given categories, after the model's thoughts, is no verdict.

use super::{Screening, Shield, ShieldVerdict};
use crate::contract;
use crate::guard::pii::Vault;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use toolhold_model::chat::{ChatMessage, ChatRequest};
use toolhold_model::side::SideObserver;
use toolhold_model::{CompletionObserver, Model};
use toolhold_policy::prompt::{BAR, PromptText};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::shield::ShieldPlace;

/// `unsafe` and all categories.
const MAX_TOKENS: u32 = 100;
/// Maximum pieces of one value, so requests for one verdict.
const MAX_PIECES: usize = 16;
/// Pieces as long as the characters that two neighbours share, in one piece: a passage of that length is whole in one of
/// them.
const OVERLAP: usize = 8;

/// A forbidden category, as the prompt describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Category {
    /// `S1`.
    pub code: String,
    /// `Violent Crimes.`, or more words.
    pub text: String,
}

/// A model as a shield.
#[derive(Debug, Clone)]
pub struct GuardModel {
    /// Where what it takes counts, a [`SideModel`](toolhold_model::side::SideModel).
    pub model: Arc<dyn Model>,
    pub categories: Vec<Category>,
    /// Maximum characters that it is shown at once. A longer value is read in at most sixteen pieces, and one that
    /// needs more cannot be screened.
    pub max_chars: usize,
    pub privacy: Privacy,
}

impl Shield for GuardModel {
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>> {
        Box::pin(async move {
            let shown = self.shown(screening);
            let pieces = self.pieces(&shown.text)?;
            for (index, (at, piece)) in pieces.iter().enumerate() {
                let piece = &*shown.marked(*at, piece);
                let part = (pieces.len() > 1).then_some((index + 1, pieces.len()));
                let request = ChatRequest {
                    max_tokens: Some(MAX_TOKENS),
                    temperature: Some(0.0),
                    ..ChatRequest::new(
                        "",
                        vec![ChatMessage::user(self.prompt(screening.place, piece, part))],
                    )
                };
                let completion = self
                    .model
                    .complete(&request, &mut SideObserver(watch))
                    .await;
                let completion =
                    completion.map_err(|error| format!("its endpoint failed: {error}"))?;
                match self.read(&completion.content)? {
                    ShieldVerdict::Pass => {}
                    other => return Ok(other),
                }
            }
            Ok(ShieldVerdict::Pass)
        })
    }
}

/// The context and the value of a screening as one text.
struct ShownScreening {
    text: String,
    /// Place in bytes from which each line stands behind a bar; absent where none does.
    barred_from: Option<usize>,
}

impl ShownScreening {
    /// A piece of the text that begins at this place. One that begins within a line of the value gets a bar, so that its
    /// first words are no line of the context.
    fn marked<'a>(&self, at: usize, piece: &'a str) -> Cow<'a, str> {
        let is_barred = self.barred_from.is_some_and(|from| at > from);
        if is_barred && !piece.starts_with(BAR) {
            format!("{BAR} {piece}").into()
        } else {
            piece.into()
        }
    }
}

impl GuardModel {
    /// The context and the value as text, without the data that is hidden from this model. Each part of the context is
    /// one line, and where there are such lines, those of the value stand behind bars, so that none can pass for another.
    fn shown(&self, screening: &Screening) -> ShownScreening {
        let mut vault = Vault::new(self.privacy.clone());
        let value = text_of(&vault.hide_value(&screening.value));
        if screening.context.is_empty() {
            return ShownScreening {
                text: value,
                barred_from: None,
            };
        }
        let mut shown = PromptText::default();
        for (path, value) in &screening.context {
            let value = text_of(&vault.hide_value(value));
            shown.line(path).words(": ").line(&value).words("\n");
        }
        let barred_from = Some(shown.as_str().len());
        let text = shown.quoted(&value).take().into();
        ShownScreening { text, barred_from }
    }

    /// `shown` in pieces of at most [`Self::max_chars`] characters, each repeating the end of the one before, with the
    /// place of each in bytes.
    fn pieces<'a>(&self, shown: &'a str) -> Result<Vec<(usize, &'a str)>, String> {
        let most = self.max_chars.max(1);
        let stride = most - most / OVERLAP;
        let mut pieces = Vec::new();
        let mut rest = shown;
        loop {
            let Some((end, _)) = rest.char_indices().nth(most) else {
                pieces.push((shown.len() - rest.len(), rest));
                return Ok(pieces);
            };
            if pieces.len() + 1 == MAX_PIECES {
                return Err(format!(
                    "{} characters are more than it reads in {MAX_PIECES} pieces of {most}; shorten the text, or let the \
                     model see more at once (max_chars)",
                    shown.chars().count()
                ));
            }
            pieces.push((shown.len() - rest.len(), &rest[..end]));
            let next = rest.char_indices().nth(stride).map_or(end, |(at, _)| at);
            rest = &rest[next..];
        }
    }

    /// The request about a piece; `part` is its number and the number of all where there are several.
    fn prompt(&self, place: ShieldPlace, piece: &str, part: Option<(usize, usize)>) -> String {
        let (speaker, what) = match place {
            ShieldPlace::Input => ("User", "the user says"),
            ShieldPlace::ToolInput => ("Agent", "the agent gives to a tool"),
            ShieldPlace::ToolOutput => ("User", "a tool gave back"),
            ShieldPlace::Output => ("Agent", "the agent answers"),
        };
        let part = part.map_or_else(String::new, |(number, all)| {
            format!(" (part {number} of {all})")
        });
        // Text in the conversation must not end it.
        let shown = piece.replace("<END", "< END").replace("<BEGIN", "< BEGIN");
        let mut prompt = format!(
            "Task: Check if there is unsafe content in '{speaker}' messages in conversations according to our \
             safety policy with the below categories. The last message is what {what}{part}.\n\n\
             <BEGIN UNSAFE CONTENT CATEGORIES>\n"
        );
        for category in &self.categories {
            let _ = writeln!(prompt, "{}: {}", category.code, category.text);
        }
        let _ = write!(
            prompt,
            "<END UNSAFE CONTENT CATEGORIES>\n\n<BEGIN CONVERSATION>\n\n{speaker}: {shown}\n\n<END CONVERSATION>\n\n\
             Provide your safety assessment for ONLY THE LAST {speaker} message in the above conversation:\n\
             - First line must read 'safe' or 'unsafe'.\n\
             - If unsafe, a second line must include a comma-separated list of violated categories."
        );
        prompt
    }

    fn read(&self, reply: &str) -> Result<ShieldVerdict, String> {
        let mut lines = contract::answer(reply).trim().lines().map(str::trim);
        let other = || {
            let reply: String = reply.chars().take(80).collect();
            format!("it said {reply:?}, which is neither safe nor unsafe with categories")
        };
        match (lines.next(), lines.next(), lines.next()) {
            (Some("safe"), None, None) => Ok(ShieldVerdict::Pass),
            (Some("unsafe"), Some(codes), None) => {
                let named = codes.split(',').map(|code| {
                    let known = self.categories.iter();
                    known.clone().find(|known| known.code == code.trim())
                });
                let named = named.collect::<Option<Vec<_>>>().ok_or_else(other)?;
                let named: Vec<String> = named
                    .iter()
                    .map(|category| {
                        let text: String = category.text.chars().take(60).collect();
                        format!("{} {}", category.code, text.trim_end_matches('.'))
                    })
                    .collect();
                Ok(ShieldVerdict::Block {
                    reason: named.join(", "),
                })
            }
            _ => Err(other()),
        }
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
