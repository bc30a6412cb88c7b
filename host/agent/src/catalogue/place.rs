//! Whether a call's result may go where the call says (docs/protocol.md, 3.1 and 5.5).

use super::compiled;
use serde_json::json;
use std::sync::Arc;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::{Path, Target};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{OutputPath, Tool};
use toolhold_schema::{CheckError, SchemaFault, Validator};

/// What a tool's author demands of its calls' `_outputPath`.
#[derive(Debug)]
pub(super) enum PlaceCheck {
    /// Nothing: the place is free, or the author's own.
    Any,
    OneOf {
        offered: Vec<Target>,
        is_latent: bool,
    },
    Matching(Arc<Validator>),
}

impl PlaceCheck {
    /// # Errors
    /// A schema that is none.
    pub fn new(tool: &Tool) -> Result<Self, SchemaFault> {
        Ok(match &tool.output_path {
            None | Some(OutputPath::Fixed(_)) => Self::Any,
            Some(OutputPath::OneOf(offered)) => Self::OneOf {
                offered: offered.clone(),
                is_latent: tool.is_latent(),
            },
            Some(path @ OutputPath::Matching(_)) => {
                Self::Matching(compiled::validator(&path.schema())?)
            }
        })
    }

    /// An `_outputPath` that is no output expression is another fault, and not judged here.
    ///
    /// # Errors
    /// What the author demands, in words that a model can act on.
    pub fn check(&self, call: &Call) -> Result<(), ToolFailure> {
        let written = call.output_path.as_deref().filter(|text| !text.is_empty());
        let target = match written.map(str::parse::<Target>) {
            Some(Err(_)) => return Ok(()),
            Some(Ok(target)) => Some(target),
            None => None,
        };
        match (self, target) {
            (Self::Any, _) | (Self::Matching(_), None) => Ok(()),
            (Self::OneOf { offered, .. }, Some(target)) if offered.contains(&target) => Ok(()),
            // It has no result yet, and chooses with it.
            (Self::OneOf { offered, is_latent }, target)
                if *is_latent && call.output.is_none() && are_offered(offered, target.as_ref()) =>
            {
                Ok(())
            }
            (Self::OneOf { offered, .. }, target) => {
                let offered: Vec<String> = offered.iter().map(ToString::to_string).collect();
                let found = target.map_or_else(
                    || "\"_outputPath\" is missing".to_owned(),
                    |target| format!("\"_outputPath\" is {target}"),
                );
                Err(refusal(format!(
                    "{found}; write the one of these that the result is for: {}",
                    offered.join(", ")
                )))
            }
            (Self::Matching(schema), Some(target)) => {
                let whole = target.to_string();
                let places = target.paths().iter().map(ToString::to_string);
                for text in std::iter::once(whole).chain(places) {
                    schema.check(&json!(text)).map_err(|error| match error {
                        CheckError::Misfit(reason) => {
                            refusal(format!("\"_outputPath\" {text} is not allowed: {reason}"))
                        }
                        CheckError::TooCostly(unknown) => {
                            refusal(format!("\"_outputPath\" was not used: {unknown}"))
                        }
                    })?;
                }
                Ok(())
            }
        }
    }
}

fn are_offered(offered: &[Target], target: Option<&Target>) -> bool {
    let is_offered = |path: &Path| offered.iter().any(|one| one.paths().contains(path));
    target.is_none_or(|target| target.paths().iter().all(is_offered))
}

fn refusal(message: String) -> ToolFailure {
    ToolFailure::correctable("output_path", message)
}
