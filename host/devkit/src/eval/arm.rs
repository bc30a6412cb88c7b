//! A configuration that is evaluated: its settings and its model.

use crate::eval::set::digest;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_model::Model;
use toolhold_protocol::settings::Settings;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::models::{Guards, Models, SharedProtection};
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::Registry;

/// Tables whose keys choose the model and the tools' rights. Other settings of a run are in its [`Settings`].
const OF_OUTCOMES: [&str; 7] = [
    "endpoints.",
    "pools.",
    "router.",
    "shields.",
    "limits.",
    "ceiling.",
    "module.",
];

/// One of the compared configurations.
#[derive(Debug)]
pub struct Arm {
    pub name: String,
    pub config: Configuration,
    pub settings: Settings,
    pub model: Arc<dyn Model>,
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    /// Sums up conversations, if the configuration names one.
    pub summarizer: Option<Arc<dyn Model>>,
    pub guards: Guards,
    /// Digest of everything that may change an outcome, except the modules.
    pub digest: String,
    /// Digest of each module, by name.
    modules: BTreeMap<String, String>,
}

impl Arm {
    /// `effective`: all settings of `config`, by their dotted keys. `spared`: shared by all arms, because
    /// they use the same servers at the same time.
    ///
    /// # Errors
    /// The endpoint does not report its model.
    pub async fn new(
        name: String,
        config: Configuration,
        effective: &Value,
        spared: &SharedProtection,
    ) -> Result<Self> {
        let mut settings = config.settings();
        let mut models = Models::new(&config, settings.timeout, None)?
            .sparing(spared)
            .patient();
        let guards = models.guards().await?;
        let selected = Box::pin(models.selected()).await?;
        selected.known.adapt(&mut settings, &config);
        // What is measured is the model, and those that are named for it: not the endpoints of the other arms.
        let candidates = &mut settings.fallback.candidates;
        candidates.retain(|candidate| config.lists_candidate(&candidate.name));
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
            summarizer: selected.summarizer,
            guards,
            config,
            modules: BTreeMap::new(),
        })
    }

    /// Stores the digests of the present modules, and of modules that are shields.
    ///
    /// # Errors
    /// A shield cannot be built.
    pub async fn note(&mut self, registry: Registry) -> Result<()> {
        for module in registry.modules() {
            let all = json!([
                module.digest,
                module.manifest,
                module.tools,
                module.pin_state().may_run()
            ]);
            let digest = digest(all.to_string().as_bytes());
            self.modules.insert(module.name.clone(), digest);
        }
        let toolbox = SandboxTools::new(registry);
        // The policy's hash covers the components that screen.
        let shields = shields(&self.config, toolbox.components(), None, &self.guards).await?;
        let policy = shields.policy(&self.settings, None, 0);
        self.digest = digest(format!("{} {}", self.digest, policy.hash).as_bytes());
        Ok(())
    }

    /// The combined digest of these modules; of a missing one, its name.
    pub fn modules<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let each: Vec<_> = names.map(|name| (name, self.modules.get(name))).collect();
        digest(json!(each).to_string().as_bytes())
    }
}
