//! The targets of requests: `[endpoints.NAME]`, `[pools.NAME]` and `[router]` together.
//!
//! All targets are checked when the configuration is read, whether a run uses them or not: names, members and
//! contracts.

use crate::config::endpoint::{ContractChoice, EndpointTable};
use crate::config::pool::PoolTable;
use crate::config::router::RouterTable;
use crate::config::surroundings::{ConfigFault, at_least_one};
use std::collections::{BTreeMap, BTreeSet};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Price;

/// The name of the router where an endpoint is named.
pub const ROUTER: &str = "router";

/// The target of a name.
#[derive(Debug, Clone, Copy)]
pub enum RouteTarget<'a> {
    Endpoint(&'a EndpointTable),
    Pool(&'a PoolTable),
    Router,
}

/// All targets of requests.
#[derive(Debug, Clone, Copy)]
pub struct Routes<'a> {
    pub endpoints: &'a BTreeMap<String, EndpointTable>,
    pub pools: &'a BTreeMap<String, PoolTable>,
    pub router: &'a RouterTable,
}

impl<'a> Routes<'a> {
    /// The target with this name.
    pub fn target(self, name: &str) -> Option<RouteTarget<'a>> {
        if name == ROUTER && !self.router.classes.is_empty() {
            return Some(RouteTarget::Router);
        }
        let endpoint = self.endpoints.get(name).map(RouteTarget::Endpoint);
        endpoint.or_else(|| self.pools.get(name).map(RouteTarget::Pool))
    }

    /// The contract of the answering endpoints, if one is configured for any of them.
    pub fn chosen_contract(self, name: &str) -> Option<Contract> {
        let mut endpoints = self.endpoints_of(name).into_iter();
        endpoints.find_map(|(_, endpoint)| endpoint.contract.fixed())
    }

    /// The same, or the schema contract without a configured one.
    pub fn contract(self, name: &str) -> Contract {
        self.chosen_contract(name).unwrap_or_default()
    }

    /// The price of a reply, if all answering endpoints have the same.
    pub fn price(self, name: &str) -> Option<Price> {
        let mut prices = self
            .endpoints_of(name)
            .into_iter()
            .map(|(_, endpoint)| endpoint.price());
        let first = prices.next()??;
        prices.all(|other| other == Some(first)).then_some(first)
    }

    /// Why the cost of a reply of `name` is unknown, and the remedy.
    pub fn unpriced(self, name: &str) -> Option<String> {
        if self.price(name).is_some() {
            return None;
        }
        let endpoints = self.endpoints_of(name);
        let own = |is_priced: bool| -> Vec<&str> {
            let endpoints = endpoints.iter();
            endpoints
                .filter(|(_, endpoint)| endpoint.price().is_some() == is_priced)
                .map(|(name, _)| *name)
                .collect()
        };
        let keys = own(false).into_iter().map(|member| {
            format!("endpoints.{member}.price_per_million or endpoints.{member}.gpu_hour")
        });
        let keys = keys.collect::<Vec<_>>().join(", ");
        Some(if keys.is_empty() {
            format!(
                "what a reply of {name} costs depends on who gives it: {} have different prices, and a run is \
                 counted by one",
                own(true).join(", ")
            )
        } else {
            format!(
                "the cost of a reply of {name} is not known: set {keys}; prices of 0 if it costs nothing"
            )
        })
    }

    /// The model that the router asks, for runs with `name`.
    pub fn picker(self, name: &str) -> Option<&'a str> {
        let is_router = matches!(self.target(name), Some(RouteTarget::Router));
        Some(self.router.model.as_str()).filter(|model| is_router && !model.is_empty())
    }

    /// The largest window of the answering endpoints; `None` if one of them is unknown.
    pub fn window(self, name: &str) -> Option<u64> {
        let windows = self.endpoints_of(name).into_iter();
        let windows: Option<Vec<u64>> = windows
            .map(|(_, endpoint)| Some(endpoint.window).filter(|tokens| *tokens > 0))
            .collect();
        windows?.into_iter().max()
    }

    /// The endpoints that may answer requests to `name`, without the router's deciding model. Those of a pool
    /// in its order, its smaller model last; each once.
    pub fn endpoints_of(self, name: &str) -> Vec<(&'a str, &'a EndpointTable)> {
        let mut found: Vec<(&str, &EndpointTable)> = Vec::new();
        let mut seen = BTreeSet::new();
        // A stack: the first is pushed last.
        let mut rest = vec![name.to_owned()];
        while let Some(name) = rest.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            match self.target(&name) {
                Some(RouteTarget::Endpoint(_)) => found.extend(
                    self.endpoints
                        .get_key_value(&name)
                        .map(|(name, endpoint)| (name.as_str(), endpoint)),
                ),
                Some(RouteTarget::Pool(pool)) => {
                    rest.extend(pool.smaller.iter().cloned());
                    rest.extend(pool.members.iter().rev().cloned());
                }
                Some(RouteTarget::Router) => {
                    let classes = self.router.classes.values().rev();
                    rest.extend(classes.map(|class| class.to.clone()));
                }
                None => {}
            }
        }
        found
    }

    /// All endpoints that a run with `name` may use, including the router's deciding model.
    pub fn reached(self, name: &str) -> Vec<(&'a str, &'a EndpointTable)> {
        let mut found = self.endpoints_of(name);
        for (name, endpoint) in self
            .picker(name)
            .map_or(Vec::new(), |own| self.endpoints_of(own))
        {
            if found.iter().all(|(known, _)| *known != name) {
                found.push((name, endpoint));
            }
        }
        found
    }

    /// The members of a pool; a nested pool is replaced by its members.
    pub fn members(self, pool: &str) -> Vec<(&'a str, &'a EndpointTable)> {
        self.flat(pool).0
    }

    /// As [`Self::members`], with the first name that occurs twice. Each pool is visited once.
    fn flat(self, pool: &str) -> (Vec<(&'a str, &'a EndpointTable)>, Option<String>) {
        let (mut found, mut twice) = (Vec::new(), None);
        let mut seen = BTreeSet::new();
        let mut rest = vec![pool.to_owned()];
        while let Some(name) = rest.pop() {
            if !seen.insert(name.clone()) {
                twice.get_or_insert(name);
                continue;
            }
            match self.pools.get(&name) {
                Some(pool) => rest.extend(pool.members.iter().rev().cloned()),
                None => {
                    let own = self.endpoints.get_key_value(&name);
                    found.extend(own.map(|(name, endpoint)| (name.as_str(), endpoint)));
                }
            }
        }
        (found, twice)
    }

    /// # Errors
    /// The key and what is wrong with it.
    pub fn check(self) -> Result<(), ConfigFault> {
        // The default is checked first: the others inherit its errors.
        let default = self.endpoints.get_key_value("default");
        for (name, endpoint) in default.into_iter().chain(self.endpoints) {
            let checked = endpoint.check();
            checked.map_err(|fault| fault.below(&format!("endpoints.{name}")))?;
        }
        for name in self.endpoints.keys().chain(self.pools.keys()) {
            if name == ROUTER && !self.router.classes.is_empty() {
                let reason = "\"router\" is the router's own name; call this something else";
                let kind = if self.pools.contains_key(name) {
                    "pools"
                } else {
                    "endpoints"
                };
                return Err(ConfigFault::new(format!("{kind}.{name}"), reason));
            }
        }
        for (name, pool) in self.pools {
            let key = format!("pools.{name}");
            if self.endpoints.contains_key(name) {
                let reason = "is the name of an endpoint too; a pool needs another";
                return Err(ConfigFault::new(key, reason));
            }
            pool.check().map_err(|fault| fault.below(&key))?;
            self.check_members(name, pool)?;
        }
        self.check_router()
    }

    fn check_members(self, name: &str, pool: &PoolTable) -> Result<(), ConfigFault> {
        let key = format!("pools.{name}.members");
        let wrong = |reason: String| Err(ConfigFault::new(&key, reason));
        if pool.members.is_empty() {
            return wrong("a pool needs at least one member".into());
        }
        for member in &pool.members {
            self.known(&key, member)?;
        }
        if let Some(smaller) = &pool.smaller {
            self.known(&format!("pools.{name}.smaller"), smaller)?;
        }
        if let Some(way) = self.cycle(name) {
            return wrong(format!("is a member of itself: {}", way.join(" → ")));
        }
        let (members, twice) = self.flat(name);
        if let Some(twice) = twice {
            return wrong(format!(
                "has {twice:?} twice; weights say how much a member gets"
            ));
        }
        for (member, endpoint) in members {
            // The endpoint is not asked for its models: another member may answer while it is down.
            if endpoint.model.is_empty() {
                let reason =
                    format!("must be named, because {member} is a member of the pool {name}");
                return Err(ConfigFault::new(
                    format!("endpoints.{member}.model"),
                    reason,
                ));
            }
        }
        self.one_contract(&key, name)
    }

    /// Requests are written in a contract before it is known which member answers.
    fn one_contract(self, key: &str, name: &str) -> Result<(), ConfigFault> {
        let endpoints = self.endpoints_of(name);
        let Some(((first, one), rest)) = endpoints.split_first() else {
            return Ok(());
        };
        let is_other = |own: &EndpointTable| match (own.contract.fixed(), one.contract.fixed()) {
            (Some(own), Some(one)) => own != one,
            _ => false,
        };
        match rest.iter().find(|(_, own)| is_other(own)) {
            Some((other, own)) => Err(ConfigFault::new(
                key,
                format!(
                    "{first} has the contract {:?} and {other} {:?}; all that may answer one run need the same",
                    contract(one.contract),
                    contract(own.contract)
                ),
            )),
            None => Ok(()),
        }
    }

    fn check_router(self) -> Result<(), ConfigFault> {
        let router = self.router;
        if router.classes.is_empty() {
            for (leaf, value) in [("model", &router.model), ("default", &router.default)] {
                if !value.is_empty() {
                    let reason = "the router has no classes; add [router.classes.NAME]";
                    return Err(ConfigFault::new(format!("router.{leaf}"), reason));
                }
            }
            return Ok(());
        }
        if !router.classes.contains_key(&router.default) {
            let names: Vec<_> = router.classes.keys().map(String::as_str).collect();
            let reason = format!("must be one of the classes: {}", names.join(", "));
            return Err(ConfigFault::new("router.default", reason));
        }
        at_least_one([("router.timeout_ms", router.timeout_ms == 0)])?;
        if !router.model.is_empty() {
            self.known("router.model", &router.model)?;
        }
        for (name, class) in &router.classes {
            let key = format!("router.classes.{name}");
            self.known(&format!("{key}.to"), &class.to)?;
            let checked = class.check(!router.model.is_empty());
            checked.map_err(|fault| fault.below(&key))?;
        }
        self.one_contract("router.classes", ROUTER)
    }

    /// # Errors
    /// There is neither an endpoint nor a pool of this name.
    pub(super) fn known(self, key: &str, name: &str) -> Result<(), ConfigFault> {
        if self.endpoints.contains_key(name) || self.pools.contains_key(name) {
            return Ok(());
        }
        Err(ConfigFault::new(key, self.unknown(name)))
    }

    /// The message about an unknown name.
    pub fn unknown(self, name: &str) -> String {
        let names: Vec<&str> = self
            .endpoints
            .keys()
            .chain(self.pools.keys())
            .map(String::as_str)
            .collect();
        format!(
            "there is no [endpoints.{name}] or [pools.{name}]; there are {}",
            names.join(", ")
        )
    }

    /// A path from the pool back to itself.
    fn cycle(self, pool: &str) -> Option<Vec<String>> {
        // Each pool is visited once, so this ends despite cycles.
        let mut seen = BTreeSet::new();
        let mut rest = vec![vec![pool.to_owned()]];
        while let Some(way) = rest.pop() {
            let Some(table) = way.last().and_then(|last| self.pools.get(last)) else {
                continue;
            };
            for next in table.members.iter().chain(&table.smaller) {
                let mut longer = way.clone();
                longer.push(next.clone());
                if next == pool {
                    return Some(longer);
                }
                if seen.insert(next.clone()) {
                    rest.push(longer);
                }
            }
        }
        None
    }
}

fn contract(choice: ContractChoice) -> &'static str {
    choice.fixed().map_or("auto", Contract::name)
}
