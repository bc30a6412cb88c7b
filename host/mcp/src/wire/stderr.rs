//! The stderr of a server's process: shown to people, bounded, and never given to a model.

use parking_lot::Mutex;
use toolhold_policy::{Redactor, visible};

/// Most bytes kept until they are read; further lines are counted and dropped.
const MAX_KEPT_BYTES: usize = 16 << 10;
const MAX_LINE_CHARS: usize = 500;

/// Lines since the previous read. The first ones are kept, because they name the cause of a failure.
#[derive(Debug, Default)]
pub struct Stderr {
    written: Mutex<StderrTail>,
}

#[derive(Debug, Default)]
struct StderrTail {
    bytes: Vec<u8>,
    dropped: usize,
}

impl Stderr {
    pub fn write(&self, bytes: &[u8]) {
        let mut written = self.written.lock();
        let room = MAX_KEPT_BYTES
            .saturating_sub(written.bytes.len())
            .min(bytes.len());
        written.bytes.extend(bytes.iter().take(room));
        written.dropped = written.dropped.saturating_add(bytes.len() - room);
    }

    /// The lines since the previous read, each labelled, without the secrets that `redactor` knows.
    pub fn take(&self, redactor: &Redactor) -> Vec<String> {
        let StderrTail { bytes, dropped } = std::mem::take(&mut *self.written.lock());
        let bytes = redactor
            .clean(&bytes)
            .map_or(bytes, |cleaned| cleaned.bytes);
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| format!("stderr: {}", visible(line, MAX_LINE_CHARS)))
            .collect();
        if dropped > 0 {
            lines.push(format!("stderr: {dropped} more bytes were dropped"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_secrets_are_taken_out() {
        let stderr = Stderr::default();
        let redactor = Redactor::new([("KEY", "hunter2hunter2")]).unwrap();
        stderr.write(b"the key is hunter2hunter2\n\x1b[2J\n");
        stderr.write(&vec![b'x'; 100_000]);
        let lines = stderr.take(&redactor);
        assert_eq!(
            lines[..2],
            ["stderr: the key is [secret KEY]", "stderr: [2J"]
        );
        assert!(lines.last().unwrap().ends_with("more bytes were dropped"));
        assert!(lines.concat().len() < 2 * MAX_KEPT_BYTES);
        assert_eq!(stderr.take(&redactor), [""; 0]);
    }
}
