//! The calls of no run that a process has begun, in a file beside the one that shows that it lives: SQLite.
//!
//! What is written to a file outlasts a killed process as a committed row does, without a transaction and without another
//! thread. Only a process that finds its owner dead reads it. Each line is the begin of a call, or its end. The file may lack
//! ends, because an end is written with the next begin, and the file is emptied when no call is open. So the reader asks the
//! audit log for the row of each call without an end. Where the log refused the row of a call that ended, the file has that
//! row, and the reader writes it: the call was not interrupted.

use crate::audit_rows::Draft;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use toolhold_files::{Links, lives, open};

/// Extension of such a file; its stem is the name of the process.
const EXTENSION: &str = "calls";
/// Extension of one that is being written anew.
const UNFINISHED: &str = "calls-new";
/// Bytes of a file that is written anew with the open calls alone.
const RENEWED_BYTES: u64 = 1 << 20;
/// Maximum bytes of the lines of all open calls with which a refused row is kept: they are in memory, too. Few rows are
/// refused, because no call begins in an outage. A call whose row is not kept is in the log as interrupted later.
const MAX_OPEN_BYTES: usize = 64 << 20;

/// A line of the file. It begins with a line feed: what a failed write left stands before it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallLine<T> {
    Begun {
        call: String,
        /// Number of a row of the audit log that is older than the call's.
        after: i64,
        /// The row that the log gets if the process dies before the call has ended.
        draft: T,
    },
    /// The call ended, and the audit log refused its row.
    Refused {
        call: String,
        /// The refused row, which the log gets in the place of the one in the begin.
        draft: T,
    },
    Ended(String),
}

/// The file of this process. It is made with the first call, and removed when the last one has ended and this is dropped.
#[derive(Debug)]
pub struct CallsFile {
    path: PathBuf,
    state: Mutex<CallsState>,
    /// Number of the newest row of the audit log that this process knows of; negative: none yet.
    newest_row: AtomicI64,
}

#[derive(Debug, Default)]
struct CallsState {
    file: Option<File>,
    /// The lines of the calls that have begun and have no row in the audit log.
    open: BTreeMap<String, Vec<u8>>,
    /// Lines of ends, and of refused rows, that are not written yet.
    ends: Vec<u8>,
    /// Bytes of the file.
    bytes: u64,
    /// Bytes from which on it is written anew.
    renewed_at: u64,
}

impl CallsFile {
    /// The file of the process `name`.
    pub fn of(folder: &Path, name: &str) -> Self {
        Self {
            path: folder.join(format!("{name}.{EXTENSION}")),
            state: Mutex::default(),
            newest_row: AtomicI64::new(-1),
        }
    }

    /// The newest row of the audit log that was noted.
    pub fn newest_row(&self) -> Option<i64> {
        let number = self.newest_row.load(Ordering::Relaxed);
        (number >= 0).then_some(number)
    }

    /// Notes that the audit log has this row.
    pub fn note_row(&self, number: i64) {
        self.newest_row.fetch_max(number, Ordering::Relaxed);
    }

    /// Writes that a call is about to be made: a few hundred bytes, for which no disk is waited. `after`: a row of the audit
    /// log that is older than the call's will be.
    ///
    /// # Errors
    /// The file cannot be written, for example because the disk is full.
    pub fn begin(&self, call: &str, after: i64, draft: &Draft) -> io::Result<()> {
        let begun = line(&CallLine::Begun {
            call: call.to_owned(),
            after,
            draft,
        })?;
        let mut state = self.state.lock();
        if state.open.contains_key(call) {
            return Ok(());
        }
        if state.bytes >= state.renewed_at.max(RENEWED_BYTES) {
            state.renew(&self.path);
        }
        state.append(&self.path, &begun)?;
        state.open.insert(call.to_owned(), begun);
        Ok(())
    }

