//! What the tests of all contracts share.

use super::{Provenance, RequestView};
use std::sync::Arc;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::Solution;
use toolhold_protocol::tool::Tool;

/// A complete reply that is this text, where no tools are offered.
pub(super) fn read(contract: Contract, text: &str) -> Result<Solution, String> {
    let completion = Completion {
        content: text.into(),
        ..Completion::default()
    };
    read_completion(contract, &completion, &[])
}

pub(super) fn read_completion(
    contract: Contract,
    completion: &Completion,
    tools: &[Arc<Tool>],
) -> Result<Solution, String> {
    read_completion_from(contract, completion, tools, &Provenance::default())
}

pub(super) fn read_completion_from(
    contract: Contract,
    completion: &Completion,
    tools: &[Arc<Tool>],
    provenance: &Provenance,
) -> Result<Solution, String> {
    let view = RequestView {
        model: "",
        instructions: "",
        turns: &[],
        tools,
        output_schema: None,
        settings: &Settings::default(),
        composition: Composition::default(),
    };
    crate::contract::read_from(contract, completion, &view, provenance)
}
