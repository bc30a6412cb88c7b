//! Checks all models that a run may use: its own, the router's, the shields' and the fallback's, in its order.

use super::Finding::{self, Broken, Fine, Lacking};
use crate::commands::probe;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_model::{ModelError, OpenAiModel, TimeoutPhase};
use toolhold_runtime::config::{Configuration, EndpointTable, FallbackOrder};
use toolhold_runtime::dialect::{AgreedContract, ONE_KIND};
use toolhold_runtime::host;

/// A model in the role that the configuration gives it.
struct ModelRole {
    /// Purpose of the model, for people.
    area: String,
    /// Name of its endpoint.
    name: String,
    endpoint: EndpointTable,
    /// Whether it answers runs, and so needs a contract.
    is_answering: bool,
    /// Why it cannot be asked.
    missing: Option<String>,
    /// Whether it is a candidate that nobody named: a run has less of a fallback without it.
    is_optional: bool,
}

/// What follows where such a candidate cannot be asked.
const PASSED_OVER: &str =
    "until then the fallback passes over it; or name the models it may ask in fallback.models";

/// Most models of an endpoint that are named.
const MAX_NAMES: usize = 20;

/// The results, by purpose of the model.
pub(super) async fn models(config: &Configuration) -> Vec<(String, Finding)> {
    let mut findings = Vec::new();
    // An endpoint with several roles is asked once.
    let mut answered: BTreeMap<(String, String), Finding> = BTreeMap::new();
    for asked in asked(config) {
        let endpoint = &asked.endpoint;
        if let Some(reason) = asked.missing {
            let remedy = if asked.is_optional {
                PASSED_OVER
            } else {
                "until then it is passed over; or take it out of fallback.models"
            };
            findings.push((asked.area, Lacking(reason, remedy.into())));
            continue;
        }
        let key = (asked.name.clone(), endpoint.model.clone());
        let finding = match answered.get(&key) {
            Some(known) => known.clone(),
            None => answers(config, &asked.name, endpoint).await,
        };
        let finding = match finding {
            Broken(reason, _) if asked.is_optional => Lacking(reason, PASSED_OVER.into()),
            finding => finding,
        };
        answered.insert(key, finding.clone());
        let dialect = match &finding {
            Broken(..) => None,
            _ if asked.is_answering => probe::remembered(config, endpoint).await,
            _ => None,
        };
        findings.push((asked.area, finding));
        findings.extend(dialect.map(|found| ("dialect".to_owned(), found)));
    }
    findings.extend(difference(config).await);
    findings.extend(fallback_order(config).await);
    findings
}

