//! How a step's calls end: results are checked, written where they belong, and told (docs/protocol.md, 5
//! and 7).

use super::calls::Background;
use super::{Effects, Machine};
use crate::run::RunUsage;
use serde_json::{Value, json};
use toolhold_protocol::data::{Method, Write};
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::{Path, Source, Target};
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::{Exchange, Turn};

/// Maximum instances that a message names.
const MAX_NAMED_INSTANCES: usize = 20;

/// How a call ended, before the result is passed on.
pub(super) struct Ending {
    pub(super) outcome: Result<ToolOutput, ToolFailure>,
    pub(super) usage: ToolUsage,
    pub(super) printed: Vec<String>,
    pub(super) module: Option<String>,
    /// No tool was called: the call was latent, or refused.
    pub(super) by_host: bool,
}

impl Machine {
    pub(super) fn called(&mut self, id: &str, result: ToolResult, effects: &mut Effects) {
        if let Some(Background { call, .. }) = self.background.remove(id) {
            self.ran(&result);
            let ending = Ending {
                outcome: result.outcome,
                usage: result.usage,
                printed: result.printed,
                module: result.module,
                by_host: false,
            };
            self.tell_background(call, ending, effects);
            self.start_queued(effects);
            if self.ending.is_some() {
                return self.end_if_nothing_runs(effects);
            }
            // The one that had its place may have been the last that the step waited for.
            return self.proceed(effects);
        }
        let Some(index) = self.index_of(id) else {
            return;
        };
        self.ran(&result);
        let ending = Ending {
            outcome: result.outcome,
            usage: result.usage,
            printed: result.printed,
            module: result.module,
            by_host: false,
        };
        self.settle(index, ending, effects);
        self.begin_unblocked(effects);
        self.start_queued(effects);
        self.proceed(effects);
    }

    fn ran(&mut self, result: &ToolResult) {
        self.running = self.running.saturating_sub(1);
        let usage = &result.usage;
        self.spent = self.spent.plus(RunUsage {
            tokens: usage.tokens,
            cost: usage.cost_nano,
            unpriced: usage.unpriced,
            calls: usage.calls,
        });
    }

    fn tell_background(&mut self, call: Call, ending: Ending, effects: &mut Effects) {
        if let Err(failure) = &ending.outcome {
            self.context.write_failure(&call, failure);
        }
        effects.events.push(EventKind::ToolResult {
            step: self.steps,
            id: call.id,
            tool: call.tool,
            outcome: ending.outcome.map(|output| output.value).into(),
            written: Vec::new(),
            usage: ending.usage,
            printed: ending.printed,
            module: ending.module,
            by_host: ending.by_host,
        });
    }

    /// A background call that will not return after a restart.
    pub(super) fn lose_background(
        &mut self,
        id: &str,
        failure: ToolFailure,
        effects: &mut Effects,
    ) {
        if let Some(Background { call, .. }) = self.background.remove(id) {
            self.tell_background(call, Ending::refused(failure), effects);
        }
    }

    /// The end, if there is an output and it only waited for calls in the background.
    pub(super) fn end_if_nothing_runs(&mut self, effects: &mut Effects) {
        if let Some(output) = self.ending.take_if(|_| self.background.is_empty()) {
            self.finish(StopReason::Output, output, None, effects);
        }
    }

    pub(super) fn index_of(&self, id: &str) -> Option<usize> {
        self.step
            .open
            .iter()
            .position(|open| open.call.id == id && open.answer.is_none())
    }

