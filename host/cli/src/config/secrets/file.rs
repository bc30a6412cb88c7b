//! The file of the user's with secrets, and with the names of those that the keyring has. Nobody else may read it.

use super::super::files::MAX_CONFIG_BYTES;
use super::super::layers::ConfigError;
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use toml::{Table, Value};
use toolhold_files::{FileReaders, FolderLock, Links, UnfinishedFile};

/// What the file has of one name.
#[derive(Debug, Clone)]
pub enum SecretEntry {
    Value(SecretString),
    /// The keyring has the value. Written as `NAME = { keyring = true }`.
    InKeyring,
}

/// The key of the mark.
const MARK: &str = "keyring";

impl SecretEntry {
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Value(text.into())),
            Value::Table(table) => {
                let is_mark = table.len() == 1 && table.get(MARK)?.as_bool()?;
                is_mark.then_some(Self::InKeyring)
            }
            _ => None,
        }
    }

    fn written(&self) -> Value {
        match self {
            Self::Value(value) => value.expose_secret().into(),
            Self::InKeyring => Value::Table(Table::from_iter([(MARK.to_owned(), true.into())])),
        }
    }
}

/// The entries, by name.
#[derive(Debug, Clone, Default)]
pub struct SecretsFile(BTreeMap<String, SecretEntry>);

impl SecretsFile {
    /// Reads the file at `path`, if there is one.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or others may read it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = match text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                let path = path.to_owned();
                return Err(ConfigError::Read { path, source });
            }
        };
        let table = parse(path, &text)?;
        let entry = |(name, value): (String, Value)| match SecretEntry::read(value) {
            Some(entry) => Ok((name, entry)),
            None => Err(ConfigError::Value {
                key: name,
                origin: format!("file {}", path.display()),
                reason: "must be a text, or { keyring = true }".into(),
            }),
        };
        table
            .into_iter()
            .map(entry)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn get(&self, name: &str) -> Option<&SecretEntry> {
        self.0.get(name)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &SecretEntry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

/// As `files::parse`, whose error shows the line that is wrong: here a line is a secret.
fn parse(path: &Path, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or_else(String::new, |before| {
            format!(" in line {}", before.matches('\n').count() + 1)
        });
        ConfigError::Syntax {
            origin: format!("file {}", path.display()),
            reason: format!(
                "there is a mistake{line}, which is not shown because it may be a secret; repair it, or delete the \
                 file and keep the secrets anew"
            ),
        }
    })
}

