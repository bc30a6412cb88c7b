//! A model's answer that may hold thoughts and calls written as text: nothing panics, where the stream is cut
//! changes nothing, only tools that are offered are called, and what was called while the answer came is
//! what the complete answer calls, in its order. What the model was shown before is called by none.

use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_agent::contract::{Provenance, ReplyPart, ReplyReader, RequestView, read, read_from};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::compose::Composition;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::tool::Tool;

pub fn run(data: &[u8]) {
    // The first byte says where the cuts are; what follows is the answer.
    let Some((&cut, answer)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(answer);
    let tools = ["weather.now", "news"].map(|name| Arc::new(Tool::new(name)));
    let chars: Vec<char> = text.chars().collect();
    for contract in Contract::ALL {
        let shown = Provenance::of([text.as_ref()]);
        let answer = read_from(contract, &completion(&text), &view(&tools), &shown);
        let repeated = answer.map(|solution| solution.calls).unwrap_or_default();
        let offered: BTreeSet<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let is_made = |tool: &String| offered.contains(tool.as_str());
        assert!(
            !repeated.iter().any(|call| is_made(&call.tool)),
            "{contract:?}: {repeated:?} of {text}"
        );
        let pieces = [text.clone().into_owned()];
        let repeated = taken(contract, &tools, &pieces, &shown);
        assert!(!repeated.iter().any(is_made));
        let none = Provenance::default();
        let whole = taken(contract, &tools, &pieces, &none);
        let chunks = chars.chunks(usize::from(cut % 16) + 1);
        let pieces: Vec<String> = chunks.map(|chunk| chunk.iter().collect()).collect();
        assert_eq!(taken(contract, &tools, &pieces, &none), whole);
        let Ok(solution) = read(contract, &completion(&text), &view(&tools)) else {
            continue;
        };
        let all: Vec<_> = solution
            .calls
            .iter()
            .map(|call| call.tool.clone())
            .collect();
        assert!(all == whole || (!solution.repairs.is_empty() && all.starts_with(&whole)));
        // Without native calls, under this contract a call can only have leaked.
        assert!(contract != Contract::Tools || all.iter().all(is_made));
    }
}

fn taken(
    contract: Contract,
    tools: &[Arc<Tool>],
    pieces: &[String],
    provenance: &Provenance,
) -> Vec<String> {
    let mut reader = ReplyReader::new(contract, tools);
    let mut taken: Vec<_> = pieces
        .iter()
        .flat_map(|piece| reader.push_from(&Delta::Content(piece.clone()), provenance))
        .collect();
    taken.extend(reader.finish_from(provenance));
    let calls = taken.into_iter().filter_map(|piece| match piece {
        ReplyPart::Call { call, .. } => call["_tool"].as_str().map(str::to_owned),
        ReplyPart::Field { .. } => None,
    });
    calls.collect()
}

fn completion(text: &str) -> Completion {
    Completion {
        content: text.to_owned(),
        ..Completion::default()
    }
}

fn view(tools: &[Arc<Tool>]) -> RequestView<'_> {
    static SETTINGS: std::sync::LazyLock<Settings> = std::sync::LazyLock::new(Settings::default);
    RequestView {
        model: "",
        instructions: "",
        turns: &[],
        composition: Composition::default(),
        tools,
        output_schema: None,
        settings: &SETTINGS,
    }
}
