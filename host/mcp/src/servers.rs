//! All servers of a run.

use crate::pin::ServerPins;
use crate::server::McpServer;
use crate::settings::ServerSettings;
use crate::tool::McpTool;
use crate::toolbox::McpToolbox;
use futures_util::future::join_all;
use std::sync::Arc;
use toolhold_agent::{Activities, ToolSource};
use toolhold_policy::Permit;
use toolhold_protocol::function_names::NameMap;

/// The servers that a run may use. A server is started by its first use, and killed when the last handle is dropped.
#[derive(Debug)]
pub struct Servers {
    all: Vec<Arc<McpServer>>,
    /// As for modules: `SERVER.tool`, or a server's name for all of its tools. Absent: everything.
    allowed: Option<Vec<String>>,
    /// The part of the grants that a key may use. Absent: everything.
    permits: Option<Vec<Permit>>,
}

impl Servers {
    /// All configured servers. `allowed`: the tools or servers that may be used; absent: all.
    pub fn new(
        settings: Vec<ServerSettings>,
        pins: &ServerPins,
        allowed: Option<&[String]>,
    ) -> Self {
        let servers = settings
            .into_iter()
            .map(|settings| Arc::new(McpServer::new(settings, pins.clone())));
        Self {
            all: servers.collect(),
            allowed: allowed.map(<[String]>::to_vec),
            permits: None,
        }
    }

    /// The same servers, restricted to the tools `allowed` and to the `permits` of a key. A call that the key does not
    /// permit fails with a message that says so.
    #[must_use]
    pub fn allowing(&self, allowed: Option<Vec<String>>, permits: Option<Vec<Permit>>) -> Self {
        Self {
            all: self.all.clone(),
            allowed,
            permits,
        }
    }

    /// The server of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.all.iter().find(|server| server.settings.name == name)
    }

    /// All servers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<McpServer>> {
        self.all.iter()
    }

    /// Servers whose tools runs are offered.
    pub fn offering(&self) -> impl Iterator<Item = &Arc<McpServer>> {
        self.all.iter().filter(|server| self.offers(server))
    }

    /// `mcp:SERVER/tool` for every tool that may be called.
    pub fn activities(&self, activities: Activities) -> Activities {
        self.runners().fold(activities, |activities, runner| {
            let name = format!("mcp:{}/{}", runner.server.settings.name, runner.name);
            activities.with(name, runner)
        })
    }

    /// `toolbox` with the tools of the servers that offer theirs to runs, and notes about tools that were left out.
    pub async fn offered<T: ToolSource>(&self, toolbox: T) -> (McpToolbox<T>, Vec<String>) {
        let is_offering = self.all.iter().any(|server| server.settings.offer);
        let taken = if is_offering {
            toolbox.tools()
        } else {
            Vec::new()
        };
        let is_taken = |name: &str| taken.iter().any(|tool| module_of(&tool.name) == name);
        let mut toolbox = McpToolbox::new(toolbox);
        let mut notes = Vec::new();
        let note = |name: &str, reason: &str| format!("MCP server {name}: {reason}");
        let mut offering = Vec::new();
        for server in self.all.iter().filter(|server| server.settings.offer) {
            let name = server.settings.name.as_str();
            if is_taken(name) {
                notes.push(note(
                    name,
                    "a module has this name; rename the one or the other",
                ));
                continue;
            }
            let names = server.settings.tool_names();
            for runner in self.runners_of(server) {
                toolbox.route(own_name(name, &names, &runner.name), runner);
            }
            if self.offers(server) {
                offering.push(server);
            }
        }
        let read = join_all(offering.iter().map(|server| server.tools())).await;
        for (server, tools) in offering.into_iter().zip(read) {
            let name = server.settings.name.as_str();
            let mut left_out = |reason: String| notes.push(note(name, &reason));
            let tools = match tools {
                Ok(tools) => tools,
                Err(failure) => {
                    left_out(failure.to_string());
                    server.printed().into_iter().for_each(left_out);
                    continue;
                }
            };
            let names = server.settings.tool_names();
            for runner in self.runners_of(server) {
                let own = own_name(name, &names, &runner.name);
                let offer = match tools.iter().find(|tool| tool.name == runner.name) {
                    Some(tool) => {
                        tool.unchecked().into_iter().for_each(&mut left_out);
                        tool.tool(&own)
                            .map(|tool| toolbox.offer(server.shared(tool)))
                    }
                    None => Err(server.refusal(&runner.name).unwrap_or_else(|| {
                        format!(
                            "the server does not offer it, or not in a usable way; `toolhold mcp inspect {name}` says which"
                        )
                    })),
                };
                if let Err(reason) = offer {
                    left_out(format!("the tool {:?} is left out: {reason}", runner.name));
                }
            }
        }
        (toolbox, notes)
    }

    /// Ends all sessions, in an orderly way.
    pub async fn close(&self) {
        join_all(self.all.iter().map(|server| server.close())).await;
    }

    fn runners(&self) -> impl Iterator<Item = McpTool> {
        self.all.iter().flat_map(|server| self.runners_of(server))
    }

    fn runners_of(&self, server: &Arc<McpServer>) -> impl Iterator<Item = McpTool> {
        let own = server.settings.name.as_str();
        let names = server.settings.tool_names();
        let tools = server.settings.tools.iter().filter(move |tool| {
            self.allowed.as_ref().is_none_or(|allowed| {
                // By the name of Toolhold's, or by the server's own.
                let full = own_name(own, &names, tool);
                let is_meant = |name: &String| {
                    name == own || *name == full || *name == format!("{own}.{tool}")
                };
                allowed.iter().any(is_meant)
            })
        });
        let is_withheld = !self.permits(server);
        tools.map(move |tool| McpTool {
            server: server.clone(),
            name: tool.clone(),
            is_withheld,
        })
    }

    fn offers(&self, server: &Arc<McpServer>) -> bool {
        let mut runners = self.runners_of(server);
        server.settings.offer && self.permits(server) && runners.next().is_some()
    }

    fn permits(&self, server: &McpServer) -> bool {
        let name = server.settings.name.as_str();
        let permits = self.permits.as_ref();
        permits.is_none_or(|permits| permits.iter().any(|permit| permit.covers_server(name)))
    }
}

/// Toolhold's name of a tool: `SERVER.tool`.
fn own_name(server: &str, names: &NameMap, tool: &str) -> String {
    format!("{server}.{}", names.outward(tool))
}

fn module_of(tool: &str) -> &str {
    tool.split('.').next().unwrap_or_default()
}
