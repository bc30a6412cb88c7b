//! Replies, read while they are generated (PROTOCOL.md, 7.2): a call is known the moment its last
//! brace arrives, while the model writes the next.

mod functions;
#[cfg(test)]
mod generated;
mod object;
mod scan;
mod solution;
#[cfg(test)]
mod tests;

pub(super) use object::ObjectFinder;
pub(super) use scan::SPACE;
pub(super) use solution::SolutionReader;

use crate::contract::{Contract, simple};
use crate::model::Delta;
use functions::FunctionReader;
use serde_json::{Map, Value};

/// Something that is complete in a reply that is not.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// One call, as the object that stands in a solution's `calls`: `_tool` first, then its other
    /// reserved properties and its parameters as the model wrote them. `index` counts from 0.
    Call { index: usize, call: Value },
    /// Another member of the solution: `meta`, `advisors` or `output`, which may be null.
    Field { name: String, value: Value },
}

/// Reads one reply. Each piece is given out once, in the order of the solution.
///
/// What is no reply of its contract gives no more pieces and no error: [`Contract::read`] judges
/// the complete reply, and wherever it finds a solution, its calls are those that were given out
/// here. It keeps the text of values that are not complete and the names of members.
#[derive(Debug)]
pub struct Reader {
    state: State,
}

#[derive(Debug)]
enum State {
    Schema(SolutionReader),
    Tools(FunctionReader),
    Simple(ObjectFinder),
    /// Something is malformed, or the reply has ended.
    Quiet,
}

impl Reader {
    pub(super) fn new(contract: Contract) -> Self {
        let state = match contract {
            Contract::Schema => State::Schema(SolutionReader::default()),
            Contract::Tools => State::Tools(FunctionReader::default()),
            Contract::Simple => State::Simple(simple::finder()),
        };
        Self { state }
    }

    /// Takes what the model wrote next, and gives what that makes complete.
    pub fn push(&mut self, delta: &Delta) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let read = match (&mut self.state, delta) {
            (State::Schema(reader), Delta::Content(text)) => reader.push(text, &mut pieces),
            (State::Simple(finder), Delta::Content(text)) => turn(finder, text, &mut pieces),
            (
                State::Tools(reader),
                Delta::ToolCall {
                    index,
                    name,
                    arguments,
                    ..
                },
            ) => reader.push(*index, name.as_deref(), arguments, &mut pieces),
            _ => Ok(()),
        };
        if read.is_err() {
            self.state = State::Quiet;
        }
        pieces
    }

    /// The reply has ended: gives what only that makes complete, such as a function call without
    /// arguments.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if let State::Tools(reader) = &mut self.state {
            // Whatever is wrong, this was the last that is read.
            let _ = reader.finish(&mut pieces);
        }
        self.state = State::Quiet;
        pieces
    }

    /// Bytes of text that are kept.
    #[cfg(test)]
    fn held(&self) -> usize {
        match &self.state {
            State::Schema(reader) => reader.held(),
            State::Tools(reader) => reader.held(),
            State::Simple(finder) => finder.held(),
            State::Quiet => 0,
        }
    }
}

fn turn(finder: &mut ObjectFinder, text: &str, pieces: &mut Vec<Piece>) -> Result<(), String> {
    if let Some(object) = finder.push(text)? {
        pieces.extend(simple::given(object)?.into_iter().map(|given| match given {
            Given::Call(call) => Piece::Call { index: 0, call },
            Given::Field(name, value) => Piece::field(name, value),
        }));
    }
    Ok(())
}

impl Piece {
    fn field(name: &str, value: Value) -> Self {
        Self::Field {
            name: name.to_owned(),
            value,
        }
    }
}

/// What a function call or a `simple` reply stands for in a solution.
#[derive(Debug)]
pub(super) enum Given {
    Call(Value),
    /// `meta`, `advisors` or `output`.
    Field(&'static str, Value),
}

/// A call as it stands in a solution. `properties` may not name another tool.
pub(super) fn call_object(tool: String, mut properties: Map<String, Value>) -> Value {
    properties.shift_remove("_tool");
    properties.shift_insert(0, "_tool".into(), tool.into());
    properties.into()
}
