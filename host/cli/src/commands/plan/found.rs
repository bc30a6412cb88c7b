//! Resolves the tools that a plan calls, without calling them.

use super::examine::FaultKind;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_mcp::{McpServer, OfferedTool, ServerSettings, Servers, activity};
use toolhold_policy::{Pin, ToolSpec, names};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::tool::Annotations;
use toolhold_runtime::module_report;
use toolhold_sandbox::{Module, Registry};
use toolhold_schema::Validator;

/// Most lines shown of a failed server's stderr.
const MAX_STDERR_LINES: usize = 3;

/// A tool that a plan calls.
#[derive(Debug)]
pub struct CallableTool {
    pub annotations: Annotations,
    pub by: CallRunner,
    /// The schemas that its arguments must satisfy: the tool message's, and its own.
    pub checks: Vec<ArgumentSchema>,
}

/// The runner of its calls.
#[derive(Debug)]
pub enum CallRunner {
    Module(Arc<Module>),
    Server {
        server: Arc<McpServer>,
        /// The operator's name for the tool.
        tool: String,
        /// Absent if no pin is needed.
        pin: Option<Box<Pin>>,
    },
}

/// A schema of arguments, with its source.
#[derive(Debug)]
pub struct ArgumentSchema {
    pub validator: Validator,
    /// The place of the schema, for people.
    pub see: String,
}

/// Why a call cannot be made.
#[derive(Debug, Clone)]
pub struct UnusableCall {
    pub kind: FaultKind,
    pub reason: String,
}

/// Resolves the tools of a plan.
#[derive(Debug)]
pub struct Finder<'a> {
    pub registry: &'a Registry,
    pub servers: &'a Servers,
    /// Tools with known runners: those of the context.
    pub bound: Vec<Bound>,
    /// Whether servers are asked for their present tools, and not only the pins are read.
    pub is_live: bool,
    /// Names of the tools that a plan may call by their own names. Absent: all.
    pub allowed: Option<&'a [String]>,
    /// The tools of each server: a server that cannot be reached is tried once.
    offers: BTreeMap<String, Result<Vec<OfferedTool>, UnusableCall>>,
}

impl<'a> Finder<'a> {
    pub fn new(
        registry: &'a Registry,
        servers: &'a Servers,
        bound: Vec<Bound>,
        is_live: bool,
    ) -> Self {
        Self {
            registry,
            servers,
            bound,
            is_live,
            allowed: None,
            offers: BTreeMap::new(),
        }
    }

    /// # Errors
    /// The tool cannot be called.
    pub async fn find(&mut self, tool: &str) -> Result<CallableTool, UnusableCall> {
        let bound = self.bound.iter().find(|bound| bound.tool.name == tool);
        let Some(bound) = bound.cloned() else {
            allowed(self.allowed, tool).map_err(|reason| UnusableCall {
                kind: FaultKind::NotAllowed,
                reason,
            })?;
            return self.offered(tool).await;
        };
        let who = match &bound.runner {
            Runner::Module(own) => {
                let found = self.offered(own).await?;
                return found.defined(&bound);
            }
            Runner::Activity(name) => {
                let found = self.activity(name).await?;
                return found.defined(&bound);
            }
            Runner::Model => "is latent: a model writes its result",
            Runner::Request(_) | Runner::CleanRoom => "is answered by a sub-agent",
            Runner::Advisor => "is answered by an advisor",
            Runner::Client => "is called by the client that asks for the run",
        };
        Err(UnusableCall {
            kind: FaultKind::NeedsModel,
            reason: format!(
                "{tool:?} {who}; a saved plan is run without a model, so leave the step out, or give the plan \
                 to a model with toolhold run --context"
            ),
        })
    }

    /// Resolves a name without a tool message.
    async fn offered(&mut self, tool: &str) -> Result<CallableTool, UnusableCall> {
        let own = module_of(tool).filter(|name| self.registry.module(name).is_none());
        let server = own.and_then(|name| self.servers.named(name)).cloned();
        let Some(server) = server else {
            let (module, spec) = module(self.registry, tool).map_err(unknown)?;
            return of_module(module, &spec);
        };
        offers(&server.settings).map_err(unknown)?;
        let name = &server.settings.name;
        let own = tool.strip_prefix(name.as_str()).unwrap_or_default();
        let offered = self.of_server(&server, own.trim_start_matches('.')).await?;
        offered
            .tool(name)
            .map_err(|reason| unknown(format!("{tool:?} is left out: {reason}")))?;
        server_tool(server, &offered).await
    }

