//! `[fallback]`: models that make a call which the run's own model keeps getting wrong.

use crate::config::endpoint::EndpointTable;
use crate::config::model_order::rank;
use crate::config::model_work::makes_calls;
use crate::config::routes::{ROUTER, Routes};
use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::cost::Price;
use toolhold_protocol::fallback::{Candidate, Fallback};

/// The default key variable of every endpoint, which need not be set.
const USUAL_KEY: &str = "TOOLHOLD_API_KEY";

/// The address of the endpoint `default` in the built-in configuration.
const UNSET_URL: &str = "http://127.0.0.1:8000/v1";

/// Stands in `models` for all other endpoints, and the other models of the run's own, in the built-in order.
const OTHERS: &str = "*";

/// Maximum number of models of the run's own endpoint that are asked without being named. A hosted service lists
/// hundreds, and each takes attempts of a run's time.
const MAX_UNNAMED: usize = 5;

/// Maximum bytes of the name of such a model, which is shown and recorded with every run.
const MAX_MODEL_NAME: usize = 200;

#[derive(Debug, Clone, Deserialize)]
pub struct FallbackTable {
    enabled: bool,
    max_tool_failures: u32,
    attempts: u32,
    tool_errors: bool,
    models: Vec<String>,
    order: FallbackOrder,
}

/// Which candidate is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FallbackOrder {
    /// As they are listed, or in the built-in order.
    Listed,
    /// Those that managed more of what they were asked for, and of these the cheaper ones.
    Measured,
}

/// The endpoints of a run, and those that its fallback may ask.
#[derive(Debug, Clone, Copy)]
pub struct FallbackRoutes<'a> {
    pub routes: Routes<'a>,
    /// The endpoint, pool or router of the run.
    pub own: &'a str,
    /// Models that this endpoint lists. Empty: unknown.
    pub own_models: &'a [String],
    /// Endpoints that shields, the router and the summaries of conversations ask: they are for other work.
    pub beside: &'a BTreeSet<&'a str>,
}

impl FallbackTable {
    /// # Errors
    /// The first key with a wrong value.
    pub fn check(
        &self,
        endpoints: &BTreeMap<String, EndpointTable>,
        own: &str,
        is_many: impl Fn(&str) -> bool,
    ) -> Result<(), ConfigFault> {
        at_least_one([
            ("max_tool_failures", self.max_tool_failures == 0),
            ("attempts", self.attempts == 0),
        ])?;
        let models = |reason: String| Err(ConfigFault::new("models", reason));
        if self.models.iter().any(|name| name.trim().is_empty()) {
            return models("holds an empty name".into());
        }
        if let Some(name) = self.models.iter().find(|name| is_many(name)) {
            return models(format!("{name:?} is no single endpoint; name its members"));
        }
        let mut names = self.models.iter().filter(|name| *name != OTHERS);
        match names.find(|name| named(name, endpoints, own).is_none()) {
            Some(nowhere) => models(format!(
                "{nowhere:?} is no endpoint, and runs use {own:?}, which is not a single one; write ENDPOINT/MODEL"
            )),
            None => Ok(()),
        }
    }

    pub fn order(&self) -> FallbackOrder {
        self.order
    }

    /// Whether the operator lists candidates.
    fn is_listed(&self) -> bool {
        !self.models.is_empty()
    }

    /// Whether models are asked that the operator does not list.
    pub fn takes_others(&self) -> bool {
        self.enabled && (!self.is_listed() || self.lists(OTHERS))
    }

    /// Whether the operator lists this one by its name.
    pub fn lists(&self, name: &str) -> bool {
        self.models.iter().any(|own| own == name)
    }

