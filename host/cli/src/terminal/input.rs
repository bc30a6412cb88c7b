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

/// Whether something is piped in or redirected: stdin is a pipe, a socket or a file, and no terminal or /dev/null.
pub fn is_piped() -> bool {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let metadata = stdin.and_then(|stdin| File::from(stdin).metadata());
    metadata.is_ok_and(|it| {
        let kind = it.file_type();
        kind.is_fifo() || kind.is_socket() || kind.is_file()
    })
}

/// The content of stdin, which is at most `room` bytes and takes its size of that.
pub fn piped(room: &mut u64) -> Result<String> {
    within(std::io::stdin(), room)
}

/// The content of a file, which is at most `room` bytes and takes its size of that.
pub fn text_file(path: &Path, room: &mut u64) -> Result<String> {
    within(File::open(path)?, room)
}

fn within(source: impl Read, room: &mut u64) -> Result<String> {
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
