//! A tool of a run, and who runs its calls.

use crate::decision::DecisionRules;
use crate::saved::SavedRequest;
use crate::tool::Tool;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// A tool and who runs its calls. Clones share the tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    #[serde(flatten, serialize_with = "shared_tool", deserialize_with = "own_tool")]
    pub tool: Arc<Tool>,
    pub runner: Runner,
}

fn shared_tool<S: Serializer>(tool: &Arc<Tool>, serializer: S) -> Result<S::Ok, S::Error> {
    Tool::serialize(tool, serializer)
}

fn own_tool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Tool>, D::Error> {
    Tool::deserialize(deserializer).map(Arc::new)
}

/// Writes the shared list of a run's tools as a list: for fields that are an `Arc<[Bound]>`.
///
/// # Errors
/// Errors of the serializer.
pub(crate) fn shared_list<S: Serializer>(
    tools: &Arc<[Bound]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    <[Bound]>::serialize(tools, serializer)
}

/// Reads what [`shared_list`] writes.
///
/// # Errors
/// Errors of the deserializer: it is no list of tools.
pub(crate) fn own_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<[Bound]>, D::Error> {
    Vec::deserialize(deserializer).map(Arc::from)
}

impl Bound {
    /// The name of what runs it, by which shields know it.
    pub fn called(&self) -> &str {
        match &self.runner {
            Runner::Module(own) | Runner::Activity(own) => own,
            _ => &self.tool.name,
        }
    }

    /// Whether a call waits for a person.
    pub fn waits(&self, rules: &DecisionRules) -> bool {
        let mut names = vec![self.tool.name.as_str()];
        let remote;
        match &self.runner {
            Runner::Module(own) => names.push(own),
            Runner::Activity(own) => {
                names.push(own);
                remote = of_server(own);
                names.extend(remote.as_deref());
            }
            _ => {}
        }
        rules.apply_to_any(&names, self.tool.annotations)
    }
}

/// A tool of a server, `mcp:SERVER/tool`, as it is called where the server itself offers it.
fn of_server(activity: &str) -> Option<String> {
    let (server, tool) = activity.strip_prefix("mcp:")?.split_once('/')?;
    Some(format!("{server}.{tool}"))
}

/// Who runs a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// No runner: the tool is latent, so the model writes its output itself.
    Model,
    /// The toolbox, under its own name for the tool.
    Module(String),
    Activity(String),
    /// The client that requested the run, once the run is over.
    Client,
    /// A sub-agent with this Request.
    Request(Box<SavedRequest>),
    /// A sub-agent with an empty context.
    CleanRoom,
    /// The advisor that the call names.
    Advisor,
}
