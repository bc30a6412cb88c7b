//! Metrics of the endpoints that agents ask.

use crate::agents::Agents;
use std::sync::Arc;
use std::time::Duration;
use toolhold_model::route::Circuit;
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
