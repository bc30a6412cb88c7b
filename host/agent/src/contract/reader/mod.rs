//! Replies, read while they are generated (docs/protocol.md, 7.2): a call is known the moment its last
//! brace arrives, while the model writes the next.

mod functions;
#[cfg(test)]
mod generated;
mod object;
mod solution;
#[cfg(test)]
mod tests;

pub(super) use object::ObjectFinder;
pub(super) use solution::SolutionReader;

use crate::contract::leak::{CallableNames, Fate, LeakReader};
use crate::contract::lost_arguments;
use crate::contract::provenance::Provenance;
use crate::contract::simple;
use crate::contract::thought::{Filter, ReplyText};
use functions::FunctionReader;
use serde_json::{Map, Value};
use std::sync::Arc;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::tool::Tool;

/// Something that is complete in a reply that is not.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyPart {
    /// One call, as the object that stands in a solution's `calls`: `_tool` first, then its other
    /// reserved properties and its parameters as the model wrote them. `index` counts from 0.
    Call { index: usize, call: Value },
    /// Another member of the solution: `meta`, `advisors` or `output`, which may be null.
    Field { name: String, value: Value },
}

/// Reads one reply. Each piece is given out once, in the order of the solution.
///
/// A malformed reply gives no more pieces and no error: [`read`](super::read) judges the complete reply, and
/// wherever it finds a solution, its calls are those that were given out here, or begin with them where
/// something had to be put right. It keeps the text of values that are not complete and the names of members,
/// and no thoughts.
#[derive(Debug, Clone)]
pub struct ReplyReader {
    contract: Contract,
    rules: ReadingRules,
    thoughts: Filter,
    leaks: LeakReader,
    /// Calls that leaked.
    leaked: usize,
    state: FormatReader,
    /// Pieces held back until they are known to be no part of a thought.
    waiting: Vec<ReplyPart>,
    /// Whether its calls are read out of prose.
    is_prose: bool,
}

#[derive(Debug, Clone)]
enum FormatReader {
    Schema(SolutionReader),
    Tools(FunctionReader),
    Simple(ObjectFinder),
    /// Something is malformed, or the reply has ended.
    Quiet,
}

impl FormatReader {
    fn under(rules: ReadingRules, contract: Contract) -> Self {
        match contract {
            Contract::Schema => Self::Schema(SolutionReader::under(rules)),
            Contract::Tools => Self::Tools(FunctionReader::default().under(rules)),
            Contract::Simple => Self::Simple(simple::finder(rules)),
        }
    }
}

impl ReplyReader {
    pub fn new(contract: Contract, tools: &[Arc<Tool>]) -> Self {
        Self {
            contract,
            rules: ReadingRules::Current,
            thoughts: Filter::default(),
            leaks: LeakReader::new(CallableNames::of(tools)),
            leaked: 0,
            state: FormatReader::under(ReadingRules::Current, contract),
            waiting: Vec::new(),
            is_prose: false,
        }
    }

    /// Reads names of tools as these go out; calls keep the names that the model wrote.
    #[must_use]
    pub fn with_names(mut self, names: Option<&Arc<ToolNames>>) -> Self {
        self.leaks.name(names);
        if let FormatReader::Tools(reader) = &mut self.state {
            reader.names = names.cloned();
        }
        self
    }

    /// The reader, before its first piece, by these rules instead of the current ones.
    #[must_use]
    pub fn under(self, rules: ReadingRules) -> Self {
        Self {
            rules,
            thoughts: Filter::under(rules),
            leaks: self.leaks.under(rules),
            state: match self.state {
                FormatReader::Tools(reader) => FormatReader::Tools(reader.under(rules)),
                _ => FormatReader::under(rules, self.contract),
            },
            ..self
        }
    }

    /// Whether the calls that were given were read out of prose.
    pub fn is_prose(&self) -> bool {
        self.is_prose
    }

    /// [`Self::push_from`], of a reply that repeats nothing.
    pub fn push(&mut self, delta: &Delta) -> Vec<ReplyPart> {
        self.push_from(delta, &Provenance::default())
    }

    /// Takes what the model wrote next, and gives what that makes complete. A call that is a quotation is not given,
    /// and nothing after it.
    pub fn push_from(&mut self, delta: &Delta, provenance: &Provenance) -> Vec<ReplyPart> {
        let mut pieces = Vec::new();
        match (&mut self.state, delta) {
            // Calls in the text of a reply that may have native ones are read when it has ended.
            (
                FormatReader::Tools(reader),
                Delta::ToolCall {
                    index,
                    name,
                    arguments,
                    ..
                },
            ) => {
                let read = reader.push(*index, name.as_deref(), arguments, &mut pieces);
                if read.is_err() {
                    self.state = FormatReader::Quiet;
                }
            }
            (FormatReader::Tools(_), _) => {}
            (_, Delta::Content(text)) => {
                for part in self.thoughts.push(text) {
                    match part {
                        ReplyText::Answer(text) => self.answer(&text, provenance, &mut pieces),
                        ReplyText::Restart => {
                            self.leaks.restart();
                            self.state = FormatReader::under(self.rules, self.contract);
                            self.waiting.clear();
                            self.is_prose = false;
                        }
                    }
                }
            }
            _ => {}
        }
        pieces
    }

