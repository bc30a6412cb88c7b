//! The configuration files, and their tables as leaves with dotted keys.

use super::known;
use super::layers::ConfigError;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toolhold_files::Links;

/// The file that is read from the working folder.
pub const FOUND: &str = "toolhold.toml";

/// The parsed configuration files: each with its origin, the weakest first.
#[derive(Debug)]
pub struct ConfigFiles {
    grants: Option<(String, Table)>,
    others: Vec<(String, Table)>,
    pub is_named: bool,
}

impl ConfigFiles {
    /// Reads `file`, or else the existing ones of the user's and the folder's file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let read = match file {
            Some(file) => vec![read(file, true)?],
            None => {
                let usual = usual_files().into_iter();
                usual
                    .map(|file| read(&file, false))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Self {
            grants: None,
            others: read.into_iter().flatten().collect(),
            is_named: file.is_some(),
        })
    }

    /// Reads the file of `toolhold modules grant`. It is the weakest layer above the defaults: a person's
    /// configuration overrides it.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read_grants(&mut self, file: &Path) -> Result<(), ConfigError> {
        self.grants = read(file, false)?;
        Ok(())
    }

    /// The weakest first.
    pub fn all(&self) -> impl Iterator<Item = &(String, Table)> {
        self.grants.iter().chain(&self.others)
    }
}

/// Maximum bytes of a file of the configuration, or of a secret.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// A file with its origin; `None` if it does not exist and is optional.
pub fn read(path: &Path, is_required: bool) -> Result<Option<(String, Table)>, ConfigError> {
    let text = if is_required {
        // Named by the user: it may be a pipe, such as the shell's `<(…)`.
        std::fs::read_to_string(path)
    } else {
        toolhold_files::read_text(path, MAX_CONFIG_BYTES, Links::Follow)
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_required => {
            return Ok(None);
        }
        Err(source) => {
            return Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let origin = format!("file {}", path.display());
    let table = parse(&origin, &text)?;
    Ok(Some((origin, table)))
}

/// Path of the user's file, if there is a home folder.
fn user_file() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let base = etcetera::choose_base_strategy().ok()?;
    Some(base.config_dir().join("toolhold").join("config.toml"))
}

/// The files that are read unless one is named.
pub fn usual_files() -> Vec<PathBuf> {
    let found = PathBuf::from(FOUND);
    user_file().into_iter().chain([found]).collect()
}

pub fn parse(origin: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| ConfigError::Syntax {
        origin: origin.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    })
}

/// Leaves with their dotted keys. Lists, tables that are one value, and tables with nothing in them are leaves.
pub fn flatten(table: &Table) -> Vec<(String, Value)> {
    fn walk(prefix: &str, table: &Table, out: &mut Vec<(String, Value)>) {
        for (name, value) in table {
            let key = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            match value {
                Value::Table(inner) if !inner.is_empty() && !known::is_value(&key) => {
                    walk(&key, inner, out);
                }
                _ => out.push((key, value.clone())),
            }
        }
    }
    let mut out = Vec::new();
    walk("", table, &mut out);
    out
}
