//! Checks of a call and its result against the tool's description: the tool exists, the arguments fit, the
//! call is no repetition, the result fits (docs/protocol.md).

use crate::calls::place::PlaceCheck;
use crate::calls::{Refusal, Refusals, Repeats, compiled};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;
use toolhold_json::coerce::{coerce, coerce_dates};
use toolhold_json::repair::Repair;
use toolhold_policy::ErrorClass;
use toolhold_protocol::error::RunError;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{Annotations, Tool};
use toolhold_schema::{CheckError, SchemaFault, Validator, Violation};
use toolhold_text::cut;

/// What calls of one tool and their results must satisfy. Compiled once, used for every call.
#[derive(Debug)]
pub struct ToolCheck {
    is_latent: bool,
    parameters: Value,
    /// Whether a parameter is a date or a time: in another notation, it may be valid and still not what the tool expects.
    has_dates: bool,
    arguments: Arc<Validator>,
    output: Option<Arc<Validator>>,
    place: PlaceCheck,
    annotations: Annotations,
}

/// A tool's schema is no valid JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("its {which} schema cannot be used: {reason}")]
pub struct SchemaError {
    which: &'static str,
    reason: SchemaFault,
}

impl ToolCheck {
    /// # Errors
    /// A schema that is none.
    pub fn new(tool: &Tool) -> Result<Self, SchemaError> {
        let compiled = |which, schema| {
            compiled::validator(schema).map_err(|reason| SchemaError { which, reason })
        };
        let output = tool.output.as_ref();
        Ok(Self {
            is_latent: tool.is_latent(),
            parameters: tool.parameters.clone(),
            has_dates: has_dates(&tool.parameters),
            arguments: compiled("input", &tool.parameters)?,
            output: output.map(|own| compiled("output", own)).transpose()?,
            place: PlaceCheck::new(tool).map_err(|reason| SchemaError {
                which: "output path",
                reason,
            })?,
            annotations: tool.annotations,
        })
    }

    /// The arguments as the tool takes them, and what was changed: `repair` puts slightly wrong ones right.
    ///
    /// # Errors
    /// What does not fit the tool's parameters, in words that a model can act on.
    pub fn fitting(
        &self,
        arguments: Value,
        repair: bool,
    ) -> Result<(Value, Vec<Repair>), ToolFailure> {
        let repaired = self.repaired(&arguments, repair)?;
        Ok(repaired.unwrap_or((arguments, Vec::new())))
    }

    /// The repaired arguments and the repairs of [`Self::fitting`]; `None` where the arguments fit as they are.
    ///
    /// # Errors
    /// As [`Self::fitting`].
    pub fn repaired(
        &self,
        arguments: &Value,
        repair: bool,
    ) -> Result<Option<(Value, Vec<Repair>)>, ToolFailure> {
        let fits = self.fits(arguments);
        if fits.is_ok() && !(repair && self.has_dates) {
            return Ok(None);
        }
        let coerced = repair.then(|| match fits {
            Ok(()) => coerce_dates(&self.parameters, arguments),
            Err(_) => coerce(&self.parameters, arguments),
        });
        match (coerced.flatten(), fits) {
            (Some(coerced), _) if !coerced.unclear.is_empty() => {
                let misfit = self.fits(&coerced.arguments).err();
                let misfit = misfit.map(|reason| reason.to_string());
                let told = misfit.into_iter().chain(first_of(coerced.unclear));
                let told: Vec<String> = told.collect();
                Err(unfit(CheckError::Misfit(told.join("; "))))
            }
            (Some(coerced), _) if self.fits(&coerced.arguments).is_ok() => {
                Ok(Some((coerced.arguments, coerced.repairs)))
            }
            (_, Ok(())) => Ok(None),
            (_, Err(reason)) => Err(unfit(reason)),
        }
    }

    /// The [price](Validator::price) of the dearer one of its schemas.
    pub fn price(&self) -> u64 {
        let output = self.output.as_ref().map_or(0, |schema| schema.price());
        self.arguments.price().max(output)
    }