    /// Ends a call: its result is checked, written where it belongs, and told.
    pub(super) fn settle(&mut self, index: usize, ending: Ending, effects: &mut Effects) {
        let Some(open) = self.step.open.get(index) else {
            return;
        };
        let call = open.call.clone();
        let ran = !ending.by_host;
        let checked = ending.outcome.and_then(|output| {
            let value = self.checks.output(&call.tool, output.value)?;
            Ok(ToolOutput { value, ..output })
        });
        let (outcome, written) = self.write(index, checked);
        if let Err(failure) = &outcome {
            self.context.write_failure(&call, failure);
        }
        let max = self.request.settings.result_chars;
        // Whose it is, before any of it is shown.
        let instance = call.instance.as_deref();
        match &outcome {
            Ok(value) => self.vault.note(value, instance),
            Err(failure) => self.vault.note_text(&failure.message, instance),
        }
        let (result, failed) = match &outcome {
            Ok(value) => {
                let text = value.to_string();
                if !self.is_own(&call.tool) && written.is_empty() {
                    self.store(&call.id, &text, text.chars().count() > max);
                }
                (self.shortened(&call.id, &text, max), false)
            }
            Err(failure) => (self.shortened(&call.id, &failure.message, max), true),
        };
        if let (true, Some(open)) = (ran, self.step.open.get(index)) {
            self.checks.ran(&call, &open.arguments, &result);
        }
        let is_latent = self
            .tool(&call.tool)
            .is_some_and(|bound| bound.tool.is_latent());
        let is_thought = is_latent && !failed && written.is_empty();
        let text = match (failed, written.as_slice()) {
            (false, []) if is_thought => "noted".to_owned(),
            (_, []) => result,
            // The data itself is shown with the rest of the context's data.
            (false, paths) => format!("written to {}", list(paths)),
            (true, paths) => format!("{result} (written to {})", list(paths)),
        };
        if let Some(open) = self.step.open.get_mut(index) {
            open.answer = Some((text, failed));
            open.pending = None;
        }
        self.step.schedule.done(index, &written);
        self.count_outcome(&call, &outcome);
        effects.events.push(EventKind::ToolResult {
            step: self.steps,
            id: call.id,
            tool: call.tool,
            outcome: outcome.into(),
            written,
            usage: ending.usage,
            printed: ending.printed,
            module: ending.module,
            by_host: ending.by_host,
        });
    }

    /// Writes a result to its places. A result that cannot be written is a failure of the call, and a
    /// failure may have a place of its own.
    fn write(
        &mut self,
        index: usize,
        outcome: Result<ToolOutput, ToolFailure>,
    ) -> (Result<Value, ToolFailure>, Vec<Path>) {
        let Some(open) = self.step.open.get(index) else {
            return (outcome.map(|output| output.value), Vec::new());
        };
        let picked = match &outcome {
            Ok(output) => pick(open.wiring.target.as_ref(), output.output_path.as_deref()),
            Err(_) => Ok(None),
        };
        let outcome = match (outcome, &picked) {
            (Ok(_), Err(reason)) => Err(ToolFailure::correctable("output_path", reason.clone())),
            (outcome, _) => outcome,
        };
        let target = open.wiring.target.as_ref();
        let places: Vec<Path> = match (picked, target) {
            (Ok(Some(path)), _) => vec![path],
            (_, Some(target)) => chosen(target, outcome.is_ok()),
            (_, None) => Vec::new(),
        };
        let (call, method) = (open.call.clone(), open.wiring.method);
        let of_failure = target.map_or_else(Vec::new, |target| chosen(target, false));
        let outcome = outcome.map(|output| output.value);
        let value = outcome.as_ref().map_or_else(written_of, Value::clone);
        let Err(reason) = self.write_all(&call, method, &places, &value) else {
            return (outcome, places);
        };
        if let Err(failure) = outcome {
            // The failure cannot be written to the data either; the model still reads it.
            return (Err(failure), Vec::new());
        }
        let failure = ToolFailure::correctable(
            "write",
            format!("the result was had but cannot be written: {reason}"),
        );
        match self.write_all(&call, method, &of_failure, &written_of(&failure)) {
            Ok(()) => (Err(failure), of_failure),
            Err(_) => (Err(failure), Vec::new()),
        }
    }

    fn write_all(
        &mut self,
        call: &Call,
        method: Method,
        places: &[Path],
        value: &Value,
    ) -> Result<(), String> {
        let writes = places.iter().map(|path| Write {
            path: path.clone(),
            instance: call.instance.clone(),
            method,
            value: value.clone(),
        });
        let date = self.now_ms();
        self.context
            .write_result(writes.collect(), call, date)
            .map_err(|error| error.to_string())
    }

