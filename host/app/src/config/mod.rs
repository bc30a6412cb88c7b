//! The configuration: read once, merged from its layers, validated into types, then passed down.
//!
//! The default file is embedded and is the documentation. Unknown keys are errors: in a host for
//! hostile code a misspelt limit must not silently be no limit.

mod layers;
mod types;

pub use layers::{ConfigError, Flags, Setting};
pub use types::{Config, Endpoint};

/// Merges the layers and validates the result.
///
/// # Errors
/// A file that cannot be read or parsed, a key that does not exist, a value of the wrong type.
pub fn load(
    file: Option<&std::path::Path>,
    flags: &Flags,
) -> Result<(Config, Vec<Setting>), ConfigError> {
    let merged = layers::merge(file, flags, std::env::vars())?;
    let config = types::validate(&merged)?;
    Ok((config, merged.settings()))
}