/// The order in which the fallback asks other models, with those that the endpoint of runs lists.
async fn fallback_order(config: &Configuration) -> Option<(String, Finding)> {
    let own_models = match config.listing_endpoint() {
        // An endpoint that does not answer is a finding of its own.
        Some(table) => Box::pin(host::listed_models(table, config.api_key(table)))
            .await
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let fallback = config.fallback(&own_models);
    if !fallback.is_on {
        return None;
    }
    let names = fallback
        .candidates
        .iter()
        .map(|candidate| match &candidate.missing {
            None => candidate.name.clone(),
            Some(reason) => format!("{} (passed over: {reason})", candidate.name),
        });
    let names: Vec<String> = names.collect();
    let text = match (names.is_empty(), config.fallback_order()) {
        (true, _) => "no other model is asked; fallback.models names those that may be".to_owned(),
        (false, FallbackOrder::Listed) => format!("asks in this order: {}", names.join(", ")),
        (false, FallbackOrder::Measured) => format!(
            "asks first those that managed more, and else in this order: {}",
            names.join(", ")
        ),
    };
    Some(("fallback order".into(), Fine(text)))
}

fn asked(config: &Configuration) -> Vec<ModelRole> {
    let routes = config.routes();
    let own = routes.endpoints_of(&config.endpoint);
    let is_one = routes.reached(&config.endpoint).len() == 1;
    let asked = |area: String, (name, endpoint): (&str, &EndpointTable), is_answering| ModelRole {
        area,
        name: name.to_owned(),
        endpoint: endpoint.clone(),
        is_answering,
        missing: None,
        is_optional: false,
    };
    let own = own.into_iter().map(|one| {
        let area = if is_one {
            "endpoint".to_owned()
        } else {
            format!("endpoint {}", one.0)
        };
        asked(area, one, true)
    });
    let picker = routes.picker(&config.endpoint);
    let picker = picker.map_or(Vec::new(), |picker| routes.endpoints_of(picker));
    let picker = picker
        .into_iter()
        .map(|one| asked(format!("router's model {}", one.0), one, false));
    let guards = config.guards().filter_map(|(shield, name)| {
        let endpoint = config.endpoint_named(name)?;
        let area = format!("shield {shield}, model {name}");
        Some(asked(area, (name, endpoint), false))
    });
    let candidates = config.settings().fallback.candidates.into_iter();
    let candidates = candidates.filter_map(|candidate| {
        let named = config.candidate(&candidate.name)?;
        let area = format!("fallback {}", candidate.name);
        let endpoint = named.table();
        Some(ModelRole {
            missing: candidate.missing,
            is_optional: !config.lists_candidate(&candidate.name),
            ..asked(area, (named.key, &endpoint), true)
        })
    });
    let all: Vec<ModelRole> = own.chain(picker).chain(guards).collect();
    all.into_iter().chain(candidates).collect()
}

/// The contract of runs whose answering endpoints support different ones.
async fn difference(config: &Configuration) -> Option<(String, Finding)> {
    let routes = config.routes();
    let own = routes.endpoints_of(&config.endpoint);
    if own.len() < 2 || routes.chosen_contract(&config.endpoint).is_some() {
        return None;
    }
    let mut found = Vec::new();
    for (name, endpoint) in own {
        found.push((name, probe::found(config, endpoint).await));
    }
    let found: Vec<_> = found
        .iter()
        .map(|(name, probed)| (*name, probed.as_ref().map(|probed| &probed.dialect)))
        .collect();
    let difference = AgreedContract::of(&found).difference(&config.endpoint)?;
    Some(("contract".into(), Lacking(difference, ONE_KIND.into())))
}

/// The names, or the first of many: a hosted service has hundreds of models.
fn listed(names: &[String]) -> String {
    let shown = names.get(..MAX_NAMES).unwrap_or(names).join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

async fn answers(config: &Configuration, name: &str, endpoint: &EndpointTable) -> Finding {
    let remedy = match name {
        "default" => "start a server there, or name another with --base-url, TOOLHOLD_BASE_URL or \
                      [endpoints.default]; for a hosted model: toolhold secrets set openai, and --model openai:NAME; \
                      without either, in Toolhold's repository: cargo xtask local-model start"
            .to_owned(),
        name => format!("start a server there, or correct endpoints.{name}.base_url"),
    };
    let transport = match host::transport(endpoint, config.api_key(endpoint)) {
        Ok(transport) => transport,
        Err(error) => return Broken(format!("{error:#}"), remedy),
    };
    let timeouts = host::timeouts(endpoint, Duration::from_secs(10));
    match OpenAiModel::new(transport, endpoint.model.clone(), timeouts)
        .list_models()
        .await
    {
        Ok(names) => {
            let url = &endpoint.base_url;
            if endpoint.model.is_empty() || names.contains(&endpoint.model) {
                Fine(format!("{url} answers, models: {}", listed(&names)))
            } else {
                Broken(
                    format!("{url} answers, but has no model {:?}", endpoint.model),
                    format!("use one of {}", listed(&names)),
                )
            }
        }
        // Their own texts send their reader to this command.
        Err(ModelError::Connect { url, source }) => {
            Broken(format!("{url} cannot be reached: {source}"), remedy)
        }
        Err(ModelError::Timeout {
            phase: TimeoutPhase::Connect,
            after,
        }) => {
            let url = &endpoint.base_url;
            let text = format!("{url} took no connection within {after:?}; a firewall may drop it");
            Broken(text, remedy)
        }
        Err(error) => Broken(error.to_string(), remedy),
    }
}
