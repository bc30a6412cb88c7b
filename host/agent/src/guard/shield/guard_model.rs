//! A model as a shield, prompted and read like Llama Guard.
//!
//! Data that a run hides from its own model is hidden from this one, too. Its reply is read strictly. A reply
//! other than `safe`, or `unsafe` with given categories, after the model's thoughts, is no verdict.

use super::{Screening, Shield, ShieldVerdict};
use crate::contract;
use crate::guard::pii::Vault;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;
use toolhold_model::chat::{ChatMessage, ChatRequest};
use toolhold_model::side::SideObserver;
use toolhold_model::{CompletionObserver, Model};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::shield::ShieldPlace;

/// `unsafe` and all categories.
const MAX_TOKENS: u32 = 100;

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
    /// Maximum characters that it is shown. A longer value cannot be screened.
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
            let prompt = self.prompt(screening)?;
            let request = ChatRequest {
                max_tokens: Some(MAX_TOKENS),
                temperature: Some(0.0),
                ..ChatRequest::new("", vec![ChatMessage::user(prompt)])
            };
            let completion = self
                .model
                .complete(&request, &mut SideObserver(watch))
                .await;
            let completion = completion.map_err(|error| format!("its endpoint failed: {error}"))?;
            self.read(&completion.content)
        })
    }
}

impl GuardModel {
    fn prompt(&self, screening: &Screening) -> Result<String, String> {
        let (speaker, what) = match screening.place {
            ShieldPlace::Input => ("User", "the user says"),
            ShieldPlace::ToolInput => ("Agent", "the agent gives to a tool"),
            ShieldPlace::ToolOutput => ("User", "a tool gave back"),
            ShieldPlace::Output => ("Agent", "the agent answers"),
        };
        let mut vault = Vault::new(self.privacy.clone());
        let mut shown = text_of(&vault.hide_value(&screening.value));
        for (path, value) in &screening.context {
            let _ = write!(shown, "\n{path}: {}", text_of(&vault.hide_value(value)));
        }
        let length = shown.chars().count();
        if length > self.max_chars {
            return Err(format!(
                "{length} characters are more than the {} that it reads",
                self.max_chars
            ));
        }
        // Text in the conversation must not end it.
        let shown = shown.replace("<END", "< END").replace("<BEGIN", "< BEGIN");
        let mut prompt = format!(
            "Task: Check if there is unsafe content in '{speaker}' messages in conversations according to our \
             safety policy with the below categories. The last message is what {what}.\n\n\
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
        Ok(prompt)
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