    /// Keeps the row of a call that has ended, because the audit log refused it. If the file cannot be written now, the row
    /// is written with the next begin or when this is dropped. Only for calls that have begun here.
    pub fn refused(&self, call: &str, row: &Draft) {
        let refused = line(&CallLine::Refused {
            call: call.to_owned(),
            draft: row,
        });
        let Ok(refused) = refused else {
            return;
        };
        let mut state = self.state.lock();
        let bytes: usize = state.open.values().map(Vec::len).sum();
        if bytes.saturating_add(refused.len()) > MAX_OPEN_BYTES {
            return;
        }
        let Some(lines) = state.open.get_mut(call) else {
            return;
        };
        lines.extend_from_slice(&refused);
        state.ends.extend(refused);
        if let Err(error) = state.append(&self.path, &[]) {
            tracing::debug!(%error, "the row of an ended call is not kept in a file yet");
        }
    }

    /// Notes that the audit log has the row of a call.
    pub fn ended(&self, call: &str) {
        let mut state = self.state.lock();
        if state.open.remove(call).is_some()
            && let Ok(end) = line(&CallLine::<()>::Ended(call.to_owned()))
        {
            state.ends.extend(end);
            state.clear();
        }
    }
}

impl Drop for CallsFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.file.is_none() {
            return;
        }
        let _ = fs::remove_file(self.path.with_extension(UNFINISHED));
        if state.open.is_empty() {
            let _ = fs::remove_file(&self.path);
        } else if let Err(error) = state.append(&self.path, &[]) {
            // The log has the rows.
            tracing::debug!(%error, "ends of calls were not written");
        }
    }
}

impl CallsState {
    /// Writes the ends that wait, and `line`.
    fn append(&mut self, path: &Path, line: &[u8]) -> io::Result<()> {
        if self.was_removed()? {
            // Under its name again, for who finds this process dead.
            self.rewrite(path)?;
            self.is_as_short_as_its_open_calls();
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => made(path)?,
        };
        let ends = self.ends.len();
        self.ends.extend_from_slice(line);
        let written = file.write_all(&self.ends);
        if written.is_ok() {
            self.bytes += self.ends.len() as u64;
            self.ends.clear();
        } else {
            self.ends.truncate(ends);
            // What it has of the begin is no line, and the next one begins a line of its own.
            if file.set_len(self.bytes).is_err()
                && let Ok(data) = file.metadata()
            {
                self.bytes = data.len();
            }
        }
        self.file = Some(file);
        written
    }

    /// Whether the file has no name any more, because it was removed.
    fn was_removed(&self) -> io::Result<bool> {
        let data = self.file.as_ref().map(File::metadata).transpose()?;
        Ok(data.is_some_and(|data| data.nlink() == 0))
    }

    /// Empties the file if no call is open: arguments of ended calls are kept no longer than the log keeps them. If that
    /// fails, the ends are written with the next begin.
    fn clear(&mut self) {
        if self.open.is_empty()
            && let Some(file) = &self.file
            && file.set_len(0).is_ok()
        {
            self.is_as_short_as_its_open_calls();
            self.renewed_at = 0;
        }
    }

    fn is_as_short_as_its_open_calls(&mut self) {
        self.bytes = self.open.values().map(|line| line.len() as u64).sum();
        self.ends.clear();
    }

    /// Writes the file anew with the calls that are open. If that fails, the file is used on.
    fn renew(&mut self, path: &Path) {
        match self.rewrite(path) {
            Ok(()) => self.is_as_short_as_its_open_calls(),
            Err(error) => {
                tracing::debug!(%error, "the file of the calls that run cannot be made shorter");
            }
        }
        self.renewed_at = self.bytes.saturating_mul(2);
    }

    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension(UNFINISHED);
        // An attempt that failed may have left it.
        let _ = fs::remove_file(&unfinished);
        let mut file = made(&unfinished)?;
        let lines: Vec<&[u8]> = self.open.values().map(Vec::as_slice).collect();
        let written = file
            .write_all(&lines.concat())
            .and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        } else {
            self.file = Some(file);
        }
        written
    }
}

/// A new file that only this user may read: it has arguments of calls. The folder is made if it is missing.
fn made(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = File::options();
    options.create_new(true).append(true).mode(0o600);
    options.open(path)
}

fn line<T: Serialize>(line: &CallLine<T>) -> io::Result<Vec<u8>> {
    let mut text = vec![b'\n'];
    serde_json::to_writer(&mut text, line)?;
    Ok(text)
}

