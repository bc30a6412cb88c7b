//! A stream out of a file, with meters. Unlike wasmtime's own, each read has a permit of its call's work, which the thread
//! keeps until the read is over. So reads of calls that have ended, in a file system that hangs, hold no more threads
//! than their module has.

use crate::blocking::{Blocking, CallWork};
use crate::call::meter::Gauge;
use crate::revocation::Revocation;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

/// Bytes of one read at most, as wasmtime's.
const MAX_READ: usize = 64 << 10;
/// Bytes of a read that begins because the guest waits for the stream, as wasmtime's.
const READ_AHEAD: usize = 4 << 10;

pub struct FileInput {
    file: Arc<File>,
    /// Offset of the next read in bytes.
    offset: u64,
    gauge: Gauge,
    revocation: Arc<Revocation>,
    work: CallWork,
    state: InputState,
}

enum InputState {
    Ready,
    Reading(Blocking<Vec<u8>>),
    /// Bytes that were read and that the guest has not taken.
    Read(Bytes),
    Failed(io::Error),
    Closed,
}

impl FileInput {
    pub fn new(
        file: Arc<File>,
        offset: u64,
        (gauge, revocation): (Gauge, Arc<Revocation>),
        work: CallWork,
    ) -> Self {
        Self {
            file,
            offset,
            gauge,
            revocation,
            work,
            state: InputState::Ready,
        }
    }

    /// Begins a read of at most `size` bytes, unless there is one.
    fn begin(&mut self, size: usize) {
        if size > 0 && matches!(self.state, InputState::Ready) {
            let (file, offset) = (self.file.clone(), self.offset);
            let read = self.work.start(move |_| read_at(&file, size, offset));
            self.state = InputState::Reading(read);
        }
    }

    /// Waits until nothing is being read.
    async fn settled(&mut self) {
        if let InputState::Reading(read) = &mut self.state {
            self.state = match read.done().await {
                Ok(bytes) if bytes.is_empty() => InputState::Closed,
                Ok(bytes) => InputState::Read(bytes.into()),
                Err(error) => InputState::Failed(error),
            };
        }
    }

    fn may_read(&self) -> StreamResult<()> {
        let holds = self.revocation.check();
        holds.map_err(|revoked| StreamError::Trap(revoked.into()))
    }
}

/// At most `size` bytes of a file from `offset` on, or [`MAX_READ`]; none: the file ends there. Blocks on the file system.
///
/// # Errors
/// What the file system says.
pub fn read_at(file: &File, size: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; size.min(MAX_READ)];
    loop {
        match file.read_at(&mut buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => {
                buffer.truncate(read?);
                return Ok(buffer);
            }
        }
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for FileInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.may_read()?;
        self.begin(size);
        match mem::replace(&mut self.state, InputState::Closed) {
            InputState::Read(mut bytes) => {
                let piece = bytes.split_to(bytes.len().min(size));
                self.state = if bytes.is_empty() {
                    InputState::Ready
                } else {
                    InputState::Read(bytes)
                };
                let taken = piece.len() as u64;
                self.offset = self.offset.saturating_add(taken);
                self.gauge
                    .moved(taken)
                    .map_err(|error| StreamError::Trap(error.into()))?;
                Ok(piece)
            }
            InputState::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            InputState::Closed => Err(StreamError::Closed),
            state @ (InputState::Ready | InputState::Reading(_)) => {
                self.state = state;
                Ok(Bytes::new())
            }
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.may_read()?;
        self.begin(size);
        self.settled().await;
        self.read(size)
    }

    async fn cancel(&mut self) {
        if let InputState::Reading(read) = &mut self.state {
            read.stop().await;
        }
        self.state = InputState::Closed;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for FileInput {
    async fn ready(&mut self) {
        self.begin(READ_AHEAD);
        self.settled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::io::Write as _;
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;

    fn stream(text: &[u8], offset: u64, revocation: &Arc<Revocation>) -> FileInput {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let gauge = Gauge::new(&Limits::default(), MemoryCeiling::new(1_000).of(""));
        let meters = (gauge, revocation.clone());
        FileInput::new(Arc::new(file), offset, meters, CallWork::alone())
    }

    async fn rest(stream: &mut FileInput, size: usize) -> (Vec<usize>, Vec<u8>) {
        let (mut sizes, mut all) = (Vec::new(), Vec::new());
        loop {
            match stream.blocking_read(size).await {
                Ok(bytes) => {
                    sizes.push(bytes.len());
                    all.extend_from_slice(&bytes);
                }
                Err(StreamError::Closed) => return (sizes, all),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_file_is_read_in_pieces_to_its_end() {
        let text: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        for (offset, size) in [(0, 1 << 20), (0, 5_000), (70_000, usize::MAX), (200_000, 1)] {
            let mut stream = stream(&text, offset, &Arc::default());
            let (sizes, all) = rest(&mut stream, size).await;
            assert_eq!(all, text[offset as usize..], "{offset}, {size}");
            let most = sizes.iter().max().copied().unwrap_or_default();
            assert!(most <= size.min(MAX_READ), "{most}");
            assert!(matches!(stream.read(1), Err(StreamError::Closed)));
        }
    }

    #[tokio::test]
    async fn a_guest_that_waits_takes_what_was_read_ahead() {
        let mut stream = stream(b"a text", 2, &Arc::default());
        assert!(stream.read(0).unwrap().is_empty(), "nothing is begun");
        stream.ready().await;
        assert_eq!(stream.read(2).unwrap(), "te".as_bytes());
        assert_eq!(stream.read(9).unwrap(), "xt".as_bytes());
        stream.ready().await;
        assert!(matches!(stream.read(9), Err(StreamError::Closed)));
    }

    #[tokio::test]
    async fn the_rest_of_a_file_is_not_read_after_the_revocation() {
        let revocation = Arc::<Revocation>::default();
        let mut stream = stream(b"a text", 0, &revocation);
        assert_eq!(stream.blocking_read(1).await.unwrap(), "a".as_bytes());
        revocation.revoke();
        let refused = stream.blocking_read(1).await;
        assert!(matches!(refused, Err(StreamError::Trap(_))), "{refused:?}");
        assert!(matches!(stream.read(1), Err(StreamError::Trap(_))));
    }

    #[tokio::test]
    async fn a_read_waits_for_a_permit_of_its_call() {
        let mut stream = stream(b"a text", 0, &Arc::default());
        let held = stream.work.all_permits();
        assert!(stream.blocking_read(9).now_or_never().is_none());
        assert!(stream.read(9).unwrap().is_empty(), "it has not begun");
        drop(held);
        assert_eq!(stream.blocking_read(9).await.unwrap(), "a text".as_bytes());
    }
}
