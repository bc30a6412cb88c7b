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
    #[error("there is no memory for it now: {} bytes are what all requests and calls may keep", .0.ceiling)]
    Full(MemoryFull),
    #[error("it broke off: {0}")]
    BrokeOff(#[source] axum::Error),
}

impl KeptBody {
    /// Reads a body of at most `most` bytes. One that says that it is longer is refused at once.
    ///
    /// # Errors
    /// It is longer, too slow, or broken off, or there is no memory for it.
    pub async fn read(body: Body, most: u64, share: &MemoryShare) -> Result<Self, KeptBodyError> {
        let too_long = || KeptBodyError::TooLong { most };
        if body.size_hint().lower() > most {
            return Err(too_long());
        }
        let mut kept = share.reserve(0).map_err(KeptBodyError::Full)?;
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
                let room = needed.max(2 * bytes.capacity()).max(LEAST_BYTES);
                kept.grow((room - bytes.capacity()) as u64)
                    .map_err(KeptBodyError::Full)?;
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
    use std::convert::Infallible;
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
