//! Reads bytes as symbols in every way that escapes allow, and says where a secret ends and where it began.
//!
//! `%73` is three symbols and also one, `s`. `%2573` is five, `%73` and `s`. So the text is a graph: its nodes are the
//! places between bytes, and an edge is a symbol that leads from one node to a later one. The automaton is at a set of
//! states in each node, one for each different way that leads there. In ordinary text there is one way.
//!
//! All cost is linear: a node has at most [`MAX_READINGS`] edges and open escapes and [`MAX_THREADS`] states, and an
//! edge is at most [`MAX_ESCAPE_BYTES`] long. A text with more ways to read it is read in the first of them.

use super::automaton::{Automaton, CODED, StateId, TEXT};
use super::escapes::{Escape, EscapeStep, is_blank};
use std::collections::VecDeque;

/// Escapes inside of escapes: `%2573` is `s` escaped twice. Each level more costs a factor of three in the worst text.
const MAX_NESTING: u8 = 2;
/// Maximum bytes of an escape, with those inside of it: `\u005c\u0075\u0030\u0030\u0037\u0033` has 36.
const MAX_ESCAPE_BYTES: usize = 64;
/// Maximum number of symbols that end at one node, and of escapes that are open in it.
const MAX_READINGS: usize = 32;
/// Maximum number of states in one node.
const MAX_THREADS: usize = 64;
/// Maximum number of white space characters in a row inside of base64 and hex: a line break and an indent.
const MAX_BLANKS: u8 = 64;
/// A line break is not held back for a match of fewer symbols. Base64 of 3 characters tells 2 bytes of a secret.
const HELD_OVER_BLANKS: usize = 4;

/// One way of reading what came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    state: StateId,
    /// White space in a row that was skipped.
    blanks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenEscape {
    start: usize,
    escape: Escape,
    /// The deepest escape inside of it.
    depth: u8,
}

#[derive(Debug, Default)]
struct TextNode {
    threads: Vec<Thread>,
    open: Vec<OpenEscape>,
}

/// A symbol that leads from an earlier node to this one. A byte that stands for itself has the depth 0.
#[derive(Debug, Clone, Copy)]
struct SymbolEdge {
    start: usize,
    symbol: u8,
    depth: u8,
}

/// An escape on the way of a match.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    start: usize,
    end: usize,
    symbol: u8,
}

/// The state of reading. Nodes are numbered from the beginning of the text.
#[derive(Debug)]
pub struct Scanner {
    /// The node that was reached.
    at: usize,
    here: TextNode,
    /// The nodes before it, as far back as an open escape may begin. None if no escape is open.
    before: VecDeque<TextNode>,
    /// Decoded symbols of matches that go on, by their ends.
    decoded: VecDeque<Decoded>,
    /// The states of this node that end a pattern.
    ended: Vec<StateId>,
    edges: Vec<SymbolEdge>,
    spare: Vec<TextNode>,
}

