//! Server-sent events: nothing panics, and where the stream is cut into chunks changes nothing.

use toolhold_intake::sse::{SseDecoder, SseEvent};

pub fn run(data: &[u8]) {
    // The first byte says where the cuts are; what follows is the stream as it is.
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let limit = if cut < 128 { 1 << 20 } else { 40 };
    let whole = events([stream], limit);
    let size = usize::from(cut % 128) + 1;
    assert_eq!(events(stream.chunks(size), limit), whole);
    assert_eq!(events(stream.chunks(1), limit), whole);
    if let Some(events) = whole {
        let bytes: usize = events.iter().map(|event| event.data.len()).sum();
        // An invalid byte becomes a character of three.
        assert!(bytes <= 3 * stream.len());
    }
}

/// The events in a stream that arrives in these chunks; `None` where one has more than `limit` bytes.
fn events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Option<Vec<SseEvent>> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(decoder.push(chunk).ok()?);
    }
    events.extend(decoder.finish());
    Some(events)
}
