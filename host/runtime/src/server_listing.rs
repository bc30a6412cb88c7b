//! MCP servers of agents at the begin of a serving process, which is ready when each has listed its tools or has failed.

use crate::agents::Agents;
use crate::startup::Startup;
use futures_util::future::join_all;
use std::sync::Arc;
use toolhold_mcp::McpServer;

/// Makes `startup` wait for the MCP servers whose tools agents offer to runs, and returns the future that asks them, all at
/// the same time and each within its own timeout.
///
/// A server whose tools are pinned is not started by that: runs are offered the pinned tools. One that offers nothing to
/// runs is started by the first call of a plan, and not waited for.
pub fn list_servers(agents: &Agents, startup: &Startup) -> impl Future<Output = ()> + Send + use<> {
    let offered = agents.all();
    let waiting = offered.waiting.values();
    let waiting = waiting.filter_map(|waiting| waiting.without_model.as_ref());
    let agents = offered.ready.values().chain(waiting);
    let asked: Vec<(String, Arc<McpServer>)> = agents
        .flat_map(|agent| {
            let servers = agent.servers.offering();
            servers.map(move |server| (agent.name.clone(), server.clone()))
        })
        .collect();
    let named = asked.iter();
    startup
        .await_servers(named.map(|(agent, server)| (agent.clone(), server.settings.name.clone())));
    let startup = startup.clone();
    async move {
        join_all(
            asked
                .iter()
                .map(|(agent, server)| ask(agent, server, &startup)),
        )
        .await;
    }
}

/// Asks one server. Why it failed is for the operator alone, and so are the lines that it printed.
async fn ask(agent: &str, server: &McpServer, startup: &Startup) {
    if let Err(failure) = server.comes_up().await {
        let reason = server.told(&failure).message;
        tracing::warn!(
            agent,
            "{reason}; runs are without its tools until it lists them"
        );
        for line in server.printed() {
            tracing::warn!(agent, server = server.settings.name, "{line}");
        }
    }
    startup.end_server(agent, &server.settings.name);
}
