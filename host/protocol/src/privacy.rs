//! What a run hides from its model, and which tools receive it unhidden.

use crate::bound::{Bound, Runner};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use toolhold_policy::pii::Kind;

/// Which data is hidden from the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Privacy {
    pub hide: BTreeSet<Kind>,
    /// Tools that get personal data as it is, or modules for all of their tools; tools that a client runs itself behind
    /// [`CLIENT`]. Others get the placeholders that the model has.
    pub reveal: BTreeSet<String>,
    /// Tools and modules that get secrets as they are. A client's tool gets none.
    pub reveal_secrets: BTreeSet<String>,
}

/// Before the name of a tool that a client runs itself, in [`Privacy::reveal`].
pub const CLIENT: &str = "client:";

impl Privacy {
    pub fn is_off(&self) -> bool {
        self.hide.is_empty()
    }

    /// What is hidden from a tool. Nothing is from a sub-agent: it is a run of this host, which hides the same from its
    /// own model.
    pub fn hidden_from(&self, tool: &Bound) -> BTreeSet<Kind> {
        let kinds = self.hide.iter().copied();
        kinds.filter(|kind| !self.lets(tool, *kind)).collect()
    }

    fn lets(&self, bound: &Bound, kind: Kind) -> bool {
        let allowed = if kind.is_secret() {
            &self.reveal_secrets
        } else {
            &self.reveal
        };
        // The runner's name decides, not the name in the context, which its author chooses freely.
        match &bound.runner {
            Runner::Module(own) => {
                let (module, tool) = own.rsplit_once('.').unwrap_or((own, ""));
                let module = module.split('@').next().unwrap_or_default();
                allowed.contains(module) || allowed.contains(&format!("{module}.{tool}"))
            }
            Runner::Activity(name) => {
                let server = name.split_once('/').map(|(server, _)| server);
                allowed.contains(name) || server.is_some_and(|server| allowed.contains(server))
            }
            // The client names it as it likes, so no name of a module's or server's tool is one of it.
            Runner::Client => {
                !kind.is_secret() && allowed.contains(&format!("{CLIENT}{}", bound.tool.name))
            }
            Runner::Request(_) | Runner::CleanRoom | Runner::Advisor | Runner::Model => true,
        }
    }
}
