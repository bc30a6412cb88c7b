//! A run that waits for its shields: its input before anything is sent, its output before anybody gets
//! it (docs/protocol.md, 7.10). What they say is an event, so that the run is rebuilt without asking them
//! again.

use super::hand_over::is_hand_over;
use super::message_parts::{
    content, replace_beside, replace_content, with_dialects, without_content, without_dialects,
};
use super::{Action, Effects, Machine, context_of, reply};
use crate::calls::screen::blocked;
use crate::calls::validator;
use crate::guard::shield::Screening;
use crate::language::told_instructions;
use serde_json::{Map, Value};
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::turn::Turn;

/// The value that is being screened.
#[derive(Debug)]
pub(super) enum PendingScreening {
    /// The result in the context's message of this index, which is of the type `tool_result`.
    ToolResult {
        index: usize,
        /// Whether a result before it is another one than the request has.
        is_changed: bool,
    },
    Input {
        is_changed: bool,
    },
    Output {
        reason: StopReason,
        output: Value,
        error: Option<Box<RunFailure>>,
    },
}

impl Machine {
    /// Whether something of the input is screened first.
    pub(super) fn screens_input(&mut self, effects: &mut Effects) -> bool {
        self.screens_from(0, false, effects)
    }

    /// Whether something is screened before the work begins: results in the context's messages from `index` on, then the
    /// input as a whole.
    fn screens_from(&mut self, index: usize, is_changed: bool, effects: &mut Effects) -> bool {
        let policy = &self.request.policy;
        let screened = policy.gates.as_ref().map(|gates| &gates.tool_results);
        let is_screened = |message: &Message| match message {
            Message::ToolResult(result) => screened.is_some_and(|it| it.contains(&result.tool)),
            _ => false,
        };
        let mut rest = self.request.context.iter().skip(index);
        self.waiting = match rest.position(is_screened) {
            Some(at) => Some(PendingScreening::ToolResult {
                index: index + at,
                is_changed,
            }),
            None if policy.screens.contains(&ShieldPlace::Input) => {
                Some(PendingScreening::Input { is_changed })
            }
            None => None,
        };
        self.screen(effects);
        self.waiting.is_some()
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
            error: error.map(Box::new),
        });
        self.screen(effects);
    }

    /// Asks the shields, also again where the process ended before they answered.
    pub(super) fn screen(&self, effects: &mut Effects) {
        let (place, tool, value) = match &self.waiting {
            Some(PendingScreening::ToolResult { index, .. }) => {
                match self.request.context.get(*index) {
                    Some(Message::ToolResult(result)) => (
                        ShieldPlace::ToolOutput,
                        Some(result.tool.clone()),
                        result.result.clone(),
                    ),
                    _ => return,
                }
            }
            Some(PendingScreening::Input { .. }) => (ShieldPlace::Input, None, self.said()),
            Some(PendingScreening::Output { output, .. }) => {
                (ShieldPlace::Output, None, output.clone())
            }
            None => return,
        };
        effects.actions.push(Action::Screen(Box::new(Screening {
            call: String::new(),
            depth: 0,
            place,
            tool,
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
            PendingScreening::ToolResult { .. } => ShieldPlace::ToolOutput,
            PendingScreening::Input { .. } => ShieldPlace::Input,
            PendingScreening::Output { .. } => ShieldPlace::Output,
        };
        effects.events.push(EventKind::Screened {
            step: self.steps,
            place,
            call: None,
            screened: screened.clone(),
        });
        let (reason, output, error) = match (waiting, screened) {
            (PendingScreening::ToolResult { index, is_changed }, screened) => {
                let is_changed = is_changed || !matches!(screened, ScreeningResult::Pass);
                self.replace_tool_result(index, screened);
                // A shield may have asked a model.
                if let Some((reason, message)) = self.usage.overdrawn() {
                    return self.fail(reason, ErrorClass::Correctable, message, effects);
                }
                if !self.screens_from(index + 1, is_changed, effects) {
                    self.begin_with(is_changed, effects);
                }
                return;
            }
            (PendingScreening::Input { is_changed }, ScreeningResult::Pass) => {
                return self.begin_with(is_changed, effects);
            }
            (PendingScreening::Input { .. }, ScreeningResult::Redacted { value }) => {
                return match self.replace_said(value) {
                    Ok(()) => self.begin_with(true, effects),
                    Err(reason) => self.stop_for_rest(&reason, effects),
                };
            }
            (PendingScreening::Input { .. }, ScreeningResult::Blocked { shield, reason }) => {
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
                if reason == StopReason::ToolCalls && !is_hand_over(&value) {
                    let message = "nothing is left of the calls of the client's tools".to_owned();
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
        self.finish(reason, output, error.map(|error| *error), effects);
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
        let mut text = PromptText::from("Your output was not delivered. A shield (");
        text.line(shield)
            .words(") blocked it: ")
            .line(reason)
            .words(". Give another one that it can let pass, or say that you cannot answer.");
        self.history.push(Turn::user(text));
        self.ask(effects);
    }

    /// `reason`: why what the shields left of the input cannot be used.
    fn stop_for_rest(&mut self, reason: &str, effects: &mut Effects) {
        let message = format!("what the shields left of the input cannot be used: {reason}");
        self.stop(message, effects);
    }

    fn stop(&mut self, message: String, effects: &mut Effects) {
        self.fail(StopReason::Blocked, ErrorClass::Fatal, message, effects);
    }

    /// Whether the output of a stopped run is withheld because no shield screened it.
    pub(super) fn withholds(&self) -> bool {
        self.request.policy.screens.contains(&ShieldPlace::Output)
    }

    /// The work begins. Where messages of the context `is_changed`, what a shield took is nowhere any more.
    fn begin_with(&mut self, is_changed: bool, effects: &mut Effects) {
        if is_changed {
            match context_of(&self.request) {
                Ok(context) => {
                    self.context = context;
                    self.opening = self.opening_turns();
                }
                Err(error) => return self.stop_for_rest(&error.to_string(), effects),
            }
        }
        self.begin_work(effects);
    }

    fn replace_tool_result(&mut self, index: usize, screened: ScreeningResult) {
        let Some(Message::ToolResult(result)) = self.request.context.get_mut(index) else {
            return;
        };
        match screened {
            ScreeningResult::Pass => {}
            ScreeningResult::Redacted { value } => result.result = value,
            ScreeningResult::Blocked { shield, reason } => {
                result.failed = true;
                result.result = blocked(&shield, "the result of this call", &reason)
                    .message
                    .into();
            }
        }
    }

    /// All of the input that reaches a model: the contents of the context's messages, in their order, and behind them in
    /// one object what else they hold (descriptions, schemas, names, tools, plans), the instructions and the output
    /// schema, if they are not the operator's.
    fn said(&self) -> Value {
        let mut said: Vec<Value> = self.request.context.iter().filter_map(content).collect();
        said.extend(self.beside_contents());
        said.into()
    }

    /// Absent where nothing is beside the contents.
    fn beside_contents(&self) -> Option<Value> {
        let gates = self.request.policy.gates.as_ref()?;
        let mut beside = Map::new();
        if gates.instructions {
            let instructions = self.request.instructions.as_str();
            beside.insert(INSTRUCTIONS.into(), instructions.into());
        }
        if let (true, Some(schema)) = (gates.output_schema, &self.request.output_schema) {
            let mut schema = schema.clone();
            without_dialects(&mut schema);
            beside.insert(OUTPUT_SCHEMA.into(), schema);
        }
        // It stands in the instructions.
        let tag = self.request.language.as_ref();
        if let Some(tag) = tag.filter(|tag| tag.len() > MAX_PLAIN_TAG) {
            beside.insert(LANGUAGE.into(), tag.as_str().into());
        }
        for (index, message) in self.request.context.iter().enumerate() {
            let fields = without_content(message);
            if !fields.is_empty() {
                beside.insert(index.to_string(), fields.into());
            }
        }
        (!beside.is_empty()).then(|| beside.into())
    }

    /// Puts what the shields left of [`Self::said`] into its places. A mark in the place of more than a text is no input
    /// any more.
    ///
    /// # Errors
    /// It does not fit its place.
    fn replace_said(&mut self, said: Value) -> Result<(), String> {
        let beside = self.beside_contents();
        let Value::Array(said) = said else {
            return Err("nothing of it is left".into());
        };
        let mut said = said.into_iter();
        for (index, message) in self.request.context.iter_mut().enumerate() {
            if content(message).is_none() {
                continue;
            }
            let left = said.next().ok_or_else(|| missing(index))?;
            replace_content(message, left).ok_or_else(|| missing(index))?;
        }
        match (said.next(), beside) {
            (None, None) => {}
            (Some(left), Some(beside)) if left == beside => {}
            (Some(Value::Object(left)), Some(_)) => self.replace_beside_contents(left)?,
            _ => return Err("nothing is left of what is beside the contents".into()),
        }
        Ok(())
    }

    fn replace_beside_contents(&mut self, left: Map<String, Value>) -> Result<(), String> {
        for (name, value) in left {
            match (name.as_str(), value) {
                (INSTRUCTIONS, Value::String(left)) => self.request.instructions = left,
                (LANGUAGE, Value::String(left)) => self.request.language = Some(left),
                (OUTPUT_SCHEMA, mut schema) => {
                    let before = self.request.output_schema.as_ref();
                    with_dialects(before.unwrap_or(&Value::Null), &mut schema);
                    let checked = validator(&schema);
                    let checked =
                        checked.map_err(|reason| format!("the output schema: {reason}"))?;
                    self.output = Some(checked);
                    self.request.output_schema = Some(schema);
                }
                (index, Value::Object(fields)) => {
                    let at: Option<usize> = index.parse().ok();
                    let message = at.and_then(|at| self.request.context.get_mut(at));
                    let message = message.ok_or("it has other members than before")?;
                    let replaced = replace_beside(message, fields);
                    replaced.map_err(|reason| format!("message {index}: {reason}"))?;
                }
                (name, _) => return Err(format!("nothing is left of {name}")),
            }
        }
        self.instructions = told_instructions(&self.request).into_owned();
        Ok(())
    }
}

fn missing(index: usize) -> String {
    format!("nothing is left of message {index}")
}

/// Members of the object behind the contents. Others are indexes of messages.
const INSTRUCTIONS: &str = "instructions";
const OUTPUT_SCHEMA: &str = "output_schema";
const LANGUAGE: &str = "language";

/// Bytes of a tag of a language that is one: a longer one may be words.
const MAX_PLAIN_TAG: usize = 10;
