//! Errors of the loop. [`RunError`] ends a run; everything a tool does wrong is a message to the
//! model instead.

use crate::context::ContextError;
use crate::tool::ToolError;
use std::time::Duration;
use thiserror::Error;
use toolhold_schema::SchemaFault;

/// Why a run could not be started or recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    #[error("the schema of tool {tool:?} cannot be used: {reason}")]
    ToolSchema { tool: String, reason: SchemaFault },
    #[error("the output schema cannot be used: {reason}")]
    OutputSchema { reason: SchemaFault },
    #[error("two tools are named {name:?}; rename one of the modules")]
    DuplicateTool { name: String },
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// `_module` or `_activity` names nothing that is registered.
    #[error("the tool {tool:?} cannot be run: {reason}")]
    Binding { tool: String, reason: String },
    /// A saved plan that cannot be run, or a carried one that is none (docs/protocol.md, 8).
    #[error("the plan cannot be run: {reason}")]
    Plan { reason: String },
    #[error("the run's journal cannot be written, so the run was stopped: {source}")]
    Journal {
        #[source]
        source: std::io::Error,
    },
    /// The run was to end, and its journal did not answer.
    #[error(
        "the run was cancelled or past its deadline, and its journal did not answer for {} s; it stands where its record \
         ends: when the database answers again, resume it or cancel it there",
        .waited.as_secs()
    )]
    JournalSilent { waited: Duration },
    /// The run was to end, and nothing read its events. Its record has all of them, its end too.
    #[error(
        "the run ended, and its last events were not read within {} s; read them from its record",
        .waited.as_secs()
    )]
    Unread { waited: Duration },
}
