//! The calls of a step that wait for each other, or for what nothing brings any more, and why, in words.

use super::{CallProgress, Schedule};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::Path;

/// What a blocked call waits for.
struct Hold {
    /// Another blocked call.
    by: usize,
    /// Place that that one will write and the call reads; absent where the call only comes behind it.
    path: Option<Path>,
}

impl Schedule {
    /// Breaks a circle of waiting calls, where no call runs: one call passes the blocked calls before it that wait for it,
    /// directly or through others. It still waits behind the others. Returns false if there is no circle.
    pub fn let_pass(&mut self, data: &Data) -> bool {
        let blocked = |index: &usize| self.is_blocked(*index);
        let passes = |index: &usize| {
            let node = self.nodes.get(*index);
            node.is_some_and(|node| node.could_read(data))
        };
        let mut calls = 0..self.nodes.len();
        if self.is_running() || !calls.any(|index| blocked(&index) && passes(&index)) {
            return false;
        }
        let held_by: HashMap<usize, usize> = (0..self.nodes.len())
            .filter(blocked)
            .filter_map(|index| Some((index, self.held_up_by(index, data)?.by)))
            .collect();
        let circles = circles(&held_by).into_iter();
        let first = circles.filter_map(|circle| circle.into_iter().filter(passes).min());
        let Some(first) = first.min() else {
            return false;
        };
        let waiting = waiting_for(first, &held_by);
        let (mut passed, mut passes_some) = (Vec::new(), false);
        if let Some(node) = self.nodes.get_mut(first) {
            let behind = node.behind.iter().copied();
            passed.extend(behind.filter(|index| waiting.contains(index)));
            node.behind.retain(|index| !waiting.contains(index));
            // Alternatives of what it reads that only come when it is over.
            let mut has_dropped = false;
            let alternatives = node.reads.iter_mut().filter(|_| self.rules.are_from_4());
            for waits in alternatives.flat_map(|read| &mut read.waits) {
                has_dropped |= waits.iter().any(|index| waiting.contains(index));
                waits.retain(|index| !waiting.contains(index));
            }
            node.held_by = None;
            passes_some = has_dropped || !passed.is_empty();
        }
        self.pass(first, passed);
        passes_some
    }

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
        // Those first that others let go before them: what others then write may be what the rest lacks.
        let awaited: HashSet<usize> = blocked
            .iter()
            .flat_map(|index| self.behind(*index, data))
            .collect();
        if ended.iter().any(|index| awaited.contains(index)) {
            ended.retain(|index| awaited.contains(index));
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
            let held_by = self.held_up_by(*index, data).map(|hold| hold.by);
            if held_by.is_none() {
                free.push(*index);
            }
            if let Some(node) = self.nodes.get_mut(*index) {
                node.held_by = held_by;
            }
        }
        free
    }

    /// Place that a blocked call waits for and that another blocked call will write, or else the call that it comes behind.
    fn held_up_by(&self, index: usize, data: &Data) -> Option<Hold> {
        let node = self.nodes.get(index)?;
        let instance = node.instance.as_deref();
        let is_other = |writer: &usize| *writer != index && self.is_blocked(*writer);
        if let Some(writer) = node.after.iter().copied().find(|writer| is_other(writer)) {
            let path = self.nodes.get(writer)?.writes.first().cloned();
            return Some(Hold { by: writer, path });
        }
        let mut unready = node
            .reads
            .iter()
            .filter(|read| !read.is_ready(data, instance, self.rules));
        let written = unready.find_map(|read| {
            let lacks_all = !read.could_be(data, instance);
            let mut paths = read
                .source
                .paths()
                .iter()
                .zip(&read.waits)
                .zip(&read.spoiled);
            paths.find_map(|((path, waits), spoiled)| {
                // Of those that come after it, a reader knows nothing yet. None of them replaces what there is, or what an
                // earlier call should have written.
                let later = || self.writers(path, instance).find(|writer| is_other(writer));
                let is_open = spoiled.is_none() || !waits.is_empty();
                let is_awaited = !self.rules.are_from_4()
                    || (lacks_all && is_open && !data.contains(path, instance));
                let writer = waits.iter().copied().find(|writer| is_other(writer));
                let by = writer.or_else(|| is_awaited.then(later).flatten())?;
                let path = Some(path.clone());
                Some(Hold { by, path })
            })
        });
        written.or_else(|| {
            let mut behind = self.behind(index, data);
            let by = behind.find(|earlier| is_other(earlier))?;
            Some(Hold { by, path: None })
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
            .filter(|read| !read.is_ready(data, instance, self.rules))
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
    fn circle(&self, start: usize, data: &Data) -> Vec<(Option<Path>, usize)> {
        let mut walked: Vec<(Option<Path>, usize)> = Vec::new();
        let mut place_of = HashMap::new();
        let mut at = start;
        loop {
            if let Some(first) = place_of.insert(at, walked.len()) {
                return walked.split_off(first);
            }
            let Some(hold) = self.held_up_by(at, data) else {
                return Vec::new();
            };
            walked.push((hold.path, at));
            at = hold.by;
        }
    }

    /// "a → †state.x → b → †state.y → a", in the direction of the data.
    fn drawn(&self, circle: &[(Option<Path>, usize)]) -> String {
        let name = |index: usize| self.nodes.get(index).map_or("", |node| node.name.as_str());
        let mut text = String::from("the calls wait for each other in a circle: ");
        if let Some((_, first)) = circle.first() {
            text.push_str(name(*first));
        }
        for (path, reader) in circle.iter().rev() {
            if let Some(path) = path {
                let _ = write!(text, " → {path}");
            }
            let _ = write!(text, " → {}", name(*reader));
        }
        text
    }
}

/// The circles of calls that wait for each other, of what each waits for.
fn circles(held_by: &HashMap<usize, usize>) -> Vec<Vec<usize>> {
    let (mut circles, mut seen) = (Vec::new(), HashSet::new());
    for start in held_by.keys() {
        let (mut walked, mut at) = (Vec::new(), *start);
        while seen.insert(at) {
            walked.push(at);
            match held_by.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        // Or else it came to a call that an earlier walk has seen, or to one that waits for none.
        let first = walked.iter().position(|index| *index == at);
        if let Some(first) = first.filter(|_| held_by.contains_key(&at)) {
            circles.push(walked.split_off(first));
        }
    }
    circles
}

/// The calls that wait for this one, also through others.
fn waiting_for(call: usize, held_by: &HashMap<usize, usize>) -> HashSet<usize> {
    let mut held_up: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, by) in held_by {
        held_up.entry(*by).or_default().push(*index);
    }
    let (mut waiting, mut next) = (HashSet::new(), vec![call]);
    while let Some(at) = next.pop() {
        let by_this = held_up.get(&at).into_iter().flatten();
        next.extend(by_this.copied().filter(|index| waiting.insert(*index)));
    }
    waiting
}
