//! A model's answer that may hold thoughts and calls written as text: nothing panics, where the stream is cut
//! changes nothing, only tools that are offered are called, and what was called while the answer came is
//! what the complete answer calls, in its order.

use std::collections::BTreeSet;
use toolhold_agent::contract::{ReplyPart, RequestView};
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
    let tools = ["weather.now", "news"].map(Tool::new);
    let chars: Vec<char> = text.chars().collect();
    for contract in Contract::ALL {
        let whole = taken(contract, &tools, &[text.clone().into_owned()]);
        let chunks = chars.chunks(usize::from(cut % 16) + 1);
        let pieces: Vec<String> = chunks.map(|chunk| chunk.iter().collect()).collect();
        assert_eq!(taken(contract, &tools, &pieces), whole);
        let Ok(solution) =
            toolhold_agent::contract::read(contract, &completion(&text), &view(&tools))
        else {
            continue;
        };
        let all: Vec<_> = solution
            .calls
            .iter()
            .map(|call| call.tool.clone())
            .collect();
        assert!(all == whole || (!solution.repairs.is_empty() && all.starts_with(&whole)));
        // Without native calls, under this contract a call can only have leaked.
        let offered: BTreeSet<_> = tools.iter().map(|tool| &tool.name).collect();
        assert!(contract != Contract::Tools || all.iter().all(|tool| offered.contains(tool)));
    }
}

fn taken(contract: Contract, tools: &[Tool], pieces: &[String]) -> Vec<String> {
    let mut reader = toolhold_agent::contract::ReplyReader::new(contract, tools);
    let mut taken: Vec<_> = pieces
        .iter()
        .flat_map(|piece| reader.push(&Delta::Content(piece.clone())))
        .collect();
    taken.extend(reader.finish());
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

fn view(tools: &[Tool]) -> RequestView<'_> {
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
