//! The file that is found in the working folder: read once and with a bound, and trusted or not
//! (`docs/security.md`, "Files that were found").
//!
//! Somebody else may have written it, such as the author of a repository that was cloned. What is parsed are the
//! very bytes that were compared with what the user trusted.

use super::files::{flatten, parse};
use super::harmless;
use super::layers::{ConfigError, Setting};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toolhold_files::Links;
use toolhold_runtime::file_pins::{FilePinState, FilePins};

/// The name of the file.
pub const FOUND: &str = "toolhold.toml";
/// The default file, with all its comments, has 30 kB.
const MAX_BYTES: u64 = 1 << 20;
/// Settings of the file: the default file has some 200, a person reads all of them before trusting the file, and each
/// is compared with those that hold without it.
const MAX_SETTINGS: usize = 4_096;
/// Keys that a message names, and characters of each. `toolhold trust` shows all.
const MAX_NAMED: usize = 4;
const MAX_NAME: usize = 80;

/// The bytes of a file, and where they were.
#[derive(Debug)]
pub struct FoundFile {
    /// The real path of its folder, and its name there.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// The found file as a layer of the configuration.
#[derive(Debug)]
pub struct FoundLayer {
    pub origin: String,
    pub table: Table,
    pub file: FoundFile,
    pub trust: FilePinState,
}

/// A found file that is not trusted, and what it sets in vain.
#[derive(Debug, Clone)]
pub struct Untrusted {
    /// It was trusted with another content.
    pub is_changed: bool,
    /// The file was trusted, and is gone.
    pub is_gone: bool,
    /// At least one.
    pub ignored: Vec<Setting>,
}

impl FoundFile {
    /// The file in this folder; `None` if there is none.
    ///
    /// # Errors
    /// It is no regular file, it is too large, or it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, ConfigError> {
        Self::read_named(folder, FOUND.as_ref())
    }

