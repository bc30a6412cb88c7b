//! Checks of a call and its result against the tool's description: the tool exists, the arguments fit, the
//! call is no repetition, the result fits (docs/protocol.md).

use crate::calls::repeats::MAX_IDENTICAL_CALLS;
use crate::calls::{CallMoment, Refusal, Refusals, Repeats};
use crate::catalogue::{ToolCatalogue, ToolCheck};
use serde_json::Value;
use std::sync::Arc;
use toolhold_json::repair::Repair;
use toolhold_json::rules::ReadingRules;
use toolhold_policy::ErrorClass;
use toolhold_protocol::failure::{INTERRUPTED, ToolFailure};
use toolhold_protocol::solution::Call;
use toolhold_schema::Violation;
use toolhold_text::cut;

/// The failure for an unknown tool; lists the known ones.
pub(super) fn unknown<'a>(tool: &str, known: impl Iterator<Item = &'a str>) -> ToolFailure {
    let known: Vec<&str> = known.collect();
    let available = match known.as_slice() {
        [] => "there are no tools".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let tool = cut(tool, 64);
    ToolFailure::correctable(
        "unknown_tool",
        format!("there is no tool named {tool:?}; {available}"),
    )
}

/// The checks of one run's calls.
#[derive(Debug)]
pub struct CallChecks {
    catalogue: Arc<ToolCatalogue>,
    /// The rules by which arguments are repaired.
    rules: ReadingRules,
    repeats: Repeats,
    refusals: Refusals,
}

impl CallChecks {
    /// The checks of calls of these tools. Arguments are repaired by these rules.
    pub fn under(rules: ReadingRules, catalogue: Arc<ToolCatalogue>) -> Self {
        Self {
            catalogue,
            rules,
            repeats: Repeats::under(rules),
            refusals: Refusals::default(),
        }
    }

    /// Of one tool, if there is such a tool.
    pub fn of(&self, tool: &str) -> Option<&Arc<ToolCheck>> {
        self.catalogue.find(tool).map(|own| &own.check)
    }

    /// # Errors
    /// There is no tool of this name, in words that say what there is.
    pub fn known(&self, tool: &str) -> Result<(), ToolFailure> {
        if self.catalogue.find(tool).is_some() {
            return Ok(());
        }
        let offered = self.catalogue.offered().iter();
        Err(unknown(tool, offered.map(|own| own.name.as_str())))
    }

    /// As [`ToolCheck::fitting`].
    ///
    /// # Errors
    /// As [`ToolCheck::fitting`].
    pub fn fitting(
        &self,
        tool: &str,
        arguments: Value,
        repair: bool,
    ) -> Result<(Value, Vec<Repair>), ToolFailure> {
        match self.of(tool) {
            Some(check) => check.fitting_under(self.rules, arguments, &[], repair),
            None => Ok((arguments, Vec::new())),
        }
    }

    /// Judges a call of a known tool; `arguments` are its own, with references replaced by what they
    /// stand for.
    ///
    /// # Errors
    /// Which rule it breaks, in words that the model can act on.
    pub fn check(&self, call: &Call, arguments: &Value, at: CallMoment) -> Result<(), ToolFailure> {
        if let Some(check) = self.of(&call.tool) {
            check.arguments(arguments)?;
        }
        self.not_repeated(call, arguments, at)
    }

    /// # Errors
    /// The call was made too often with the same result.
    pub fn not_repeated(
        &self,
        call: &Call,
        arguments: &Value,
        at: CallMoment,
    ) -> Result<(), ToolFailure> {
        let Some(repetition) = self.repeats.intercept(call, arguments, at) else {
            return Ok(());
        };
        let earlier = repetition.earlier;
        let message = if !self.rules.are_from_5() {
            format!(
                "this very call was not made again; it gave the same result each time before: {earlier}. \
                 Use that result, or do something else"
            )
        } else if repetition.reads_only {
            format!(
                "this very call was not made again: it was made {MAX_IDENTICAL_CALLS} times, and this run has made no \
                 call since that may have changed something. Do something else. When it was made last, the result was: \
                 {earlier}"
            )
        } else {
            format!(
                "this very call was not made again now: it was made {MAX_IDENTICAL_CALLS} times, and its result was the \
                 same each time. If you wait for something, make it once more in the next reply; otherwise do something \
                 else. When it was made last, the result was: {earlier}"
            )
        };
        Err(ToolFailure::correctable("repeated", message))
    }

    /// Judges a call that is about to begin, as [`Self::not_repeated`], and counts that it was held back.
    ///
    /// # Errors
    /// As [`Self::not_repeated`].
    pub fn may_begin(
        &mut self,
        call: &Call,
        arguments: &Value,
        at: CallMoment,
    ) -> Result<(), ToolFailure> {
        let judged = self.not_repeated(call, arguments, at);
        if judged.is_err() {
            self.repeats.held_back(call, arguments, at);
        }
        judged
    }

    /// As [`ToolCheck::place`].
    ///
    /// # Errors
    /// As [`ToolCheck::place`].
    pub fn place(&self, call: &Call) -> Result<(), ToolFailure> {
        self.of(&call.tool)
            .map_or(Ok(()), |check| check.place(call))
    }

    /// The faults of a planned call's arguments. References at `open` (JSON pointers) may stand for
    /// any value.
    pub fn faults(&self, tool: &str, arguments: &Value, open: &[&str]) -> Vec<Violation> {
        let check = self.of(tool);
        check.map_or_else(Vec::new, |check| check.faults(arguments, open))
    }

    /// Fits the arguments of a call that the model answers itself: the values of its references at `open` (JSON pointers)
    /// need not be known.
    ///
    /// # Errors
    /// As [`Self::fitting`].
    pub fn fitting_latent(
        &self,
        call: &Call,
        open: &[String],
        repair: bool,
    ) -> Result<(Value, Vec<Repair>), ToolFailure> {
        let Some(check) = self.of(&call.tool) else {
            return Ok((call.arguments.clone(), Vec::new()));
        };
        let open: Vec<&str> = open.iter().map(String::as_str).collect();
        check.fitting_under(self.rules, call.arguments.clone(), &open, repair)
    }

    /// The output of `tool`, if it is what the tool promised.
    ///
    /// # Errors
    /// As [`ToolCheck::result`].
    pub fn output(&self, tool: &str, output: Value) -> Result<Value, ToolFailure> {
        if let Some(check) = self.of(tool) {
            check.result(&output)?;
        }
        Ok(output)
    }

    /// Remembers a call that was refused, and tells whether it was refused before for the same reason; `shortened` cuts
    /// that for the run's life. What may work later, and what was interrupted, is no reason to do something else.
    pub fn refuse(
        &mut self,
        call: &Call,
        failure: &ToolFailure,
        step: u32,
        shortened: impl FnOnce(&str) -> String,
    ) -> bool {
        let may_work_later = failure.class == ErrorClass::Retryable || failure.kind == INTERRUPTED;
        !may_work_later
            && self
                .refusals
                .record(call, shortened(&failure.message), step)
    }

    /// A call was of use: a tool made it without an error, or it wrote data. What was refused is counted anew from here
    /// on, and this call is not one of those.
    pub fn was_useful(&mut self, call: &Call) {
        self.refusals.was_useful(call);
    }

    /// How often a call was refused, if it was.
    pub fn refused(&self, call: &Call) -> Option<&Refusal> {
        self.refusals.of(call)
    }

    /// Forgets the refused calls: another model has shown how it is done.
    pub fn forgive(&mut self) {
        self.refusals = Refusals::default();
    }

    /// A call of the tool began or ended in the background, or its end is not known: what it changed, other calls may see.
    /// `calls_change`: a call that it made may have changed something.
    pub fn may_have_changed(&mut self, tool: &str, calls_change: bool) {
        if calls_change || !self.only_reads(tool) {
            self.repeats.forget();
        }
    }

    /// True if the run has a tool of this name, and it says that it only reads.
    pub fn only_reads(&self, tool: &str) -> bool {
        self.of(tool)
            .is_some_and(|check| check.annotations().read_only)
    }

    /// Remembers the text that the model is given for a call that ran. `calls_change`: a call that it made may have changed
    /// something.
    pub fn ran(
        &mut self,
        call: &Call,
        arguments: &Value,
        text: &str,
        calls_change: bool,
        at: CallMoment,
    ) {
        let annotations = self.of(&call.tool).map(|check| check.annotations());
        let annotations = annotations.unwrap_or_default();
        self.repeats
            .record(call, arguments, text, annotations, calls_change, at);
    }
}
