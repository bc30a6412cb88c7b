//! Reads a backup into an empty state folder. The file may be anybody's: its names and sizes are bounded, it leads
//! nowhere else, and nothing of it is in its place before all of it was read and its digest was compared.

use super::{ABOUT, BackupAbout, CACHE_KEY, FORMAT, RESTORED_CONFIGURATION, names, place};
use crate::config::{Configuration, DATABASE_FILE};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toolhold_admission::{WorkFailure, own_work};
use toolhold_files::archive::{ArchiveError, read_archive};
use toolhold_files::{FolderLock, Links, open, temporary_folder};
use toolhold_policy::PinStore as _;
use toolhold_sandbox::PinFolder;
use toolhold_storage::{Location, StoreError, check_database};

/// Maximum bytes of what a backup says of itself: paths of a few files.
const MAX_ABOUT_BYTES: u64 = 1 << 20;
/// Beginning of the name of a folder that holds what was read so far. One that is found was left by a process that ended.
const STAGING: &str = ".restore-";
/// Entries that an empty state folder may have: a key that commands make when they look at modules, and a folder of file
/// systems.
const AS_GOOD_AS_EMPTY: [&str; 2] = [CACHE_KEY, "lost+found"];

/// The place for a backup that is restored.
#[derive(Debug)]
pub struct RestoreTarget {
    /// The state folder.
    pub state: PathBuf,
    /// The database that will be used.
    pub database: Location,
    /// Approvals of the configured modules folder.
    pub pins: PinFolder,
}

impl RestoreTarget {
    /// The place for the state of the host that has this configuration.
    pub fn of(config: &Configuration) -> Self {
        Self {
            state: config.state_folder().to_owned(),
            database: config.storage(),
            pins: config.module_pins(),
        }
    }
}

/// A backup that was restored.
#[derive(Debug)]
pub struct Restored {
    /// The backup's own description.
    pub about: BackupAbout,
    /// Files that were restored, the database aside.
    pub files: u64,
    /// Folder with the texts of the configuration files, if the backup had some.
    pub configuration: Option<PathBuf>,
    /// Modules of the configured folder that have an approval, by name.
    pub approved: Vec<String>,
}

/// Why a backup was not restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(
        "{} has {name:?} already: a backup is restored into an empty state folder. Name another folder with paths.state \
         (TOOLHOLD_PATHS__STATE), or move what is in this one away",
        folder.display()
    )]
    NotEmpty { folder: PathBuf, name: String },
    #[error("the state folder {} cannot be used: {source}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error("{} cannot be opened: {source}", file.display())]
    Open { file: PathBuf, source: io::Error },
    #[error("the backup cannot be restored: {0}")]
    Archive(#[from] ArchiveError),
    #[error("the backup cannot be restored: no backup has a member {name:?} in this place")]
    Member { name: String },
    #[error("{name:?} cannot be restored: {source}")]
    Write { name: String, source: io::Error },
    #[error(
        "a newer version of toolhold made this backup (format {format}; this version reads {FORMAT}): restore it with that \
         version"
    )]
    Newer { format: u32 },
    #[error("what the backup says of itself cannot be read: {source}")]
    About { source: serde_json::Error },
    #[error(
        "the backup has a SQLite database, and the configuration names {database}: restore without storage.url_env"
    )]
    OtherDatabase { database: Location },
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error(transparent)]
    Work(#[from] WorkFailure),
}

/// Restores a backup.
///
/// # Errors
/// [`RestoreError`]. The state folder is as it was, unless the system fails while the files are put in their places.
pub async fn restore(file: PathBuf, target: RestoreTarget) -> Result<Restored, RestoreError> {
    let state = target.state.clone();
    let staged = own_work(move || StagedBackup::read(&file, &state)).await??;
    if staged.about.has_database {
        if matches!(target.database, Location::Postgres(_)) {
            return Err(RestoreError::OtherDatabase {
                database: target.database,
            });
        }
        let database = staged.staging.folder.join(DATABASE_FILE);
        check_database(&database, "the database of the backup").await?;
    }
    own_work(move || {
        let (about, files, has_configuration) =
            (staged.about.clone(), staged.files, staged.has_configuration);
        staged.put_in_place(&target.state)?;
        let configuration = target.state.join(RESTORED_CONFIGURATION);
        Ok::<_, RestoreError>(Restored {
            about,
            files,
            configuration: has_configuration.then_some(configuration),
            approved: approved(&target.pins),
        })
    })
    .await?
}

/// A backup that was read into a folder of its own within the state folder.
struct StagedBackup {
    staging: Staging,
    about: BackupAbout,
    files: u64,
    has_configuration: bool,
    /// No other restore, and no command that changes grants, has the state folder meanwhile.
    _lock: FolderLock,
}

