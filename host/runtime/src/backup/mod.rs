//! Backups: what a host keeps and cannot make again, in one file, and the way back.
//!
//! A backup has the SQLite database as it was at one moment, the kept files of the state folder, and the texts of the
//! configuration files. It is made while servers run. It has no secrets of the keyring, no modules, and nothing that
//! is made again, such as compiled code. Files come after the database, so that what was revoked before the end of the
//! backup is not given back by it.
//!
//! [`back_up`] writes the file ([`toolhold_files::archive`] has its form), and [`restore`](restore()) reads it into an empty state folder.

mod restore;

pub use restore::{RestoreError, RestoreTarget, Restored, restore};
pub use toolhold_files::archive::ArchiveError;

use crate::config::{Configuration, DATABASE_FILE};
use crate::stats::now_ms;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toolhold_admission::{WorkFailure, own_work};
use toolhold_files::archive::{ArchiveWriter, MAX_NAME_BYTES};
use toolhold_files::{FileReaders, Links, UnfinishedFile, open};
use toolhold_storage::{Location, StoreError, copy_database};

/// Number of the file's form: a file with a larger one is refused.
const FORMAT: u32 = 1;
/// The first member: a [`BackupAbout`].
const ABOUT: &str = "about.json";
/// Folders of the archive.
const STATE: &str = "state";
const CONFIGURATION: &str = "configuration";
/// Entries of the state folder that cannot be made again, beside the database: files, and folders with all that is in
/// them.
const KEPT: [&str; 8] = [
    "approvals",
    "chat_history",
    "dialects",
    "fallback.json",
    "grants.toml",
    "mcp",
    "modules/key-value",
    "trusted",
];
/// The key of the cache of compiled modules. Another one is made, and modules are compiled again.
const CACHE_KEY: &str = "cache.key";
/// Folder of the state folder in which a restore puts the texts of configuration files: they take effect nowhere.
const RESTORED_CONFIGURATION: &str = "configuration-of-backup";
/// Other entries of a state folder: files of processes that run, files that are made again, and those that a restore put
/// aside. `modules` holds a kept folder, and files of calls.
const PASSING: [&str; 8] = [
    CACHE_KEY,
    RESTORED_CONFIGURATION,
    "modules",
    "servers",
    "toolhold.db-shm",
    "toolhold.db-wal",
    "toolhold.lock",
    "toolhold.processes",
];
/// Most levels of folders in the state folder. It has four.
const MAX_LEVELS: usize = 8;
/// Most bytes of a file's name.
const MAX_PART_BYTES: usize = 255;

/// The state of one host.
#[derive(Debug)]
pub struct BackupSource {
    /// The state folder.
    pub state: PathBuf,
    /// The database. One of PostgreSQL is left out.
    pub database: Location,
    /// The modules folder: approvals hold in it alone.
    pub modules: PathBuf,
    /// Configuration files: where each is, and its bytes.
    pub configuration: Vec<(PathBuf, Vec<u8>)>,
}

impl BackupSource {
    /// The state of the host that has this configuration.
    pub fn of(config: &Configuration, configuration: Vec<(PathBuf, Vec<u8>)>) -> Self {
        let modules = config.new_modules_folder();
        Self {
            state: config.state_folder().to_owned(),
            database: config.storage(),
            modules: std::path::absolute(modules).unwrap_or_else(|_| modules.to_owned()),
            configuration,
        }
    }
}

/// The first member of a backup, about the backup itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupAbout {
    format: u32,
    /// The version of toolhold that made it.
    pub version: String,
    /// Milliseconds since 1970.
    pub made_ms: u64,
    /// Whether it has the database.
    pub has_database: bool,
    /// The modules folder for which the approvals hold.
    pub modules: String,
    /// Paths that the configuration files had.
    pub configuration: Vec<String>,
}

/// A backup that was made.
#[derive(Debug)]
pub struct BackedUp {
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether it has the database.
    pub has_database: bool,
    /// Files of the state folder, the database aside.
    pub files: u64,
    /// Entries of the state folder that are not in it, because they are no files that a host keeps there.
    pub left_out: Vec<PathBuf>,
}

/// Why no backup was made.
#[derive(Debug, Error)]
pub enum BackupError {
    #[error("{} is there already; name a file that is not", file.display())]
    Exists { file: PathBuf },
    #[error("{} cannot be backed up: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the backup cannot be written to {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error(transparent)]
    Work(#[from] WorkFailure),
}

/// Makes a backup. The file is written under another name beside `file`, readable by its owner alone, and is there under its
/// own name when it is whole.
///
/// # Errors
/// [`BackupError`]. Nothing is left where the process lives on.
pub async fn back_up(source: BackupSource, file: &Path) -> Result<BackedUp, BackupError> {
    let unwritten = |source| BackupError::Write {
        path: file.to_owned(),
        source,
    };
    let target = std::path::absolute(file).map_err(unwritten)?;
    let folder = target.parent().unwrap_or(Path::new("/"));
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { file: target });
    }
    let (unfinished, archive) =
        UnfinishedFile::create(folder, FileReaders::Owner).map_err(unwritten)?;
    let copy = match &source.database {
        Location::File(path) if path.is_file() => {
            let (copy, _) =
                UnfinishedFile::create(folder, FileReaders::Owner).map_err(unwritten)?;
            copy_database(path, copy.path()).await?;
            Some(copy)
        }
        Location::File(_) | Location::Postgres(_) => None,
    };
    let copied = copy.as_ref().map(|copy| copy.path().to_owned());
    let written = own_work(move || write(&source, copied.as_deref(), archive)).await??;
    drop(copy);
    unfinished
        .put_anew(&target)
        .map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists {
                file: target.clone(),
            },
            _ => unwritten(source),
        })?;
    Ok(written)
}

