//! What the caller and the tool of a call may see of each other's data.
//!
//! Data is hidden on its way to a party and revealed on its way back, so that what lies between them, which is
//! shields, people and records, sees it as it is. The order is the same for every call: what the caller wrote is
//! revealed, and hidden from the tool, before the arguments are checked and screened; what the tool returned is
//! revealed before the result is screened, and hidden from the caller after that.
//!
//! A run's machine does this for the calls of its model, with the [vault](crate::guard::pii::Vault) of the run.
//! [`CalledTool`] does it for a tool that such a call runs, and for those that it calls. A caller outside of a run has
//! no memory of placeholders: what is hidden from it is gone.

use crate::calls::{CallableTool, checked};
use crate::guard::pii::{GivenPlaceholders, Vault};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_policy::pii::Kind;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::result::ToolOutput;

/// What one party of calls may see: the caller of some, or a tool that is called.
pub trait PartyPrivacy: Send + Sync + Debug {
    /// Whether there is nothing to hide.
    fn is_off(&self) -> bool;

    /// A value as the party is shown it.
    fn hide_value(&self, value: Value) -> Value;

    fn hide_text(&self, text: String) -> String;

    /// A value that the party wrote, as it means it.
    fn reveal_value(&self, value: Value) -> Value {
        value
    }

    fn reveal_text(&self, text: String) -> String {
        text
    }

    /// What a tool that the party calls may see. Absent: everything.
    fn of_tool(&self, _: &Bound) -> Option<Arc<dyn PartyPrivacy>> {
        None
    }
}

/// A tool that a run lets see some kinds of data, and the placeholders that it is given for the others.
#[derive(Debug)]
pub struct CalledTool {
    hidden: BTreeSet<Kind>,
    /// What it was given, and may give back.
    given: Mutex<GivenPlaceholders>,
    /// Of the call of the run, and of all calls that it makes.
    vault: Arc<Mutex<Vault>>,
}

impl CalledTool {
    /// The tool of a run's call, which was `given` these placeholders. Absent where nothing is hidden from anything.
    pub fn new(privacy: &Privacy, tool: &Bound, given: &GivenPlaceholders) -> Option<Self> {
        if privacy.is_off() {
            return None;
        }
        let mut vault = Vault::new(privacy.clone());
        vault.learn_masked(given);
        Some(Self {
            hidden: privacy.hidden_from(tool),
            given: Mutex::new(given.clone()),
            vault: Arc::new(Mutex::new(vault)),
        })
    }

    fn given(&self) -> MutexGuard<'_, GivenPlaceholders> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vault(&self) -> MutexGuard<'_, Vault> {
        self.vault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartyPrivacy for CalledTool {
    fn is_off(&self) -> bool {
        self.hidden.is_empty()
    }

    fn hide_value(&self, value: Value) -> Value {
        if self.is_off() {
            return value;
        }
        let mut vault = self.vault();
        let masked = vault.mask(&value, None, &|kind| self.hidden.contains(&kind));
        self.given().extend(vault.masked([&masked]));
        masked
    }

    fn hide_text(&self, text: String) -> String {
        match self.hide_value(Value::String(text)) {
            Value::String(masked) => masked,
            // A text is masked by a text.
            other => other.to_string(),
        }
    }

    fn reveal_value(&self, value: Value) -> Value {
        self.given().reveal_value(&value)
    }

    fn reveal_text(&self, text: String) -> String {
        self.given().reveal(&text)
    }

    fn of_tool(&self, tool: &Bound) -> Option<Arc<dyn PartyPrivacy>> {
        let hidden = self.vault().privacy().hidden_from(tool);
        Some(Arc::new(Self {
            hidden,
            given: Mutex::default(),
            vault: self.vault.clone(),
        }))
    }
}

/// The outcome of a call as its tool means it.
pub fn revealed(
    tool: &dyn PartyPrivacy,
    outcome: Result<ToolOutput, ToolFailure>,
) -> Result<ToolOutput, ToolFailure> {
    match outcome {
        Ok(output) => Ok(ToolOutput {
            value: tool.reveal_value(output.value),
            ..output
        }),
        Err(failure) => Err(ToolFailure {
            message: tool.reveal_text(failure.message),
            ..failure
        }),
    }
}

/// The outcome of a call as its caller gets it.
pub(super) async fn hidden(
    caller: &dyn PartyPrivacy,
    outcome: Result<ToolOutput, ToolFailure>,
    tool: &CallableTool,
) -> Result<ToolOutput, ToolFailure> {
    if caller.is_off() {
        return outcome;
    }
    match outcome {
        Ok(output) => {
            let value = caller.hide_value(output.value);
            let check = tool.check.clone();
            let fits = move |value: &Value| check.result_fits(value);
            match checked(tool.bound.called(), &value, fits).await {
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
            message: caller.hide_text(failure.message),
            ..failure
        }),
    }
}