/// A call that a process has begun, and whose end its file does not have.
#[derive(Debug)]
pub struct LeftCall {
    pub call: String,
    /// Number of a row of the audit log that is older than the call's.
    pub after: i64,
    /// The row that the log gets if it has none of the call.
    pub draft: Draft,
}

/// The files of dead processes.
///
/// # Errors
/// The folder cannot be read.
pub fn left_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(left),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let is_of_calls = path.extension().is_some_and(|it| it == EXTENSION);
        let process = path.file_stem().and_then(|it| it.to_str());
        if is_of_calls && process.is_some_and(|process| !lives(folder, process)) {
            left.push(path);
        }
    }
    Ok(left)
}

/// The calls that a dead process has begun and that have no end in its file; none if the file is gone.
///
/// # Errors
/// The file cannot be read.
pub fn left_calls(path: &Path) -> io::Result<Vec<LeftCall>> {
    let file = match open(path, Links::Refuse) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut left: BTreeMap<String, LeftCall> = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(CallLine::Begun { call, after, draft }) => {
                let named = call.clone();
                left.insert(named, LeftCall { call, after, draft });
            }
            Ok(CallLine::Refused { call, draft }) => {
                if let Some(begun) = left.get_mut(&call) {
                    begun.draft = draft;
                }
            }
            Ok(CallLine::Ended(call)) => drop(left.remove(&call)),
            // The process was killed, or had no room, while it wrote the begin: it did not make the call.
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the begin of a call is not whole");
            }
        }
    }
    Ok(left.into_values().collect())
}

