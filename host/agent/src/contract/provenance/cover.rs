//! The parts of a short text that stand in a long one: for every place of the short one, how much of what ends there the
//! long one has. A suffix automaton of the short text reads the long one once, so time grows with the sum of both.

#[derive(Debug, Clone, Default)]
struct PartNode {
    /// Length of the longest text of this state.
    length: usize,
    link: Option<u32>,
    /// Longest text of this state that was found.
    found: usize,
    /// By letter, in order: a text may have as many letters as it is long, and most states have one that follows.
    next: Vec<(char, u32)>,
}

impl PartNode {
    fn step(&self, letter: char) -> Option<u32> {
        match self.next.as_slice() {
            [(only, to)] => (*only == letter).then_some(*to),
            next => {
                let at = next.binary_search_by_key(&letter, |(letter, _)| *letter);
                next.get(at.ok()?).map(|(_, to)| *to)
            }
        }
    }

    fn set(&mut self, letter: char, to: u32) {
        match self
            .next
            .binary_search_by_key(&letter, |(letter, _)| *letter)
        {
            Ok(at) => self.next[at].1 = to,
            Err(at) => self.next.insert(at, (letter, to)),
        }
    }
}

/// Every part of one text.
#[derive(Debug)]
pub(super) struct Parts {
    /// The first one is the empty text.
    nodes: Vec<PartNode>,
    /// The state of each beginning of the text.
    ends: Vec<u32>,
}

impl Parts {
    /// `text`: at most 2³¹ letters.
    pub(super) fn of(text: &[char]) -> Self {
        let mut parts = Self {
            nodes: vec![PartNode::default()],
            ends: Vec::with_capacity(text.len()),
        };
        let mut last = 0;
        for c in text {
            last = parts.extend(last, *c);
            parts.ends.push(last);
        }
        parts
    }

    fn node(&self, node: u32) -> &PartNode {
        &self.nodes[node as usize]
    }

    fn node_mut(&mut self, node: u32) -> &mut PartNode {
        &mut self.nodes[node as usize]
    }

    fn add(&mut self, node: PartNode) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    fn extend(&mut self, last: u32, letter: char) -> u32 {
        let new = self.add(PartNode {
            length: self.node(last).length + 1,
            ..PartNode::default()
        });
        let mut at = Some(last);
        let met = loop {
            let Some(state) = at else { break None };
            if let Some(to) = self.node(state).step(letter) {
                break Some((state, to));
            }
            self.node_mut(state).set(letter, new);
            at = self.node(state).link;
        };
        let Some((state, to)) = met else {
            self.node_mut(new).link = Some(0);
            return new;
        };
        let length = self.node(state).length + 1;
        if length == self.node(to).length {
            self.node_mut(new).link = Some(to);
            return new;
        }
        let copy = self.add(PartNode {
            length,
            found: 0,
            ..self.node(to).clone()
        });
        let mut at = Some(state);
        while let Some(state) = at.filter(|state| self.node(*state).step(letter) == Some(to)) {
            self.node_mut(state).set(letter, copy);
            at = self.node(state).link;
        }
        self.node_mut(to).link = Some(copy);
        self.node_mut(new).link = Some(copy);
        new
    }

    /// Reads a long text.
    pub(super) fn read(&mut self, text: &str) {
        let (mut at, mut length) = (0, 0);
        for c in text.chars() {
            let to = loop {
                let node = self.node(at);
                match (node.step(c), node.link) {
                    (Some(to), _) => break Some(to),
                    (None, Some(shorter)) => {
                        at = shorter;
                        length = self.node(at).length;
                    }
                    (None, None) => break None,
                }
            };
            let Some(to) = to else {
                length = 0;
                continue;
            };
            (at, length) = (to, length + 1);
            let node = self.node_mut(at);
            node.found = node.found.max(length);
        }
    }

    /// For every place of the short text, the length of the longest part of it that ends there and was found.
    pub(super) fn found(mut self) -> Vec<usize> {
        let mut order: Vec<u32> = (0..).take(self.nodes.len()).collect();
        order.sort_by_key(|node| std::cmp::Reverse(self.node(*node).length));
        for node in &order {
            let PartNode { link, found, .. } = *self.node(*node);
            if let Some(link) = link.filter(|_| found > 0) {
                // All that ends a text of this state, and is as short, was found with it.
                let link = self.node_mut(link);
                link.found = link.found.max(link.length.min(found));
            }
        }
        // Where nothing of a state was found, what was found of the next shorter one is the longest: those come first,
        // so that each state takes one step.
        for node in order.into_iter().rev() {
            let PartNode { link, found, .. } = *self.node(node);
            if let Some(link) = link.filter(|_| found == 0) {
                self.node_mut(node).found = self.node(link).found;
            }
        }
        self.ends.iter().map(|end| self.node(*end).found).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(short: &str, long: &[&str]) -> Vec<usize> {
        let letters: Vec<char> = short.chars().collect();
        let mut parts = Parts::of(&letters);
        for text in long {
            parts.read(text);
        }
        parts.found()
    }

    #[test]
    fn the_longest_part_is_found_for_every_place() {
        assert_eq!(found("abcab", &["xbcx", "ab"]), [1, 2, 2, 1, 2]);
        assert_eq!(found("abc", &[]), [0, 0, 0]);
        assert_eq!(found("", &["abc"]), [0; 0]);
    }

    /// A text of Chinese has as many different letters.
    #[test]
    fn many_letters_take_space_in_proportion() {
        let letters: Vec<char> = ('\u{4E00}'..).take(16_000).collect();
        let parts = Parts::of(&letters);
        let steps: usize = parts.nodes.iter().map(|node| node.next.len()).sum();
        assert!(parts.nodes.len() + steps <= 5 * letters.len());
    }

    proptest! {
        #[test]
        fn parts_are_those_that_a_search_finds(short in "[ab{]{0,12}", long in "[ab{x]{0,40}", more in "[ab{x]{0,9}") {
            let chars: Vec<char> = short.chars().collect();
            let naive: Vec<usize> = (1..=chars.len())
                .map(|end| {
                    let parts = (0..end).map(|from| chars[from..end].iter().collect::<String>());
                    parts.filter(|part| long.contains(part) || more.contains(part)).map(|part| part.len()).max().unwrap_or(0)
                })
                .collect();
            prop_assert_eq!(found(&short, &[&long, &more]), naive);
        }
    }
}