/// Writes the members.
fn write(
    source: &BackupSource,
    database: Option<&Path>,
    archive: File,
) -> Result<BackedUp, BackupError> {
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::Read { path, source }
    };
    let mut left_out = Vec::new();
    let files = state_files(&source.state, &mut left_out).map_err(unread(&source.state))?;
    let made_ms = now_ms();
    let places = source.configuration.iter();
    let about = BackupAbout {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms,
        has_database: database.is_some(),
        modules: source.modules.display().to_string(),
        configuration: places.map(|(path, _)| path.display().to_string()).collect(),
    };
    let mut writer = ArchiveWriter::new(BufWriter::new(archive), made_ms / 1_000);
    let about = serde_json::to_vec_pretty(&about).map_err(io::Error::from);
    about
        .and_then(|about| writer.add(ABOUT, about.len() as u64, &*about))
        .map_err(unread(Path::new(ABOUT)))?;
    for (number, (path, bytes)) in (1..).zip(&source.configuration) {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| is_part(name)).unwrap_or("toml");
        let name = format!("{CONFIGURATION}/{number}-{name}");
        writer
            .add(&name, bytes.len() as u64, &**bytes)
            .map_err(unread(path))?;
    }
    let mut count = 0;
    for file in &files {
        let opened = match open(&file.path, Links::Refuse) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened,
        };
        let added = opened.and_then(|opened| {
            let bytes = opened.metadata()?.len();
            writer.add(&file.name, bytes, opened)
        });
        added.map_err(unread(&file.path))?;
        count += 1;
    }
    if let Some(copy) = database {
        let added = open(copy, Links::Refuse).and_then(|opened| {
            let bytes = opened.metadata()?.len();
            writer.add(&format!("{STATE}/{DATABASE_FILE}"), bytes, opened)
        });
        added.map_err(unread(copy))?;
    }
    let finished = writer.finish().and_then(|buffer| {
        let archive = buffer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        archive.sync_all()?;
        Ok(archive.metadata()?.len())
    });
    Ok(BackedUp {
        bytes: finished.map_err(unread(Path::new("the archive")))?,
        has_database: database.is_some(),
        files: count,
        left_out,
    })
}

/// A file of the state folder, and its name in the archive.
struct StateFile {
    name: String,
    path: PathBuf,
}

/// The files that are kept. Entries that are none, and are nothing that passes, are noted as left out.
fn state_files(state: &Path, left_out: &mut Vec<PathBuf>) -> io::Result<Vec<StateFile>> {
    let mut files = Vec::new();
    for name in names(state)? {
        let is_known = |known: &[&str]| known.iter().any(|known| *known == name);
        // What begins with a dot is being written.
        let is_unfinished = name.as_encoded_bytes().first() == Some(&b'.');
        if !(is_unfinished || is_known(&KEPT) || is_known(&PASSING) || *DATABASE_FILE == *name) {
            left_out.push(state.join(name));
        }
    }
    for kept in KEPT {
        let name = format!("{STATE}/{kept}");
        let levels = MAX_LEVELS + 1 - kept.split('/').count();
        collect(state.join(kept), name, levels, &mut files, left_out)?;
    }
    Ok(files)
}

/// Adds a file, or all files below a folder, down to this many levels.
fn collect(
    path: PathBuf,
    name: String,
    levels: usize,
    files: &mut Vec<StateFile>,
    left_out: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let kind = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?.file_type(),
    };
    let has_room = levels > 0 && name.len() <= MAX_NAME_BYTES;
    if kind.is_file() && has_room {
        files.push(StateFile { name, path });
        return Ok(());
    }
    if !kind.is_dir() || !has_room {
        left_out.push(path);
        return Ok(());
    }
    for part in names(&path)? {
        let below = path.join(&part);
        match part.to_str() {
            // It is being written.
            Some(part) if part.starts_with('.') => {}
            Some(part) if is_part(part) => {
                collect(below, format!("{name}/{part}"), levels - 1, files, left_out)?;
            }
            _ => left_out.push(below),
        }
    }
    Ok(())
}

/// The names in a folder, sorted; none if it is not there.
fn names(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Whether a kept file or folder may have this name: it leads nowhere else, and a terminal shows it as it is.
fn is_part(part: &str) -> bool {
    let is_plain = |c: char| !(c.is_control() || c == '/' || c == '\\');
    !part.is_empty()
        && !part.starts_with('.')
        && part.len() <= MAX_PART_BYTES
        && part.chars().all(is_plain)
}

/// The path of a member below a state folder that is restored. `None`: no backup has a member of this name.
fn place(member: &str) -> Option<PathBuf> {
    let (folder, rest) = member.split_once('/')?;
    let parts = || rest.split('/');
    if member.len() > MAX_NAME_BYTES || parts().count() > MAX_LEVELS || !parts().all(is_part) {
        return None;
    }
    match folder {
        STATE => {
            let is_within = |kept: &str| {
                let below = rest.strip_prefix(kept);
                below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
            };
            let is_kept = rest == DATABASE_FILE || KEPT.iter().any(|kept| is_within(kept));
            is_kept.then(|| PathBuf::from(rest))
        }
        CONFIGURATION if parts().count() == 1 => Some(Path::new(RESTORED_CONFIGURATION).join(rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
