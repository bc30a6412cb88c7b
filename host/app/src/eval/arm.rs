//! A configuration that is evaluated: the settings, and the model that it asks.

use crate::config::Config;
use crate::eval::set::digest;
use crate::models;
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
        let mut settings = config.settings();
        let selected = models::selected(&config, settings.timeout, None).await?;
        selected.known.adapt(&mut settings, &config);
        let all = json!([selected.model.name(), config.place(), settings]);
        Ok(Self {
            name,
            digest: digest(all.to_string().as_bytes()),
            settings,
            model: selected.model,
            candidates: selected.candidates,
            config,
        })
    }
}
