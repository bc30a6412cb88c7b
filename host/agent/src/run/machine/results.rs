//! How a step's calls end: results are checked, written where they belong, and told (docs/protocol.md, 5
//! and 7).

use super::council::HELD;
use super::fallback::MAX_ERROR_CHARS;
use super::running_calls::Background;
use super::{Effects, Machine};
use serde_json::{Value, json};
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor::CONSULT_ADVISOR;
use toolhold_protocol::blob;
use toolhold_protocol::data::{Method, Write};
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::failure::{INTERRUPTED, ToolFailure};
use toolhold_protocol::image::MAX_IMAGES;
use toolhold_protocol::reference::{Path, Source, Target};
use toolhold_protocol::result::{Cached, ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{Exchange, Turn};
use toolhold_text::cut;

/// Maximum instances that a message names.
const MAX_NAMED_INSTANCES: usize = 20;

/// The kind of failure of a call whose result cannot be written where the model wants it.
pub(super) const WRITE: &str = "write";

/// What the model is told besides the reason, where it made a refused call once more.
const REFUSED_BEFORE: &str =
    "The same call was refused before, for the same reason: change it or do something else.";

/// How a call ended, before the result is passed on.
pub(super) struct SettledResult {
    pub(super) outcome: Result<ToolOutput, ToolFailure>,
    pub(super) usage: ToolUsage,
    pub(super) printed: Vec<String>,
    pub(super) module: Option<String>,
    /// No tool was called: the call was latent, or refused.
    pub(super) by_host: bool,
    /// The earlier call whose result this is.
    pub(super) cached: Option<Cached>,
}

impl Machine {
    pub(super) fn called(&mut self, id: &str, result: ToolResult, effects: &mut Effects) {
        if let Some(Background { call, .. }) = self.running.take(id) {
            self.ran(&result);
            self.tell_background(call, result.into(), effects);
            self.start_queued(effects);
            if self.ending.is_some() {
                return self.end_if_nothing_runs(effects);
            }
            // The one that had its place may have been the last that the step waited for.
            return self.proceed(effects);
        }
        let Some(index) = self.step.calls.index_of(id) else {
            return;
        };
        self.ran(&result);
        self.settle(index, result.into(), effects);
        self.begin_unblocked(effects);
        self.start_queued(effects);
        self.proceed(effects);
    }

    fn ran(&mut self, result: &ToolResult) {
        self.running.end();
        self.usage.called(&result.usage);
    }

    fn tell_background(&mut self, call: Call, ending: SettledResult, effects: &mut Effects) {
        let calls_change = self.calls_change(&call.id);
        if ending.ran() || self.may_have_run(&ending) {
            self.tools.checks.may_have_changed(&call.tool, calls_change);
        }
        match &ending.outcome {
            Ok(_) => self.tools.checks.was_useful(&call),
            Err(failure) => self.context.write_failure(&call, failure),
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
            cached: ending.cached,
        });
    }

    /// True if the process of the call ended while it ran, under rules that ask for it.
    fn may_have_run(&self, ending: &SettledResult) -> bool {
        !ending.by_host && !ending.ran() && self.rules.are_from_5()
    }

    /// True if a call that the ended call `id` made may have changed something, under rules that ask for it.
    fn calls_change(&mut self, id: &str) -> bool {
        self.running.take_changes(id) && self.rules.are_from_5()
    }

    /// A background call that will not return after a restart.
    pub(super) fn lose_background(&mut self, id: &str, effects: &mut Effects) {
        if let Some(Background { call, .. }) = self.running.take(id) {
            self.tell_background(call, SettledResult::interrupted(), effects);
        }
    }

    /// The end, if there is an output and it only waited for calls in the background.
    pub(super) fn end_if_nothing_runs(&mut self, effects: &mut Effects) {
        if let Some(output) = self.ending.take_if(|_| !self.running.has_background()) {
            self.finish(StopReason::Output, output, None, effects);
        }
    }

    /// Ends a call: its result is checked, written where it belongs, and told.
    pub(super) fn settle(&mut self, index: usize, ending: SettledResult, effects: &mut Effects) {
        let Some(own) = self.step.calls.get(index) else {
            return;
        };
        let call = own.call.clone();
        let ran = ending.ran();
        let may_have_run = self.may_have_run(&ending);
        let checked = ending.outcome.and_then(|output| {
            let value = self.tools.checks.output(&call.tool, output.value)?;
            Ok(ToolOutput { value, ..output })
        });
        let (outcome, written) = self.write(index, checked);
        match &outcome {
            Err(failure) if failure.kind == HELD => self.step.held.push(call.id.clone()),
            Err(failure) => self.context.write_failure(&call, failure),
            Ok(_) => {}
        }
        if let Ok(value) = &outcome {
            let images = blob::images(value, &call.tool);
            self.step.images.extend(images.take(MAX_IMAGES));
        }
        let max = self.request.settings.result_chars;
        // Whose it is, before any of it is shown.
        let instance = call.instance.as_deref();
        match &outcome {
            Ok(value) => self.privacy.note(value, instance),
            Err(failure) => self.privacy.note_text(&failure.message, instance),
        }
        let (result, failed) = match &outcome {
            Ok(value) => {
                let text = value.to_string();
                if !self.tools.is_own(&call.tool) && written.is_empty() {
                    self.store(&call.id, &text, text.chars().count() > max);
                }
                (self.shortened(&call.id, &text, max), false)
            }
            Err(failure) => (self.shortened(&call.id, &failure.message, max), true),
        };
        let (calls_change, at) = (self.calls_change(&call.id), self.moment());
        if let (true, Some(own)) = (ran, self.step.calls.get(index)) {
            let checks = &mut self.tools.checks;
            checks.ran(&call, &own.arguments, &result, calls_change, at);
        }
        if may_have_run {
            self.tools.checks.may_have_changed(&call.tool, calls_change);
        }
        let is_again = match &outcome {
            // What is held may be made again.
            Err(failure) if !ran && !self.is_aside() && failure.kind != HELD => {
                let privacy = &self.privacy;
                let shortened =
                    |message: &str| cut(message, privacy.clear(message, MAX_ERROR_CHARS));
                self.tools
                    .checks
                    .refuse(&call, failure, self.steps, shortened)
            }
            Ok(_) if ran || !written.is_empty() => {
                self.tools.checks.was_useful(&call);
                false
            }
            _ => false,
        };
        let is_latent = self
            .tools
            .find(&call.tool)
            .is_some_and(|bound| bound.tool.is_latent());
        let is_thought = is_latent && !failed && written.is_empty();
        let text = match (failed, written.as_slice()) {
            (false, []) if is_thought => "noted".to_owned(),
            (_, []) if is_again => format!("{result}\n{REFUSED_BEFORE}"),
            (_, []) => result,
            // The data itself is shown with the rest of the context's data.
            (false, paths) => format!("written to {}", list(paths)),
            (true, paths) => format!("{result} (written to {})", list(paths)),
        };
        self.step.calls.answer(index, text, failed, &written);
        self.count_outcome(&call, &outcome, ran);
        if let (CONSULT_ADVISOR, Ok(answer)) = (call.tool.as_str(), &outcome) {
            self.note_consulted(index, answer);
        }
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
            cached: ending.cached,
        });
    }

    fn shortened(&mut self, id: &str, text: &str, max: usize) -> String {
        self.history.shortened(id, text, max, &mut self.privacy)
    }

    /// Writes a result to its places. A result that cannot be written is a failure of the call, and a
    /// failure may have a place of its own.
    fn write(
        &mut self,
        index: usize,
        outcome: Result<ToolOutput, ToolFailure>,
    ) -> (Result<Value, ToolFailure>, Vec<Path>) {
        let Some(own) = self.step.calls.get(index) else {
            return (outcome.map(|output| output.value), Vec::new());
        };
        let picked = match &outcome {
            Ok(output) => match (own.wiring.target.as_ref(), output.output_path.as_deref()) {
                (Some(target), Some(picked)) => pick(target, picked).map(Some),
                (None, Some(picked)) => match self.append(&own.call, picked) {
                    // The tool gave its message a name and asked for no place: the result stands.
                    Err(_) if output.is_named => Ok(None),
                    appended => appended,
                },
                (_, None) => Ok(None),
            },
            Err(_) => Ok(None),
        };
        let outcome = match (outcome, &picked) {
            (Ok(_), Err(reason)) => Err(ToolFailure::correctable("output_path", reason.clone())),
            (outcome, _) => outcome,
        };
        // A call that is held is not over: nothing goes on with its failure.
        let is_held = matches!(&outcome, Err(failure) if failure.kind == HELD);
        let target = own.wiring.target.as_ref().filter(|_| !is_held);
        let places: Vec<Path> = match (picked, target) {
            (Ok(Some(path)), _) => vec![path],
            (_, Some(target)) => chosen(target, outcome.is_ok()),
            (_, None) => Vec::new(),
        };
        if places.is_empty() {
            // Most results: neither call nor value is copied.
            return (outcome.map(|output| output.value), places);
        }
        let (call, method) = (own.call.clone(), own.wiring.method);
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
            WRITE,
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
        loop {
            if self.step.calls.let_pass(&self.context.data) {
                self.begin_unblocked(effects);
                continue;
            }
            let stuck = self.step.calls.give_up(&self.context.data);
            if stuck.is_empty() {
                break;
            }
            for (index, mut reason) in stuck {
                reason.push_str(self.hint(index));
                let failure = ToolFailure::correctable("blocked", reason);
                self.settle(index, SettledResult::refused(failure), effects);
            }
            // A failure may have been written to a place of its own that another call reads.
            self.begin_unblocked(effects);
        }
        if self.step.calls.has_handed_over() && !self.running.has_background() {
            return self.hand_over(effects);
        }
        if !self.step.calls.are_answered() {
            return;
        }
        let calls = self.step.calls.take_answered();
        if !calls.is_empty() {
            self.finishing = false;
            self.carry(&calls);
            let mut reasoning = std::mem::take(&mut self.step.reasoning);
            reasoning.fit(calls.len().saturating_add(self.step.ignored));
            self.remember(Turn::Exchange(Exchange {
                calls: calls.clone(),
                reasoning,
            }));
        }
        for image in std::mem::take(&mut self.step.images) {
            self.remember(Turn::ResultImage(image));
        }
        self.remember_notes();
        if self.is_aside() {
            return self.attempted(&calls, effects);
        }
        match self.step.output.take() {
            _ if self.request.plan.is_some() => self.carried_out(effects),
            Some(output) => self.conclude(output, effects),
            None => match self.insists(&calls) {
                Some(message) => {
                    let class = ErrorClass::Correctable;
                    self.fail(StopReason::Unusable, class, message, effects);
                }
                None => self.next(effects),
            },
        }
    }

    /// Notes besides the calls' results are the model's to read from here on.
    pub(super) fn remember_notes(&mut self) {
        let notes = std::mem::take(&mut self.step.notes);
        if !notes.is_empty() {
            self.remember(Turn::user(PromptText::joined(&notes, "\n")));
        }
    }

    /// A hint for a call whose reference has no value.
    pub(super) fn hint(&self, index: usize) -> &'static str {
        let own = self.step.calls.get(index);
        let global = own.filter(|own| own.call.instance.is_none());
        let mut paths = global
            .into_iter()
            .flat_map(|own| own.wiring.reads.iter().flat_map(Source::paths));
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