    /// # Errors
    /// What does not fit the tool's parameters, or that this was not found out.
    pub fn fits(&self, arguments: &Value) -> Result<(), CheckError> {
        self.arguments.check(arguments)
    }

    /// # Errors
    /// The same, in words that a model can act on.
    pub fn arguments(&self, arguments: &Value) -> Result<(), ToolFailure> {
        self.fits(arguments).map_err(unfit)
    }

    /// The faults of arguments. References at `open` (JSON pointers) may stand for any value.
    fn faults(&self, arguments: &Value, open: &[&str]) -> Vec<Violation> {
        let faults = self.arguments.faults(arguments, open);
        faults.unwrap_or_else(|unknown| vec![unknown.into()])
    }

    /// # Errors
    /// The call's `_outputPath` is none that the tool's author allows.
    pub fn place(&self, call: &Call) -> Result<(), ToolFailure> {
        self.place.check(call)
    }

    /// # Errors
    /// What of a result is not as the tool promised.
    pub fn result_fits(&self, result: &Value) -> Result<(), CheckError> {
        let promised = self.output.as_ref();
        promised.map_or(Ok(()), |schema| schema.check(result))
    }

    /// # Errors
    /// The same, in words that a model can act on.
    pub fn result(&self, result: &Value) -> Result<(), ToolFailure> {
        let Err(reason) = self.result_fits(result) else {
            return Ok(());
        };
        if let CheckError::TooCostly(unknown) = reason {
            return Err(ToolFailure::correctable(
                "check_cost",
                format!("the result was not used: {unknown}"),
            ));
        }
        let message = if self.is_latent {
            format!(
                "\"_output\" does not fit its schema: {reason}; make the call again with one that does"
            )
        } else {
            format!("the tool returned something that does not fit its own output schema: {reason}")
        };
        Err(ToolFailure::correctable("output_schema", message))
    }
}

/// Maximum texts with more than one reading of which a model is told: it corrects the first ones, and more only cost
/// tokens.
const MAX_UNCLEAR: usize = 3;

fn first_of(mut unclear: Vec<String>) -> Vec<String> {
    if unclear.len() > MAX_UNCLEAR {
        unclear.truncate(MAX_UNCLEAR);
        unclear.push("and more".into());
    }
    unclear
}

/// Whether a schema has a part with the format of a date or a time. Most tools have none, and their arguments are
/// looked at once.
fn has_dates(schema: &Value) -> bool {
    let text = schema.to_string();
    [r#""format":"date"#, r#""format":"time""#]
        .iter()
        .any(|format| text.contains(format))
}

/// Arguments that do not fit, or of which this was not found out.
fn unfit(reason: CheckError) -> ToolFailure {
    match reason {
        CheckError::Misfit(reason) => ToolFailure::correctable(
            "arguments",
            format!("the arguments do not fit the tool's parameters: {reason}"),
        ),
        CheckError::TooCostly(unknown) => ToolFailure::correctable(
            "check_cost",
            format!("the arguments were not used: {unknown}"),
        ),
    }
}

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
    /// In the tools' order, for messages.
    names: Vec<String>,
    tools: HashMap<String, Arc<ToolCheck>>,
    repeats: Repeats,
    refusals: Refusals,
}

impl CallChecks {
    /// # Errors
    /// A schema that is none, or two tools of one name.
    pub fn new(tools: &[Arc<Tool>]) -> Result<Self, RunError> {
        let mut checks = HashMap::new();
        for tool in tools {
            let own = ToolCheck::new(tool).map_err(|error| RunError::ToolSchema {
                tool: tool.name.clone(),
                reason: error.reason,
            })?;
            if checks.insert(tool.name.clone(), Arc::new(own)).is_some() {
                return Err(RunError::DuplicateTool {
                    name: tool.name.clone(),
                });
            }
        }
        Ok(Self {
            names: tools.iter().map(|tool| tool.name.clone()).collect(),
            tools: checks,
            repeats: Repeats::default(),
            refusals: Refusals::default(),
        })
    }

