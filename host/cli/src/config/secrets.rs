//! Keys and passwords that `toolhold secrets` keeps: a file of the user's, which nobody else may read.
//!
//! They stand in for environment variables that are not set: wherever the configuration names a variable that holds a
//! secret, the secret of that name is taken.

use super::files::{self, MAX_CONFIG_BYTES};
use super::layers::ConfigError;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use toolhold_files::{Links, temporary_name};

/// Most bytes of one secret: a key has a hundred, a certificate some thousands.
pub const MAX_SECRET_BYTES: u64 = 64 << 10;
/// Most characters of a name.
const MAX_NAME_CHARS: usize = 128;

/// The secrets, by name.
#[derive(Clone, Default)]
pub struct StoredSecrets(BTreeMap<String, String>);

impl std::fmt::Debug for StoredSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StoredSecrets").field(&self.names()).finish()
    }
}

impl StoredSecrets {
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
        let text = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, text)),
            _ => Err(ConfigError::Value {
                key: name,
                origin: format!("file {}", path.display()),
                reason: "must be a text".into(),
            }),
        };
        table
            .into_iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// As [`files::parse`], whose error shows the line that is wrong: here a line is a secret.
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

/// The file of the secrets, if there is a home folder.
pub fn path() -> Option<PathBuf> {
    Some(files::users_folder()?.join("secrets.toml"))
}

/// Whether a variable may have this name, and so a secret.
pub fn is_valid_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.chars().all(is_part)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Keeps a secret, or forgets it. Returns whether one of this name was kept before.
///
/// # Errors
/// The file cannot be read or written.
pub fn change(path: &Path, name: &str, value: Option<&str>) -> Result<bool, ConfigError> {
    let wrong = |source| ConfigError::Write {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(wrong)?;
    // Held until the file is written: of two commands at the same time, neither forgets what the other keeps.
    let lock = File::open(folder).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    let mut kept = StoredSecrets::read(path)?.0;
    let before = match value {
        Some(value) => kept.insert(name.to_owned(), value.to_owned()),
        None => kept.remove(name),
    };
    if value.is_some() || before.is_some() {
        let table: Table = kept.into_iter().map(|(n, v)| (n, v.into())).collect();
        write(path, &table).map_err(wrong)?;
    }
    Ok(before.is_some())
}

/// Puts the file in its place in one step; it is the user's alone from its first byte.
fn write(path: &Path, table: &Table) -> io::Result<()> {
    let text = toml::to_string(table).map_err(io::Error::other)?;
    let unfinished = path.with_extension(temporary_name("", ".part")?);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // The first error says more.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
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

    #[test]
    fn secrets_are_kept_in_a_file_that_only_the_user_reads() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/toolhold/secrets.toml");
        assert!(StoredSecrets::read(&path).unwrap().names().is_empty());
        assert!(!change(&path, "A", Some("one")).unwrap());
        assert!(!change(&path, "B", Some("two\n\"'")).unwrap());
        assert!(change(&path, "A", Some("three")).unwrap());
        assert!(!change(&path, "C", None).unwrap());
        let kept = StoredSecrets::read(&path).unwrap();
        assert_eq!(
            (kept.names(), kept.get("A"), kept.get("B")),
            (vec!["A", "B"], Some("three"), Some("two\n\"'"))
        );
        assert!(!format!("{kept:?}").contains("three"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(entries.count(), 1, "nothing unfinished is left");
        assert!(change(&path, "A", None).unwrap());
        assert_eq!(StoredSecrets::read(&path).unwrap().names(), ["B"]);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        change(&path, "A", Some("one")).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = StoredSecrets::read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(StoredSecrets::read(&path).unwrap().get("A"), Some("one"));
    }

    #[test]
    fn a_mistake_in_the_file_is_told_without_the_secret() {
        use std::error::Error as _;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secrets.toml");
        change(&path, "A", Some("one")).unwrap();
        for (text, line) in [
            ("A = \"x\"\nB = \"sk-secret\n", 2),
            ("A = sk-secret", 1),
            ("sk-secret", 1),
            ("A = \"x\"\nsk-secret = \"x\"\nsk-secret = \"y\"", 3),
        ] {
            std::fs::write(&path, text).unwrap();
            for error in [
                StoredSecrets::read(&path).unwrap_err(),
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
                threads.spawn(move || change(path, &format!("A{number}"), Some("x")).unwrap());
            }
        });
        assert_eq!(StoredSecrets::read(&path).unwrap().names().len(), 8);
    }

    #[test]
    fn names_are_those_of_variables() {
        for (name, is_valid) in [
            ("OPENAI_API_KEY", true),
            ("_a1", true),
            ("", false),
            ("1A", false),
            ("A-B", false),
            ("A=B", false),
            (&"A".repeat(129), false),
        ] {
            assert_eq!(is_valid_name(name), is_valid, "{name}");
        }
    }
}
