//! Bodies of requests that are read as a whole: each piece is counted in its client's share of what the process may
//! keep, before it is kept. A body counts while it arrives, too: many clients may send theirs at the same time, slowly.

use crate::body_timeout::is_too_slow;
use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::body::{Body as _, Bytes};
use thiserror::Error;
use toolhold_admission::{MemoryFull, MemoryReservation, MemoryShare};

/// Room for the first piece: most bodies are small.
const LEAST_BYTES: usize = 1 << 10;

/// A body, and the memory that it takes.
#[derive(Debug)]
pub struct KeptBody {
    pub bytes: Bytes,
    pub kept: MemoryReservation,
}

/// Why a body was not read to its end.
#[derive(Debug, Error)]
pub enum KeptBodyError {
    #[error("it has more than {most} bytes")]
    TooLong { most: u64 },
    /// [`BodyTooSlow`](crate::BodyTooSlow).
    #[error("it came too slowly")]
    TooSlow,
    /// [`MemoryFull::is_for_ever`] says whether it may be tried again.
    #[error("{}", no_memory(*.0))]
    Full(MemoryFull),
    #[error("it broke off: {0}")]
    BrokeOff(#[source] axum::Error),
}

/// Why there is no memory for a request, for its client.
pub fn no_memory(full: MemoryFull) -> String {
    let MemoryFull { ceiling, needed } = full;
    if full.is_for_ever() {
        return format!(
            "it needs {needed} bytes of the host's memory, and one key may have {} of the {ceiling} that all requests \
             and calls may keep (modules.kept_bytes); send less, or ask the operator to raise it",
            full.most_of_one()
        );
    }
    format!(
        "there is no memory left for it: all requests and calls may keep {ceiling} bytes together, and one key seven \
         eighths of them (modules.kept_bytes); try again in a while"
    )
}

impl KeptBody {
    /// Reads a body of at most `most` bytes. One that says that it is longer is refused at once.
    ///
    /// # Errors
    /// It is longer, too slow, or broken off, or there is no memory for it.
    pub async fn read(body: Body, most: u64, share: &MemoryShare) -> Result<Self, KeptBodyError> {
        let too_long = || KeptBodyError::TooLong { most };
        let said = body.size_hint();
        if said.lower() > most {
            return Err(too_long());
        }
        let full = |full: MemoryFull| {
            let needed = full.needed.max(said.lower());
            KeptBodyError::Full(MemoryFull { needed, ..full })
        };
        // No room beyond the end of the body, and none before there are bytes for it.
        let end = said.upper().map_or(most, |upper| upper.min(most));
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let mut kept = share.reserve(0).map_err(full)?;
        let mut bytes = Vec::new();
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| {
                if is_too_slow(&error) {
                    KeptBodyError::TooSlow
                } else {
                    KeptBodyError::BrokeOff(error)
                }
            })?;
            let needed = bytes.len() + piece.len();
            if needed as u64 > most {
                return Err(too_long());
            }
            // As a vector grows, but in steps that are counted.
            if needed > bytes.capacity() {
                let room = (2 * bytes.capacity()).max(LEAST_BYTES).min(end).max(needed);
                kept.grow((room - bytes.capacity()) as u64).map_err(full)?;
                bytes.reserve_exact(room - bytes.len());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Self {
            bytes: bytes.into(),
            kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use hyper::body::{Frame, SizeHint};
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use toolhold_admission::MemoryCeiling;

    fn pieces(count: usize) -> Body {
        let piece = || Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1_000]));
        Body::from_stream(stream::iter((0..count).map(move |_| piece())))
    }

    #[tokio::test]
    async fn a_body_is_counted_while_it_is_read_and_kept() {
        let memory = MemoryCeiling::new(100_000);
        let share = memory.of("a");
        let read = KeptBody::read(pieces(20), 20_000, &share).await.unwrap();
        assert_eq!(read.bytes.len(), 20_000);
        assert!((20_000..=40_000).contains(&memory.taken()), "{memory:?}");
        // The next one is refused while it is read, and takes nothing.
        let before = memory.taken();
        let refused = KeptBody::read(pieces(200), 1 << 20, &share).await;
        assert!(
            matches!(refused, Err(KeptBodyError::Full(_))),
            "{refused:?}"
        );
        assert_eq!(memory.taken(), before);
        // Another client's is read.
        let other = KeptBody::read(pieces(2), 1 << 20, &memory.of("b")).await;
        drop((read, other.unwrap()));
        assert_eq!(memory.taken(), 0);
    }

    /// As a client sends it that says how long it is.
    fn of_length(count: usize) -> Body {
        Body::new(SaidLength(pieces(count), 1_000 * count as u64))
    }

    /// A body in pieces whose length is known.
    struct SaidLength(Body, u64);

    impl hyper::body::Body for SaidLength {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.1)
        }
    }

    #[tokio::test]
    async fn a_body_that_says_its_length_counts_no_more_than_that() {
        let memory = MemoryCeiling::new(48_000);
        let share = memory.of("a");
        // A lone key may have 42 000 bytes.
        for count in [1, 3, 17, 33, 40] {
            let read = KeptBody::read(of_length(count), 1 << 20, &share).await;
            let read = read.unwrap();
            assert_eq!(read.bytes.len(), 1_000 * count);
            assert_eq!(memory.taken(), 1_000 * count as u64);
        }
        assert_eq!(memory.taken(), 0);
    }

    #[tokio::test]
    async fn a_body_that_never_fits_is_told_apart_from_one_that_may_be_tried_again() {
        let memory = MemoryCeiling::new(48_000);
        let share = memory.of("a");
        let refused = KeptBody::read(of_length(43), 1 << 20, &share).await;
        let Err(KeptBodyError::Full(full)) = refused else {
            panic!("{refused:?}");
        };
        assert!(full.is_for_ever(), "{full:?}");
        let message = no_memory(full);
        assert!(message.contains("it needs 43000 bytes"), "{message}");
        assert!(message.contains("42000 of the 48000"), "{message}");

        let before = share.reserve(30_000).unwrap();
        let refused = KeptBody::read(of_length(20), 1 << 20, &share).await;
        let Err(KeptBodyError::Full(full)) = refused else {
            panic!("{refused:?}");
        };
        assert!(!full.is_for_ever(), "{full:?}");
        assert!(no_memory(full).contains("try again in a while"));
        drop(before);
        assert!(KeptBody::read(of_length(20), 1 << 20, &share).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_longer_than_it_may_be_is_refused() {
        let memory = MemoryCeiling::new(100_000);
        let refused = |body| async {
            let read = KeptBody::read(body, 1_999, &memory.of("a")).await;
            matches!(read, Err(KeptBodyError::TooLong { most: 1_999 }))
        };
        assert!(refused(pieces(2)).await);
        assert!(refused(Body::from(vec![0; 2_000])).await);
        assert!(!refused(Body::from(vec![0; 1_999])).await);
        assert_eq!(memory.taken(), 0);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_says_so() {
        let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("gone"))]);
        let share = MemoryCeiling::new(1_000).of("a");
        let read = KeptBody::read(Body::from_stream(broken), 10, &share).await;
        assert!(matches!(read, Err(KeptBodyError::BrokeOff(_))), "{read:?}");
    }
}
