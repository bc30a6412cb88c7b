//! Hides data from the recipient of a call's result.
//!
//! A run hides data from its model behind placeholders, and knows what each stands for (the machine's vault). A
//! caller outside of a run has no such memory: what is hidden from it is gone.

use crate::calls::ToolCheck;
use serde_json::Value;
use std::fmt::Debug;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolOutput;

/// Takes out of values and texts what a caller must not see.
pub trait CallerPrivacy: Send + Sync + Debug {
    /// Whether there is nothing to hide.
    fn is_off(&self) -> bool;

    fn hide_value(&self, value: Value) -> Value;

    fn hide_text(&self, text: String) -> String;
}

/// The outcome of a call as its caller gets it.
pub(super) fn hidden(
    hiding: &dyn CallerPrivacy,
    outcome: Result<ToolOutput, ToolFailure>,
    check: &ToolCheck,
) -> Result<ToolOutput, ToolFailure> {
    if hiding.is_off() {
        return outcome;
    }
    match outcome {
        Ok(output) => {
            let value = hiding.hide_value(output.value);
            match check.result_fits(&value) {
                Ok(()) => Ok(ToolOutput { value, ..output }),
                Err(_) => Err(ToolFailure::correctable(
                    "shield",
                    "the result holds what is hidden from models here, and without that it does not fit the tool's \
                     output schema; ask for something else",
                )),
            }
        }
        // The message comes from a schema, a shield or the tool, and may quote hidden data.
        Err(failure) => Err(ToolFailure {
            message: hiding.hide_text(failure.message),
            ..failure
        }),
    }
}
