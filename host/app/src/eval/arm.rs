//! A configuration that is evaluated: the settings, and the model that it asks.

use crate::config::Config;
use crate::eval::set::digest;
use crate::models::{Guards, Models, Spared};
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
    pub guards: Guards,
    /// Changes with whatever may change an outcome.
    pub digest: String,
}

impl Arm {
    /// `spared` is shared by all arms: they ask the same servers at the same time.
    ///
    /// # Errors
    /// The endpoint does not say which model it has.
    pub async fn new(name: String, config: Config, spared: &Spared) -> Result<Self> {
        let mut settings = config.settings();
        let mut models = Models::new(&config, settings.timeout, None)?.sparing(spared);
        let guards = models.guards().await?;
        let selected = Box::pin(models.selected()).await?;
        selected.known.adapt(&mut settings, &config);
        let all = json!([selected.model.name(), config.place(), settings]);
        Ok(Self {
            name,
            digest: digest(all.to_string().as_bytes()),
            settings,
            model: selected.model,
            candidates: selected.candidates,
            guards,
            config,
        })
    }
}
