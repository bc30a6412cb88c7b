//! `toolhold doctor`: checks the installation, and prints what to do about each problem.

mod models;
mod servers;
mod toolchains;

use crate::config;
use crate::config::Flags;
use crate::config::secrets::{Needs, SecretPlace, StoreChoice};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::progress::Loading;
use crate::terminal::style::{bad, block, dim, good, line, plural, warn};
use std::path::Path;
use std::sync::Arc;
use toolhold_admission::own_work;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::LoadError;

/// The result of one check.
#[derive(Debug, Clone)]
pub(super) enum Finding {
    Fine(String),
    /// Optional: Toolhold works without it, with limitations.
    Lacking(String, String),
    /// A configured part does not work.
    Broken(String, String),
}

use Finding::{Broken, Fine, Lacking};

impl Finding {
    /// As a person reads it. Areas have the names of a configuration in them, and texts what endpoints, servers and
    /// modules say.
    fn shown(&self, area: &str) -> String {
        let area = line(area);
        match self {
            Fine(text) => format!("{} {area}: {}", good("✓"), block(text)),
            Lacking(text, remedy) => format!(
                "{} {area}: {}\n    {}",
                warn("–"),
                block(text),
                dim(&block(remedy))
            ),
            Broken(text, remedy) => format!(
                "{} {area}: {}\n    {}",
                bad("✗"),
                block(text),
                block(remedy)
            ),
        }
    }
}

/// Remedy of a configuration that cannot be used.
const CORRECT: &str = "correct it; `toolhold config` shows all keys";

pub async fn doctor(file: Option<&Path>, flags: &Flags) -> anyhow::Result<Exit> {
    let mut broken = 0;
    let mut report = |area: &str, finding: Finding| {
        broken += usize::from(matches!(finding, Broken(..)));
        output::tell(&finding.shown(area));
    };
    let (config, of_runs) = match config::load(file, flags, Needs::All) {
        Ok(loaded) => {
            let settings = &loaded.settings;
            let own = settings.iter().filter(|s| s.origin != "default").count();
            report(
                "configuration",
                Fine(format!(
                    "{own} of {} values are not the defaults",
                    settings.len()
                )),
            );
            if let Some(untrusted) = &loaded.untrusted {
                report(
                    "configuration",
                    Lacking(untrusted.what(), untrusted.remedy().into()),
                );
            }
            report("secrets", secrets(file, flags).await);
            let of_runs = match loaded.run_agent() {
                Ok(agent) => Some(Arc::clone(&agent.configuration)),
                Err(error) => {
                    report("agents.default", Broken(error.to_string(), CORRECT.into()));
                    None
                }
            };
            (loaded.configuration, of_runs)
        }
        Err(error) => {
            report("configuration", Broken(error.to_string(), CORRECT.into()));
            return Ok(Exit::Failed);
        }
    };
    let of_runs = of_runs.as_deref().unwrap_or(&config);
    for (area, finding) in models::models(of_runs).await {
        report(&area, finding);
    }
    for finding in modules(&config).await {
        report("modules", finding);
    }
    for inside in config.policy().reserved_in_grants() {
        report("grants", Fine(inside.to_string()));
    }
    for (name, finding) in servers::servers(&config).await {
        report(&format!("MCP server {name}"), finding);
    }
    report("cache", cache(&config));
    for (name, finding) in toolchains::toolchains().await {
        report(name, finding);
    }
    Ok(Exit::of(broken == 0))
}

/// Where `toolhold secrets` keeps them.
async fn secrets(file: Option<&Path>, flags: &Flags) -> Finding {
    let place = match config::secret_store(file, flags) {
        Ok(place) => place,
        Err(error) => return Lacking(error.to_string(), "then keys can be kept".into()),
    };
    let in_file = format!("the file {}", place.file().display());
    let store = place.store();
    let asked = own_work(move || place.next()).await;
    match asked {
        Ok(Ok(SecretPlace::File)) => Fine(format!("new ones are kept in {in_file}")),
        Ok(Ok(SecretPlace::Keyring)) => Fine("new ones are kept in the keyring".to_owned()),
        Ok(Err(error)) if store == StoreChoice::Auto && error.is_absent() => Fine(format!(
            "new ones are kept in {in_file} (the keyring cannot be used: {error})"
        )),
        Ok(Err(error)) if store == StoreChoice::Auto && error.leaves_the_file(false) => Lacking(
            format!("the keyring cannot be used: {error}; new ones are kept in {in_file}"),
            "unlock or repair it, or set secrets.store to \"file\"".into(),
        ),
        Ok(Err(error)) => Broken(
            format!("the keyring cannot be used: {error}"),
            "unlock or repair it, or set secrets.store to \"file\"".into(),
        ),
        Err(error) => Broken(error.to_string(), "ask the keyring again".into()),
    }
}

async fn modules(config: &Configuration) -> Vec<Finding> {
    let registry = match host::registry(config) {
        Ok(registry) => registry,
        Err(error) => {
            return vec![Broken(
                format!("{error:#}"),
                "lower modules.concurrent_calls, or raise `ulimit -v`".into(),
            )];
        }
    };
    let loading = Loading::default();
    if let Err(error) = host::load(&registry, config, None, &|event| {
        loading.on_event(event);
    })
    .await
    {
        return vec![Broken(
            format!("{error:#}"),
            "run this in a folder with modules, or name it with --modules".into(),
        )];
    }
    let tools = registry.tools().len();
    let folder = config.modules_folder();
    let place = if folder.exists() {
        format!("in {}", folder.display())
    } else {
        "that come with this program".to_owned()
    };
    let mut findings = vec![Fine(format!(
        "{} with {} {place}",
        plural(registry.modules().len() as u64, "module"),
        plural(tools as u64, "tool")
    ))];
    findings.extend(
        registry
            .failures()
            .iter()
            .map(|failed| match &failed.error {
                LoadError::Missing { .. } => Lacking(
                    format!("{} is not built", failed.name),
                    format!("toolhold build {}", failed.origin),
                ),
                error => Broken(
                    format!("{}: {error}", failed.origin),
                    "repair it or take it out of the folder".into(),
                ),
            }),
    );
    findings
}

fn cache(config: &Configuration) -> Finding {
    match host::cache(config) {
        Some(cache) => Fine(format!(
            "compiled modules are kept in {}",
            cache.folder().display()
        )),
        None => Lacking(
            format!(
                "{} cannot be used; modules are compiled at every start",
                config.cache_folder().display()
            ),
            "make the folder writable for you alone, or set paths.cache and paths.state".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_and_endpoints_say_looks_like_no_finding_of_its_own() {
        let hostile = "x\u{1b}[2J\u{9b}1m\u{202e}\n✓ endpoint: all is well";
        for finding in [
            Fine(hostile.into()),
            Lacking(hostile.into(), hostile.into()),
            Broken(hostile.into(), hostile.into()),
        ] {
            let shown = finding.shown(&format!("MCP server {hostile}"));
            let uncoloured = shown.lines().skip(1).all(|line| line.starts_with("  "));
            assert!(uncoloured, "{shown}");
            for c in ["\u{1b}[2J", "\u{9b}", "\u{202e}"] {
                assert!(!shown.contains(c), "{shown:?}");
            }
        }
    }
}
