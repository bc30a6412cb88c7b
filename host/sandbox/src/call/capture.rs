//! Bounded capture of what a guest prints and logs.
//!
//! wasmtime-wasi's own memory pipe traps the guest on the first byte too many. A chatty tool should
//! survive, so these pipes keep what fits, count the rest and always accept.

use super::meter::{Gauge, TooManyBytes};
use bytes::Bytes;
use parking_lot::Mutex;
use toolhold_policy::Captured;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// What a guest printed to either stream, kept up to a limit for each.
#[derive(Debug)]
pub struct Printed {
    limit: usize,
    stdout: Mutex<Buffer>,
    stderr: Mutex<Buffer>,
}

/// One of the guest's streams; clones share the buffer.
#[derive(Debug, Clone)]
pub struct CapturePipe {
    gauge: Gauge,
    stream: PrintStream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrintStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Default)]
struct Buffer {
    kept: Vec<u8>,
    dropped: u64,
}

impl Printed {
    /// Keeps `limit` bytes of each stream.
    pub fn new(limit: u64) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            stdout: Mutex::default(),
            stderr: Mutex::default(),
        }
    }

    pub fn captured(&self, stream: PrintStream) -> Captured {
        let buffer = self.buffer(stream).lock();
        Captured {
            text: String::from_utf8_lossy(&buffer.kept).into_owned(),
            dropped_bytes: buffer.dropped,
        }
    }

    fn buffer(&self, stream: PrintStream) -> &Mutex<Buffer> {
        match stream {
            PrintStream::Stdout => &self.stdout,
            PrintStream::Stderr => &self.stderr,
        }
    }
}

impl CapturePipe {
    pub fn new(gauge: &Gauge, stream: PrintStream) -> Self {
        Self {
            gauge: gauge.clone(),
            stream,
        }
    }

    /// Keeps what fits. Dropped bytes count as moved too: a flood ends at its limit.
    fn accept(&self, bytes: &[u8]) -> Result<(), TooManyBytes> {
        self.gauge.moved(bytes.len() as u64)?;
        let printed = self.gauge.printed();
        let mut buffer = printed.buffer(self.stream).lock();
        let room = printed
            .limit
            .saturating_sub(buffer.kept.len())
            .min(bytes.len());
        buffer.kept.extend_from_slice(&bytes[..room]);
        buffer.dropped += (bytes.len() - room) as u64;
        Ok(())
    }
}

impl OutputStream for CapturePipe {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.accept(&bytes)
            .map_err(|error| StreamError::Trap(error.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        // A page: what WASI's blocking writes use at most anyway.
        Ok(64 << 10)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for CapturePipe {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;

    #[test]
    fn keeps_what_fits_and_counts_the_rest() {
        let limits = Limits {
            host_bytes: 9,
            capture_bytes: 5,
            ..Limits::default()
        };
        let gauge = Gauge::new(&limits, MemoryCeiling::new(0).of(""));
        let pipe = CapturePipe::new(&gauge, PrintStream::Stderr);
        pipe.accept(b"abc").unwrap();
        pipe.accept(b"defg").unwrap();
        pipe.accept(b"h").unwrap();
        pipe.accept(b"ij").unwrap_err();
        assert_eq!(
            gauge.printed().captured(PrintStream::Stderr),
            Captured {
                text: "abcde".into(),
                dropped_bytes: 3
            }
        );
        let stdout = gauge.printed().captured(PrintStream::Stdout);
        assert_eq!(stdout, Captured::default());
    }
}
