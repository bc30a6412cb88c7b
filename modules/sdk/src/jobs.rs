//! Calls that continue as jobs: work that takes longer than a call may.
//!
//! A tool returns [`Started::Job`] with an id, and its instance ends. The host asks `state` about that id in later instances,
//! until it is [`JobState::Done`] or [`JobState::Failed`]. Nothing of an instance is there for the next one, so a job is known
//! by what stands in a granted directory or at a service that was granted.
//!
//! ```ignore
//! use toolhold_guest::jobs::{JobState, JobTool, Started};
//!
//! toolhold_guest::export_jobs!(tools, state, cancel);
//!
//! fn tools() -> Vec<JobTool> {
//!     vec![JobTool::new("render", "Renders a scene.", render)]
//! }
//!
//! fn render(scene: Scene) -> Result<Started<Picture>, Error> {
//!     Ok(Started::Job(queue::add(&scene)?))
//! }
//!
//! fn state(job: &str) -> Result<JobState, Error> {
//!     queue::look(job)
//! }
//!
//! fn cancel(job: &str) -> Result<(), Error> {
//!     queue::remove(job)
//! }
//! ```

use crate::bindings::toolhold::module::types as wit;
use crate::tool::{self, Error, Tool};
use bindings::exports::toolhold::module::jobs as guest;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Bindings that `wit-bindgen` generates for the world. Modules touch it through [`crate::export_jobs!`] alone.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "job-tools",
        with: {
            "toolhold:module/types@0.1.0": crate::bindings::toolhold::module::types,
        },
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "toolhold_guest::jobs::bindings",
    });
}

/// Names that [`crate::export_jobs!`] expands to.
#[doc(hidden)]
pub mod exports {
    pub use super::bindings::exports::toolhold::module::jobs::{Guest, JobState, Started};
    pub use super::{call, cancel, list, start, state};
}

/// Answer of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum Started<O> {
    /// The result, at once.
    Done(O),
    /// The id of a job: 1 to 256 visible characters of ASCII. It must be hard to guess where others could ask about it.
    Job(String),
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq)]
pub enum JobState {
    /// `done` of `total` (0 if unknown), in a unit of the module's own, with a short note.
    Working { done: u64, total: u64, note: String },
    /// The result, which fits the tool's output schema.
    Done(Value),
    /// The job ended without a result.
    Failed(Error),
}

/// A tool whose calls may continue as jobs.
pub struct JobTool {
    tool: Tool,
    /// Absent: it answers at once.
    begin: Option<Box<Begin>>,
}

/// From arguments as JSON text to the result, or to a job.
type Begin = dyn Fn(&str) -> Result<Started<Value>, Error>;

