//! Questions of the host to the person at a prompt, from the table of texts for users.

use toolhold_agent::user_text::UserText;
use toolhold_protocol::completion::ReplyCut;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, StopReason};

/// Asks the person back after a turn without a whole answer, in the language of the task. The model of the next turn knows
/// of the question.
#[derive(Debug, Default)]
pub struct UserQuestion {
    language: Option<String>,
    /// True if an answer is the text of a reply, and not a part of its JSON.
    has_text_replies: bool,
    /// Why the text of the last reply is not whole.
    cut: Option<ReplyCut>,
}

impl UserQuestion {
    /// Takes the next event of the turn. Returns the question at its end, if there is one.
    pub fn take(&mut self, event: &EventKind) -> Option<&'static str> {
        match event {
            EventKind::Run { request, .. } => {
                self.language.clone_from(&request.language);
                self.has_text_replies = request.settings.contract == Contract::Tools;
                None
            }
            EventKind::Reply { completion, .. } => {
                self.cut = completion.text_cut();
                None
            }
            EventKind::Done { reason, output, .. } => {
                let text = match *reason {
                    StopReason::Output => {
                        let cut = self.cut.filter(|_| self.has_text_replies);
                        cut.map(UserText::from)
                    }
                    // The person cancelled the turn.
                    StopReason::Cancelled => None,
                    reason => UserText::of(reason).filter(|_| !output.is_string()),
                };
                text.map(|text| text.in_language(self.language.as_deref()))
            }
            _ => None,
        }
    }
}
