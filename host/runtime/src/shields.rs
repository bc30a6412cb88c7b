//! Builds the configured shields, and adapts modules to shields.

use crate::components::Components;
use crate::config::{Configuration, ShieldSettings, ShieldWhat};
use crate::host;
use crate::models::Guards;
use crate::module_report::disabled;
use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::guard::shield::{
    Domains, GuardModel, PersonalData, Screening, Shield, ShieldBinding, ShieldVerdict, Shields,
};
use toolhold_model::CompletionObserver;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_sandbox as sandbox;
use toolhold_sandbox::{Module, ModuleKind, Registry, ScreeningPlace};

/// Every configured shield, ready to screen. A shield that cannot be built is an error, so that no run begins
/// without it. `guards` are the models that shields ask.
pub async fn shields(
    config: &Configuration,
    components: &Components,
    allowed: Option<&[String]>,
    guards: &Guards,
) -> Result<Shields> {
    let mut posts = Vec::new();
    let privacy = config.privacy();
    for settings in config.shields() {
        let built = build(config, components, settings, &privacy, guards).await;
        let built =
            built.with_context(|| format!("the shield {:?} cannot be used", settings.name))?;
        let Some((shield, terms)) = built else {
            continue;
        };
        posts.push(ShieldBinding {
            name: settings.name.clone(),
            places: settings.places.clone(),
            tools: settings.tools.clone(),
            timeout: settings.timeout,
            on_failure: settings.on_failure,
            terms,
            shield,
        });
    }
    let mut grants = config.granted();
    grants["tools"] = json!(allowed);
    Ok(Shields { posts, grants })
}

/// The shield with its implementation; absent for shields that the run itself implements.
async fn build(
    config: &Configuration,
    components: &Components,
    settings: &ShieldSettings,
    privacy: &Privacy,
    guards: &Guards,
) -> Result<Option<(Arc<dyn Shield>, Value)>> {
    Ok(match &settings.what {
        ShieldWhat::Pii { block, .. } if block.is_empty() => None,
        ShieldWhat::Pii { block, .. } => {
            let shield = PersonalData {
                block: block.clone(),
            };
            Some((Arc::new(shield), json!({"kind": "pii", "block": block})))
        }
        ShieldWhat::Domains { allow } => {
            let shield = Domains::new(allow.iter().cloned()).map_err(|reason| anyhow!(reason))?;
            Some((Arc::new(shield), json!({"kind": "domains", "allow": allow})))
        }
        ShieldWhat::Wasm {
            module: name,
            settings: own,
        } => {
            let module = module(config, components, name).await?;
            let own = serde_json::to_value(own)?;
            let terms = json!({
                "kind": "wasm", "module": name, "digest": module.digest, "settings": own,
            });
            let shield = Component {
                registry: components.registry().clone(),
                module,
                settings: own,
                timeout: settings.timeout,
            };
            Some((Arc::new(shield), terms))
        }
        ShieldWhat::Model {
            endpoint: name,
            categories,
            max_chars,
        } => {
            let missing = || format!("there is no [endpoints.{name}]");
            let endpoint = config.endpoint_named(name).with_context(missing)?;
            let model = guards.get(name).with_context(missing)?;
            let terms = json!({
                "kind": "model", "endpoint": endpoint.base_url, "model": model.name(),
                "categories": categories, "max_chars": max_chars,
            });
            let shield = GuardModel {
                model: model.clone(),
                categories: categories.clone(),
                max_chars: *max_chars,
                privacy: privacy.clone(),
            };
            Some((Arc::new(shield), terms))
        }
    })
}

/// The module that `name` means; loaded from its source or the folder if necessary.
async fn module(
    config: &Configuration,
    components: &Components,
    name: &str,
) -> Result<Arc<Module>> {
    let registry = components.registry();
    let find = async || {
        components
            .find(name)
            .await
            .map_err(|reason| anyhow!(reason))
    };
    let mut found = find().await?;
    let plain = name.split('@').next().unwrap_or_default();
    if found.is_none() && config.has_modules() {
        let only = [plain.to_owned()];
        host::load(registry, config, Some(&only), &|_| ()).await?;
        found = find().await?;
    }
    let Some(module) = found else {
        let failures = registry.failures();
        let why = failures.iter().find(|failed| failed.name.raw() == name);
        match why {
            Some(failed) => bail!("its module {name:?} was not loaded: {}", failed.error),
            None => bail!("there is no module {name:?}"),
        }
    };
    if module.kind != ModuleKind::Shield {
        bail!("the module {name:?} is no shield: it does not export toolhold:module/shields");
    }
    if let Some(disabled) = disabled(&module) {
        bail!("its module {} is {disabled}", module.slot);
    }
    Ok(module)
}

/// A module that is a shield.
#[derive(Debug)]
struct Component {
    registry: Registry,
    module: Arc<Module>,
    settings: Value,
    timeout: Duration,
}

impl Shield for Component {
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>> {
        Box::pin(async move {
            let screening = sandbox::Screening {
                place: match screening.place {
                    ShieldPlace::Input => ScreeningPlace::Input,
                    ShieldPlace::ToolInput => ScreeningPlace::ToolInput,
                    ShieldPlace::ToolOutput => ScreeningPlace::ToolOutput,
                    ShieldPlace::Output => ScreeningPlace::Output,
                },
                tool: screening.tool.as_deref(),
                value: &screening.value,
                context: &screening.context,
                settings: &self.settings,
                timeout: Some(self.timeout),
                depth: screening.depth,
            };
            let verdict = self.registry.screen(&self.module, &screening).await;
            Ok(match verdict.map_err(|error| error.to_string())? {
                sandbox::ScreeningVerdict::Pass => ShieldVerdict::Pass,
                sandbox::ScreeningVerdict::Redact { value, reason } => {
                    ShieldVerdict::Redact { value, reason }
                }
                sandbox::ScreeningVerdict::Block { reason } => ShieldVerdict::Block { reason },
            })
        })
    }
}
