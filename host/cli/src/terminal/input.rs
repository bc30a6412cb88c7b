//! Arguments that are a text, `-` for stdin, or a file.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

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

/// The content of a file, which is at most `room` bytes and takes its size of that.
pub fn text_file(path: &Path, room: &mut u64) -> Result<String> {
    within(File::open(path)?, room)
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
