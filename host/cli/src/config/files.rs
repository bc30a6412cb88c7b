//! The configuration files, and their tables as leaves with dotted keys.

use super::found::{FOUND, FoundLayer};
use super::known;
use super::layers::ConfigError;
use super::syntax;
use super::user_folder::UserFolder;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toolhold_files::Links;
use toolhold_policy::Digest;

/// The parsed configuration files.
#[derive(Debug, Default)]
pub struct ConfigFiles {
    /// The file of `toolhold modules grant`.
    pub grants: Option<(String, Table)>,
    /// The file that the user named, or the one in the user's configuration folder.
    pub own: Option<(String, Table)>,
    /// The file of the working folder, unless the user named another.
    pub found: Option<FoundLayer>,
    /// The file that the user named.
    pub named: Option<PathBuf>,
    /// SHA-256 of the bytes of the file that the user named, or of the user's own one.
    pub own_digest: Option<Digest>,
}

impl ConfigFiles {
    /// Reads `file`, or else the existing ones of the user's and the folder's file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(file) = file else {
            let found = FoundLayer::read()?;
            let users = Self::users_alone()?;
            return Ok(Self { found, ..users });
        };
        let (own, own_digest) = read_with_digest(file, true)?.unzip();
        Ok(Self {
            grants: None,
            own,
            found: None,
            named: Some(file.to_owned()),
            own_digest,
        })
    }

    /// The file in the user's configuration folder alone.
    ///
    /// # Errors
    /// It cannot be read or parsed.
    pub fn users_alone() -> Result<Self, ConfigError> {
        let own = user_file().map(|file| read_with_digest(&file, false));
        let (own, own_digest) = own.transpose()?.flatten().unzip();
        Ok(Self {
            grants: None,
            own,
            found: None,
            named: None,
            own_digest,
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

    /// Those that the user wrote, by hand or with commands, the weakest first. `found` is stronger.
    pub fn users(&self) -> impl Iterator<Item = &(String, Table)> {
        self.grants.iter().chain(&self.own)
    }

    /// The tables of all files that were read, the weakest first; that of a found file is not always trusted.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let found = self.found.iter().map(|found| &found.table);
        self.users().map(|(_, table)| table).chain(found)
    }

    /// The path of the file that the user named, or of the user's own one.
    pub fn own_path(&self) -> Option<PathBuf> {
        self.named.clone().or_else(user_file)
    }

    /// The text at `key` in the file that the user wrote by hand.
    pub fn own_text(&self, key: &str) -> Option<String> {
        text_in(&self.own.as_ref()?.1, key)
    }

    /// The text at `key` in the strongest file that has one, whether a person trusted it or not.
    pub fn text(&self, key: &str) -> Option<String> {
        let found = self.found.as_ref();
        let found = found.and_then(|found| text_in(&found.table, key));
        found.or_else(|| self.own_text(key))
    }
}

fn text_in(table: &Table, key: &str) -> Option<String> {
    let leaves = flatten(table).into_iter();
    let mut texts = leaves.filter_map(|(own, value)| Some((own, value.as_str()?.to_owned())));
    texts.find_map(|(own, text)| (own == key).then_some(text))
}

/// A table with its origin.
type SourcedTable = (String, Table);

/// Maximum bytes of a file of the configuration, or of secrets.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// A file with its origin; `None` if it does not exist and is optional.
pub fn read(path: &Path, is_required: bool) -> Result<Option<(String, Table)>, ConfigError> {
    let read = read_with_digest(path, is_required)?;
    Ok(read.map(|(file, _)| file))
}

/// Reads a file as [`read`] does, with the SHA-256 of its bytes.
fn read_with_digest(
    path: &Path,
    is_required: bool,
) -> Result<Option<(SourcedTable, Digest)>, ConfigError> {
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
    Ok(Some(((origin, table), Digest::of(text.as_bytes()))))
}

/// The user's configuration folder, if there is a home folder.
pub fn users_folder() -> Option<PathBuf> {
    Some(UserFolder::Config.path()?.join("toolhold"))
}

/// Path of the user's file.
pub fn user_file() -> Option<PathBuf> {
    Some(users_folder()?.join("config.toml"))
}

/// The files that are read unless one is named.
pub fn usual_files() -> Vec<PathBuf> {
    let found = PathBuf::from(FOUND);
    user_file().into_iter().chain([found]).collect()
}

pub fn parse(origin: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| ConfigError::Syntax {
        origin: origin.to_owned(),
        reason: syntax::reason(text, &error),
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