    /// The names of the candidates in the order in which they are asked: those that are listed, first those of the
    /// run's own provider; and else those of the built-in order.
    pub fn names(&self, of: FallbackRoutes<'_>) -> Vec<String> {
        if !self.enabled {
            let listed = self.models.iter().filter(|name| *name != OTHERS);
            return listed.cloned().collect();
        }
        if !self.is_listed() {
            return built_in(of, |endpoint| of.is_at_own(endpoint));
        }
        let (endpoints, own) = (of.routes.endpoints, of.routes.endpoints.get(of.own));
        let is_elsewhere = |name: &String| {
            let found = named(name, endpoints, of.own);
            let base_url = found.map(|found| found.endpoint.base_url.as_str());
            own.is_some_and(|own| Some(own.base_url.as_str()) != base_url)
        };
        let model_of = |name: &str| {
            let found = named(name, endpoints, of.own)?;
            Some((found.key, found.model))
        };
        let is_named = |other: &String| {
            let mut models = self.models.iter();
            models.any(|name| name == other || model_of(name) == model_of(other))
        };
        // What stands behind "*" is asked after what stands before it.
        let mut parts = self.models.split(|name| name == OTHERS);
        let mut names: Vec<String> = parts.next().unwrap_or_default().to_vec();
        names.sort_by_key(is_elsewhere);
        for part in parts {
            let others = built_in(of, |_| true).into_iter();
            let others: Vec<String> = others
                .filter(|other| !is_named(other) && !names.contains(other))
                .collect();
            names.extend(others);
            let mut part = part.to_vec();
            part.sort_by_key(is_elsewhere);
            names.extend(part);
        }
        names
    }

    /// If the run's cost is limited, candidates without a price are left out. `is_set`: whether a variable has a
    /// value.
    pub fn settings(
        &self,
        of: FallbackRoutes<'_>,
        counts_money: bool,
        is_set: &dyn Fn(&str) -> bool,
    ) -> Fallback {
        let names = self.names(of).into_iter();
        let unnamed: BTreeSet<String> = of.unnamed().into_iter().map(|(name, _)| name).collect();
        let candidates = names.filter_map(|name| {
            let FallbackCandidate {
                endpoint, model, ..
            } = named(&name, of.routes.endpoints, of.own)?;
            let is_unnamed = unnamed.contains(&name) && !self.lists(&name);
            // The price of a token is that of the endpoint's own model. An hour of its GPUs costs the same for all.
            let price = endpoint
                .price()
                .filter(|price| !is_unnamed || matches!(price, Price::Time { .. }));
            Some(Candidate {
                model,
                contract: endpoint.contract.fixed().unwrap_or_default(),
                forcing: Forcing::default(),
                authored_schemas: false,
                price,
                missing: missing(endpoint, is_set).or_else(|| {
                    let is_unknown = counts_money && price.is_none();
                    is_unknown.then(|| "it has no price, and run.max_cost needs one".into())
                }),
                name,
            })
        });
        Fallback {
            is_on: self.enabled,
            max_tool_failures: self.max_tool_failures,
            attempts: self.attempts,
            tool_errors: self.tool_errors,
            candidates: candidates.collect(),
        }
    }
}

/// The other endpoints in the built-in order, of those that are `is_asked`, and the other models of the run's own. An
/// endpoint that is not configured is never asked, because it is not known which server listens at its address.
fn built_in(of: FallbackRoutes<'_>, is_asked: impl Fn(&EndpointTable) -> bool) -> Vec<String> {
    let own = of.routes.endpoints_of(of.own);
    // Of the classes of a router each may fall back to another.
    let is_own = |endpoint: &EndpointTable| {
        of.own != ROUTER
            && own
                .iter()
                .any(|(_, own)| own.base_url == endpoint.base_url && own.model == endpoint.model)
    };
    let all = of.routes.endpoints.iter();
    let mut found: Vec<(String, String)> = all
        .filter(|(name, endpoint)| {
            !of.beside.contains(name.as_str())
                && makes_calls(&endpoint.model)
                && !is_own(endpoint)
                && !is_unset(name, endpoint)
                && is_asked(endpoint)
        })
        .map(|(name, endpoint)| (name.clone(), endpoint.model.clone()))
        .collect();
    found.extend(of.unnamed());
    // Endpoints are in the order of their names, which equal ones keep.
    found.sort_by(|(_, one), (_, other)| ranked(one, other));
    found.into_iter().map(|(name, _)| name).collect()
}

