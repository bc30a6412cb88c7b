//! A run's record as an exported file: one JSON object a line.

use super::Lines;
use crate::error::RecordError;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use toolhold_protocol::event::Event;

/// Bytes of a line: bounds memory, and is several times what a module may return, so that no exported event is
/// refused.
const MAX_LINE_BYTES: u64 = 512 << 20;

/// Reads a record event by event, in bounded memory but for the digests of lines from which texts were taken. A last line
/// without a line break is ignored: its process ended while writing it. So are pieces of replies: a stream of events that
/// was saved has them, and they are no part of the record.
///
/// # Errors
/// It cannot be read, or one of its lines is no event.
pub fn scan(path: &Path, mut each: impl FnMut(Event)) -> Result<Lines, RecordError> {
    let failed = |source| RecordError::Read {
        what: path.display().to_string(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut reader = BufReader::new(file);
    let mut lines = Lines::new(path.display().to_string());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut bounded = reader.by_ref().take(MAX_LINE_BYTES);
        let length = bounded.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if length == MAX_LINE_BYTES {
            return Err(failed(io::Error::other(format!(
                "line {number} has no end"
            ))));
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            break;
        };
        let text = std::str::from_utf8(text)
            .map_err(|error| failed(io::Error::other(format!("line {number}: {error}"))))?;
        let event = lines.decode(text)?;
        if event.kind.is_shown_only() {
            continue;
        }
        lines.check(&event, text);
        each(event);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::EventScript;
    use toolhold_protocol::completion::Delta;
    use toolhold_protocol::event::{EventKind, Seal};
    use toolhold_protocol::reply_offset::ReplyOffset;

    #[test]
    fn a_saved_stream_is_a_record() {
        let mut script = EventScript::new();
        let begun = script.begin("t");
        let piece = Event {
            run: script.run,
            seq: 0,
            at_ms: 5,
            kind: EventKind::Delta {
                step: 1,
                delta: Delta::Content("x".into()),
                from: Some(ReplyOffset::default()),
            },
            removed: None,
            seal: Seal::default(),
        };
        let events = [begun, piece, script.notice(), script.done()];
        let lines = events.map(|event| serde_json::to_string(&event).unwrap() + "\n");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for (text, changed) in [
            (lines.concat(), None),
            (lines.concat().replace("number 1", "number 2"), Some(2)),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut read = Vec::new();
            let lines = scan(&path, |event| read.push(event.seq)).unwrap();
            assert_eq!(read, [0, 1, 2]);
            assert_eq!(lines.changed, changed);
        }
    }
}
