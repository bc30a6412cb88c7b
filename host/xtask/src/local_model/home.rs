//! The folder in the user's cache that holds the server, the weights and the records.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};

pub fn folder() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => env::home_dir()
            .context("no home folder to cache the model in: set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    Ok(cache.join("toolhold").join("local-model"))
}

/// A folder below it, made if need be.
pub fn subfolder(name: &str) -> Result<PathBuf> {
    let folder = folder()?.join(name);
    fs::create_dir_all(&folder)
        .with_context(|| format!("could not create {}: set XDG_CACHE_HOME", folder.display()))?;
    Ok(folder)
}

/// Held while something is installed or started; the system releases it however we end.
pub fn lock() -> Result<File> {
    let path = subfolder("run")?.join("lock");
    let file = File::create(&path).with_context(|| format!("could not open {}", path.display()))?;
    file.lock()
        .with_context(|| format!("could not lock {}", path.display()))?;
    Ok(file)
}
