//! A run's journal: one file, one JSON object a line.

use futures_util::future::BoxFuture;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use thiserror::Error;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use toolhold_agent::event::Seal;
use toolhold_agent::{Event, EventKind, Journal};
use uuid::Uuid;

/// Appends events to `runs/ID.jsonl` in the state folder. Held by one process at a time.
#[derive(Debug)]
pub struct FileJournal {
    file: File,
    path: PathBuf,
}

/// Why a run's record cannot be had.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error("there is no run {name:?}; `toolhold runs` lists them")]
    Unknown { name: String },
    #[error("there are no runs yet: `toolhold run`, `request run` and `plan run` make them")]
    None,
    #[error("{name:?} begins the names of several runs: {}", listed(names))]
    Ambiguous { name: String, names: Vec<String> },
    #[error("line {line} of {path} is no event: {source}")]
    Line {
        path: PathBuf,
        line: usize,
        source: serde_json::Error,
    },
    #[error(
        "line {line} of {path} is not what was written there: it was changed, or lines before it were lost or added"
    )]
    Changed { path: PathBuf, line: usize },
    #[error("{path} cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the run is still going on in another process")]
    Held,
}

impl FileJournal {
    /// Makes a new journal, readable by its owner alone: it holds everything that was said.
    pub async fn create(state: &Path, run: Uuid) -> io::Result<Self> {
        let folder = folder(state);
        tokio::fs::create_dir_all(&folder).await?;
        let path = folder.join(format!("{run}.jsonl"));
        let mut options = OpenOptions::new();
        options.create_new(true).append(true);
        #[cfg(unix)]
        options.mode(0o600);
        let file = options.open(&path).await?;
        hold(&file).await?;
        Ok(Self { file, path })
    }

    /// Goes on with a journal: its events, and where the next ones are appended. A line that was being
    /// written when the process ended is cut off; nobody was shown that event.
    pub async fn reopen(path: &Path) -> Result<(Self, Vec<Event>), RecordError> {
        let read = |source| RecordError::Read {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(path)
            .await
            .map_err(read)?;
        hold(&file).await.map_err(|_| RecordError::Held)?;
        let record = Record::read(path)?;
        let whole = record.bytes;
        let events = record.unchanged(path)?;
        file.set_len(whole).await.map_err(read)?;
        let path = path.to_owned();
        Ok((Self { file, path }, events))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Journal for FileJournal {
    fn append<'a>(&'a mut self, event: &'a Event) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut line = serde_json::to_vec(event)?;
            line.push(b'\n');
            self.file.write_all(&line).await?;
            // tokio buffers writes; after the flush the kernel has the line, and a killed process
            // loses nothing. Deltas may be lost with the machine, everything else is on the disk.
            self.file.flush().await?;
            match event.kind {
                EventKind::Delta { .. } => Ok(()),
                _ => self.file.sync_data().await,
            }
        })
    }
}

/// Until the file is closed, or the process ends.
async fn hold(file: &File) -> io::Result<()> {
    let file = file.try_clone().await?.into_std().await;
    file.try_lock().map_err(io::Error::from)
}

/// Names that an error lists.
const SHOWN: usize = 8;

fn listed(names: &[String]) -> String {
    let shown = names.iter().rev().take(SHOWN);
    let mut text = shown.cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(" and older ones");
    }
    text
}

pub fn folder(state: &Path) -> PathBuf {
    state.join("runs")
}

/// The journal that `name` means: a path, a run's id or the beginning of one, or `last`.
pub fn find(state: &Path, name: &str) -> Result<PathBuf, RecordError> {
    let path = Path::new(name);
    if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
        && path.is_file()
    {
        return Ok(path.to_owned());
    }
    let all = list(state);
    if name == "last" {
        return all.into_iter().next_back().ok_or(RecordError::None);
    }
    let mut fitting: Vec<PathBuf> = all
        .into_iter()
        .filter(|path| !name.is_empty() && run_of(path).starts_with(name))
        .collect();
    match (fitting.pop(), fitting.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(RecordError::Unknown { name: name.into() }),
        (Some(last), false) => {
            fitting.push(last);
            let names = fitting.iter().map(|path| run_of(path).to_owned()).collect();
            Err(RecordError::Ambiguous {
                name: name.into(),
                names,
            })
        }
    }
}

/// All journals, the oldest first: ids of runs begin with their time.
pub fn list(state: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(state)).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    paths.sort();
    paths
}

/// The run whose journal this is.
pub fn run_of(path: &Path) -> &str {
    path.file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default()
}

/// Whether a process goes on with this run just now.
pub fn is_held(path: &Path) -> bool {
    std::fs::File::open(path).is_ok_and(|file| {
        matches!(
            file.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        )
    })
}

/// The events of a journal.
///
/// # Errors
/// It cannot be read, or is not as it was written.
pub fn read(path: &Path) -> Result<Vec<Event>, RecordError> {
    Record::read(path)?.unchanged(path)
}

/// Bytes of a line: several times what a module may return, so that memory is bounded and nothing that
/// was written is refused.
const MAX_LINE: u64 = 512 << 20;

/// What a journal was found to be.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The first line that is not as it was written.
    pub changed: Option<usize>,
    /// What the whole lines take; after them there may be one that was being written.
    bytes: u64,
}

/// Reads a journal event by event, and keeps none of them.
///
/// # Errors
/// It cannot be read, or one of its lines is no event.
pub fn scan(path: &Path, mut each: impl FnMut(Event)) -> Result<Scanned, RecordError> {
    let failed = |source| RecordError::Read {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut reader = BufReader::new(file);
    let (mut scanned, mut line, mut seal) = (Scanned::default(), Vec::new(), Seal::default());
    for number in 1.. {
        line.clear();
        let mut bounded = reader.by_ref().take(MAX_LINE);
        let length = bounded.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if length == MAX_LINE {
            return Err(failed(io::Error::other(format!(
                "line {number} has no end"
            ))));
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            break;
        };
        let event: Event = serde_json::from_slice(text).map_err(|source| RecordError::Line {
            path: path.to_owned(),
            line: number,
            source,
        })?;
        let expected = std::str::from_utf8(text)
            .ok()
            .and_then(|text| Seal::of(text, &seal));
        if expected.as_ref() != Some(&event.seal) {
            scanned.changed.get_or_insert(number);
        }
        seal = event.seal.clone();
        scanned.bytes += length;
        each(event);
    }
    Ok(scanned)
}

/// When a run began, in milliseconds since 1970, if its id says so.
pub fn began_ms(path: &Path) -> Option<u64> {
    let of_id = Uuid::parse_str(run_of(path)).ok()?.get_timestamp();
    let (seconds, nanoseconds) = of_id?.to_unix();
    let millis = seconds.checked_mul(1_000)?;
    Some(millis + u64::from(nanoseconds / 1_000_000))
}

/// A journal, read.
#[derive(Debug, Default)]
pub struct Record {
    pub events: Vec<Event>,
    /// The first line that is not as it was written.
    pub changed: Option<usize>,
    /// What the whole lines take; after them there may be one that was being written.
    bytes: u64,
}

impl Record {
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let mut events = Vec::new();
        let read = scan(path, |event| events.push(event))?;
        Ok(Self {
            events,
            changed: read.changed,
            bytes: read.bytes,
        })
    }

    /// # Errors
    /// It is not as it was written.
    pub fn unchanged(self, path: &Path) -> Result<Vec<Event>, RecordError> {
        match self.changed {
            None => Ok(self.events),
            Some(line) => Err(RecordError::Changed {
                path: path.to_owned(),
                line,
            }),
        }
    }
}
