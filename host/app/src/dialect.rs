//! What `toolhold doctor --probe` found out about endpoints, where runs use it.

use crate::config::{Config, Endpoint};
use crate::storage::Dialects;
use std::collections::BTreeMap;
use toolhold_agent::Settings;
use toolhold_agent::model::{Delivery, Dialect, Model as _, OpenAiModel};

/// What is known of the endpoints of a run that were probed, by their names.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, Dialect>);

impl Known {
    pub fn add(&mut self, endpoint: &str, dialect: Dialect) {
        self.0.insert(endpoint.to_owned(), dialect);
    }

    /// Decides what nobody decided: the contract if all that may answer were found to keep the same one,
    /// and the window. A reply may take half of it.
    pub fn adapt(&self, settings: &mut Settings, config: &Config) {
        let endpoints = config.routes().endpoints_of(&config.endpoint);
        let known: Option<Vec<&Dialect>> = endpoints
            .iter()
            .map(|(name, _)| self.0.get(*name))
            .collect();
        let answering = endpoints.iter().filter_map(|(name, _)| self.0.get(*name));
        if let Some(most) = answering.filter_map(Dialect::max_reply_tokens).min() {
            settings.max_tokens = settings.max_tokens.min(most);
        }
        let Some(known) = known else {
            return;
        };
        let mut contracts = known.iter().map(|dialect| dialect.contract());
        let first = contracts.next();
        if config.routes().chosen_contract(&config.endpoint).is_none()
            && let Some(contract) = first
            && contracts.all(|other| other == contract)
        {
            settings.contract = contract;
        }
        let windows: Option<Vec<u64>> = known
            .iter()
            .map(|dialect| dialect.server.context_length)
            .collect();
        let largest = windows.and_then(|windows| windows.into_iter().max());
        settings.window.tokens = settings.window.tokens.or(largest);
    }
}

/// The model, asked as its endpoint likes to be; and what is known of it, if it was probed.
///
/// A server of another version than the one that was probed is another endpoint, so nothing is known of
/// it. How long a conversation may be is what it says today.
pub async fn known(
    config: &Config,
    endpoint: &Endpoint,
    model: OpenAiModel,
) -> (OpenAiModel, Option<Dialect>) {
    let dialects = Dialects::new(&config.state_folder());
    let Some(probed) = dialects.find(model.target(), model.name()) else {
        return (model, None);
    };
    let mut dialect = probed.dialect;
    // Whoever does not answer this will not answer the run either, which then says so.
    if let Ok(server) = model.server().await {
        if server.version != dialect.server.version {
            let (now, then) = (server.version, dialect.server.version);
            tracing::warn!(
                now = now.as_deref().unwrap_or("unknown"),
                probed = then.as_deref().unwrap_or("unknown"),
                "the endpoint's version is not the one that was probed; what was found is not used: \
                 toolhold doctor --probe"
            );
            return (model, None);
        }
        dialect.server = server;
    }
    let delivery = if endpoint.stream {
        dialect.delivery
    } else {
        Delivery::Whole
    };
    let model = model
        .with_delivery(delivery)
        .with_tokenizer(dialect.tokenizer);
    (model, Some(dialect))
}
