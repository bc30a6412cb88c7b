//! A run that waits for its shields: its input before anything is sent, its output before anybody gets
//! it (docs/protocol.md, 7.10). What they say is an event, so that the run is rebuilt without asking them
//! again.

use super::{Action, Effects, Machine, reply};
use crate::guard::shield::Screening;
use serde_json::{Value, json};
use toolhold_policy::ErrorClass;
use toolhold_protocol::context::{Context, ContextError, Message};
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::turn::Turn;

/// The value that is being screened.
#[derive(Debug)]
pub(super) enum PendingScreening {
    Input,
    Output {
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
    },
}

impl Machine {
    /// Whether the input is screened first.
    pub(super) fn screens_input(&mut self, effects: &mut Effects) -> bool {
        if !self.request.policy.screens.contains(&ShieldPlace::Input) {
            return false;
        }
        self.waiting = Some(PendingScreening::Input);
        self.screen(effects);
        true
    }

    /// Ends the run with an output, once it was screened.
    pub(super) fn deliver(
        &mut self,
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
        effects: &mut Effects,
    ) {
        let output = self.for_user(output);
        if !self.request.policy.screens.contains(&ShieldPlace::Output) {
            return self.finish(reason, output, error, effects);
        }
        self.waiting = Some(PendingScreening::Output {
            reason,
            output,
            error,
        });
        self.screen(effects);
    }

    /// Asks the shields, also again where the process ended before they answered.
    pub(super) fn screen(&self, effects: &mut Effects) {
        let (place, value) = match &self.waiting {
            Some(PendingScreening::Input) => (ShieldPlace::Input, self.said()),
            Some(PendingScreening::Output { output, .. }) => (ShieldPlace::Output, output.clone()),
            None => return,
        };
        effects.actions.push(Action::Screen(Box::new(Screening {
            call: String::new(),
            place,
            tool: None,
            value,
            context: Vec::new(),
        })));
    }

    /// The shields have spoken.
    pub(super) fn screened(&mut self, screened: ScreeningResult, effects: &mut Effects) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let place = match &waiting {
            PendingScreening::Input => ShieldPlace::Input,
            PendingScreening::Output { .. } => ShieldPlace::Output,
        };
        effects.events.push(EventKind::Screened {
            step: self.steps,
            place,
            call: None,
            screened: screened.clone(),
        });
        let (reason, output, error) = match (waiting, screened) {
            (PendingScreening::Input, ScreeningResult::Pass) => return self.begin_work(effects),
            (PendingScreening::Input, ScreeningResult::Redacted { value }) => {
                return match self.replace_said(value) {
                    Ok(()) => self.begin_work(effects),
                    Err(error) => {
                        let message =
                            format!("what the shields left of the input cannot be used: {error}");
                        self.stop(message, effects);
                    }
                };
            }
            (PendingScreening::Input, ScreeningResult::Blocked { shield, reason }) => {
                let message = format!("the shield {shield} blocked the input: {reason}");
                return self.stop(message, effects);
            }
            (
                PendingScreening::Output {
                    output,
                    reason: end,
                    ..
                },
                ScreeningResult::Blocked { shield, reason },
            ) => {
                return self.blocked_output(end, &output, &shield, &reason, effects);
            }
            (
                PendingScreening::Output { reason, error, .. },
                ScreeningResult::Redacted { value },
            ) => {
                let validator = self
                    .output
                    .as_ref()
                    .filter(|_| reason == StopReason::Output);
                if let Some(Err(fault)) = validator.map(|schema| schema.check(&value)) {
                    let message = format!(
                        "what the shields left of the output does not fit its schema: {fault}"
                    );
                    return self.stop(message, effects);
                }
                (reason, value, error)
            }
            (
                PendingScreening::Output {
                    reason,
                    output,
                    error,
                },
                ScreeningResult::Pass,
            ) => (reason, output, error),
        };
        self.finish(reason, output, error, effects);
    }

    /// The model learns of the block once, and may give another output.
    fn blocked_output(
        &mut self,
        end: StopReason,
        output: &Value,
        shield: &str,
        reason: &str,
        effects: &mut Effects,
    ) {
        let is_models = end == StopReason::Output && self.request.plan.is_none();
        if self.was_blocked || !is_models || self.exhausted().is_some() {
            let message = format!("the shield {shield} blocked the output: {reason}");
            return self.stop(message, effects);
        }
        self.was_blocked = true;
        self.history.push(Turn::assistant(reply::text_of(output)));
        self.history.push(Turn::user(format!(
            "Your output was not delivered. A shield ({shield}) blocked it: {reason}. Give another one that it can let \
             pass, or say that you cannot answer."
        )));
        self.ask(effects);
    }

    fn stop(&mut self, message: String, effects: &mut Effects) {
        self.fail(StopReason::Blocked, ErrorClass::Fatal, message, effects);
    }

    /// Whether the output of a stopped run is withheld because no shield screened it.
    pub(super) fn withholds(&self) -> bool {
        self.request.policy.screens.contains(&ShieldPlace::Output)
    }

    /// The contents of the context's messages. What they define, such as tools and schemas, is no
    /// content.
    fn said(&self) -> Value {
        let messages = self.request.context.iter();
        messages
            .filter_map(|message| match message {
                Message::Text(text) => Some(Value::from(text.text.as_str())),
                Message::Data(data) => Some(data.data.clone()),
                Message::Input(input) => Some(input.input.clone()),
                Message::State(state) => state.state.clone(),
                Message::Knowledge(message) => {
                    Some(message.passages.iter().map(|it| json!(it.text)).collect())
                }
                _ => None,
            })
            .collect()
    }

    fn replace_said(&mut self, said: Value) -> Result<(), ContextError> {
        let mut contents = match said {
            Value::Array(contents) => contents.into_iter(),
            _ => Vec::new().into_iter(),
        };
        for message in &mut self.request.context {
            let place = match message {
                Message::Text(text) => {
                    if let Some(Value::String(left)) = contents.next() {
                        text.text = left;
                    }
                    continue;
                }
                Message::Data(data) => &mut data.data,
                Message::Input(input) => &mut input.input,
                Message::State(state) => match &mut state.state {
                    Some(state) => state,
                    None => continue,
                },
                Message::Knowledge(message) => {
                    let texts = contents.next();
                    let texts = texts.as_ref().and_then(Value::as_array);
                    for (passage, left) in
                        message.passages.iter_mut().zip(texts.into_iter().flatten())
                    {
                        left.as_str()
                            .unwrap_or_default()
                            .clone_into(&mut passage.text);
                    }
                    continue;
                }
                _ => continue,
            };
            if let Some(left) = contents.next() {
                *place = left;
            }
        }
        self.context = Context::new(self.request.context.clone())?;
        self.context.check_input()?;
        self.opening = self.opening_turns();
        Ok(())
    }
}
