//! The parts of a short text that stand in a long one: for every place of the short one, how much of what ends there the
//! long one has. A suffix automaton of the short text reads the long one once, so time grows with the sum of both.

use std::collections::HashMap;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct PartNode {
    /// Length of the longest text of this state.
    length: usize,
    link: u32,
    /// Longest text of this state that was found.
    found: usize,
}

/// Every part of one text.
#[derive(Debug)]
pub(super) struct Parts {
    nodes: Vec<PartNode>,
    /// By node and letter.
    next: Vec<u32>,
    letters: HashMap<char, usize>,
    /// The state of each beginning of the text.
    ends: Vec<u32>,
}

impl Parts {
    pub(super) fn of(text: &[char]) -> Self {
        let mut letters = HashMap::new();
        for c in text {
            let number = letters.len();
            letters.entry(*c).or_insert(number);
        }
        let root = PartNode {
            length: 0,
            link: NONE,
            found: 0,
        };
        let mut parts = Self {
            nodes: vec![root],
            next: vec![NONE; letters.len()],
            letters,
            ends: Vec::with_capacity(text.len()),
        };
        let mut last = 0;
        for c in text {
            let letter = parts.letters.get(c).copied().unwrap_or_default();
            last = parts.extend(last, letter);
            parts.ends.push(last);
        }
        parts
    }

    fn node(&self, node: u32) -> PartNode {
        let root = PartNode {
            length: 0,
            link: NONE,
            found: 0,
        };
        self.nodes.get(node as usize).copied().unwrap_or(root)
    }

    fn step(&self, node: u32, letter: usize) -> u32 {
        let at = node as usize * self.letters.len() + letter;
        self.next.get(at).copied().unwrap_or(NONE)
    }

    fn set(&mut self, node: u32, letter: usize, to: u32) {
        let at = node as usize * self.letters.len() + letter;
        if let Some(next) = self.next.get_mut(at) {
            *next = to;
        }
    }

    fn add(&mut self, length: usize, like: Option<u32>) -> u32 {
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let link = like.map_or(NONE, |like| self.node(like).link);
        self.nodes.push(PartNode {
            length,
            link,
            found: 0,
        });
        for letter in 0..self.letters.len() {
            let to = like.map_or(NONE, |like| self.step(like, letter));
            self.next.push(to);
        }
        number
    }

    fn set_link(&mut self, node: u32, link: u32) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.link = link;
        }
    }

    fn extend(&mut self, last: u32, letter: usize) -> u32 {
        let new = self.add(self.node(last).length + 1, None);
        let mut at = last;
        while at != NONE && self.step(at, letter) == NONE {
            self.set(at, letter, new);
            at = self.node(at).link;
        }
        if at == NONE {
            self.set_link(new, 0);
            return new;
        }
        let to = self.step(at, letter);
        if self.node(at).length + 1 == self.node(to).length {
            self.set_link(new, to);
            return new;
        }
        let copy = self.add(self.node(at).length + 1, Some(to));
        while at != NONE && self.step(at, letter) == to {
            self.set(at, letter, copy);
            at = self.node(at).link;
        }
        self.set_link(to, copy);
        self.set_link(new, copy);
        new
    }

    /// Reads a long text.
    pub(super) fn read(&mut self, text: &str) {
        let (mut at, mut length) = (0, 0);
        for c in text.chars() {
            let Some(letter) = self.letters.get(&c).copied() else {
                (at, length) = (0, 0);
                continue;
            };
            while at != 0 && self.step(at, letter) == NONE {
                at = self.node(at).link;
                length = self.node(at).length;
            }
            let to = self.step(at, letter);
            if to == NONE {
                (at, length) = (0, 0);
                continue;
            }
            (at, length) = (to, length + 1);
            if let Some(node) = self.nodes.get_mut(at as usize) {
                node.found = node.found.max(length);
            }
        }
    }

    /// For every place of the short text, the length of the longest part of it that ends there and was found.
    pub(super) fn found(mut self) -> Vec<usize> {
        let mut order: Vec<u32> = (0..).take(self.nodes.len()).collect();
        order.sort_by_key(|node| std::cmp::Reverse(self.node(*node).length));
        for node in order {
            let PartNode { link, found, .. } = self.node(node);
            if found > 0 && link != NONE {
                // All that ends a text of this state, and is as short, was found with it.
                let most = self.node(link).length;
                if let Some(link) = self.nodes.get_mut(link as usize) {
                    link.found = link.found.max(most.min(found));
                }
            }
        }
        let longest = |end: &u32| {
            let mut at = *end;
            while at != NONE && self.node(at).found == 0 {
                at = self.node(at).link;
            }
            self.node(at).found
        };
        self.ends.iter().map(longest).collect()
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