    /// The file of this name in this folder; `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_named(folder: &Path, name: &OsStr) -> Result<Option<Self>, ConfigError> {
        let path = folder.join(name);
        let read = |path: &Path| match toolhold_files::read(path, MAX_BYTES, Links::Follow)
            .map_err(io::Error::from)
        {
            Ok(bytes) => Ok(Some(Self {
                path: folder.canonicalize()?.join(name),
                bytes,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        read(&path).map_err(|source| ConfigError::Read { path, source })
    }
}

/// The settings in the bytes of such a file, with dotted keys.
///
/// # Errors
/// They are not text, not TOML, or too many.
pub fn settings(bytes: &[u8]) -> Result<Vec<(String, Value)>, ConfigError> {
    Ok(flatten(&table(&format!("file {FOUND}"), bytes)?))
}

fn table(origin: &str, bytes: &[u8]) -> Result<Table, ConfigError> {
    let text = str::from_utf8(bytes).map_err(|error| ConfigError::Syntax {
        origin: origin.to_owned(),
        reason: error.to_string(),
    })?;
    let table = parse(origin, text)?;
    let found = flatten(&table).len();
    if found > MAX_SETTINGS {
        return Err(ConfigError::TooMany {
            origin: origin.to_owned(),
            found,
            most: MAX_SETTINGS,
        });
    }
    Ok(table)
}

impl FoundLayer {
    /// The file in the working folder.
    ///
    /// # Errors
    /// As [`FoundFile::read`] and [`FoundLayer::of`].
    pub fn read() -> Result<Option<Self>, ConfigError> {
        FoundFile::read(Path::new("."))?.map(Self::of).transpose()
    }

    /// The settings of a file, which is not trusted before [`FoundLayer::compare`].
    ///
    /// # Errors
    /// It is not text, not TOML, or sets too much.
    pub fn of(file: FoundFile) -> Result<Self, ConfigError> {
        let origin = format!("file {FOUND}");
        let table = table(&origin, &file.bytes)?;
        let trust = FilePinState::Unknown;
        Ok(Self {
            origin,
            table,
            file,
            trust,
        })
    }

    /// The settings of a trusted file of the working folder that is gone. A module may have removed it together with its
    /// shields, so settings that protect still hold, and the user hears of the others.
    pub fn gone(trusted: &FilePins) -> Option<Self> {
        let path = Path::new(".").canonicalize().ok()?.join(FOUND);
        // The text of the record: no file has these bytes.
        let FilePinState::Changed { before } = trusted.state(&path, b"") else {
            return None;
        };
        let bytes = before.into_bytes();
        // A text that is no configuration of this version protects nothing.
        let layer = Self::of(FoundFile { path, bytes }).ok()?;
        Some(Self {
            trust: FilePinState::Gone,
            ..layer
        })
    }

    /// Compares the file with what the user trusted.
    pub fn compare(&mut self, trusted: &FilePins) {
        self.trust = trusted.state(&self.file.path, &self.file.bytes);
    }
}

impl Untrusted {
    /// Whether less is protected than the file's author meant.
    pub fn protects(&self) -> bool {
        self.ignored.iter().any(|it| harmless::protects(&it.key))
    }

    /// What does not hold, and what the user can do.
    pub fn in_words(&self) -> String {
        format!("{}; {}", self.what(), self.remedy())
    }

    /// The next step of the user.
    pub fn remedy(&self) -> &'static str {
        if self.is_gone {
            "put it back, or take the trust in it back: `toolhold trust --revoke`"
        } else {
            "`toolhold trust` shows it and asks"
        }
    }

    /// What does not hold.
    pub fn what(&self) -> String {
        let standing = if self.is_gone {
            "was trusted and is gone"
        } else if self.is_changed {
            "has changed since it was trusted"
        } else {
            "is not trusted"
        };
        let named = self.ignored.iter().take(MAX_NAMED).map(|setting| {
            let key: String = setting.key.chars().take(MAX_NAME).collect();
            key.escape_debug().to_string()
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let rest = match self.ignored.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        format!("./{FOUND} {standing}, so what it sets for {named}{rest} does not hold")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_read_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let read = || FoundFile::read(folder.path());
        assert!(read().unwrap().is_none());
        let path = folder.path().join(FOUND);
        let most = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, "#".repeat(most)).unwrap();
        let found = read().unwrap().unwrap();
        assert_eq!(found.bytes.len(), most);
        assert_eq!(
            found.path,
            folder.path().canonicalize().unwrap().join(FOUND)
        );
        std::fs::write(&path, "#".repeat(most + 1)).unwrap();
        let error = read().unwrap_err().to_string();
        assert!(
            error.ends_with("it has 1048577 bytes, and may have 1048576"),
            "{error}"
        );
        std::fs::write(&path, b"\xff").unwrap();
        let found = read().unwrap().unwrap();
        assert!(FoundLayer::of(found).is_err());
    }

    #[test]
    fn a_file_sets_no_more_than_a_person_reads() {
        let of = |count: usize| {
            let lines = (0..count).map(|number| format!("[mcp.a{number}]\n"));
            let file = FoundFile {
                path: PathBuf::from(FOUND),
                bytes: lines.collect::<String>().into_bytes(),
            };
            FoundLayer::of(file)
        };
        assert!(of(MAX_SETTINGS).is_ok());
        let error = of(MAX_SETTINGS + 1).unwrap_err().to_string();
        assert!(
            error.contains("sets 4097 keys, and may set 4096"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FOUND);
        let fails = || {
            let error = FoundFile::read(folder.path()).unwrap_err().to_string();
            assert!(error.ends_with("it is not a regular file"), "{error}");
        };
        std::fs::create_dir(&path).unwrap();
        fails();
        std::fs::remove_dir(&path).unwrap();
        // Nothing ever writes to it.
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        fails();
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        fails();
    }

    #[test]
    fn the_path_is_that_of_the_folder_and_not_of_a_link_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join(FOUND), "").unwrap();
        symlink(&real, folder.path().join("link")).unwrap();
        let of = |name: &str| {
            let found = FoundFile::read(&folder.path().join(name)).unwrap();
            found.unwrap().path
        };
        assert_eq!(of("real"), of("link"));
    }

    #[test]
    fn a_message_names_a_few_keys_and_shows_none_raw() {
        let setting = |key: &str| Setting {
            key: key.to_owned(),
            value: Value::from(1),
            origin: String::new(),
        };
        let long = "x".repeat(1_000);
        let keys = [
            "mcp.a\u{1b}[2J\n\u{202e}.command",
            &long,
            "c",
            "d",
            "e",
            "f",
        ];
        let untrusted = Untrusted {
            is_changed: false,
            is_gone: false,
            ignored: keys.map(setting).to_vec(),
        };
        let words = untrusted.in_words();
        assert!(
            words.contains(r"mcp.a\u{1b}[2J\n\u{202e}.command, x"),
            "{words}"
        );
        assert!(words.contains("c, d and 2 more does not hold"), "{words}");
        assert!(words.len() < 500 && !words.chars().any(char::is_control));
        let changed = Untrusted {
            is_changed: true,
            ..untrusted
        };
        assert!(changed.in_words().contains("has changed since"));
        let gone = Untrusted {
            is_gone: true,
            ..changed
        };
        assert!(gone.in_words().contains("is gone") && gone.in_words().contains("--revoke"));
    }
}