    /// When the reply is complete and every call of the step is answered, or handed over: the next Request, or
    /// the end.
    pub(super) fn proceed(&mut self, effects: &mut Effects) {
        if !self.step.is_over || self.finished || self.waiting.is_some() {
            return;
        }
        while !self.step.schedule.is_running() {
            let stuck = self.step.schedule.give_up(&self.context.data);
            if stuck.is_empty() {
                break;
            }
            for (index, mut reason) in stuck {
                reason.push_str(self.hint(index));
                let failure = ToolFailure::correctable("blocked", reason);
                self.settle(index, Ending::refused(failure), effects);
            }
            // A failure may have been written to a place of its own that another call reads.
            self.begin_unblocked(effects);
        }
        if self.has_handed_over() {
            let reason = StopReason::ToolCalls;
            return self.finish(reason, Value::Null, None, effects);
        }
        if self.step.open.iter().any(|open| open.answer.is_none()) {
            return;
        }
        let calls: Vec<Answered> = std::mem::take(&mut self.step.open)
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
        if !calls.is_empty() {
            self.finishing = false;
            self.carry(&calls);
            self.remember(Turn::Exchange(Exchange {
                calls: calls.clone(),
            }));
        }
        let notes = std::mem::take(&mut self.step.notes);
        if !notes.is_empty() {
            self.remember(Turn::user(notes.join("\n")));
        }
        if self.forced().is_some() {
            return self.attempted(&calls, effects);
        }
        match self.step.output.take() {
            _ if self.request.plan.is_some() => self.carried_out(effects),
            Some(output) => self.conclude(output, effects),
            None => self.next(effects),
        }
    }

    /// A hint for a call whose reference has no value.
    pub(super) fn hint(&self, index: usize) -> &'static str {
        let open = self.step.open.get(index);
        let global = open.filter(|open| open.call.instance.is_none());
        let mut paths = global
            .into_iter()
            .flat_map(|open| open.wiring.reads.iter().flat_map(Source::paths));
        let is_elsewhere = paths.any(|path| {
            let mut instances = self.context.instances.iter();
            instances.any(|instance| self.context.data.contains(path, Some(instance)))
                && !self.context.data.contains(path, None)
        });
        if is_elsewhere {
            ". Without _instance a call reads and writes only what belongs to all instances; name the one whose data it reads"
        } else {
            ""
        }
    }
}

impl Ending {
    pub(super) fn answered(value: Value) -> Self {
        Self {
            outcome: Ok(value.into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            by_host: true,
        }
    }

    pub(super) fn refused(failure: ToolFailure) -> Self {
        Self {
            outcome: Err(failure),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            by_host: true,
        }
    }
}

fn chosen(target: &Target, succeeded: bool) -> Vec<Path> {
    target.chosen(succeeded).into_iter().cloned().collect()
}

/// The value written for a failure.
fn written_of(failure: &ToolFailure) -> Value {
    json!({"error": failure.kind, "message": failure.message})
}

/// The place that a tool picked, if it did.
fn pick(target: Option<&Target>, picked: Option<&str>) -> Result<Option<Path>, String> {
    let Some(picked) = picked else {
        return Ok(None);
    };
    let path: Path = picked
        .parse()
        .map_err(|error| format!("the tool chose no place: {error}"))?;
    match target {
        // Only the call decides where data goes; what a tool writes elsewhere is ignored.
        None => Ok(None),
        Some(target) if !target.paths().contains(&path) => Err(format!(
            "the tool chose {path}, which is none of the places that the call allows: {}",
            list(target.paths())
        )),
        _ => Ok(Some(path)),
    }
}

/// Names of instances, as many as a message can hold.
pub(super) fn some_of(instances: &[String]) -> String {
    let names: Vec<_> = instances
        .iter()
        .take(MAX_NAMED_INSTANCES)
        .map(String::as_str)
        .collect();
    let more = instances.len().saturating_sub(MAX_NAMED_INSTANCES);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

pub(super) fn list(paths: &[Path]) -> String {
    let texts: Vec<_> = paths.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
