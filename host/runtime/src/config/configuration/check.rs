//! What is wrong with a configuration: the first key whose value cannot be used.

use super::Configuration;
use crate::config::endpoint::EndpointTable;
use crate::config::routes::RouteTarget;
use crate::config::shields::{ShieldSettings, ShieldWhat};
use crate::config::surroundings::{ConfigFault, at_least_one};
use toolhold_agent::contract::MAX_EXAMPLES;

impl Configuration {
    /// # Errors
    /// The first key with a wrong value.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        let tables = &self.tables;
        let routes = self.routes();
        routes.check()?;
        if routes.target(&self.endpoint).is_none() {
            let reason = routes.unknown(&self.endpoint);
            return Err(ConfigFault::new("endpoint", reason));
        }
        if let Some(name) = self.summarizer() {
            routes.known("run.summarizer", name)?;
        }
        self.check_prices()?;
        let is_many =
            |name: &str| !matches!(routes.target(name), None | Some(RouteTarget::Endpoint(_)));
        let fallback = &tables.fallback;
        let fallback = fallback.check(&tables.endpoints, &self.endpoint, is_many);
        fallback.map_err(|fault| fault.below("fallback"))?;
        let retry = tables.tool_retry.check();
        retry.map_err(|fault| fault.below("tool_retry"))?;
        let jobs = tables.jobs.check();
        jobs.map_err(|fault| fault.below("jobs"))?;
        let requests = tables.requests.check();
        requests.map_err(|fault| fault.below("requests"))?;
        let knowledge = tables.knowledge.check();
        knowledge.map_err(|fault| fault.below("knowledge"))?;
        let telemetry = tables.telemetry.check();
        telemetry.map_err(|fault| fault.below("telemetry"))?;
        self.check_agents()?;
        for shield in &self.screening {
            self.check_endpoint(shield)?;
        }
        self.check_times()?;
        self.check_runs()
    }

    fn check_runs(&self) -> Result<(), ConfigFault> {
        let run = &self.tables.run;
        if run.examples > MAX_EXAMPLES {
            let reason = format!("there are 0 to {MAX_EXAMPLES} worked examples");
            return Err(ConfigFault::new("run.examples", reason));
        }
        if !(0.0..=1.0).contains(&run.top_p) {
            let reason = "must be from 0 (nothing is said of it) to 1";
            return Err(ConfigFault::new("run.top_p", reason));
        }
        let concurrent_calls = self.tables.modules.concurrent_calls;
        at_least_one([
            ("run.max_steps", run.max_steps == 0),
            ("run.max_tokens", run.max_tokens == 0),
            ("run.parallel_calls", run.parallel_calls == 0),
            ("run.max_calls", run.max_calls == 0),
            ("modules.concurrent_calls", concurrent_calls == 0),
        ])
    }

    /// # Errors
    /// The shield asks a model of an endpoint that does not exist.
    pub(in crate::config) fn check_endpoint(
        &self,
        shield: &ShieldSettings,
    ) -> Result<(), ConfigFault> {
        if let ShieldWhat::Model { endpoint, .. } = &shield.what
            && !self.tables.endpoints.contains_key(endpoint)
        {
            let key = format!("shields.{}.endpoint", shield.name);
            let reason = format!("there is no [endpoints.{endpoint}]");
            return Err(ConfigFault::new(key, reason));
        }
        Ok(())
    }

    /// Refuses timeouts that cannot be met.
    fn check_times(&self) -> Result<(), ConfigFault> {
        let endpoints = self.tables.endpoints.iter().flat_map(|(name, endpoint)| {
            [
                ("connect_timeout_ms", endpoint.connect_timeout_ms),
                ("first_token_timeout_ms", endpoint.first_token_timeout_ms),
                ("idle_timeout_ms", endpoint.idle_timeout_ms),
            ]
            .map(|(leaf, time)| (format!("endpoints.{name}.{leaf}"), Some(time)))
        });
        let modules = self.tables.module.iter();
        let limits = modules
            .map(|(name, table)| (format!("module.{name}.limits"), &table.limits))
            .chain([
                ("limits".to_owned(), &self.tables.limits),
                ("ceiling".to_owned(), &self.tables.ceiling),
            ]);
        let limits = limits.flat_map(|(table, limits)| {
            [
                ("timeout_ms", limits.timeout_ms),
                ("http_timeout_ms", limits.http_timeout_ms),
                ("list_tools_ms", limits.list_tools_ms),
                ("compile_ms", limits.compile_ms),
            ]
            .map(|(leaf, time)| (format!("{table}.{leaf}"), time))
        });
        let others = [
            ("run.timeout_ms", self.tables.run.timeout_ms),
            ("run.call_timeout_ms", self.tables.run.call_timeout_ms),
            ("router.timeout_ms", self.tables.router.timeout_ms),
            ("oci.timeout_ms", self.tables.oci.timeout_ms),
        ]
        .map(|(key, time)| (key.to_owned(), Some(time)));
        let mut all = endpoints.chain(limits).chain(others);
        let Some((key, _)) = all.find(|(_, time)| *time == Some(0)) else {
            return Ok(());
        };
        let reason = "must be at least 1: 0 is no time at all, and not time without limit; leave it out for the default, or write \
                      a large number";
        Err(ConfigFault::new(key, reason))
    }

    /// Refuses wrong prices, and settings that need a missing one.
    pub(super) fn check_prices(&self) -> Result<(), ConfigFault> {
        for (name, endpoint) in &self.tables.endpoints {
            let price = endpoint.check_price();
            price.map_err(|fault| fault.below(&format!("endpoints.{name}")))?;
        }
        let is_priced = |endpoint: &EndpointTable| endpoint.price().is_some();
        if self.tables.run.currency.trim().is_empty()
            && self.tables.endpoints.values().any(is_priced)
        {
            let reason = "endpoints have prices, so say in which currency, such as \"EUR\"";
            return Err(ConfigFault::new("run.currency", reason));
        }
        let mut asked = self.asked().into_iter();
        let unpriced = self
            .max_cost()
            .and_then(|_| asked.find_map(|name| self.routes().unpriced(name)));
        unpriced.map_or(Ok(()), |reason| {
            Err(ConfigFault::new("run.max_cost", reason))
        })
    }

    /// The endpoints and pools whose replies a run pays for, with those of the router and of shields.
    fn asked(&self) -> Vec<&str> {
        let mut asked = vec![self.endpoint.as_str()];
        asked.extend(self.routes().picker(&self.endpoint));
        asked.extend(self.guards().map(|(_, endpoint)| endpoint));
        asked.extend(self.summarizer());
        asked
    }
}