    /// The [price](ToolCheck::price) of the dearest tool.
    pub fn price(&self) -> u64 {
        let prices = self.tools.values().map(|check| check.price());
        prices.max().unwrap_or_default()
    }

    /// Of one tool, if there is such a tool.
    pub fn of(&self, tool: &str) -> Option<&Arc<ToolCheck>> {
        self.tools.get(tool)
    }

    /// # Errors
    /// There is no tool of this name, in words that say what there is.
    pub fn known(&self, tool: &str) -> Result<(), ToolFailure> {
        if self.tools.contains_key(tool) {
            return Ok(());
        }
        Err(unknown(tool, self.names.iter().map(String::as_str)))
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
            Some(check) => check.fitting(arguments, repair),
            None => Ok((arguments, Vec::new())),
        }
    }

    /// Judges a call of a known tool; `arguments` are its own, with references replaced by what they
    /// stand for.
    ///
    /// # Errors
    /// Which rule it breaks, in words that the model can act on.
    pub fn check(&self, call: &Call, arguments: &Value) -> Result<(), ToolFailure> {
        if let Some(check) = self.of(&call.tool) {
            check.arguments(arguments)?;
        }
        self.not_repeated(call, arguments)
    }

    /// # Errors
    /// The call was made too often with the same result.
    pub fn not_repeated(&self, call: &Call, arguments: &Value) -> Result<(), ToolFailure> {
        match self.repeats.intercept(call, arguments) {
            None => Ok(()),
            Some(earlier) => Err(ToolFailure::correctable(
                "repeated",
                format!(
                    "this very call was not made again; it gave the same result each time before: {earlier}. \
                     Use that result, or do something else"
                ),
            )),
        }
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

    /// Judges a call that the model answers itself: what its references at `open` (JSON pointers) stand
    /// for need not be known.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_latent(
        &self,
        tool: &str,
        arguments: &Value,
        open: &[&str],
    ) -> Result<(), ToolFailure> {
        let faults = self.of(tool).map_or(Ok(Vec::new()), |check| {
            check.arguments.faults(arguments, open)
        });
        let error = match faults {
            Ok(faults) => match faults.first() {
                None => return Ok(()),
                Some(fault) => CheckError::Misfit(fault.to_string()),
            },
            Err(unknown) => unknown.into(),
        };
        Err(unfit(error))
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
        let may_work_later =
            failure.class == ErrorClass::Retryable || failure.kind == "interrupted";
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

    /// A call of the tool ended that is not told as others are: what it changed, calls that read may see.
    pub fn may_have_changed(&mut self, tool: &str) {
        if !self
            .of(tool)
            .is_some_and(|check| check.annotations.read_only)
        {
            self.repeats.forget_reads();
        }
    }

    /// Remembers the text that the model is given for a call that ran.
    pub fn ran(&mut self, call: &Call, arguments: &Value, text: &str) {
        let annotations = self.of(&call.tool).map(|check| check.annotations);
        let annotations = annotations.unwrap_or_default();
        self.repeats.record(call, arguments, text, annotations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A reply, or a module that makes a call, may hold as many texts with two readings as it likes, under names of any
    /// length.
    #[test]
    fn what_is_told_of_many_ambiguous_texts_is_bounded() {
        let tool = Tool {
            parameters: json!({
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "number"}},
            }),
            ..Tool::new("t")
        };
        let check = ToolCheck::new(&tool).unwrap();
        let name = "n".repeat(100_000);
        let given = json!({name: vec!["1,000"; 40]});
        let message = check.fitting(given, true).unwrap_err().message;
        assert!(message.len() < 4_000, "{} bytes", message.len());
        assert!(message.ends_with("; and more"), "{message}");
        assert_eq!(message.matches("can be read as").count(), MAX_UNCLEAR);
    }
}