    fn answer(&mut self, text: &str, provenance: &Provenance, pieces: &mut Vec<ReplyPart>) {
        match self.leaks.push_from(text, provenance) {
            Fate::Taken(calls) => {
                self.is_prose |= !calls.is_empty();
                for leak in calls {
                    pieces.push(ReplyPart::Call {
                        index: self.leaked,
                        call: call_object(leak.tool, leak.arguments),
                    });
                    self.leaked += 1;
                }
            }
            Fate::Passed(text) => self.read(&text, provenance, pieces),
        }
    }

    fn read(&mut self, text: &str, provenance: &Provenance, pieces: &mut Vec<ReplyPart>) {
        let (given, waiting) = (pieces.len(), self.waiting.len());
        let is_settled = self.thoughts.is_settled();
        let read = match &mut self.state {
            FormatReader::Schema(reader) => reader.push(text, pieces),
            FormatReader::Simple(finder) if is_settled => turn(finder, text, pieces),
            FormatReader::Simple(finder) => turn(finder, text, &mut self.waiting),
            FormatReader::Tools(_) | FormatReader::Quiet => Ok(()),
        };
        let mut is_prose = false;
        if let FormatReader::Simple(finder) = &self.state {
            let (is_fenced, is_in_prose) = finder.stands_in();
            is_prose = is_fenced || is_in_prose;
            self.is_prose |= is_in_prose;
        }
        let contract = self.contract;
        let copied = |piece: &ReplyPart| match piece {
            ReplyPart::Call { call, .. } => provenance.is_copied(contract, call, is_prose),
            ReplyPart::Field { .. } => false,
        };
        // Nothing behind a copy is given, whether it is known yet that it is no part of a thought or not.
        let is_copied =
            truncate_at(pieces, given, copied) || truncate_at(&mut self.waiting, waiting, copied);
        if read.is_err() || is_copied {
            self.state = FormatReader::Quiet;
        }
    }

    /// [`Self::finish_from`], of this reply. Of one whose calls may lack their arguments, nothing is given that only its
    /// end makes complete.
    pub fn finish_of(&mut self, reply: &Completion, provenance: &Provenance) -> Vec<ReplyPart> {
        if self.contract == Contract::Tools && lost_arguments(self.rules, reply).is_some() {
            self.state = FormatReader::Quiet;
        }
        self.finish_from(provenance)
    }

    /// [`Self::finish_from`], of a reply that repeats nothing.
    pub fn finish(&mut self) -> Vec<ReplyPart> {
        self.finish_from(&Provenance::default())
    }

    /// The reply has ended: gives what only that makes complete, such as a function call without
    /// arguments.
    pub fn finish_from(&mut self, provenance: &Provenance) -> Vec<ReplyPart> {
        let mut pieces = Vec::new();
        if let FormatReader::Tools(reader) = &mut self.state {
            // Whatever is wrong, this was the last that is read.
            let _ = reader.finish(&mut pieces);
        } else {
            if let Some(text) = self.thoughts.finish() {
                self.answer(&text, provenance, &mut pieces);
            }
            if let Some(text) = self.leaks.finish_from(provenance) {
                self.read(&text, provenance, &mut pieces);
            }
            pieces.append(&mut self.waiting);
        }
        self.state = FormatReader::Quiet;
        pieces
    }

    /// Bytes of text that are kept.
    #[cfg(test)]
    fn held(&self) -> usize {
        let state = match &self.state {
            FormatReader::Schema(reader) => reader.held(),
            FormatReader::Tools(reader) => reader.held(),
            FormatReader::Simple(finder) => finder.held(),
            FormatReader::Quiet => 0,
        };
        state + self.leaks.held() + self.thoughts.held()
    }
}

/// Leaves out the first piece from `from` on of which this is true, and what follows it. Whether there was one.
fn truncate_at(
    pieces: &mut Vec<ReplyPart>,
    from: usize,
    is_it: impl Fn(&ReplyPart) -> bool,
) -> bool {
    let at = pieces.iter().skip(from).position(is_it);
    if let Some(at) = at {
        pieces.truncate(from + at);
    }
    at.is_some()
}

fn turn(finder: &mut ObjectFinder, text: &str, pieces: &mut Vec<ReplyPart>) -> Result<(), String> {
    if let Some(object) = finder.push(text)? {
        pieces.extend(simple::given(object)?.into_iter().map(|given| match given {
            SolutionPart::Call(call) => ReplyPart::Call { index: 0, call },
            SolutionPart::Field(name, value) => ReplyPart::field(name, value),
        }));
    }
    Ok(())
}

impl ReplyPart {
    /// True if a run acts on it before the reply is complete.
    pub fn is_acted_on(&self) -> bool {
        match self {
            Self::Call { .. } => true,
            Self::Field { name, .. } => name == "meta" || name == "advisors",
        }
    }

    fn field(name: &str, value: Value) -> Self {
        Self::Field {
            name: name.to_owned(),
            value,
        }
    }
}

/// The part of a solution that a function call or a `simple` reply represents.
#[derive(Debug)]
pub(super) enum SolutionPart {
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
