//! `[fallback]`: models that make a call which the run's own model keeps getting wrong.

use crate::config::endpoint::EndpointTable;
use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::collections::BTreeMap;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::fallback::{Candidate, Fallback};

/// The default key variable of every endpoint, which need not be set.
const USUAL_KEY: &str = "TOOLHOLD_API_KEY";

#[derive(Debug, Clone, Deserialize)]
pub struct FallbackTable {
    enabled: bool,
    max_tool_failures: u32,
    attempts: u32,
    tool_errors: bool,
    models: Vec<String>,
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
        let mut names = self.models.iter();
        match names.find(|name| named(name, endpoints, own).is_none()) {
            Some(nowhere) => models(format!(
                "{nowhere:?} is no endpoint, and runs use {own:?}, which is not a single one; write ENDPOINT/MODEL"
            )),
            None => Ok(()),
        }
    }

    pub fn names(&self) -> &[String] {
        &self.models
    }

    /// The candidates in the order in which they are asked: first those of the run's own provider. If the
    /// run's cost is limited, candidates without a price are left out. `is_set`: whether a variable has a
    /// value.
    pub fn settings(
        &self,
        endpoints: &BTreeMap<String, EndpointTable>,
        own: &str,
        counts_money: bool,
        is_set: &dyn Fn(&str) -> bool,
    ) -> Fallback {
        let names = self.models.iter();
        let found = names.filter_map(|name| Some((name, named(name, endpoints, own)?)));
        let mut found: Vec<_> = found.collect();
        let own = endpoints.get(own);
        found.sort_by_key(|(_, it)| own.is_some_and(|own| own.base_url != it.endpoint.base_url));
        let candidates = found.into_iter().map(
            |(
                name,
                FallbackCandidate {
                    endpoint, model, ..
                },
            )| Candidate {
                name: name.clone(),
                model,
                contract: endpoint.contract.fixed().unwrap_or_default(),
                forcing: Forcing::default(),
                price: endpoint.price(),
                missing: missing(endpoint, is_set).or_else(|| {
                    let is_unknown = counts_money && endpoint.price().is_none();
                    is_unknown.then(|| "it has no price, and run.max_cost needs one".into())
                }),
            },
        );
        Fallback {
            is_on: self.enabled,
            max_tool_failures: self.max_tool_failures,
            attempts: self.attempts,
            tool_errors: self.tool_errors,
            candidates: candidates.collect(),
        }
    }
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
        let mut table = self.endpoint.clone();
        table.model.clone_from(&self.model);
        table
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
        let table: FallbackTable = toml::from_str(
            "enabled = true\nmax_tool_failures = 3\nattempts = 2\ntool_errors = false\n\
             models = [\"there\", \"there/org/big\", \"org/model\", \"here\"]",
        )
        .unwrap();
        let found: Vec<_> = table
            .settings(&endpoints, "here", false, &|_| false)
            .candidates
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
}
