//! A run that waits for its shields: its input before anything is sent, its output before anybody gets
//! it (docs/protocol.md, 7.10). What they say is an event, so that the run is rebuilt without asking them
//! again.

use super::{Action, Effects, Machine, context_of, reply};
use crate::calls::screen::blocked;
use crate::calls::validator;
use crate::guard::shield::Screening;
use crate::language::told_instructions;
use serde_json::{Map, Value, json};
use toolhold_policy::ErrorClass;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::turn::Turn;

/// The value that is being screened.
#[derive(Debug)]
pub(super) enum PendingScreening {
    /// The result in the context's message of this index, which is of the type `tool_result`.
    ToolResult(usize),
    Input,
    Output {
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
    },
}

impl Machine {
    /// Whether something of the input is screened first.
    pub(super) fn screens_input(&mut self, effects: &mut Effects) -> bool {
        self.screens_from(0, effects)
    }

    /// Whether something is screened before the work begins: results in the context's messages from `index` on, then the
    /// input as a whole.
    fn screens_from(&mut self, index: usize, effects: &mut Effects) -> bool {
        let policy = &self.request.policy;
        let screened = policy.gates.as_ref().map(|gates| &gates.tool_results);
        let is_screened = |message: &Message| match message {
            Message::ToolResult(result) => screened.is_some_and(|it| it.contains(&result.tool)),
            _ => false,
        };
        let mut rest = self.request.context.iter().skip(index);
        self.waiting = match rest.position(is_screened) {
            Some(at) => Some(PendingScreening::ToolResult(index + at)),
            None if policy.screens.contains(&ShieldPlace::Input) => Some(PendingScreening::Input),
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
            error,
        });
        self.screen(effects);
    }

    /// Asks the shields, also again where the process ended before they answered.
    pub(super) fn screen(&self, effects: &mut Effects) {
        let (place, tool, value) = match &self.waiting {
            Some(PendingScreening::ToolResult(index)) => match self.request.context.get(*index) {
                Some(Message::ToolResult(result)) => (
                    ShieldPlace::ToolOutput,
                    Some(result.tool.clone()),
                    result.result.clone(),
                ),
                _ => return,
            },
            Some(PendingScreening::Input) => (ShieldPlace::Input, None, self.said()),
            Some(PendingScreening::Output { output, .. }) => {
                (ShieldPlace::Output, None, output.clone())
            }
            None => return,
        };
        effects.actions.push(Action::Screen(Box::new(Screening {
            call: String::new(),
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
            PendingScreening::ToolResult(_) => ShieldPlace::ToolOutput,
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
            (PendingScreening::ToolResult(index), screened) => {
                if let Err(reason) = self.replace_tool_result(index, screened) {
                    return self.stop_for_rest(&reason, effects);
                }
                if !self.screens_from(index + 1, effects) {
                    self.begin_work(effects);
                }
                return;
            }
            (PendingScreening::Input, ScreeningResult::Pass) => return self.begin_work(effects),
            (PendingScreening::Input, ScreeningResult::Redacted { value }) => {
                return match self.replace_said(value) {
                    Ok(()) => self.begin_work(effects),
                    Err(reason) => self.stop_for_rest(&reason, effects),
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

    /// The context's messages are others than before: what a shield took is in none of them.
    fn renew_context(&mut self) -> Result<(), String> {
        self.context = context_of(&self.request).map_err(|error| error.to_string())?;
        self.opening = self.opening_turns();
        Ok(())
    }

    fn replace_tool_result(
        &mut self,
        index: usize,
        screened: ScreeningResult,
    ) -> Result<(), String> {
        let Some(Message::ToolResult(result)) = self.request.context.get_mut(index) else {
            return Ok(());
        };
        match screened {
            ScreeningResult::Pass => return Ok(()),
            ScreeningResult::Redacted { value } => result.result = value,
            ScreeningResult::Blocked { shield, reason } => {
                result.failed = true;
                result.result = blocked(&shield, "the result of this call", &reason)
                    .message
                    .into();
            }
        }
        self.renew_context()
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
            beside.insert(OUTPUT_SCHEMA.into(), schema.clone());
        }
        for (index, message) in self.request.context.iter().enumerate() {
            let fields = without_content(message);
            if !fields.is_empty() {
                beside.insert(index.to_string(), fields.into());
            }
        }
        (!beside.is_empty()).then(|| beside.into())
    }

    /// Puts what the shields left of [`Self::said`] into its places.
    ///
    /// # Errors
    /// It does not fit its place.
    fn replace_said(&mut self, said: Value) -> Result<(), String> {
        let beside = self.beside_contents();
        let mut contents = match said {
            Value::Array(contents) => contents.into_iter(),
            _ => Vec::new().into_iter(),
        };
        for message in &mut self.request.context {
            replace_content(message, &mut contents);
        }
        if let Some(Value::Object(left)) = contents.next()
            && beside != Some(Value::Object(left.clone()))
        {
            self.replace_beside_contents(left)?;
        }
        self.renew_context()
    }

    fn replace_beside_contents(&mut self, mut left: Map<String, Value>) -> Result<(), String> {
        if let Some(Value::String(instructions)) = left.shift_remove(INSTRUCTIONS) {
            self.request.instructions = instructions;
            self.instructions = told_instructions(&self.request).into_owned();
        }
        if let Some(schema) = left.shift_remove(OUTPUT_SCHEMA) {
            let checked =
                validator(&schema).map_err(|reason| format!("the output schema: {reason}"))?;
            self.output = Some(checked);
            self.request.output_schema = Some(schema);
        }
        for (index, fields) in left {
            let message = index.parse().ok();
            let message = message.and_then(|index: usize| self.request.context.get_mut(index));
            if let (Some(message), Value::Object(fields)) = (message, fields) {
                replace_beside(message, fields)
                    .map_err(|reason| format!("message {index}: {reason}"))?;
            }
        }
        Ok(())
    }
}

/// Members of the object behind the contents. Others are indexes of messages.
const INSTRUCTIONS: &str = "instructions";
const OUTPUT_SCHEMA: &str = "output_schema";

/// The content of a message, which shields see first.
fn content(message: &Message) -> Option<Value> {
    match message {
        Message::Text(text) => Some(Value::from(text.text.as_str())),
        Message::Data(data) => Some(data.data.clone()),
        Message::Input(input) => Some(input.input.clone()),
        Message::State(state) => state.state.clone(),
        Message::Knowledge(message) => {
            Some(message.passages.iter().map(|it| json!(it.text)).collect())
        }
        Message::ToolResult(message) => Some(message.result.clone()),
        Message::Image(_)
        | Message::Tool(_)
        | Message::Plan(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => None,
    }
}

fn replace_content(message: &mut Message, contents: &mut impl Iterator<Item = Value>) {
    if content(message).is_none() {
        return;
    }
    let Some(left) = contents.next() else {
        return;
    };
    match message {
        Message::Text(text) => {
            if let Value::String(left) = left {
                text.text = left;
            }
        }
        Message::Data(data) => data.data = left,
        Message::Input(input) => input.input = left,
        Message::State(state) => state.state = Some(left),
        Message::Knowledge(message) => {
            let texts = left.as_array().into_iter().flatten();
            for (passage, left) in message.passages.iter_mut().zip(texts) {
                left.as_str()
                    .unwrap_or_default()
                    .clone_into(&mut passage.text);
            }
        }
        Message::ToolResult(message) => message.result = left,
        Message::Image(_)
        | Message::Tool(_)
        | Message::Plan(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => {}
    }
}

/// The fields of a message but for its content, for the bytes of an image, and for words of the protocol.
fn without_content(message: &Message) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(message) else {
        return Map::new();
    };
    let own: &[&str] = match message {
        Message::Text(_) => &["text", "role"],
        Message::Image(_) => &["data", "media_type", "digest", "bytes"],
        Message::Data(_) => &["data"],
        Message::Input(_) => &["input"],
        Message::State(_) => &["state"],
        Message::ToolResult(_) => &["result", "failed"],
        Message::Plan(_) => &["mode"],
        Message::Knowledge(_)
        | Message::Tool(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Error(_)
        | Message::Type(_) => &[],
    };
    fields
        .retain(|name, value| name != "type" && !own.contains(&name.as_str()) && !value.is_null());
    if let Some(Value::Array(passages)) = fields.get_mut("passages") {
        for passage in passages.iter_mut().filter_map(Value::as_object_mut) {
            passage.shift_remove("text");
        }
    }
    fields
}

/// # Errors
/// What the shields left is no such message, or it is of a part from which nothing can be taken.
fn replace_beside(message: &mut Message, left: Map<String, Value>) -> Result<(), String> {
    if without_content(message) == left {
        return Ok(());
    }
    // What runs and checks calls was made of these before.
    match message {
        Message::Tool(_) => return Err("something is missing in the definition of a tool".into()),
        Message::Plan(_) => return Err("something is missing in the plan".into()),
        _ => {}
    }
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&*message) else {
        return Ok(());
    };
    for (name, value) in left {
        match fields.get_mut(&name) {
            Some(Value::Array(passages)) if name == "passages" => {
                let left = value.as_array().into_iter().flatten();
                for (passage, left) in passages.iter_mut().zip(left) {
                    if let (Value::Object(passage), Value::Object(left)) = (passage, left) {
                        passage.extend(left.clone());
                    }
                }
            }
            _ => {
                fields.insert(name, value);
            }
        }
    }
    *message = serde_json::from_value(fields.into()).map_err(|error| error.to_string())?;
    Ok(())
}
