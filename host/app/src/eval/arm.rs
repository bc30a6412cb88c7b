//! A configuration that is evaluated: the settings, and the model that it asks.

use crate::config::Config;
use crate::eval::set::digest;
use crate::host;
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_agent::Settings;
use toolhold_agent::model::Model;

/// One of those that are compared.
#[derive(Debug)]
pub struct Arm {
    pub name: String,
    pub config: Config,
    pub settings: Settings,
    pub model: Arc<dyn Model>,
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    /// Changes with whatever may change an outcome.
    pub digest: String,
}

impl Arm {
    /// # Errors
    /// The endpoint does not say which model it has.
    pub async fn new(name: String, config: Config) -> Result<Self> {
        let settings = config.settings();
        let endpoint = config.selected();
        let transport = host::transport(endpoint)?;
        let model: Arc<dyn Model> =
            Arc::new(host::model(endpoint, transport, settings.timeout).await?);
        let candidates = host::candidates(&config, None, settings.timeout)?;
        let all = json!([model.name(), endpoint.base_url, settings]);
        Ok(Self {
            name,
            digest: digest(all.to_string().as_bytes()),
            settings,
            model,
            candidates,
            config,
        })
    }
}