/// The order of two models, by their names.
fn ranked(one: &str, other: &str) -> Ordering {
    let ranks = rank(one).partial_cmp(&rank(other));
    ranks.unwrap_or(Ordering::Equal)
}

impl FallbackRoutes<'_> {
    /// The other models that the run's own endpoint lists, each with its name as a candidate, `ENDPOINT/MODEL`. None
    /// where the list does not have the run's own model: it may be there under another name. Models that the
    /// configuration has at this address are candidates by the names of their endpoints, or for other work.
    fn unnamed(self) -> Vec<(String, String)> {
        let Some((key, own)) = self.routes.endpoints.get_key_value(self.own) else {
            return Vec::new();
        };
        let first = self.own_models.first();
        let own_model = Some(&own.model).filter(|model| !model.is_empty());
        let Some(own_model) = own_model.or(first) else {
            return Vec::new();
        };
        if !self.own_models.contains(own_model) {
            return Vec::new();
        }
        // A server has several addresses, so a model for other work is known by its name alone.
        let is_configured = |model: &String| {
            let mut endpoints = self.routes.endpoints.iter();
            endpoints.any(|(name, other)| {
                let is_beside = self.beside.contains(name.as_str());
                other.model == *model && (is_beside || is_at(own, other))
            })
        };
        let mut models: Vec<&String> = self
            .own_models
            .iter()
            .filter(|model| {
                *model != own_model
                    && model.len() <= MAX_MODEL_NAME
                    && model.bytes().all(|byte| byte.is_ascii_graphic())
                    && makes_calls(model)
                    && !is_configured(model)
            })
            .collect();
        models.sort_by(|one, other| ranked(one, other));
        models.truncate(MAX_UNNAMED);
        let named = models.into_iter();
        named
            .map(|model| (format!("{key}/{model}"), model.clone()))
            .collect()
    }

    /// Whether `endpoint` is at the very address of one that the run uses, with the same key: what it is told goes
    /// nowhere else, and counts in the same account.
    fn is_at_own(self, endpoint: &EndpointTable) -> bool {
        let mut own = self.routes.endpoints_of(self.own).into_iter();
        own.any(|(_, own)| is_at(own, endpoint) && own.api_key_env == endpoint.api_key_env)
    }
}

/// Whether both endpoints have the same address.
fn is_at(one: &EndpointTable, other: &EndpointTable) -> bool {
    let base_url = |endpoint: &EndpointTable| endpoint.base_url.trim_end_matches('/').to_owned();
    base_url(one) == base_url(other)
}

/// Whether this is the endpoint of the built-in configuration, at its address and without a model: nobody set it.
fn is_unset(name: &str, endpoint: &EndpointTable) -> bool {
    name == "default" && endpoint.base_url == UNSET_URL && endpoint.model.is_empty()
}

/// A candidate of the fallback.
#[derive(Debug, Clone)]
pub struct FallbackCandidate<'a> {
    /// Name of its endpoint.
    pub key: &'a str,
    pub endpoint: &'a EndpointTable,
    /// Name of the model at its endpoint; empty: the first that it lists.
    pub model: String,
}

impl FallbackCandidate<'_> {
    /// The endpoint, with this model.
    pub fn table(&self) -> EndpointTable {
        self.endpoint.clone().with_model(&self.model)
    }
}

/// Resolves a name in `models`: an endpoint, `ENDPOINT/MODEL`, or a model at the run's own endpoint. Names of
/// models contain slashes, so the first part is an endpoint only if one of that name is configured.
pub fn named<'a>(
    name: &str,
    endpoints: &'a BTreeMap<String, EndpointTable>,
    own: &str,
) -> Option<FallbackCandidate<'a>> {
    let at = |key: &str, model: Option<&str>| {
        let (key, endpoint) = endpoints.get_key_value(key)?;
        Some(FallbackCandidate {
            key,
            endpoint,
            model: model.unwrap_or(&endpoint.model).to_owned(),
        })
    };
    at(name, None)
        .or_else(|| {
            let (first, model) = name.split_once('/')?;
            at(first, Some(model))
        })
        .or_else(|| at(own, Some(name)))
}