impl SettledResult {
    pub(super) fn answered(value: Value) -> Self {
        Self {
            outcome: Ok(value.into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
            by_host: true,
        }
    }

    pub(super) fn refused(failure: ToolFailure) -> Self {
        Self {
            outcome: Err(failure),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
            by_host: true,
        }
    }

    /// The process ended while the call ran. Its tool was called, and nothing more is known of it.
    pub(super) fn interrupted() -> Self {
        let message = "the host was interrupted while this call ran; it is not known whether it took effect. Find out \
                       before you make it again";
        Self {
            by_host: false,
            ..Self::refused(ToolFailure::correctable(INTERRUPTED, message))
        }
    }

    /// True if the tool was called, and the call came to its end.
    fn ran(&self) -> bool {
        let is_interrupted = matches!(&self.outcome, Err(failure) if failure.kind == INTERRUPTED);
        !self.by_host && !is_interrupted
    }
}

impl From<ToolResult> for SettledResult {
    fn from(result: ToolResult) -> Self {
        Self {
            outcome: result.outcome,
            usage: result.usage,
            printed: result.printed,
            module: result.module,
            by_host: false,
            cached: result.cached,
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

/// The place that a tool picked, of those that the call allows.
fn pick(target: &Target, picked: &str) -> Result<Path, String> {
    let path = place(picked)?;
    if target.paths().contains(&path) {
        return Ok(path);
    }
    Err(format!(
        "the tool chose {path}, which is none of the places that the call allows: {}",
        list(target.paths())
    ))
}

/// The place that a tool names.
pub(super) fn place(picked: &str) -> Result<Path, String> {
    let place = picked.parse();
    place.map_err(|error| format!("the tool chose no place: {error}"))
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
