//! A tool of a run, and who runs its calls.

use crate::decision::DecisionRules;
use crate::saved::SavedRequest;
use crate::tool::Tool;
use serde::{Deserialize, Serialize};

/// A tool and who runs its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    #[serde(flatten)]
    pub tool: Tool,
    pub runner: Runner,
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
