//! A model's answer, from bytes to calls: nothing panics, chunks change nothing, what was shown while
//! it came is what it is in the end, and its memory is bounded.

use std::mem;
use toolhold_agent::model::fuzzing::completion;
use toolhold_agent::model::{Completion, Delta, ModelError};
use toolhold_agent::protocol::solution::Solution;

/// Below the limit of one event in the client; reached by inputs of libFuzzer's size.
const LIMIT: usize = 3_000;

pub fn run(data: &[u8]) {
    // The first byte says where the cuts are; what follows is the answer as it is.
    let Some((&cut, answer)) = data.split_first() else {
        return;
    };
    let declared = if cut % 2 == 0 {
        Some("text/event-stream")
    } else {
        None
    };
    let (deltas, whole) = completion([answer], LIMIT, declared);
    if answer.len() <= LIMIT {
        let (pieces, chunked) =
            completion(answer.chunks(usize::from(cut / 2) + 1), LIMIT, declared);
        assert_eq!(outcome(&chunked), outcome(&whole));
        assert_eq!(pieces, deltas);
    }
    if let Ok(completion) = whole {
        shown_is_final(&deltas, &completion);
        let _ = Solution::parse(&completion.content);
    }
    if let Ok(text) = std::str::from_utf8(answer) {
        let _ = Solution::parse(text);
    }
}

/// A completion, or the kind of an error: its words may quote what had come by then.
fn outcome(
    result: &Result<Completion, ModelError>,
) -> Result<&Completion, mem::Discriminant<ModelError>> {
    result.as_ref().map_err(mem::discriminant)
}

fn shown_is_final(deltas: &[Delta], completion: &Completion) {
    let (mut content, mut reasoning) = (String::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Content(text) => content += text,
            Delta::Reasoning(text) => reasoning += text,
            Delta::ToolCall { index, .. } => assert!(*index < completion.tool_calls.len()),
        }
    }
    assert_eq!(
        (&content, &reasoning),
        (&completion.content, &completion.reasoning)
    );
}