/// Removed when it is dropped.
struct Staging {
    folder: PathBuf,
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl StagedBackup {
    fn read(file: &Path, state: &Path) -> Result<Self, RestoreError> {
        let opened = open(file, Links::Follow).map_err(|source| RestoreError::Open {
            file: file.to_owned(),
            source,
        })?;
        let unusable = |source| RestoreError::Folder {
            folder: state.to_owned(),
            source,
        };
        let lock = FolderLock::take(state).map_err(unusable)?;
        refuse_used(state)?;
        let staging = Staging {
            folder: temporary_folder(state, STAGING).map_err(unusable)?,
        };
        let folder = Dir::open_ambient_dir(&staging.folder, ambient_authority());
        let folder = folder.map_err(unusable)?;
        let mut about: Option<BackupAbout> = None;
        let (mut files, mut has_configuration, mut has_database) = (0, false, false);
        read_archive::<RestoreError>(BufReader::new(opened), |name, bytes, content| {
            if about.is_none() {
                // It comes first.
                about = Some(read_about(name, bytes, content)?);
                return Ok(());
            }
            let refused = || RestoreError::Member { name: name.into() };
            let path = place(name).ok_or_else(refused)?;
            put(&folder, &path, content).map_err(|source| RestoreError::Write {
                name: name.into(),
                source,
            })?;
            match path.to_str() {
                Some(DATABASE_FILE) => has_database = true,
                _ => files += 1,
            }
            has_configuration |= path.starts_with(RESTORED_CONFIGURATION);
            Ok(())
        })?;
        let about = about.filter(|about| about.has_database == has_database);
        let about = about.ok_or_else(|| RestoreError::Member {
            name: DATABASE_FILE.into(),
        })?;
        Ok(Self {
            staging,
            about,
            files,
            has_configuration,
            _lock: lock,
        })
    }

    /// Gives all that was read its place: the database last, so that no server works with it before its approvals and
    /// grants are there.
    fn put_in_place(self, state: &Path) -> Result<(), RestoreError> {
        let unusable = |source| RestoreError::Folder {
            folder: state.to_owned(),
            source,
        };
        refuse_used_beside(state, &self.staging.folder)?;
        let mut entries = names(&self.staging.folder).map_err(unusable)?;
        entries.sort_by_key(|name| *name == *DATABASE_FILE);
        for name in entries {
            fs::rename(self.staging.folder.join(&name), state.join(&name)).map_err(unusable)?;
        }
        // They are in their places whether or not the system can say that the names are on disk.
        if let Ok(folder) = File::open(state) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// Refuses a folder that holds something, and removes what an earlier restore left that was ended.
fn refuse_used(state: &Path) -> Result<(), RestoreError> {
    let unusable = |source| RestoreError::Folder {
        folder: state.to_owned(),
        source,
    };
    for name in names(state).map_err(unusable)? {
        if name.to_string_lossy().starts_with(STAGING) {
            fs::remove_dir_all(state.join(name)).map_err(unusable)?;
        }
    }
    refuse_used_beside(state, Path::new(""))
}

/// Refuses a folder that holds something beside the folder `own`.
fn refuse_used_beside(state: &Path, own: &Path) -> Result<(), RestoreError> {
    let found = names(state).map_err(|source| RestoreError::Folder {
        folder: state.to_owned(),
        source,
    })?;
    let is_free = |name: &std::ffi::OsString| {
        state.join(name) == own || AS_GOOD_AS_EMPTY.iter().any(|free| *free == *name)
    };
    match found.into_iter().find(|name| !is_free(name)) {
        None => Ok(()),
        Some(name) => Err(RestoreError::NotEmpty {
            folder: state.to_owned(),
            name: name.to_string_lossy().into_owned(),
        }),
    }
}

/// The number of the form alone: what else a later form has may be another.
#[derive(Deserialize)]
struct BackupForm {
    format: u32,
}

fn read_about(name: &str, bytes: u64, content: &mut dyn Read) -> Result<BackupAbout, RestoreError> {
    if name != ABOUT || bytes > MAX_ABOUT_BYTES {
        return Err(RestoreError::Member { name: name.into() });
    }
    let mut text = Vec::new();
    content.read_to_end(&mut text).map_err(ArchiveError::Read)?;
    let unread = |source| RestoreError::About { source };
    let BackupForm { format } = serde_json::from_slice(&text).map_err(unread)?;
    if format > FORMAT {
        return Err(RestoreError::Newer { format });
    }
    serde_json::from_slice(&text).map_err(unread)
}

/// Writes a file that is not there yet, readable by its owner alone, and the folders above it.
fn put(folder: &Dir, path: &Path, content: &mut dyn Read) -> io::Result<()> {
    let mut private = DirBuilder::new();
    private.mode(0o700);
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    // The last one is empty.
    above.pop();
    for parent in above.into_iter().rev() {
        match folder.create_dir_with(parent, &private) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = folder.open_with(path, &options)?;
    io::copy(content, &mut file)?;
    // Otherwise its name may be on disk before its content is.
    file.sync_all()
}

/// The modules whose pin was not revoked.
fn approved(pins: &PinFolder) -> Vec<String> {
    let names = names(pins.folder()).unwrap_or_default().into_iter();
    let slots = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned()));
    slots
        .filter(|slot| pins.get(slot).is_some_and(|pin| !pin.is_revoked()))
        .collect()
}
