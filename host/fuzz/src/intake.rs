//! A body that a server sends, compressed or not: nothing panics, chunks change nothing, what it becomes is bounded by its
//! size, and JSON of any bytes is read or refused.

use bytes::Bytes;
use toolhold_intake::body::{BodyEnd, BodyFault, BodyReader};
use toolhold_intake::encoding::{EncodingError, Expander};
use toolhold_intake::json;

/// Bytes that a body may have when it is expanded.
const LIMIT: usize = 1 << 16;
/// Bytes that the smallest body may become, and those that each of its bytes may: as the reader's own bounds.
const FREE_BYTES: usize = 1 << 20;
const MAX_RATIO: usize = 200;
/// A piece of 1 KiB is expanded before it is weighed.
const PIECE_BYTES: usize = 1 << 10;
const PIECE_RATIO: usize = 1_100;

/// The end of a body: its texts and what kind it is, or why it is not read.
#[derive(Debug, PartialEq, Eq)]
enum BodyReading {
    Read(&'static str, Vec<String>),
    TooLarge,
    Foreign,
    Unexpanded,
    TooDense,
}

pub fn run(data: &[u8]) {
    // The first byte says what the headers say and where the cuts are.
    let Some((&said, body)) = data.split_first() else {
        return;
    };
    let encoding = [None, Some("gzip"), Some("deflate"), Some("identity")][usize::from(said % 4)];
    let size = usize::from(said / 4) + 1;
    let whole = read(encoding, body, body.len().max(1));
    let chunked = read(encoding, body, size);
    // Where a body is weighed depends on its chunks.
    if chunked != BodyReading::TooDense && whole != BodyReading::TooDense {
        assert_eq!(chunked, whole);
    }
    if let BodyReading::Read(_, texts) = whole {
        for text in texts {
            drop(json::parse(&text));
        }
    }
    drop(json::from_slice(body));
}

fn read(encoding: Option<&str>, body: &[u8], chunk: usize) -> BodyReading {
    let Ok(mut expander) = Expander::new(encoding) else {
        return BodyReading::Unexpanded;
    };
    let mut expanded = Vec::new();
    let mut broken = None;
    'body: for chunk in body.chunks(chunk) {
        let mut bytes = Bytes::copy_from_slice(chunk);
        loop {
            match expander.push(&mut bytes) {
                Ok(piece) => expanded.extend_from_slice(&piece),
                Err(error) => {
                    broken = Some(error);
                    break 'body;
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
    }
    let ratio = FREE_BYTES.max(body.len() * MAX_RATIO);
    assert!(expanded.len() <= ratio + PIECE_BYTES * PIECE_RATIO);
    match broken {
        Some(EncodingError::TooDense { .. }) => return BodyReading::TooDense,
        Some(_) => return BodyReading::Unexpanded,
        None => {}
    }
    expanded.extend_from_slice(&expander.finish());
    let mut reader = BodyReader::new(LIMIT, None);
    let mut texts = Vec::new();
    for chunk in expanded.chunks(chunk) {
        match reader.push(chunk) {
            Ok(events) => texts.extend(events.into_iter().map(|event| event.data)),
            Err(BodyFault::TooLarge) => return BodyReading::TooLarge,
            Err(BodyFault::Foreign(_)) => return BodyReading::Foreign,
        }
    }
    match reader.finish() {
        Ok(BodyEnd::Empty) => BodyReading::Read("empty", texts),
        Ok(BodyEnd::Json(json)) => {
            texts.push(String::from_utf8_lossy(&json).into_owned());
            BodyReading::Read("json", texts)
        }
        Ok(BodyEnd::Events(last)) => {
            texts.extend(last.into_iter().map(|event| event.data));
            BodyReading::Read("events", texts)
        }
        Err(BodyFault::TooLarge) => BodyReading::TooLarge,
        Err(BodyFault::Foreign(_)) => BodyReading::Foreign,
    }
}