/// Puts an entry into the file, or takes it out. Returns the one that was there.
///
/// # Errors
/// The file cannot be read or written.
pub fn change(
    path: &Path,
    name: &str,
    entry: Option<SecretEntry>,
) -> Result<Option<SecretEntry>, ConfigError> {
    let wrong = |source| ConfigError::Write {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Held until the file is written: of two commands at the same time, neither forgets what the other keeps.
    let lock = FolderLock::take(folder).map_err(wrong)?;
    let mut kept = SecretsFile::read(path)?.0;
    let is_put = entry.is_some();
    let before = match entry {
        Some(entry) => kept.insert(name.to_owned(), entry),
        None => kept.remove(name),
    };
    if is_put || before.is_some() {
        // A mark is written anew when the keyring has another value: servers watch this file.
        let entries = kept.into_iter().map(|(n, entry)| (n, entry.written()));
        write(&lock, path, &entries.collect()).map_err(wrong)?;
    }
    Ok(before)
}

/// Puts the file in its place in one step; it is the user's alone from its first byte.
fn write(lock: &FolderLock, path: &Path, table: &Table) -> io::Result<()> {
    let text = toml::to_string(table).map_err(io::Error::other)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let unfinished = UnfinishedFile::write(folder, text.as_bytes(), FileReaders::Owner)?;
    lock.put_in_place(unfinished, path.file_name().unwrap_or_default())
}

fn text(path: &Path) -> io::Result<String> {
    let file = toolhold_files::open(path, Links::Follow)?;
    let mode = file.metadata()?.mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others may read or change it (its mode is {:o}), and it holds secrets; `chmod 600` makes it yours alone",
            mode & 0o777
        )));
    }
    let mut text = String::new();
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(io::Error::other(format!(
            "it has more than {MAX_CONFIG_BYTES} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn keep(path: &Path, name: &str, value: &str) -> bool {
        let value = SecretEntry::Value(value.into());
        change(path, name, Some(value)).unwrap().is_some()
    }

    fn names(path: &Path) -> Vec<String> {
        let kept = SecretsFile::read(path).unwrap();
        kept.entries().map(|(name, _)| name.to_owned()).collect()
    }

    fn value(path: &Path, name: &str) -> Option<String> {
        match SecretsFile::read(path).unwrap().get(name)? {
            SecretEntry::Value(value) => Some(value.expose_secret().to_owned()),
            SecretEntry::InKeyring => None,
        }
    }

    #[test]
    fn secrets_are_kept_in_a_file_that_only_the_user_reads() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/toolhold/secrets.toml");
        assert!(names(&path).is_empty());
        assert!(!keep(&path, "A", "one"));
        assert!(!keep(&path, "B", "two\n\"'"));
        assert!(keep(&path, "A", "three"));
        assert!(change(&path, "C", None).unwrap().is_none());
        assert_eq!(names(&path), ["A", "B"]);
        assert_eq!(value(&path, "A").as_deref(), Some("three"));
        assert_eq!(value(&path, "B").as_deref(), Some("two\n\"'"));
        let kept = SecretsFile::read(&path).unwrap();
        assert!(!format!("{kept:?}").contains("three"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(entries.count(), 1, "nothing unfinished is left");
        assert!(change(&path, "A", None).unwrap().is_some());
        assert_eq!(names(&path), ["B"]);
    }

    #[test]
    fn a_mark_takes_the_place_of_the_value() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        keep(&path, "A", "one");
        keep(&path, "B", "two");
        let before = change(&path, "A", Some(SecretEntry::InKeyring)).unwrap();
        assert!(matches!(before, Some(SecretEntry::Value(_))));
        let kept = SecretsFile::read(&path).unwrap();
        assert!(matches!(kept.get("A"), Some(SecretEntry::InKeyring)));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("one") && text.contains("two"), "{text}");
        for wrong in [
            "A = { keyring = false }",
            "A = { keyring = true, x = 1 }",
            "A = { keyring = \"true\" }",
            "A = {}",
            "A = true",
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = SecretsFile::read(&path).unwrap_err().to_string();
            assert!(error.contains("must be a text"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        keep(&path, "A", "one");
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = SecretsFile::read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(value(&path, "A").as_deref(), Some("one"));
    }

    #[test]
    fn a_mistake_in_the_file_is_told_without_the_secret() {
        use std::error::Error as _;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        keep(&path, "A", "one");
        for (text, line) in [
            ("A = \"x\"\nB = \"sk-secret\n", 2),
            ("A = sk-secret", 1),
            ("sk-secret", 1),
            ("A = \"x\"\nsk-secret = \"x\"\nsk-secret = \"y\"", 3),
        ] {
            std::fs::write(&path, text).unwrap();
            for error in [
                SecretsFile::read(&path).unwrap_err(),
                change(&path, "A", None).unwrap_err(),
            ] {
                let shown = format!("{error} {error:?} {:?}", error.source());
                assert!(!shown.contains("sk-secret"), "{shown}");
                assert!(
                    shown.contains(&format!("in line {line},")) && shown.contains("delete the"),
                    "{text:?}: {shown}"
                );
            }
        }
    }

    #[test]
    fn two_commands_at_the_same_time_keep_both() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        std::thread::scope(|threads| {
            for number in 0..8 {
                let path = &path;
                threads.spawn(move || keep(path, &format!("A{number}"), "x"));
            }
        });
        assert_eq!(names(&path).len(), 8);
    }
}
