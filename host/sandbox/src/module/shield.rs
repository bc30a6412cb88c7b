//! Modules that are shields: they screen values instead of offering tools.
//!
//! A shield is loaded, pinned, limited and run as any module is. It gets what is screened and the
//! operator's settings, and gives back a verdict that its caller has still to check.

use super::world::{parsed, scoped, scoped_bytes};
use crate::bindings::shield::ShieldPre;
use crate::bindings::shield::shields::{self, Place as GuestPlace, Verdict as Guest};
use crate::call::{CallState, GuestCall, shallow};
use serde_json::{Value, json};
use std::time::Duration;
use toolhold_json::bounded;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::{CallError, ErrorClass};
use toolhold_policy::{CallReport, Output};
use wasmtime::Store;

/// Maximum characters of a reason.
const MAX_REASON_CHARS: usize = 1_000;

/// Where a shield stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreeningPlace {
    Input,
    ToolInput,
    ToolOutput,
    Output,
}

/// What a shield is shown.
#[derive(Debug, Clone)]
pub struct Screening<'a> {
    pub place: ScreeningPlace,
    pub tool: Option<&'a str>,
    pub value: &'a Value,
    /// What a call is shown of the context: path and value.
    pub context: &'a [(String, Value)],
    /// An object.
    pub settings: &'a Value,
    /// A deadline tighter than the module's own.
    pub timeout: Option<Duration>,
    /// How many calls wait for the verdict, and hold their places meanwhile.
    pub depth: u8,
}

/// What a shield says.
#[derive(Debug, Clone, PartialEq)]
pub enum ScreeningVerdict {
    Pass,
    Redact { value: Value, reason: String },
    Block { reason: String },
}

impl Screening<'_> {
    /// Bytes of what the guest is given.
    fn weight(&self) -> u64 {
        [self.value, self.settings]
            .into_iter()
            .map(bounded::text_bytes)
            .sum::<u64>()
            + scoped_bytes(self.context)
    }

    fn for_guest(&self) -> shields::Screening {
        shields::Screening {
            place: match self.place {
                ScreeningPlace::Input => GuestPlace::Input,
                ScreeningPlace::ToolInput => GuestPlace::ToolInput,
                ScreeningPlace::ToolOutput => GuestPlace::ToolOutput,
                ScreeningPlace::Output => GuestPlace::Output,
            },
            tool: self.tool.map(str::to_owned),
            value: self.value.to_string(),
            context: scoped(self.context),
            settings: self.settings.to_string(),
        }
    }
}

/// `screen` of a shield.
pub(super) struct Screen<'a> {
    pub pre: &'a ShieldPre<CallState>,
    pub screening: &'a Screening<'a>,
}

impl GuestCall for Screen<'_> {
    type Return = Result<Guest, String>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        // Made only now that the call has its place, and counted.
        let _kept = store.data().gauge.keep_arguments(self.screening.weight())?;
        let screening = self.screening.for_guest();
        let instance = self.pre.instantiate_async(&mut *store).await?;
        instance
            .toolhold_module_shields()
            .call_screen(store, &screening)
            .await
    }
}

/// A verdict as a call's output, within the limits of outputs.
pub(crate) fn output(
    returned: Result<Guest, String>,
    limits: &Limits,
) -> Result<Output, CallError> {
    let said = match returned {
        Ok(Guest::Pass) => json!({"pass": true}),
        Ok(Guest::Block(reason)) => json!({"block": text::visible(&reason, MAX_REASON_CHARS)}),
        Ok(Guest::Redact(redaction)) => {
            if redaction.value.len() as u64 > limits.output_bytes {
                return Err(CallError::Output {
                    limit: limits.output_bytes,
                });
            }
            let value = parsed(&redaction.value)?;
            shallow(&value, limits.json_depth).map_err(|reason| CallError::Encoding { reason })?;
            json!({"redact": value, "reason": text::visible(&redaction.reason, MAX_REASON_CHARS)})
        }
        Err(reason) => {
            return Err(CallError::Tool {
                class: ErrorClass::Fatal,
                message: text::visible(&reason, MAX_REASON_CHARS),
                data: None,
            });
        }
    };
    Ok(Output::Value(said))
}

/// The verdict in the report of a screening.
pub(crate) fn verdict(report: CallReport) -> Result<ScreeningVerdict, CallError> {
    let (Output::Value(mut said) | Output::Message(mut said)) = report.result?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(reason) = said.get("block") {
        return Ok(ScreeningVerdict::Block {
            reason: text(reason),
        });
    }
    match said.get_mut("redact").map(Value::take) {
        Some(value) => Ok(ScreeningVerdict::Redact {
            value,
            reason: said.get("reason").map(text).unwrap_or_default(),
        }),
        None => Ok(ScreeningVerdict::Pass),
    }
}
