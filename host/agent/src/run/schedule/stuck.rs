//! The calls of a step that nothing can unblock any more, and why, in words.

use super::{CallProgress, Schedule};
use std::collections::HashMap;
use std::fmt::Write as _;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::Path;

impl Schedule {
    /// Ends the next calls that nothing can unblock any more, each with the reason, in words that say which
    /// path is missing and why. Those that only wait for others come after these: a failure may have a place
    /// of its own that another call reads.
    pub fn give_up(&mut self, data: &Data) -> Vec<(usize, String)> {
        let blocked: Vec<usize> = (0..self.nodes.len())
            .filter(|index| self.is_blocked(*index))
            .collect();
        let mut ended = self.not_held_up(&blocked, data);
        if ended.is_empty() {
            // Some may wait for another call by now, or for none.
            for node in &mut self.nodes {
                node.held_by = None;
            }
            ended = self.not_held_up(&blocked, data);
        }
        let mut circle = None;
        if ended.is_empty()
            && let Some(first) = blocked.first()
        {
            let links = self.circle(*first, data);
            ended = links.iter().map(|(_, reader)| *reader).collect();
            circle = Some(self.drawn(&links));
        }
        let reasons = ended
            .iter()
            .map(|index| {
                let reason = circle.clone().unwrap_or_else(|| self.reason(*index, data));
                (*index, reason)
            })
            .collect();
        for index in ended {
            if let Some(node) = self.nodes.get_mut(index) {
                node.state = CallProgress::Done;
            }
        }
        reasons
    }

    /// Those of the `blocked` calls that wait for no other of them.
    fn not_held_up(&mut self, blocked: &[usize], data: &Data) -> Vec<usize> {
        let mut free = Vec::new();
        for index in blocked {
            let known = self.nodes.get(*index).and_then(|node| node.held_by);
            if known.is_some_and(|writer| self.is_blocked(writer)) {
                continue;
            }
            let held_by = self.held_up_by(*index, data).map(|(_, writer)| writer);
            if held_by.is_none() {
                free.push(*index);
            }
            if let Some(node) = self.nodes.get_mut(*index) {
                node.held_by = held_by;
            }
        }
        free
    }

    /// The paths that a blocked call waits for and another blocked call will write.
    fn held_up_by(&self, index: usize, data: &Data) -> Option<(Path, usize)> {
        let node = self.nodes.get(index)?;
        let instance = node.instance.as_deref();
        let is_other = |writer: &usize| *writer != index && self.is_blocked(*writer);
        if let Some(writer) = node.after.iter().copied().find(|writer| is_other(writer)) {
            let path = self.nodes.get(writer)?.writes.first()?;
            return Some((path.clone(), writer));
        }
        let unready = node
            .reads
            .iter()
            .filter(|read| !read.is_ready(data, instance));
        unready
            .flat_map(|read| read.source.paths().iter().zip(&read.waits))
            .find_map(|(path, waits)| {
                // Of those that come after it, a reader knows nothing yet.
                let writer = waits.iter().copied().find(|writer| is_other(writer));
                let writer =
                    writer.or_else(|| self.writers(path, instance).find(|writer| is_other(writer)));
                Some((path.clone(), writer?))
            })
    }

    fn reason(&self, index: usize, data: &Data) -> String {
        let Some(node) = self.nodes.get(index) else {
            return String::new();
        };
        let instance = node.instance.as_deref();
        let mut reasons = Vec::new();
        for read in node
            .reads
            .iter()
            .filter(|read| !read.is_ready(data, instance))
        {
            if let Err(missing) = data.resolve(&read.source, instance) {
                reasons.push(missing.to_string());
            }
            for (path, spoiled) in read.source.paths().iter().zip(&read.spoiled) {
                let writer = spoiled.or_else(|| self.failure_at(path, instance));
                if let Some(writer) = writer.and_then(|writer| self.nodes.get(writer)) {
                    reasons.push(format!(
                        "{} should have written {path} and did not",
                        writer.name
                    ));
                }
            }
        }
        format!("it could not run: {}", reasons.join("; "))
    }

    /// The circle that a call waits in or for, each reader with what it reads; empty if there is none.
    fn circle(&self, start: usize, data: &Data) -> Vec<(Path, usize)> {
        let mut walked: Vec<(Path, usize)> = Vec::new();
        let mut place_of = HashMap::new();
        let mut at = start;
        loop {
            if let Some(first) = place_of.insert(at, walked.len()) {
                return walked.split_off(first);
            }
            let Some((path, writer)) = self.held_up_by(at, data) else {
                return Vec::new();
            };
            walked.push((path, at));
            at = writer;
        }
    }

    /// "a → †state.x → b → †state.y → a", in the direction of the data.
    fn drawn(&self, circle: &[(Path, usize)]) -> String {
        let name = |index: usize| self.nodes.get(index).map_or("", |node| node.name.as_str());
        let mut text = String::from("the calls wait for each other in a circle: ");
        if let Some((_, first)) = circle.first() {
            text.push_str(name(*first));
        }
        for (path, reader) in circle.iter().rev() {
            let _ = write!(text, " → {path} → {}", name(*reader));
        }
        text
    }
}
