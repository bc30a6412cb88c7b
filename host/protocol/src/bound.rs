//! A tool of a run, and who runs its calls.

use crate::decision::DecisionRules;
use crate::saved::SavedRequest;
use crate::tool::Tool;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use toolhold_json::hex::sha256;

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

/// The tools of a run, in the order in which they are offered. On the wire: a list.
///
/// Clones share the tools, and the JSON text of the list with its digest. Text and digest are made once, when the list is
/// first written: a list of some hundred tools takes a millisecond, and many runs begin with the same one.
#[derive(Clone, Default)]
pub struct BoundTools(Arc<SharedList>);

#[derive(Default)]
struct SharedList {
    tools: Box<[Bound]>,
    /// `None` in it if the list cannot be written.
    json: OnceLock<Option<Box<RawValue>>>,
    digest: OnceLock<Option<String>>,
}

impl BoundTools {
    /// Returns true if both are the same list in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the list as the JSON text of an event has it; `None` if it cannot be written.
    pub fn json(&self) -> Option<&str> {
        self.raw().map(RawValue::get)
    }

    /// Returns the SHA-256 of [`Self::json`], in hex.
    pub fn digest(&self) -> Option<&str> {
        let digest = || Some(sha256(self.json()?));
        self.0.digest.get_or_init(digest).as_deref()
    }

    fn raw(&self) -> Option<&RawValue> {
        let written = || to_raw_value(&self.0.tools).ok();
        self.0.json.get_or_init(written).as_deref()
    }
}

impl Deref for BoundTools {
    type Target = [Bound];

    fn deref(&self) -> &[Bound] {
        &self.0.tools
    }
}

impl Debug for BoundTools {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<Vec<Bound>> for BoundTools {
    fn from(tools: Vec<Bound>) -> Self {
        Self(Arc::new(SharedList {
            tools: tools.into(),
            ..SharedList::default()
        }))
    }
}

impl<const N: usize> From<[Bound; N]> for BoundTools {
    fn from(tools: [Bound; N]) -> Self {
        Self::from(Vec::from(tools))
    }
}

impl FromIterator<Bound> for BoundTools {
    fn from_iter<I: IntoIterator<Item = Bound>>(tools: I) -> Self {
        Self::from(Vec::from_iter(tools))
    }
}

impl Serialize for BoundTools {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.raw() {
            Some(json) => json.serialize(serializer),
            None => self.0.tools.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BoundTools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Bound>::deserialize(deserializer).map(Self::from)
    }
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

impl Runner {
    /// Returns true for modules and activities, which take and give bytes (docs/protocol.md, 7.15). Other runners have
    /// the names of the run's bytes.
    pub fn has_bytes(&self) -> bool {
        matches!(self, Self::Module(_) | Self::Activity(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_shared_list_is_written_as_its_tools_are() {
        let bound = ["a \" { }", "b\u{1F980}"].map(|name| Bound {
            tool: Arc::new(Tool {
                parameters: json!({"type": "object", "z": 1.0, "a": [1, null, "x"]}),
                ..Tool::new(name)
            }),
            runner: Runner::Module(name.into()),
        });
        let plain = serde_json::to_string(&bound).unwrap();
        let tools = BoundTools::from(bound.clone());
        assert_eq!(serde_json::to_string(&tools).unwrap(), plain);
        assert_eq!(json!(tools), serde_json::from_str::<Value>(&plain).unwrap());
        assert_eq!(tools.json(), Some(plain.as_str()));
        let digest = sha256(&plain);
        assert_eq!(tools.digest(), Some(digest.as_str()));
        // Clones have the text of the first one, and equal lists that were read have an equal text.
        let clone = tools.clone();
        assert!(clone.is_same(&tools));
        assert_eq!(clone.json().map(str::as_ptr), tools.json().map(str::as_ptr));
        let read: BoundTools = serde_json::from_str(&plain).unwrap();
        assert!(!read.is_same(&tools));
        assert_eq!((&*read, read.digest()), (&bound[..], tools.digest()));
        assert_eq!(BoundTools::default().json(), Some("[]"));
    }
}
