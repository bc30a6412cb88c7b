//! The loop as a state machine: told what happened, it says what to do next. No I/O, no clock, no
//! randomness: the same inputs give the same events and actions (PROTOCOL.md, 7).

use crate::contract::View;
use crate::error::{ErrorClass, RunError};
use crate::event::{EventKind, RunFailure, StopReason, ToolOutcome};
use crate::guard::validate::cut;
use crate::guard::{Gate, Validator};
use crate::model::{ChatRequest, Completion, ModelError};
use crate::protocol::message::Answered;
use crate::protocol::{Call, Exchange, Message, Role, Solution, Tool};
use crate::run::RunRequest;
use crate::toolbox::{ToolCall, ToolFailure, ToolResult, ToolUsage};
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// What happened.
#[derive(Debug)]
pub enum Input {
    Start,
    Replied(Completion),
    ModelFailed(ModelError),
    Called { id: String, result: ToolResult },
    Cancelled,
    TimedOut,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    Ask(Box<ChatRequest>),
    Call(ToolCall),
    /// Nothing more; whatever still runs is to be stopped.
    Finish,
}

/// The events to publish, in order, before the actions are begun.
#[derive(Debug, Default)]
pub struct Effects {
    pub events: Vec<EventKind>,
    pub actions: Vec<Action>,
}

/// The state of one run.
#[derive(Debug)]
pub struct Machine {
    request: RunRequest,
    model: String,
    tools: Vec<Tool>,
    gate: Gate,
    output: Option<Validator>,
    context: Vec<Message>,
    step: u32,
    calls: u32,
    tokens: u64,
    unusable: u32,
    /// The calls of this step, in the model's order.
    open: Vec<Open>,
    /// An output that came together with calls: the run ends when they are done.
    held: Option<Value>,
    finished: bool,
}

#[derive(Debug)]
struct Open {
    call: Call,
    fence: String,
    /// Text for the model and whether it is an error; absent while the call runs.
    answer: Option<(String, bool)>,
}

impl Machine {
    /// # Errors
    /// Schemas that are none, or two tools of one name.
    pub fn new(request: RunRequest, model: String, tools: Vec<Tool>) -> Result<Self, RunError> {
        let gate = Gate::new(&tools)?;
        let output = request
            .output_schema
            .as_ref()
            .map(Validator::new)
            .transpose()
            .map_err(|reason| RunError::OutputSchema { reason })?;
        let context = vec![Message::Text {
            role: Role::User,
            text: request.task.clone(),
        }];
        Ok(Self {
            request,
            model,
            tools,
            gate,
            output,
            context,
            step: 0,
            calls: 0,
            tokens: 0,
            unusable: 0,
            open: Vec::new(),
            held: None,
            finished: false,
        })
    }

    /// Takes one input, `elapsed` after the start of the run. After [`Action::Finish`] nothing more
    /// comes of it.
    pub fn handle(&mut self, input: Input, elapsed: Duration) -> Effects {
        let mut effects = Effects::default();
        if self.finished {
            return effects;
        }
        match input {
            Input::Start => {
                effects.events.push(EventKind::Run {
                    task: self.request.task.clone(),
                    model: self.model.clone(),
                    contract: self.request.settings.contract.name(),
                    tools: self.tools.iter().map(|tool| tool.name.clone()).collect(),
                    host: env!("CARGO_PKG_VERSION"),
                });
                self.ask(&mut effects, elapsed);
            }
            Input::Replied(completion) => self.replied(&completion, &mut effects, elapsed),
            Input::ModelFailed(error) => {
                self.fail(
                    StopReason::Model,
                    error.class(),
                    error.to_string(),
                    &mut effects,
                    elapsed,
                );
            }
            Input::Called { id, result } => self.called(&id, result, &mut effects, elapsed),
            Input::Cancelled => self.finish(
                StopReason::Cancelled,
                Value::Null,
                None,
                &mut effects,
                elapsed,
            ),
            Input::TimedOut => {
                let message = format!(
                    "the run did not finish within {} s",
                    self.request.settings.timeout.as_secs_f32()
                );
                self.fail(
                    StopReason::Timeout,
                    ErrorClass::Retryable,
                    message,
                    &mut effects,
                    elapsed,
                );
            }
        }
        effects
    }

