//! Arguments that are a text, `-` for stdin, or a file.

use crate::terminal::{stderr, style};
use anyhow::{Context as _, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

/// Fits a plan of ten thousand steps of three kilobytes.
const MAX_INPUT_BYTES: u64 = 32 << 20;

/// The argument itself, or the content of stdin for `-`. `what` names it in errors.
pub fn text(argument: &str, what: &str) -> Result<String> {
    match argument {
        "-" => {
            bounded(std::io::stdin()).with_context(|| format!("{what} cannot be read from stdin"))
        }
        text => Ok(text.to_owned()),
    }
}

/// The content of a file, or of stdin for `-`.
pub fn file(path: &str) -> Result<String> {
    let text = match path {
        "-" => bounded(std::io::stdin()),
        path => File::open(path).map_err(Into::into).and_then(bounded),
    };
    text.with_context(|| format!("{path} cannot be read"))
}

/// Parses a JSON file.
pub fn json(path: &Path) -> Result<Value> {
    let at = path.display();
    let text = File::open(path).map_err(Into::into).and_then(bounded);
    let text = text.with_context(|| format!("{at} cannot be read"))?;
    serde_json::from_str(&text).with_context(|| format!("{at} is not JSON"))
}

/// What stdin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// A terminal, /dev/null, or closed.
    None,
    /// A pipe or a socket.
    Pipe,
    /// A file from its begin.
    File,
    /// A file of which something was read: a loop over its lines reads the next one when this program has ended.
    BegunFile,
}

/// What is piped in or redirected.
pub fn stdin() -> Stdin {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    stdin.map_or(Stdin::None, |stdin| kind(&File::from(stdin)))
}

fn kind(stdin: &File) -> Stdin {
    let Ok(kind) = stdin.metadata().map(|it| it.file_type()) else {
        return Stdin::None;
    };
    if kind.is_fifo() || kind.is_socket() {
        Stdin::Pipe
    } else if !kind.is_file() {
        Stdin::None
    } else if rustix::fs::tell(stdin).is_ok_and(|at| at > 0) {
        Stdin::BegunFile
    } else {
        Stdin::File
    }
}

/// The text of `source`, which is at most `room` bytes and takes its size of that.
pub fn within(source: impl Read, room: &mut u64) -> Result<String> {
    let mut text = String::new();
    let read = source.take(*room + 1).read_to_string(&mut text)? as u64;
    match room.checked_sub(read) {
        Some(left) => *room = left,
        None => bail!("it is larger than the {room} bytes that are left for it"),
    }
    Ok(text)
}

/// A line that is typed at the terminal and not shown. `None`: Ctrl-C.
///
/// # Errors
/// The terminal cannot be read, or not be kept from showing it.
pub async fn hidden_line(prompt: &str) -> Result<Option<String>> {
    let hidden = HiddenInput::begin().context("the terminal cannot be kept from showing it")?;
    stderr::part(&style::line(prompt));
    let (done, is_done) = oneshot::channel();
    // In a thread that ends with the process: the runtime would wait for one of its own.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin()
            .lock()
            .take(MAX_LINE_BYTES + 1)
            .read_line(&mut line);
        done.send(read.map(|_| line))
    });
    let line = tokio::select! {
        line = is_done => Some(line.context("the terminal was not read")??),
        _ = tokio::signal::ctrl_c() => None,
    };
    // The line break was not shown either.
    stderr::part("\n");
    let Some(line) = line else {
        return Ok(None);
    };
    tokio::time::sleep(PASTE_GAP).await;
    if hidden.has_more().context("the terminal cannot be read")? {
        bail!(
            "more than one line was given; text of several lines is piped in, or redirected from a file"
        );
    }
    if line.trim_end_matches('\n').len() as u64 >= MAX_LINE_BYTES {
        bail!(
            "a terminal takes at most {MAX_LINE_BYTES} bytes of a line and drops the rest; longer text is piped in, or \
             redirected from a file"
        );
    }
    Ok(Some(line))
}

/// The most that Linux takes of a line at a terminal, without its break.
const MAX_LINE_BYTES: u64 = 4095;
/// How long the second part of what is pasted may be behind the first.
const PASTE_GAP: Duration = Duration::from_millis(50);

/// The terminal does not show what is typed until this is dropped.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> rustix::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }

    /// Whether something was typed behind the line that was read, whole line or not.
    fn has_more(&self) -> rustix::io::Result<bool> {
        let stdin = std::io::stdin();
        let mut raw = self.0.clone();
        raw.local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(rustix::io::ioctl_fionread(&stdin)? > 0)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // What is left would be shown, and the shell would run it. A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

fn bounded(source: impl Read) -> Result<String> {
    let mut text = String::new();
    let read = source.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_INPUT_BYTES {
        bail!("it is larger than {} MiB", MAX_INPUT_BYTES >> 20);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom, Write as _};

    /// `while read line; do toolhold run "$line"; done < list` keeps its list.
    #[test]
    fn a_file_that_something_reads_is_not_taken() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        for (at, expect) in [
            (0, Stdin::File),
            (4, Stdin::BegunFile),
            (8, Stdin::BegunFile),
        ] {
            file.seek(SeekFrom::Start(at)).unwrap();
            assert_eq!(kind(&file), expect, "{at}");
        }
        assert_eq!(kind(&File::open("/dev/null").unwrap()), Stdin::None);
    }

    #[test]
    fn input_is_read_up_to_its_bound() {
        let endless = |bytes: u64| bounded(std::io::repeat(b'x').take(bytes));
        assert_eq!(
            endless(MAX_INPUT_BYTES).unwrap().len() as u64,
            MAX_INPUT_BYTES
        );
        let error = endless(MAX_INPUT_BYTES + 1).unwrap_err().to_string();
        assert_eq!(error, "it is larger than 32 MiB");
        assert_eq!(text("as it is", "the task").unwrap(), "as it is");
        let error = format!("{:#}", file("/nowhere/at all").unwrap_err());
        assert!(
            error.starts_with("/nowhere/at all cannot be read: "),
            "{error}"
        );
    }
}
