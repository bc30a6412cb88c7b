//! A stream into a file, with meters. Unlike wasmtime's own, a write looks at the directory's quota on the thread that
//! writes, so that neither measuring nor the look at the file's size blocks an async worker.

use crate::blocking::{Blocking, CallWork};
use crate::call::meter::{Gauge, RefusedResource};
use crate::disk::quota::{Quota, WritePlace, write_within};
use crate::revocation::Revocation;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::mem;
use std::sync::Arc;
use wasmtime::format_err;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Bytes that the stream takes at a time, as wasmtime's.
const CAPACITY: usize = 64 << 10;

pub struct FileOutput {
    file: Arc<File>,
    /// Where the next write begins.
    place: WritePlace,
    gauge: Gauge,
    revocation: Arc<Revocation>,
    work: CallWork,
    quota: Option<Arc<Quota>>,
    state: OutputState,
}

enum OutputState {
    Ready,
    /// So many bytes are being written.
    Writing(Blocking<()>, usize),
    Failed(io::Error),
    Closed,
}

impl FileOutput {
    pub fn new(
        file: Arc<File>,
        place: WritePlace,
        (gauge, revocation): (Gauge, Arc<Revocation>),
        work: CallWork,
        quota: Option<Arc<Quota>>,
    ) -> Self {
        Self {
            file,
            place,
            gauge,
            revocation,
            work,
            quota,
            state: OutputState::Ready,
        }
    }

    /// Waits until nothing is being written.
    async fn settled(&mut self) {
        let OutputState::Writing(task, bytes) = &mut self.state else {
            return;
        };
        let (written, bytes) = (task.done().await, *bytes as u64);
        self.state = match written {
            Ok(()) => {
                if let WritePlace::At(offset) = &mut self.place {
                    *offset = offset.saturating_add(bytes);
                }
                OutputState::Ready
            }
            Err(error) => {
                if error.raw_os_error() == Some(libc::EDQUOT) {
                    self.gauge.refuse(RefusedResource::Quota);
                }
                OutputState::Failed(error)
            }
        };
    }

    /// The error of the last write, once.
    fn fault(&mut self) -> StreamResult<()> {
        match mem::replace(&mut self.state, OutputState::Closed) {
            OutputState::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            OutputState::Closed => Err(StreamError::Closed),
            state => {
                self.state = state;
                Ok(())
            }
        }
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for FileOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.revocation
            .check()
            .map_err(|revoked| StreamError::Trap(revoked.into()))?;
        match self.state {
            OutputState::Ready => {}
            OutputState::Closed => return Err(StreamError::Closed),
            OutputState::Writing(..) | OutputState::Failed(_) => {
                return Err(StreamError::Trap(format_err!(
                    "write not permitted: check_write not called first"
                )));
            }
        }
        self.gauge
            .moved(bytes.len() as u64)
            .map_err(|error| StreamError::Trap(error.into()))?;
        // Until they are written.
        let kept = self.gauge.keep(bytes.len() as u64);
        let kept = kept.map_err(|error| StreamError::Trap(error.into()))?;
        let (file, quota, place) = (self.file.clone(), self.quota.clone(), self.place);
        let length = bytes.len();
        let task = self.work.start(move |stop| {
            let _kept = kept;
            write_within(quota.as_deref(), &file, &bytes, place, stop)
        });
        self.state = OutputState::Writing(task, length);
        Ok(())
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.settled().await;
        self.fault()?;
        self.write(bytes)?;
        self.settled().await;
        self.fault()
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.fault()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.fault()?;
        Ok(match self.state {
            OutputState::Ready => CAPACITY,
            _ => 0,
        })
    }

    async fn cancel(&mut self) {
        if let OutputState::Writing(task, _) = &mut self.state {
            task.stop().await;
        }
        self.state = OutputState::Closed;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for FileOutput {
    async fn ready(&mut self) {
        self.settled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;

    #[tokio::test]
    async fn what_waits_to_be_written_is_counted_until_it_is_written() {
        let limits = Limits {
            kept_bytes: 100,
            ..Limits::default()
        };
        let ceiling = MemoryCeiling::new(1_000);
        let gauge = Gauge::new(&limits, ceiling.of(""));
        let file = Arc::new(tempfile::tempfile().unwrap());
        for (bytes, fits) in [(60, true), (100, true), (101, false), (100, true)] {
            let before = file.metadata().unwrap().len();
            let meters = (gauge.clone(), Arc::default());
            let mut stream = FileOutput::new(
                file.clone(),
                WritePlace::End,
                meters,
                CallWork::alone(),
                None,
            );
            let text = Bytes::from(vec![b'x'; bytes]);
            let written = stream.blocking_write_and_flush(text).await;
            assert_eq!(written.is_ok(), fits, "{bytes}: {written:?}");
            let after = file.metadata().unwrap().len();
            if fits {
                assert_eq!(after, before + bytes as u64);
            } else {
                assert!(matches!(written, Err(StreamError::Trap(_))), "{written:?}");
                let refused = RefusedResource::KeptBytes { limit: 100 };
                assert_eq!(gauge.refused(), Some(refused));
                assert_eq!(after, before, "nothing of it is written");
            }
            assert_eq!(ceiling.taken(), 0, "all is given back");
        }
    }
}