impl JobTool {
    /// A tool that runs `function`; see [`Tool::new`].
    pub fn new<A, O>(
        name: &'static str,
        description: &'static str,
        function: impl Fn(A) -> Result<Started<O>, Error> + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        O: Serialize + JsonSchema + 'static,
    {
        let begin = move |arguments: &str| {
            let arguments = serde_json::from_str(arguments).map_err(|error| {
                Error::correctable(format!("the arguments do not fit {name}: {error}"))
            })?;
            Ok(match function(arguments)? {
                Started::Done(output) => {
                    Started::Done(serde_json::to_value(output).map_err(|error| {
                        Error::fatal(format!("{name} made a result that is not JSON: {error}"))
                    })?)
                }
                Started::Job(id) => Started::Job(id),
            })
        };
        Self {
            tool: Tool::new(name, description, without_jobs::<A, O>),
            begin: Some(Box::new(begin)),
        }
    }

    /// Describes the tool further: its title, its annotations, its examples.
    pub fn describe(mut self, describe: impl FnOnce(Tool) -> Tool) -> Self {
        self.tool = describe(self.tool);
        self
    }
}

/// A tool that answers at once, beside others that do not.
impl From<Tool> for JobTool {
    fn from(tool: Tool) -> Self {
        Self { tool, begin: None }
    }
}

/// Answer to a host without jobs.
fn without_jobs<A, O>(_: A) -> Result<O, Error> {
    Err(Error::fatal(
        "this tool begins jobs, which this host does not know: use a newer version of Toolhold",
    ))
}

/// `list-tools` over a module's tools.
#[doc(hidden)]
pub fn list(tools: Vec<JobTool>) -> Vec<wit::Tool> {
    tool::list(plain(tools))
}

/// `call` over a module's tools.
#[doc(hidden)]
pub fn call(
    tools: Vec<JobTool>,
    invocation: &wit::Invocation,
) -> Result<wit::Output, wit::ToolError> {
    tool::call(plain(tools), invocation)
}

/// `start` over a module's tools.
#[doc(hidden)]
pub fn start(
    tools: Vec<JobTool>,
    invocation: &wit::Invocation,
) -> Result<guest::Started, wit::ToolError> {
    let begin = tools
        .iter()
        .find(|it| it.tool.name() == invocation.tool)
        .and_then(|it| it.begin.as_ref());
    let Some(begin) = begin else {
        return call(tools, invocation).map(guest::Started::Done);
    };
    match begin(&invocation.arguments) {
        Ok(Started::Done(value)) => {
            let output = wit::Output::Value(value.to_string());
            Ok(guest::Started::Done(output))
        }
        Ok(Started::Job(id)) => Ok(guest::Started::Job(id)),
        Err(error) => Err(tool::into_wit(error)),
    }
}

/// `state` over a module's function.
#[doc(hidden)]
pub fn state(
    job: &str,
    state: impl Fn(&str) -> Result<JobState, Error>,
) -> Result<guest::JobState, wit::ToolError> {
    Ok(match state(job).map_err(tool::into_wit)? {
        JobState::Working { done, total, note } => {
            guest::JobState::Working(guest::JobProgress { done, total, note })
        }
        JobState::Done(value) => guest::JobState::Done(wit::Output::Value(value.to_string())),
        JobState::Failed(error) => guest::JobState::Failed(tool::into_wit(error)),
    })
}

/// `cancel` over a module's function.
#[doc(hidden)]
pub fn cancel(job: &str, cancel: impl Fn(&str) -> Result<(), Error>) -> Result<(), wit::ToolError> {
    cancel(job).map_err(tool::into_wit)
}

fn plain(tools: Vec<JobTool>) -> Vec<Tool> {
    tools.into_iter().map(|it| it.tool).collect()
}

/// Exports the tools that `fn() -> Vec<JobTool>` returns, and what is asked about their jobs: `fn(&str) -> Result<JobState,
/// Error>` and `fn(&str) -> Result<(), Error>`. Once in a module, in the place of [`crate::export!`].
#[macro_export]
macro_rules! export_jobs {
    ($tools:path, $state:path, $cancel:path) => {
        struct ToolholdModule;

        impl $crate::exports::Guest for ToolholdModule {
            fn list_tools() -> Vec<$crate::exports::Tool> {
                $crate::jobs::exports::list($tools())
            }

            fn call(
                invocation: $crate::exports::Invocation,
            ) -> Result<$crate::exports::Output, $crate::exports::ToolError> {
                $crate::jobs::exports::call($tools(), &invocation)
            }
        }

        impl $crate::jobs::exports::Guest for ToolholdModule {
            fn start(
                invocation: $crate::exports::Invocation,
            ) -> Result<$crate::jobs::exports::Started, $crate::exports::ToolError> {
                $crate::jobs::exports::start($tools(), &invocation)
            }

            fn state(
                job: String,
            ) -> Result<$crate::jobs::exports::JobState, $crate::exports::ToolError> {
                $crate::jobs::exports::state(&job, $state)
            }

            fn cancel(job: String) -> Result<(), $crate::exports::ToolError> {
                $crate::jobs::exports::cancel(&job, $cancel)
            }
        }

        $crate::bindings::export_world!(ToolholdModule with_types_in $crate::bindings);
        $crate::jobs::bindings::export_world!(ToolholdModule with_types_in $crate::jobs::bindings);
    };
}
