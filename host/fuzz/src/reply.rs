//! A model's answer, from bytes to calls: nothing panics, chunks change nothing, what was shown while
//! it came is what it is in the end, the calls taken while it came are those of the complete answer,
//! and its memory is bounded.

use std::mem;
use toolhold_agent::contract::{ReplyPart, RequestView};
use toolhold_model::ModelError;
use toolhold_model::fuzzing::completion;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::compose::Composition;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::Settings;

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
        for contract in Contract::ALL {
            taken_is_final(contract, &deltas, &completion);
        }
    }
    if let Ok(text) = std::str::from_utf8(answer) {
        let completion = Completion {
            content: text.to_owned(),
            ..Completion::default()
        };
        let pieces = text.split_inclusive(char::from(cut % 128));
        let deltas: Vec<_> = pieces.map(|piece| Delta::Content(piece.into())).collect();
        for contract in Contract::ALL {
            taken_is_final(contract, &deltas, &completion);
        }
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

fn taken_is_final(contract: Contract, deltas: &[Delta], completion: &Completion) {
    let mut reader = toolhold_agent::contract::ReplyReader::new(contract, &[]);
    let mut pieces: Vec<_> = deltas.iter().flat_map(|delta| reader.push(delta)).collect();
    pieces.extend(reader.finish());
    let view = RequestView {
        model: "",
        instructions: "",
        turns: &[],
        composition: Composition::default(),
        tools: &[],
        output_schema: None,
        settings: &Settings::default(),
    };
    let solution = toolhold_agent::contract::read(contract, completion, &view);
    // Servers may go on with a function call that had no arguments when the next one began, which
    // cannot be predicted.
    if contract == Contract::Tools {
        return;
    }
    if let Ok(solution) = solution {
        let taken = pieces.iter().filter_map(|piece| match piece {
            ReplyPart::Call { call, .. } => call["_tool"].as_str(),
            ReplyPart::Field { .. } => None,
        });
        let taken: Vec<_> = taken.collect();
        let all: Vec<_> = solution
            .calls
            .iter()
            .map(|call| call.tool.as_str())
            .collect();
        // Of a reply that had to be mended, only what stood before the fault was taken.
        assert!(taken == all || (!solution.repairs.is_empty() && all.starts_with(&taken)));
    }
}
