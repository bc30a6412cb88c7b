//! An Aho-Corasick automaton of the texts that are looked for. Each state knows its last symbol and the state before
//! it, so that a match can be followed back through text in which a symbol takes several bytes.

use super::escapes::{Escape, is_blank};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of states, 24 bytes each: about 350 kB of secrets, more than an environment can hold.
const MAX_STATES: usize = 4 << 20;

/// A state: the longest prefix of a pattern that the symbols so far end with.
pub type StateId = u32;

/// The state of no text: nothing of a pattern was read.
pub const TEXT: StateId = 0;
/// The same among the patterns in which white space may stand anywhere: base64 and hex.
pub const CODED: StateId = 1;

/// In the place of a name: no pattern ends here.
const NO_NAME: u32 = u32::MAX;

/// Finds patterns without regard to the case of ASCII letters.
pub struct Automaton {
    states: Vec<TrieState>,
    /// From [`TEXT`] and from [`CODED`], by symbol.
    starts: [Box<[StateId; 256]>; 2],
    names: Vec<Arc<str>>,
    /// By the first and the second byte: whether a pattern may begin with them.
    pairs: Box<[u64; 1 << 10]>,
    /// A pattern has a space, which forms write as `+`.
    has_space: bool,
}

#[derive(Debug, Clone, Copy)]
struct TrieState {
    symbol: u8,
    is_coded: bool,
    parent: StateId,
    /// The state of the longest proper suffix.
    fail: StateId,
    /// The first state with one symbol more, or 0.
    child: StateId,
    /// The next child of the same parent, or 0.
    sibling: StateId,
    /// The name of the longest pattern that ends here.
    name: u32,
}

/// The secrets need more states than they may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secrets are too long to be looked for in what comes back; use shorter or fewer ones")]
pub struct TooLong;

impl Automaton {
    pub fn new() -> Self {
        let root = |is_coded, id| TrieState {
            symbol: 0,
            is_coded,
            parent: id,
            fail: id,
            child: 0,
            sibling: 0,
            name: NO_NAME,
        };
        Self {
            states: vec![root(false, TEXT), root(true, CODED)],
            starts: [Box::new([TEXT; 256]), Box::new([CODED; 256])],
            names: Vec::new(),
            pairs: Box::new([0; 1 << 10]),
            has_space: false,
        }
    }

    /// Adds patterns of one name, which are found under `root`.
    ///
    /// # Errors
    /// If there are more than can be held.
    pub fn add(
        &mut self,
        root: StateId,
        name: &Arc<str>,
        patterns: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<(), TooLong> {
        let index = self.names.len() as u32;
        self.names.push(name.clone());
        for pattern in patterns {
            self.has_space |= pattern.contains(&b' ');
            let mut at = root;
            for symbol in pattern.iter().map(u8::to_ascii_lowercase) {
                at = match self.child(at, symbol) {
                    Some(child) => child,
                    None => self.grow(at, symbol)?,
                };
            }
            let end = &mut self.states[at as usize].name;
            if at != root && *end == NO_NAME {
                *end = index;
            }
        }
        Ok(())
    }

    fn grow(&mut self, parent: StateId, symbol: u8) -> Result<StateId, TooLong> {
        if self.states.len() >= MAX_STATES {
            return Err(TooLong);
        }
        let id = self.states.len() as StateId;
        let TrieState {
            child: sibling,
            is_coded,
            ..
        } = self.states[parent as usize];
        self.states.push(TrieState {
            symbol,
            is_coded,
            parent,
            fail: 0,
            child: 0,
            sibling,
            name: NO_NAME,
        });
        self.states[parent as usize].child = id;
        Ok(id)
    }

    /// Links the states, once all patterns were added.
    pub fn link(&mut self) {
        let mut queue = VecDeque::new();
        for root in [TEXT, CODED] {
            for child in self.children(root) {
                let TrieState { symbol, .. } = self.states[child as usize];
                self.states[child as usize].fail = root;
                self.starts[root as usize][usize::from(symbol)] = child;
                self.starts[root as usize][usize::from(symbol.to_ascii_uppercase())] = child;
                queue.push_back(child);
            }
        }
        while let Some(state) = queue.pop_front() {
            let TrieState { fail, name, .. } = self.states[state as usize];
            if name == NO_NAME {
                self.states[state as usize].name = self.states[fail as usize].name;
            }
            for child in self.children(state) {
                self.states[child as usize].fail =
                    self.next(fail, self.states[child as usize].symbol);
                queue.push_back(child);
            }
        }
        self.pair();
    }

    fn pair(&mut self) {
        for first in 0..=255_u8 {
            let starts = [TEXT, CODED].map(|root| self.starts[root as usize][usize::from(first)]);
            let is_escape = self.begins_escape(first);
            if starts == [TEXT, CODED] && !is_escape {
                continue;
            }
            for second in 0..=255_u8 {
                let goes_on = |state: StateId| {
                    state > CODED
                        && (self.name(state).is_some()
                            || self.begins_escape(second)
                            || self.is_coded(state) && is_blank(second)
                            || self.child(state, second.to_ascii_lowercase()).is_some())
                };
                if is_escape || starts.into_iter().any(goes_on) {
                    let pair = usize::from(first) << 8 | usize::from(second);
                    self.pairs[pair / 64] |= 1 << (pair % 64);
                }
            }
        }
    }

    /// Whether a byte may stand for another one, or begin an escape that does.
    pub fn begins_escape(&self, byte: u8) -> bool {
        Escape::begin(byte).is_some() || self.has_space && byte == b'+'
    }

    fn children(&self, state: StateId) -> Vec<StateId> {
        let next = |id: &StateId| Some(self.states[*id as usize].sibling).filter(|id| *id != 0);
        let first = Some(self.states[state as usize].child).filter(|id| *id != 0);
        std::iter::successors(first, next).collect()
    }

    fn child(&self, state: StateId, symbol: u8) -> Option<StateId> {
        let mut child = self.states[state as usize].child;
        while child != 0 {
            let TrieState {
                symbol: own,
                sibling,
                ..
            } = self.states[child as usize];
            if own == symbol {
                return Some(child);
            }
            child = sibling;
        }
        None
    }

    /// The state after one symbol more.
    pub fn next(&self, state: StateId, symbol: u8) -> StateId {
        let folded = symbol.to_ascii_lowercase();
        let mut at = state;
        while at > CODED {
            if let Some(child) = self.child(at, folded) {
                return child;
            }
            at = self.states[at as usize].fail;
        }
        self.starts[at as usize][usize::from(symbol)]
    }

    /// Whether a match may begin with these two bytes.
    pub fn begins_with(&self, first: u8, second: u8) -> bool {
        let pair = usize::from(first) << 8 | usize::from(second);
        self.pairs[pair / 64] & (1 << (pair % 64)) != 0
    }

    /// The name of the longest pattern that ends here.
    pub fn name(&self, state: StateId) -> Option<&Arc<str>> {
        self.names.get(self.states[state as usize].name as usize)
    }

    /// Whether white space is no symbol here.
    pub fn is_coded(&self, state: StateId) -> bool {
        self.states[state as usize].is_coded
    }

    /// The last symbol of the state's text and the state before it; nothing at a root.
    pub fn last(&self, state: StateId) -> Option<(u8, StateId)> {
        let TrieState { symbol, parent, .. } = self.states[state as usize];
        (state > CODED).then_some((symbol, parent))
    }

    pub fn states(&self) -> usize {
        self.states.len()
    }
}