/// Why an endpoint cannot be asked: the variable of its key is not set.
fn missing(endpoint: &EndpointTable, is_set: &dyn Fn(&str) -> bool) -> Option<String> {
    let variable = endpoint.api_key_env.as_str();
    (!variable.is_empty() && variable != USUAL_KEY && !is_set(variable))
        .then(|| format!("its key is missing: {variable} is not set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base_url: &str, key: &str) -> EndpointTable {
        let text = format!("base_url = {base_url:?}\nmodel = \"usual\"\napi_key_env = {key:?}");
        EndpointTable::of_test(&text).unwrap()
    }

    #[test]
    fn candidates_of_the_runs_own_provider_come_first() {
        let endpoints = BTreeMap::from([
            ("here".to_owned(), endpoint("http://a/v1", USUAL_KEY)),
            (
                "there".to_owned(),
                endpoint("http://b/v1", "NO_SUCH_KEY_OF_A_TEST"),
            ),
        ]);
        let found: Vec<_> = candidates(
            &endpoints,
            "[\"there\", \"there/org/big\", \"org/model\", \"here\"]",
        )
        .into_iter()
        .map(|candidate| (candidate.name, candidate.model, candidate.missing.is_some()))
        .collect();
        let expected = [
            ("org/model", "org/model", false),
            ("here", "usual", false),
            ("there", "usual", true),
            ("there/org/big", "org/big", true),
        ];
        let expected = expected.map(|(name, model, missing)| (name.into(), model.into(), missing));
        assert_eq!(found, expected);
    }

    /// The candidates of a run with the endpoint `here`, where `models` is configured.
    fn candidates(endpoints: &BTreeMap<String, EndpointTable>, models: &str) -> Vec<Candidate> {
        candidates_beside(endpoints, models, &[], false)
    }

    /// The candidates of a run whose endpoint lists `own_models`.
    fn candidates_beside(
        endpoints: &BTreeMap<String, EndpointTable>,
        models: &str,
        own_models: &[String],
        counts_money: bool,
    ) -> Vec<Candidate> {
        let text = format!(
            "enabled = true\nmax_tool_failures = 3\nattempts = 2\ntool_errors = false\norder = \"listed\"\n\
             models = {models}"
        );
        let table: FallbackTable = toml::from_str(&text).unwrap();
        let router = toml::from_str("model = \"\"\ndefault = \"\"\ntimeout_ms = 1").unwrap();
        let of = FallbackRoutes {
            routes: Routes {
                endpoints,
                pools: &BTreeMap::new(),
                router: &router,
            },
            own: "here",
            own_models,
            beside: &BTreeSet::from(["guard"]),
        };
        table.settings(of, counts_money, &|_| false).candidates
    }

    /// Models that the configuration names are not asked a second time, and those for other work not at all.
    #[test]
    fn other_models_of_the_own_endpoint_are_candidates() {
        let at = |base_url: &str, model: &str| {
            let mut table = endpoint(base_url, USUAL_KEY);
            model.clone_into(&mut table.model);
            table
        };
        let endpoints = BTreeMap::from(
            [
                // The same server under another of its names.
                ("guard", at("http://gpu.example/v1", "my-safety-8b")),
                ("here", at("http://gpu/v1", "qwen3-32b")),
                ("little", at("http://gpu/v1/", "qwen3-4b")),
            ]
            .map(|(name, endpoint)| (name.to_owned(), endpoint)),
        );
        let list = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let all = [
            "llama-guard-3-8b",
            "my-safety-8b",
            "nomic-embed-text",
            "bge-reranker-v2-m3",
            "qwen3-4b",
            "org/glm-4.5",
            "qwen3-32b",
            "two\nlines",
            "qwen3-235b",
        ];
        let known = list(&all);
        let without_own = list(&["a", "b"]);
        for (models, own_models, expected) in [
            (
                "[]",
                &known,
                vec!["here/org/glm-4.5", "here/qwen3-235b", "little"],
            ),
            ("[]", &without_own, vec!["little"]),
            ("[\"little\"]", &known, vec!["little"]),
            (
                "[\"little\", \"qwen3-235b\", \"*\"]",
                &known,
                vec!["qwen3-235b", "little", "here/org/glm-4.5"],
            ),
        ] {
            let found = candidates_beside(&endpoints, models, own_models, false);
            let found: Vec<String> = found.into_iter().map(|candidate| candidate.name).collect();
            assert_eq!(found, expected, "{models}");
        }
        let many: Vec<String> = (0..30).map(|n| format!("m{n}")).collect();
        let many = [many, list(&["qwen3-32b"])].concat();
        let found = candidates_beside(&endpoints, "[]", &many, false);
        assert_eq!(found.len(), 1 + MAX_UNNAMED);
    }

    /// The price of a token is another for another model, and a limit of money needs it.
    #[test]
    fn an_unnamed_model_has_no_price_by_the_token() {
        for (price, is_priced) in [
            ("price_per_million = { prompt = 1, completion = 2 }", false),
            ("gpu_hour = 2", true),
        ] {
            let text = format!("base_url = \"http://gpu/v1\"\nmodel = \"a\"\n{price}");
            let table = EndpointTable::of_test(&text).unwrap();
            let endpoints = BTreeMap::from([("here".to_owned(), table)]);
            let own_models = ["a".to_owned(), "b".to_owned()];
            let found = candidates_beside(&endpoints, "[]", &own_models, true);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].price.is_some(), is_priced, "{price}");
            assert_eq!(found[0].missing.is_none(), is_priced, "{price}");
        }
    }

    #[test]
    fn the_endpoint_that_nobody_configured_is_the_built_in_one() {
        let unset = EndpointTable::of_test("").unwrap();
        assert!(is_unset("default", &unset) && !is_unset("other", &unset));
        let set = EndpointTable::of_test("model = \"m\"").unwrap();
        assert!(!is_unset("default", &set));
    }

    /// Without a list, no text goes to an address that the run would not use, nor to the endpoint that nobody
    /// configured.
    #[test]
    fn without_a_list_the_order_is_built_in() {
        let at = |base_url: &str, model: &str| {
            let mut table = endpoint(base_url, USUAL_KEY);
            model.clone_into(&mut table.model);
            table
        };
        let mut account = at("http://gpu/v1", "qwen3-72b");
        account.api_key_env = "ANOTHER_ACCOUNT".into();
        let endpoints = BTreeMap::from(
            [
                ("account", account),
                ("default", EndpointTable::of_test("").unwrap()),
                ("here", at("http://gpu/v1", "qwen3-32b")),
                ("again", at("http://gpu/v1", "qwen3-32b")),
                ("little", at("http://gpu/v1/", "qwen3-4b")),
                ("large", at("http://gpu/v1", "qwen3-235b")),
                ("path", at("http://gpu/other/v1", "glm-4.5")),
                ("guard", at("http://gpu/v1", "llama-guard-3-8b")),
                ("mine", at("http://127.0.0.1:8080/v1", "deepseek-chat")),
                ("hosted", at("https://api.example/v1", "claude-sonnet-4-5")),
            ]
            .map(|(name, endpoint)| (name.to_owned(), endpoint)),
        );
        for (models, expected) in [
            ("[]", vec!["large", "little"]),
            (
                "[\"*\"]",
                vec!["hosted", "mine", "path", "large", "account", "little"],
            ),
            (
                "[\"little\", \"*\", \"mine\"]",
                vec!["little", "hosted", "path", "large", "account", "mine"],
            ),
            ("[\"hosted\"]", vec!["hosted"]),
            ("[\"default\"]", vec!["default"]),
        ] {
            let found = candidates(&endpoints, models).into_iter();
            let found: Vec<String> = found.map(|candidate| candidate.name).collect();
            assert_eq!(found, expected, "{models}");
        }
    }
}