    fn view(&self) -> View<'_> {
        View {
            model: &self.model,
            instructions: &self.request.instructions,
            context: &self.context,
            tools: &self.tools,
            output_schema: self.request.output_schema.as_ref(),
            settings: &self.request.settings,
        }
    }

    /// The next Request, if there may be one.
    fn ask(&mut self, effects: &mut Effects, elapsed: Duration) {
        let settings = &self.request.settings;
        if self.step >= settings.max_steps {
            let message = format!(
                "no output after {} steps (run.max_steps)",
                settings.max_steps
            );
            return self.fail(
                StopReason::MaxSteps,
                ErrorClass::Correctable,
                message,
                effects,
                elapsed,
            );
        }
        if let Some(budget) = settings
            .token_budget
            .filter(|budget| self.tokens >= *budget)
        {
            let message = format!(
                "{} of {budget} tokens were used before there was an output (run.token_budget)",
                self.tokens
            );
            return self.fail(
                StopReason::TokenBudget,
                ErrorClass::Correctable,
                message,
                effects,
                elapsed,
            );
        }
        self.step += 1;
        let request = settings.contract.request(&self.view());
        effects.events.push(EventKind::Request {
            step: self.step,
            body: request.body(),
        });
        effects.actions.push(Action::Ask(Box::new(request)));
    }

    fn replied(&mut self, completion: &Completion, effects: &mut Effects, elapsed: Duration) {
        let usage = completion.usage.as_ref();
        self.tokens += usage.map_or(0, |usage| usage.prompt_tokens + usage.completion_tokens);
        effects.events.push(EventKind::Tokens {
            step: self.step,
            prompt: usage.map(|usage| usage.prompt_tokens),
            completion: usage.map(|usage| usage.completion_tokens),
            total: self.tokens,
            first_token_ms: completion.time_to_first_token.map(millis),
            duration_ms: millis(completion.duration),
        });
        match self
            .request
            .settings
            .contract
            .read(completion, &self.view())
        {
            Ok(solution) => self.solved(solution, completion, effects, elapsed),
            Err(reason) => self.reject(&completion.content, reason, effects, elapsed),
        }
    }

    /// A reply that cannot be used goes back to the model with the reason, a few times.
    fn reject(&mut self, reply: &str, reason: String, effects: &mut Effects, elapsed: Duration) {
        self.unusable += 1;
        if self.unusable >= self.request.settings.max_unusable {
            let message = format!(
                "the model gave {} replies in a row that could not be used, the last because {reason}; it wrote {:?}. \
                 Try the other contract (--contract), a larger --max-tokens, or another model",
                self.unusable,
                cut(reply, 200)
            );
            return self.fail(
                StopReason::Unusable,
                ErrorClass::Correctable,
                message,
                effects,
                elapsed,
            );
        }
        effects.events.push(EventKind::Notice {
            step: self.step,
            message: format!("the reply could not be used, asking again: {reason}"),
        });
        self.context.push(Message::Rejected {
            reply: reply.to_owned(),
            reason,
        });
        self.ask(effects, elapsed);
    }

    fn solved(
        &mut self,
        solution: Solution,
        completion: &Completion,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        if let (Some(output), Some(validator)) = (&solution.output, &self.output)
            && let Err(reason) = validator.check(output)
        {
            let reason = format!("the output does not fit its schema: {reason}");
            return self.reject(&completion.content, reason, effects, elapsed);
        }
        self.unusable = 0;
        if solution.calls.is_empty() {
            return self.finish(
                StopReason::Output,
                solution.output.unwrap_or_default(),
                None,
                effects,
                elapsed,
            );
        }
        self.held = solution.output;
        let max = self.request.settings.max_calls;
        if solution.calls.len() > max {
            effects.events.push(EventKind::Notice {
                step: self.step,
                message: format!(
                    "of {} calls only the first {max} are made (run.max_calls)",
                    solution.calls.len()
                ),
            });
        }
        let calls: Vec<Call> = solution
            .calls
            .into_iter()
            .take(max)
            .enumerate()
            .map(|(index, requested)| Call {
                id: format!("call_{}", self.derive("call", index)),
                tool: requested.tool,
                arguments: requested.arguments,
                reason: requested.reason,
            })
            .collect();
        effects.events.push(EventKind::Plan {
            step: self.step,
            calls: calls.clone(),
        });
        for (index, call) in calls.into_iter().enumerate() {
            let fence = self.derive("fence", index);
            self.calls += 1;
            let refusal = self.gate.refusal(&call);
            self.open.push(Open {
                call: call.clone(),
                fence,
                answer: None,
            });
            if let Some(failure) = refusal {
                self.answered(
                    &call,
                    Err(failure),
                    ToolUsage::default(),
                    Vec::new(),
                    effects,
                );
                continue;
            }
            let timeout = self.request.settings.call_timeout;
            effects.events.push(EventKind::ToolStart {
                step: self.step,
                call: call.clone(),
            });
            effects.actions.push(Action::Call(ToolCall {
                id: call.id,
                tool: call.tool,
                arguments: call.arguments,
                timeout,
            }));
        }
        self.proceed(effects, elapsed);
    }

    fn called(&mut self, id: &str, result: ToolResult, effects: &mut Effects, elapsed: Duration) {
        let Some(call) = self
            .open
            .iter()
            .find(|open| open.call.id == id && open.answer.is_none())
            .map(|open| open.call.clone())
        else {
            return;
        };
        let outcome = result
            .outcome
            .and_then(|output| self.gate.output(&call.tool, output));
        let text = self.answered(&call, outcome, result.usage, result.printed, effects);
        self.gate.ran(&call, &text);
        self.proceed(effects, elapsed);
    }

    /// Takes the answer to an open call and returns the text that the model is given for it.
    fn answered(
        &mut self,
        call: &Call,
        outcome: Result<Value, ToolFailure>,
        usage: ToolUsage,
        printed: Vec<String>,
        effects: &mut Effects,
    ) -> String {
        let max = self.request.settings.result_chars;
        let (text, failed) = match &outcome {
            Ok(output) => (shorten(&output.to_string(), max), false),
            Err(failure) => (shorten(&failure.message, max), true),
        };
        if let Some(open) = self.open.iter_mut().find(|open| open.call.id == call.id) {
            open.answer = Some((text.clone(), failed));
        }
        effects.events.push(EventKind::ToolResult {
            step: self.step,
            id: call.id.clone(),
            tool: call.tool.clone(),
            outcome: match outcome {
                Ok(output) => ToolOutcome::Output(output),
                Err(failure) => ToolOutcome::Error(failure),
            },
            usage,
            printed,
        });
        text
    }

    /// When every call of the step is answered: the next Request, or the end.
    fn proceed(&mut self, effects: &mut Effects, elapsed: Duration) {
        if self.open.iter().any(|open| open.answer.is_none()) {
            return;
        }
        let calls = std::mem::take(&mut self.open)
            .into_iter()
            .filter_map(|open| {
                let (text, failed) = open.answer?;
                Some(Answered {
                    call: open.call,
                    fence: open.fence,
                    text,
                    failed,
                })
            })
            .collect();
        self.context.push(Message::Exchange(Exchange { calls }));
        match self.held.take() {
            Some(output) => self.finish(StopReason::Output, output, None, effects, elapsed),
            None => self.ask(effects, elapsed),
        }
    }

    /// Ends the run without an output.
    fn fail(
        &mut self,
        reason: StopReason,
        class: ErrorClass,
        message: String,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        let failure = RunFailure { class, message };
        self.finish(reason, Value::Null, Some(failure), effects, elapsed);
    }

    fn finish(
        &mut self,
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        self.finished = true;
        effects.events.push(EventKind::Done {
            reason,
            output,
            error,
            steps: self.step,
            calls: self.calls,
            tokens: self.tokens,
            duration_ms: millis(elapsed),
        });
        effects.actions.push(Action::Finish);
    }

    /// Eight hex digits that only this run can know, and that it finds again when it is replayed.
    fn derive(&self, what: &str, index: usize) -> String {
        let name = format!("{what}.{}.{index}", self.step);
        let id = Uuid::new_v5(&self.request.id, name.as_bytes())
            .simple()
            .to_string();
        id[..8].to_owned()
    }
}

/// At most `max` characters, saying what is missing and how to get it.
fn shorten(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max).collect();
    format!(
        "{kept}\n[cut: {max} of {length} characters shown; ask the tool for a smaller part to see the rest]"
    )
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