    async fn activity(&mut self, name: &str) -> Result<CallableTool, UnusableCall> {
        let parts = activity(name)
            .and_then(|(server, tool)| Some((self.servers.named(server)?.clone(), tool)));
        let Some((server, tool)) = parts else {
            return Err(unknown(format!("there is no activity named {name:?}")));
        };
        let offered = self.of_server(&server, tool).await?;
        server_tool(server, &offered).await
    }

    async fn of_server(
        &mut self,
        server: &Arc<McpServer>,
        tool: &str,
    ) -> Result<OfferedTool, UnusableCall> {
        let name = &server.settings.name;
        if !self.offers.contains_key(name) {
            let offer = offer(server, self.is_live).await;
            self.offers.insert(name.clone(), offer);
        }
        let offers = match self.offers.get(name) {
            Some(Ok(offers)) => offers.as_slice(),
            Some(Err(unusable)) => return Err(unusable.clone()),
            None => &[],
        };
        let known = || {
            let names: Vec<_> = offers.iter().map(|offered| offered.name.as_str()).collect();
            match names.as_slice() {
                [] => "it has none".to_owned(),
                names => format!("there are {}", names.join(", ")),
            }
        };
        let offered = offers.iter().find(|offered| offered.name == tool);
        offered.cloned().ok_or_else(|| {
            unknown(format!(
                "the MCP server {name} has no tool {:?} that may be called; {}",
                shown(tool),
                known()
            ))
        })
    }
}

impl CallableTool {
    /// A tool message's definition: its constraints hold in addition to the tool's own.
    fn defined(mut self, bound: &Bound) -> Result<Self, UnusableCall> {
        let name = &bound.tool.name;
        let validator = Validator::new(&bound.tool.parameters)
            .map_err(|error| unknown(format!("the schema of {name:?} cannot be used: {error}")))?;
        let see = format!("the tool message that defines {name:?}");
        self.checks.insert(0, ArgumentSchema { validator, see });
        self.annotations.destructive |= bound.tool.annotations.destructive;
        self.annotations.open_world |= bound.tool.annotations.open_world;
        Ok(self)
    }
}

/// Looks whether a tool that a plan calls by its own name is one of `names`, those of the default agent. Absent: all.
///
/// # Errors
/// It is not.
pub fn allowed(names: Option<&[String]>, tool: &str) -> Result<(), String> {
    if names::allows(names, &unversioned(tool)) {
        return Ok(());
    }
    Err(format!("{tool} is none of the tools of [agents.default]"))
}

/// `calc.add` of `calc@1.2.add`: lists of allowed tools name no versions.
fn unversioned(tool: &str) -> Cow<'_, str> {
    let versioned = tool
        .rsplit_once('.')
        .filter(|(module, _)| module.contains('@'));
    versioned.map_or(Cow::Borrowed(tool), |(module, own)| {
        Cow::Owned(format!("{}.{own}", name_of(module)))
    })
}

/// The tools of a server, or why they are unknown.
async fn offer(server: &McpServer, is_live: bool) -> Result<Vec<OfferedTool>, UnusableCall> {
    let offer = if is_live {
        server.live_tools().await
    } else {
        server.tools().await
    };
    offer.map_err(|failure| {
        let told = server.told(&failure);
        let kind = match told.kind.as_str() {
            "not_approved" => FaultKind::Disabled,
            _ => FaultKind::Unreachable,
        };
        let printed = server.printed().into_iter().take(MAX_STDERR_LINES);
        let printed: Vec<String> = printed.collect();
        let printed = match printed.as_slice() {
            [] => String::new(),
            printed => format!("; it printed {}", printed.join(" · ")),
        };
        UnusableCall {
            kind,
            reason: format!("{}{printed}", told.message),
        }
    })
}

/// Whether a server offers its tools to every run.
///
/// # Errors
/// The server does not, with advice.
pub fn offers(settings: &ServerSettings) -> Result<(), String> {
    let name = &settings.name;
    if settings.offer {
        return Ok(());
    }
    Err(format!(
        "the MCP server {name} offers its tools to no run; set offer = true under [mcp.{name}], or define a tool \
         with \"_activity\": \"mcp:{name}/TOOL\" and give it with --context"
    ))
}

