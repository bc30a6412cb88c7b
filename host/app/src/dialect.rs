//! What `toolhold doctor --probe` found out about an endpoint, where runs use it.

use crate::config::{Config, Endpoint};
use crate::storage::Dialects;
use toolhold_agent::Settings;
use toolhold_agent::model::{Delivery, Dialect, Model as _, OpenAiModel};

/// The model, asked as its endpoint likes to be; and what is known of it, if it was probed.
///
/// A server of another version than the one that was probed is another endpoint, so nothing is known of
/// it. How long a conversation may be is what it says today.
pub async fn known(config: &Config, model: OpenAiModel) -> (OpenAiModel, Option<Dialect>) {
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
    let delivery = if config.selected().stream {
        dialect.delivery
    } else {
        Delivery::Whole
    };
    let model = model.with_delivery(delivery);
    (model, Some(dialect))
}

/// Decides what nobody decided.
pub fn adapt(settings: &mut Settings, endpoint: &Endpoint, dialect: &Dialect) {
    if endpoint.contract.fixed().is_none() {
        settings.contract = dialect.contract();
    }
    if let Some(most) = dialect.max_reply_tokens() {
        settings.max_tokens = settings.max_tokens.min(most);
    }
}
