//! The endpoints that agents ask: their metrics, and whether they are there at all.

use crate::agents::{Agent, Agents};
use crate::causes::causes;
use crate::config::EndpointTable;
use crate::host;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use toolhold_model::route::{Circuit, Protection};
use toolhold_telemetry::{EndpointLoad, Telemetry};

/// Exports which endpoints of agents are left alone. The agents are not kept by that.
pub fn watch_endpoints(telemetry: &Telemetry, agents: &Arc<Agents>) {
    let agents = Arc::downgrade(agents);
    telemetry.watch_endpoints(move || {
        let agents = agents.upgrade();
        let states = agents.map(|agents| agents.endpoints());
        let states = states.unwrap_or_default().into_iter();
        let load = states.map(|state| EndpointLoad {
            rest: state.rest.map_or(Duration::ZERO, |rest| rest.asked),
            is_open: state.circuit != Circuit::Closed,
            name: state.name,
        });
        load.collect()
    });
}

/// Number of agents that can run and have heard of an endpoint of theirs in this process, or that need none.
pub fn answered_agents(agents: &Agents) -> usize {
    let offered = agents.all();
    let answered = offered.ready.values().filter(|agent| was_answered(agent));
    answered.count()
}

fn was_answered(agent: &Agent) -> bool {
    let mut endpoints = agent.endpoints.values();
    agent.endpoints.is_empty() || endpoints.any(|endpoint| endpoint.has_answered())
}

/// An endpoint that was asked whether it is there.
#[derive(Debug, Clone)]
pub struct HeardEndpoint {
    /// Its name in the configuration.
    pub name: String,
    /// Reason why there was no answer; absent if it answered.
    pub silence: Option<String>,
}

/// Asks the endpoints of agents that have not answered in this process, all at the same time, for 5 seconds at most.
///
/// Where the configuration names the model, an agent is offered without a request to its endpoint. So this is how a server
/// knows whether anything is there before its first run.
pub async fn ask_silent_endpoints(agents: &Agents) -> Vec<HeardEndpoint> {
    let offered = agents.all();
    let (mut seen, mut asked) = (BTreeSet::new(), Vec::new());
    for agent in offered.ready.values() {
        let routes = agent.config.routes();
        for (name, table) in routes.endpoints_of(&agent.config.endpoint) {
            let Some(protection) = agent.endpoints.get(name) else {
                continue;
            };
            // Agents with the same settings for an endpoint share its protection.
            let is_new = seen.insert(Arc::as_ptr(protection).addr());
            if is_new && !protection.has_answered() {
                let key = agent.config.api_key(table);
                asked.push(ask(name, table, key, protection));
            }
        }
    }
    join_all(asked).await
}

async fn ask(
    name: &str,
    table: &EndpointTable,
    key: Option<String>,
    protection: &Protection,
) -> HeardEndpoint {
    let heard = Box::pin(host::hear(table, key)).await;
    if heard.is_ok() {
        protection.answered();
    }
    HeardEndpoint {
        name: name.to_owned(),
        silence: heard.err().map(|error| causes(&error)),
    }
}
