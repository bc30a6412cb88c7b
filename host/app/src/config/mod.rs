//! The configuration: read once, merged from its layers, validated into types, then passed down.
//!
//! The default file is embedded and is the documentation. Unknown keys are errors: in a host for
//! hostile code a misspelt limit must not silently be no limit.

mod endpoint;
mod fallback;
mod known;
mod layers;
mod mcp;
mod mcp_server;
mod modules;
mod origin;
mod pool;
mod price;
mod router;
mod routes;
mod secrets;
mod serve;
mod shields;
mod telemetry;
mod types;

pub use endpoint::Endpoint;
pub use fallback::Named;
pub use layers::{ConfigError, DEFAULTS, Flags, Setting};
pub use mcp_server::Audit;
pub use modules::COMPILER_COMMAND;
pub use routes::{ROUTER, Routes, Target};
pub use serve::{AgentTable, DEFAULT_AGENT, Keys, ServeTable};
pub use shields::{ShieldSettings, ShieldWhat};
pub use telemetry::LogFormat;
pub use types::Config;

/// Merges the layers and validates the result.
///
/// # Errors
/// A file that cannot be read or parsed, a key that does not exist, a value of the wrong type.
pub fn load(
    file: Option<&std::path::Path>,
    flags: &Flags,
) -> Result<(Config, Vec<Setting>), ConfigError> {
    load_granting(file, flags, None)
}

fn load_granting(
    file: Option<&std::path::Path>,
    flags: &Flags,
    grants: Option<&std::path::Path>,
) -> Result<(Config, Vec<Setting>), ConfigError> {
    // Where the granted capabilities lie is itself a setting.
    let merged = layers::merge(file, None, flags, std::env::vars())?;
    let usual = types::validate(&merged)?.grants_file();
    let grants = grants.unwrap_or(&usual);
    let merged = layers::merge(file, Some(grants), flags, std::env::vars())?.known()?;
    let mut config = types::validate(&merged)?;
    config.given = Given {
        file: file.map(std::path::Path::to_owned),
        flags: flags.clone(),
    };
    Ok((config, merged.settings()))
}

/// What a configuration was loaded with, besides what lies on disk and in the environment.
#[derive(Debug, Clone, Default)]
struct Given {
    file: Option<std::path::PathBuf>,
    flags: Flags,
}

impl Config {
    /// The configuration as it is now.
    ///
    /// # Errors
    /// As [`load`].
    pub fn again(&self) -> Result<Self, ConfigError> {
        self.again_with(&Flags::default())
    }

    /// The configuration as it would be if this were the file of grants.
    ///
    /// # Errors
    /// As [`load`].
    pub fn granting(&self, grants: &std::path::Path) -> Result<Self, ConfigError> {
        let file = self.given.file.as_deref();
        load_granting(file, &self.given.flags, Some(grants)).map(|(config, _)| config)
    }

    /// The files that it is read from, whether they are there or not.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        let given = self.given.file.clone();
        let files = given.map_or_else(layers::usual_files, |file| vec![file]);
        files.into_iter().chain([self.grants_file()]).collect()
    }

    /// The same, with these flags beside those that were given.
    ///
    /// # Errors
    /// As [`load`].
    pub fn again_with(&self, flags: &Flags) -> Result<Self, ConfigError> {
        let mut all = self.given.flags.clone();
        all.extend(flags);
        load(self.given.file.as_deref(), &all).map(|(config, _)| config)
    }
}