fn of_module(module: Arc<Module>, spec: &ToolSpec) -> Result<CallableTool, UnusableCall> {
    let validator = Validator::new(&spec.input_schema).map_err(|error| {
        unknown(format!(
            "the schema of {:?} cannot be used: {error}",
            spec.name
        ))
    })?;
    let see = format!("`toolhold modules inspect {}`", module.name);
    Ok(CallableTool {
        annotations: toolhold_agent::module_tool(spec).annotations,
        by: CallRunner::Module(module),
        checks: vec![ArgumentSchema { validator, see }],
    })
}

async fn server_tool(
    server: Arc<McpServer>,
    offered: &OfferedTool,
) -> Result<CallableTool, UnusableCall> {
    let name = &server.settings.name;
    let checks = offered
        .checks()
        .map_err(|reason| unknown(format!("the tool {:?} of {name}: {reason}", offered.name)))?;
    let see = format!("`toolhold mcp inspect {name}`");
    let pin = if server.pins().asks(&server.settings) {
        server.pins().record(&server.settings).await.map(Box::new)
    } else {
        None
    };
    Ok(CallableTool {
        annotations: offered.annotations,
        checks: vec![ArgumentSchema {
            validator: checks.arguments,
            see,
        }],
        by: CallRunner::Server {
            tool: offered.name.clone(),
            pin,
            server,
        },
    })
}

/// A tool of a loaded module.
///
/// # Errors
/// The module does not have the tool; the message lists those that it has.
pub fn module(registry: &Registry, tool: &str) -> Result<(Arc<Module>, ToolSpec), String> {
    let shown = shown(tool);
    let Some(name) = module_of(tool) else {
        return Err(format!(
            "there is no tool {shown:?}; write MODULE.TOOL, see `toolhold modules list`"
        ));
    };
    let Some(module) = registry.module(name) else {
        let failed = registry.failures();
        let failed = failed
            .iter()
            .find(|failed| name_of(failed.name.raw()) == name_of(name));
        return Err(match failed {
            Some(failed) => format!(
                "the module of {shown:?} could not be loaded: {}",
                failed.error
            ),
            None => {
                format!("there is no module for the tool {shown:?}; see `toolhold modules list`")
            }
        });
    };
    let Some(spec) = registry.tool(tool) else {
        let names: Vec<_> = module.tools.iter().map(|spec| spec.name.as_str()).collect();
        return Err(format!(
            "there is no tool {shown:?}; module {} has {}",
            module.name,
            names.join(", ")
        ));
    };
    Ok((module, spec))
}

pub fn disabled(module: &Module) -> Option<String> {
    let disabled = module_report::disabled(module)?;
    Some(format!("module {} is {disabled}", module.slot))
}

/// `calc@1.2` of `calc@1.2.add`.
pub fn module_of(tool: &str) -> Option<&str> {
    tool.rsplit_once('.').map(|(module, _)| module)
}

/// `calc` of `calc@1.2`.
pub fn name_of(module: &str) -> &str {
    module.split('@').next().unwrap_or(module)
}

fn unknown(reason: String) -> UnusableCall {
    UnusableCall {
        kind: FaultKind::UnknownTool,
        reason,
    }
}

fn shown(tool: &str) -> String {
    tool.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_names_its_module() {
        assert_eq!(module_of("calc.add"), Some("calc"));
        assert_eq!(module_of("calc@1.2.add"), Some("calc@1.2"));
        assert_eq!(module_of("add"), None);
        assert_eq!(name_of("calc@1.2"), "calc");
    }

    #[test]
    fn a_version_of_an_allowed_tool_is_allowed() {
        let names = ["calc.add".to_owned(), "text".to_owned()];
        for tool in ["calc.add", "calc@1.2.add", "text@1.count"] {
            assert_eq!(allowed(Some(&names), tool), Ok(()));
        }
        for tool in ["calc.sub", "calc@1.2.sub"] {
            assert!(allowed(Some(&names), tool).is_err(), "{tool}");
            assert_eq!(allowed(None, tool), Ok(()));
        }
    }
}
