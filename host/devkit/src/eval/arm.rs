//! A configuration that is evaluated: the settings, and the model that it asks.

use crate::eval::set::digest;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_model::Model;
use toolhold_protocol::settings::Settings;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::models::{Guards, Models, Spared};
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::Registry;

/// Whose keys say who answers and what a tool may do. What a run is held to besides is in its [`Settings`].
const OF_OUTCOMES: [&str; 7] = [
    "endpoints.",
    "pools.",
    "router.",
    "shields.",
    "limits.",
    "ceiling.",
    "module.",
];

/// One of those that are compared.
#[derive(Debug)]
pub struct Arm {
    pub name: String,
    pub config: Configuration,
    pub settings: Settings,
    pub model: Arc<dyn Model>,
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    pub guards: Guards,
    /// Changes with whatever may change an outcome, but for the modules.
    pub digest: String,
    /// The same of each module, by its name.
    modules: BTreeMap<String, String>,
}

impl Arm {
    /// `effective` are all settings of `config`, by their dotted keys. `spared` is shared by all arms: they
    /// ask the same servers at the same time.
    ///
    /// # Errors
    /// The endpoint does not say which model it has.
    pub async fn new(
        name: String,
        config: Configuration,
        effective: &Value,
        spared: &Spared,
    ) -> Result<Self> {
        let mut settings = config.settings();
        let mut models = Models::new(&config, settings.timeout, None)?
            .sparing(spared)
            .patient();
        let guards = models.guards().await?;
        let selected = Box::pin(models.selected()).await?;
        selected.known.adapt(&mut settings, &config);
        let effective = effective.as_object().into_iter().flatten();
        let set: Vec<_> = effective
            .filter(|(key, _)| OF_OUTCOMES.iter().any(|prefix| key.starts_with(prefix)))
            .collect();
        let all = json!([selected.model.name(), config.place(), settings, set]);
        Ok(Self {
            name,
            digest: digest(all.to_string().as_bytes()),
            settings,
            model: selected.model,
            candidates: selected.candidates,
            guards,
            config,
            modules: BTreeMap::new(),
        })
    }

    /// Takes note of the modules that are there, and of those that screen.
    ///
    /// # Errors
    /// A shield that cannot be had.
    pub async fn note(&mut self, registry: Registry) -> Result<()> {
        for module in registry.modules() {
            let all = json!([
                module.digest,
                module.manifest,
                module.tools,
                module.standing().may_run()
            ]);
            let digest = digest(all.to_string().as_bytes());
            self.modules.insert(module.name.clone(), digest);
        }
        let toolbox = SandboxTools::new(registry);
        // Its hash covers the components that screen.
        let shields = shields(&self.config, toolbox.components(), None, &self.guards).await?;
        let policy = shields.policy(&self.settings, 0);
        self.digest = digest(format!("{} {}", self.digest, policy.hash).as_bytes());
        Ok(())
    }

    /// What the digests of these modules come to; of one that is not there, its name.
    pub fn modules<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let each: Vec<_> = names.map(|name| (name, self.modules.get(name))).collect();
        digest(json!(each).to_string().as_bytes())
    }
}
