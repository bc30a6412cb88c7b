//! Checks of the calls and results of one tool against its description (docs/protocol.md): compiled once, and used for
//! every call of every run that offers the tool.

use super::compiled;
use super::place::PlaceCheck;
use serde_json::Value;
use std::sync::Arc;
use thiserror::Error;
use toolhold_json::coerce::{coerce_but_for, coerce_dates};
use toolhold_json::repair::Repair;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{Annotations, Tool};
use toolhold_schema::{CheckError, SchemaFault, Validator, Violation};

/// Bytes of a compiled schema for each byte of its text, patterns apart.
const COMPILED_BYTES_A_BYTE: u64 = 100;

/// Checks of the arguments and results of one tool. Compiled once, used for every call.
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
    pub(super) reason: SchemaFault,
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
        self.fitting_under(ReadingRules::Current, arguments, &[], repair)
    }

    /// Fits arguments as [`Self::fitting`] does, by these rules, where their references at `open` (JSON pointers) may stand
    /// for any value.
    ///
    /// # Errors
    /// As [`Self::fitting`].
    pub(crate) fn fitting_under(
        &self,
        rules: ReadingRules,
        arguments: Value,
        open: &[&str],
        repair: bool,
    ) -> Result<(Value, Vec<Repair>), ToolFailure> {
        let repaired = self.repaired_under(rules, &arguments, open, repair)?;
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
        self.repaired_under(ReadingRules::Current, arguments, &[], repair)
    }

    fn repaired_under(
        &self,
        rules: ReadingRules,
        arguments: &Value,
        open: &[&str],
        repair: bool,
    ) -> Result<Option<(Value, Vec<Repair>)>, ToolFailure> {
        let fits = self.fits_but_for(arguments, open);
        if fits.is_ok() && !(repair && self.has_dates) {
            return Ok(None);
        }
        let coerced = repair.then(|| match fits {
            Ok(()) => coerce_dates(rules, &self.parameters, arguments, open),
            Err(_) => coerce_but_for(rules, &self.parameters, arguments, open),
        });
        match (coerced.flatten(), fits) {
            (Some(coerced), _) if !coerced.unclear.is_empty() => {
                let misfit = self.fits_but_for(&coerced.arguments, open).err();
                let misfit = misfit.map(|reason| reason.to_string());
                let told = misfit.into_iter().chain(first_of(coerced.unclear));
                let told: Vec<String> = told.collect();
                Err(unfit(CheckError::Misfit(told.join("; "))))
            }
            (Some(coerced), _) if self.fits_but_for(&coerced.arguments, open).is_ok() => {
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

    /// An estimate of the bytes that the compiled schemas of the tool take.
    pub(super) fn compiled_bytes(&self, tool: &Tool) -> u64 {
        let bytes = |validator: &Validator, schema: &Value| {
            let text = u64::try_from(schema.to_string().len()).unwrap_or(u64::MAX);
            text.saturating_mul(COMPILED_BYTES_A_BYTE) + validator.pattern_bytes()
        };
        let output = self.output.as_deref().zip(tool.output.as_ref());
        let output = output.map_or(0, |(validator, schema)| bytes(validator, schema));
        bytes(&self.arguments, &tool.parameters) + output
    }

    /// # Errors
    /// What does not fit the tool's parameters, or that this was not found out.
    pub fn fits(&self, arguments: &Value) -> Result<(), CheckError> {
        self.arguments.check(arguments)
    }

    /// # Errors
    /// What does not fit the tool's parameters, or that this was not found out, in words that a model can act on.
    pub fn arguments(&self, arguments: &Value) -> Result<(), ToolFailure> {
        self.fits(arguments).map_err(unfit)
    }

    /// Returns the faults of arguments. References at `open` (JSON pointers) may stand for any value.
    pub(crate) fn faults(&self, arguments: &Value, open: &[&str]) -> Vec<Violation> {
        let faults = self.arguments.faults(arguments, open);
        faults.unwrap_or_else(|unknown| vec![unknown.into()])
    }

    /// Checks arguments as [`Self::fits`] does, where their references at `open` (JSON pointers) may stand for any value.
    fn fits_but_for(&self, arguments: &Value, open: &[&str]) -> Result<(), CheckError> {
        if open.is_empty() {
            return self.fits(arguments);
        }
        let faults = self.arguments.faults(arguments, open)?;
        match faults.first() {
            None => Ok(()),
            Some(fault) => Err(CheckError::Misfit(fault.to_string())),
        }
    }

    /// Returns what the tool says of itself.
    pub(crate) fn annotations(&self) -> Annotations {
        self.annotations
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
    /// What of a result is not as the tool promised, in words that a model can act on.
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

/// Maximum number of texts with more than one reading in a message to a model: it corrects the first ones, and more only
/// cost tokens.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A reply, or a module that makes a call, may hold as many texts with two readings as it likes, under names of any
    /// length.
    #[test]
    fn an_error_about_many_ambiguous_texts_is_bounded() {
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
