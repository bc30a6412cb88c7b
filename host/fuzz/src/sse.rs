//! Server-sent events: nothing panics, and where the stream is cut into chunks changes nothing.

use toolhold_model::fuzzing::events;

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
        let bytes: usize = events.iter().map(|(_, data)| data.len()).sum();
        // An invalid byte becomes a character of three.
        assert!(bytes <= 3 * stream.len());
    }
}
