//! Forms of events and bodies: the mark of the end, lines of JSON, and signs of life.

use crate::cut_pairs::CutPairs;
use serde_json::Value;

/// The mark of the end of a stream.
pub(crate) const DONE: &str = "[DONE]";

/// Chunks that come one a line, without the form of an event stream, and whether the mark of the end follows them. The last
/// one may be cut.
pub(crate) fn json_lines(text: &str, pairs: &mut CutPairs) -> Option<(Vec<Value>, bool)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (mut chunks, mut has_mark) = (Vec::new(), false);
    for line in lines {
        if line == DONE {
            has_mark = true;
            break;
        }
        match pairs.parse(line) {
            Ok(chunk) => chunks.push(chunk),
            Err(error) if error.is_eof() => break,
            Err(_) => return None,
        }
    }
    let is_chunk = |chunk: &Value| chunk.get("choices").is_some() || chunk.get("error").is_some();
    let has_chunk = chunks.first().is_some_and(is_chunk);
    has_chunk.then_some((chunks, has_mark))
}

/// True for a piece of a stream, which says nothing of what follows it.
pub(crate) fn is_piece(chunk: &Value) -> bool {
    let first = chunk.pointer("/choices/0");
    let has = |name: &str| first.and_then(|choice| choice.get(name)).is_some();
    has("delta") && !has("message")
}

/// Most bytes of the word of an event that only keeps its connection.
const MAX_WORD_BYTES: usize = 64;

/// True for events with which proxies keep a connection: they have a name for it, or are one word that is no JSON.
pub(crate) fn is_sign_of_life(name: Option<&str>, data: &str) -> bool {
    const NAMES: [&str; 5] = ["ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"];
    let is_named = |name: &str| NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_word = || {
        let no_word = |c: char| c.is_whitespace() || "{}[]\":".contains(c);
        data.len() <= MAX_WORD_BYTES && !data.contains(no_word)
    };
    name.is_some_and(is_named) || is_word()
}
