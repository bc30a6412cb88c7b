//! One tool with what its calls need of it.

use super::forms::{FORM_BYTES_A_BYTE, ToolForms};
use super::{SchemaError, ToolCheck};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::tool::Tool;

/// A tool, with its schemas compiled. Its other derived values are computed at their first use.
#[derive(Debug)]
pub struct CallableTool {
    pub bound: Bound,
    pub check: Arc<ToolCheck>,
    schema: OnceLock<Arc<Value>>,
    bytes: OnceLock<usize>,
    pub(crate) forms: ToolForms,
}

impl CallableTool {
    /// A tool that a toolbox runs under its own name.
    ///
    /// # Errors
    /// A schema of the tool is no valid JSON Schema.
    pub fn new(tool: Tool) -> Result<Self, SchemaError> {
        Self::of(Bound {
            runner: Runner::Module(tool.name.clone()),
            tool: Arc::new(tool),
        })
    }

    /// A tool with any runner.
    ///
    /// # Errors
    /// A schema of the tool is no valid JSON Schema.
    pub fn of(bound: Bound) -> Result<Self, SchemaError> {
        Ok(Self {
            check: Arc::new(ToolCheck::new(&bound.tool)?),
            bound,
            schema: OnceLock::new(),
            bytes: OnceLock::new(),
            forms: ToolForms::default(),
        })
    }

    /// True for a tool that has not changed. Tools that a toolbox shares are compared by address.
    pub(crate) fn is_of(&self, bound: &Bound) -> bool {
        self.shares(bound) || self.bound == *bound
    }

    /// True if both are the same tool in memory, with the same runner.
    pub(super) fn shares(&self, bound: &Bound) -> bool {
        Arc::ptr_eq(&self.bound.tool, &bound.tool) && self.bound.runner == bound.runner
    }

    /// Returns the tool as its calls carry it ([`Tool::schema`]).
    pub fn schema(&self) -> &Arc<Value> {
        let schema = || Arc::new(self.bound.tool.schema());
        self.schema.get_or_init(schema)
    }

    /// Returns the bytes of its definition, by which it is estimated what it takes of a model's window.
    pub fn bytes(&self) -> usize {
        *self
            .bytes
            .get_or_init(|| definition_bytes(&self.bound.tool))
    }

    /// Returns an estimate of the bytes that it takes in memory.
    pub(super) fn kept_bytes(&self) -> u64 {
        let bytes = u64::try_from(self.bytes()).unwrap_or(u64::MAX);
        let forms = bytes.saturating_mul(FORM_BYTES_A_BYTE);
        forms.saturating_add(self.check.compiled_bytes(&self.bound.tool))
    }
}

/// Returns the bytes of the definition of a tool.
pub(super) fn definition_bytes(tool: &Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
}