/// Removes the file of a dead process, whose calls are in the log.
///
/// # Errors
/// What the file system says.
pub fn remove_left(path: &Path) -> io::Result<()> {
    let _ = fs::remove_file(path.with_extension(UNFINISHED));
    match fs::remove_file(path) {
        // By another process.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::slice::from_ref;

    fn draft(text: &str) -> Draft {
        Draft::module_approved("ann", "m", text)
    }

    /// Names and rows of the calls that are left, as one that finds the process dead reads them.
    fn left(file: &CallsFile) -> Vec<(String, i64)> {
        let left = left_calls(&file.path).unwrap();
        left.into_iter().map(|it| (it.call, it.after)).collect()
    }

    fn names<const N: usize>(calls: [(&str, i64); N]) -> Vec<(String, i64)> {
        calls.map(|(call, after)| (call.to_owned(), after)).into()
    }

    #[test]
    fn a_call_is_left_until_its_end_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = CallsFile::of(folder.path(), "one");
        assert_eq!(left(&file), [], "there is no file");
        file.ended("unknown");
        file.begin("a\n\"1\"", 7, &draft("x")).unwrap();
        file.begin("b", 8, &draft("y\n{")).unwrap();
        file.begin("b", 9, &draft("again")).unwrap();
        assert_eq!(left(&file), names([("a\n\"1\"", 7), ("b", 8)]));
        let mode = file.path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        file.ended("a\n\"1\"");
        // Its end goes with the next begin.
        file.begin("c", 9, &draft("z")).unwrap();
        assert_eq!(left(&file), names([("b", 8), ("c", 9)]));

        // The process ends, with one call that has no end, and then with none.
        let path = file.path.clone();
        assert_eq!(left_files(folder.path()).unwrap(), from_ref(&path));
        file.ended("c");
        drop(file);
        let calls = left_calls(&path).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].call, "b");
        let text = serde_json::to_value(&calls[0].draft).unwrap();
        assert_eq!(text["details"]["digest"], "y\n{");
        remove_left(&path).unwrap();
        remove_left(&path).unwrap();
        assert_eq!(left_files(folder.path()).unwrap(), Vec::<PathBuf>::new());
        let file = CallsFile::of(folder.path(), "one");
        file.begin("d", 1, &draft("w")).unwrap();
        file.ended("d");
        drop(file);
        assert!(!path.exists());
    }

    /// Texts of the rows that the log would get for the calls that are left.
    fn texts(file: &CallsFile) -> Vec<serde_json::Value> {
        let left = left_calls(&file.path).unwrap();
        let rows = left
            .iter()
            .map(|it| serde_json::to_value(&it.draft).unwrap());
        rows.map(|mut row| row["details"]["digest"].take())
            .collect()
    }

    #[test]
    fn a_refused_row_stands_in_the_place_of_the_begin() {
        let folder = tempfile::tempdir().unwrap();
        let file = CallsFile::of(folder.path(), "one");
        file.refused("unknown", &draft("x"));
        assert!(!file.path.exists());
        file.begin("a", 1, &draft("begun")).unwrap();
        file.begin("b", 2, &draft("begun too")).unwrap();
        file.refused("a", &draft("ended"));
        assert_eq!(texts(&file), ["ended", "begun too"]);
        assert_eq!(left(&file), names([("a", 1), ("b", 2)]));
        // Written anew.
        fs::remove_file(&file.path).unwrap();
        file.begin("c", 3, &draft("begun last")).unwrap();
        assert_eq!(texts(&file), ["ended", "begun too", "begun last"]);
        // The log takes the row after all.
        file.ended("a");
        file.begin("d", 4, &draft("another")).unwrap();
        assert_eq!(texts(&file), ["begun too", "begun last", "another"]);
    }

    /// A process that was killed without an open call leaves no arguments.
    #[test]
    fn a_file_without_open_calls_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = CallsFile::of(folder.path(), "one");
        for number in 0..3 {
            file.begin("a", number, &draft("x")).unwrap();
            file.begin("b", number, &draft("y")).unwrap();
            file.ended("a");
            assert_ne!(file.path.metadata().unwrap().len(), 0);
            file.ended("b");
            assert_eq!(file.path.metadata().unwrap().len(), 0);
        }
    }

    #[test]
    fn a_file_that_somebody_removed_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let processes = folder.path().join("processes");
        let file = CallsFile::of(&processes, "one");
        file.begin("a", 1, &draft("x")).unwrap();
        fs::remove_dir_all(&processes).unwrap();
        assert_eq!(left_files(&processes).unwrap(), Vec::<PathBuf>::new());
        file.begin("b", 2, &draft("y")).unwrap();
        assert_eq!(left(&file), names([("a", 1), ("b", 2)]));
        file.ended("a");
        file.begin("c", 3, &draft("z")).unwrap();
        assert_eq!(left(&file), names([("b", 2), ("c", 3)]));
    }

    #[test]
    fn a_begin_that_is_not_whole_is_of_no_call() {
        let folder = tempfile::tempdir().unwrap();
        let file = CallsFile::of(folder.path(), "one");
        file.begin("a", 1, &draft("x")).unwrap();
        let mut torn = line(&CallLine::Begun {
            call: "torn".into(),
            after: 1,
            draft: draft("y"),
        })
        .unwrap();
        torn.pop();
        let mut by_another = File::options().append(true).open(&file.path).unwrap();
        by_another.write_all(&torn).unwrap();
        file.begin("b", 2, &draft("z")).unwrap();
        assert_eq!(left(&file), names([("a", 1), ("b", 2)]));
    }

    /// After many calls it is short, whether some are always open or not.
    #[test]
    fn a_file_of_many_calls_has_those_that_are_open() {
        let long = "x".repeat(10_000);
        for is_one_open in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let file = CallsFile::of(folder.path(), "one");
            let mut longest = 0;
            for number in 0..500 {
                let (call, former) = (number.to_string(), (number - 1).to_string());
                if !is_one_open {
                    file.ended(&former);
                }
                file.begin(&call, number, &draft(&long)).unwrap();
                if is_one_open {
                    file.ended(&former);
                }
                longest = longest.max(file.path.metadata().unwrap().len());
                let is_left = |(left, _): &(String, i64)| *left == call;
                assert!(number % 50 != 0 || left(&file).iter().any(is_left));
            }
            assert!(longest < 2 * RENEWED_BYTES, "{longest}");
            let many = left(&file).len();
            assert!(many <= 2, "{many}");
            assert!(!file.path.with_extension(UNFINISHED).exists());
        }
    }
}