/// Bytes from a node on.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub bytes: &'a [u8],
    pub from: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        let threads = vec![Thread::at(TEXT), Thread::at(CODED)];
        Self {
            at: 0,
            here: TextNode {
                threads,
                open: Vec::new(),
            },
            before: VecDeque::new(),
            decoded: VecDeque::new(),
            ended: Vec::new(),
            edges: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl Thread {
    fn at(state: StateId) -> Self {
        Self { state, blanks: 0 }
    }

    fn next(self, automaton: &Automaton, symbol: u8) -> Self {
        if automaton.is_coded(self.state) && is_blank(symbol) {
            return match self.state {
                CODED => self,
                _ if self.blanks == MAX_BLANKS => Self::at(CODED),
                state => Self {
                    state,
                    blanks: self.blanks + 1,
                },
            };
        }
        Self::at(automaton.next(self.state, symbol))
    }

    /// Whether nothing of a pattern was read.
    fn is_idle(self) -> bool {
        self.state <= CODED
    }
}

impl Scanner {
    /// Reads `bytes` up to the end of a pattern, and returns how many that were. [`Self::ended`] says which patterns
    /// end there.
    pub fn read(&mut self, automaton: &Automaton, bytes: &[u8]) -> usize {
        let mut read = 0;
        while read < bytes.len() {
            if self.is_idle() {
                let rest = &bytes[read..];
                let skipped = rest
                    .windows(2)
                    .position(|pair| automaton.begins_with(pair[0], pair[1]))
                    .unwrap_or(rest.len() - 1);
                self.at += skipped;
                read += skipped;
            }
            self.step(automaton, bytes[read]);
            read += 1;
            if !self.ended.is_empty() {
                break;
            }
        }
        read
    }

    /// The states that end a pattern at the node that was reached.
    pub fn ended(&self) -> &[StateId] {
        &self.ended
    }

    /// The node that was reached.
    pub fn at(&self) -> usize {
        self.at
    }

    fn is_idle(&self) -> bool {
        self.here.open.is_empty() && self.here.threads.iter().all(|thread| thread.is_idle())
    }

    fn step(&mut self, automaton: &Automaton, byte: u8) {
        self.ended.clear();
        if self.here.open.is_empty() && !automaton.begins_escape(byte) {
            self.at += 1;
            let threads = &mut self.here.threads;
            for thread in threads.iter_mut() {
                *thread = thread.next(automaton, byte);
                if automaton.name(thread.state).is_some() && thread.blanks == 0 {
                    self.ended.push(thread.state);
                }
            }
            if threads.len() > 2 {
                unique(threads);
            }
            return;
        }
        self.branch(automaton, byte);
    }

    /// Reads a byte that may be a part of escapes.
    fn branch(&mut self, automaton: &Automaton, byte: u8) {
        let start = self.at;
        let next = self.spare.pop().unwrap_or_default();
        self.before
            .push_back(std::mem::replace(&mut self.here, next));
        self.at += 1;
        let mut edges = std::mem::take(&mut self.edges);
        edges.push(SymbolEdge {
            start,
            symbol: byte,
            depth: 0,
        });
        // What an edge completes is deeper than itself, so that each is reached first in its least depth.
        for depth in 0..=MAX_NESTING {
            let mut at = 0;
            while let Some(&edge) = edges.get(at) {
                at += 1;
                if edge.depth == depth {
                    self.follow(automaton, edge, &mut edges);
                }
            }
        }
        edges.clear();
        self.edges = edges;
        let kept = if self.here.open.is_empty() {
            0
        } else {
            MAX_ESCAPE_BYTES
        };
        while self.before.len() > kept {
            let Some(mut node) = self.before.pop_front() else {
                break;
            };
            node.threads.clear();
            node.open.clear();
            self.spare.push(node);
        }
    }

    /// Goes on from an earlier node with a symbol that ends at this one. Adds the symbols that it completes.
    fn follow(&mut self, automaton: &Automaton, edge: SymbolEdge, edges: &mut Vec<SymbolEdge>) {
        let SymbolEdge {
            start,
            symbol,
            depth,
        } = edge;
        let node = &self.before[start + self.before.len() - self.at];
        if let Some(escape) = Escape::begin(symbol) {
            self.here.begin(OpenEscape {
                start,
                escape,
                depth,
            });
        }
        let mut is_of_match = false;
        for thread in &node.threads {
            let thread = thread.next(automaton, symbol);
            is_of_match |= !thread.is_idle();
            let is_new = self.here.reach(thread);
            if is_new && thread.blanks == 0 && automaton.name(thread.state).is_some() {
                self.ended.push(thread.state);
            }
        }
        if depth > 0 && is_of_match {
            self.decoded.push_back(Decoded {
                start,
                end: self.at,
                symbol,
            });
        }
        if symbol == b'+' {
            // A space in a form.
            complete(edges, start, b' ', depth);
        }
        for open in &node.open {
            let depth = depth.max(open.depth);
            match open.escape.read(symbol) {
                EscapeStep::Open(escape) if self.at - open.start < MAX_ESCAPE_BYTES => {
                    self.here.begin(OpenEscape {
                        start: open.start,
                        escape,
                        depth,
                    });
                }
                EscapeStep::Done(symbol) => complete(edges, open.start, symbol, depth),
                EscapeStep::None | EscapeStep::Open(_) => {}
            }
        }
    }

    /// The first node that may be the beginning of a match that goes on.
    pub fn undecided(&self, automaton: &Automaton, held: Held<'_>) -> usize {
        let mut from = self.at;
        self.begun(automaton, held, &self.here, self.at, &mut from);
        // An open escape goes on from its node, and so do those that are open there.
        let first = self.at - self.before.len();
        let mut seen = [false; MAX_ESCAPE_BYTES + 1];
        let mut next: Vec<usize> = self.here.open.iter().map(|open| open.start).collect();
        while let Some(start) = next.pop() {
            let Some(node) = start.checked_sub(first).and_then(|at| self.before.get(at)) else {
                continue;
            };
            if !std::mem::replace(&mut seen[start - first], true) {
                from = from.min(start);
                self.begun(automaton, held, node, start, &mut from);
                next.extend(node.open.iter().map(|open| open.start));
            }
        }
        from.max(held.from)
    }

    fn begun(
        &self,
        automaton: &Automaton,
        held: Held<'_>,
        node: &TextNode,
        at: usize,
        from: &mut usize,
    ) {
        for thread in &node.threads {
            let is_short = thread.blanks > 0 && depth(automaton, thread.state) < HELD_OVER_BLANKS;
            if !thread.is_idle() && !is_short {
                *from = (*from).min(self.began(automaton, held, thread.state, at, 0));
            }
        }
    }

    /// The earliest node from which the text of `state` leads to the node `at`, no earlier than the held bytes. The
    /// search ends where all ways lie before `enough`.
    pub fn began(
        &self,
        automaton: &Automaton,
        held: Held<'_>,
        mut state: StateId,
        at: usize,
        enough: usize,
    ) -> usize {
        let mut nodes = vec![at];
        let mut before = Vec::new();
        while let Some((symbol, parent)) = automaton.last(state) {
            if nodes.iter().all(|node| *node < enough) {
                break;
            }
            if automaton.is_coded(state) {
                let mut next = 0;
                while let Some(&node) = nodes.get(next) {
                    next += 1;
                    self.leading_to(held, node, |start, symbol| {
                        if is_blank(symbol) && !nodes.contains(&start) {
                            before.push(start);
                        }
                    });
                    nodes.append(&mut before);
                }
            }
            for node in &nodes {
                self.leading_to(held, *node, |start, other| {
                    if other.eq_ignore_ascii_case(&symbol) && !before.contains(&start) {
                        before.push(start);
                    }
                });
            }
            if before.is_empty() {
                // The rest was passed on.
                return held.from;
            }
            std::mem::swap(&mut nodes, &mut before);
            before.clear();
            state = parent;
        }
        nodes.into_iter().min().unwrap_or(at)
    }

    /// All symbols that lead to a node.
    fn leading_to(&self, held: Held<'_>, node: usize, mut each: impl FnMut(usize, u8)) {
        if node > held.from
            && let Some(byte) = held.bytes.get(node - 1 - held.from)
        {
            each(node - 1, *byte);
        }
        let first = self.decoded.partition_point(|edge| edge.end < node);
        for edge in self.decoded.range(first..) {
            if edge.end > node {
                break;
            }
            if edge.start >= held.from {
                each(edge.start, edge.symbol);
            }
        }
    }

    /// Forgets what lies before a node.
    pub fn forget(&mut self, before: usize) {
        let gone = self.decoded.partition_point(|edge| edge.end <= before);
        self.decoded.drain(..gone);
    }
}

impl TextNode {
    /// Whether the thread is new here.
    fn reach(&mut self, thread: Thread) -> bool {
        let known = self.threads.iter_mut().find(|it| it.state == thread.state);
        if let Some(known) = known {
            known.blanks = known.blanks.min(thread.blanks);
            return false;
        }
        let has_room = self.threads.len() < MAX_THREADS;
        if has_room {
            self.threads.push(thread);
        }
        has_room
    }

    fn begin(&mut self, open: OpenEscape) {
        let known = self
            .open
            .iter_mut()
            .find(|it| (it.start, it.escape) == (open.start, open.escape));
        if let Some(known) = known {
            known.depth = known.depth.min(open.depth);
        } else if self.open.len() < MAX_READINGS {
            self.open.push(open);
        }
    }
}

/// Adds a symbol that stands for symbols of `depth`, unless they are too deep.
fn complete(edges: &mut Vec<SymbolEdge>, start: usize, symbol: u8, depth: u8) {
    if depth == MAX_NESTING {
        return;
    }
    let depth = depth + 1;
    let known = edges
        .iter_mut()
        .find(|it| (it.start, it.symbol) == (start, symbol));
    if let Some(known) = known {
        known.depth = known.depth.min(depth);
    } else if edges.len() < MAX_READINGS {
        edges.push(SymbolEdge {
            start,
            symbol,
            depth,
        });
    }
}

fn unique(threads: &mut Vec<Thread>) {
    let mut kept = 0;
    for at in 0..threads.len() {
        let thread = threads[at];
        match threads[..kept]
            .iter_mut()
            .find(|it| it.state == thread.state)
        {
            Some(known) => known.blanks = known.blanks.min(thread.blanks),
            None => {
                threads[kept] = thread;
                kept += 1;
            }
        }
    }
    threads.truncate(kept);
}

fn depth(automaton: &Automaton, state: StateId) -> usize {
    let texts = std::iter::successors(automaton.last(state), |(_, state)| automaton.last(*state));
    texts.take(HELD_OVER_BLANKS).count()
}
