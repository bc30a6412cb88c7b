//! What the tests of all contracts share.

use super::{Contract, View};
use crate::model::Completion;
use crate::protocol::compose::Composition;
use crate::protocol::{Solution, Tool};
use crate::run::Settings;

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
    tools: &[Tool],
) -> Result<Solution, String> {
    let view = View {
        model: "",
        instructions: "",
        turns: &[],
        tools,
        output_schema: None,
        settings: &Settings::default(),
        composition: Composition::default(),
    };
    contract.read(completion, &view)
}
